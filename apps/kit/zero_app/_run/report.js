// Films: pictures that buttons, arrow keys and a slider go through.
"use strict";
let touched = 0, used = null;

async function begin(film) {
  const packed = film.querySelector("template").content.textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const [pictures, captions, seconds] = await new Response(stream).json();
  const stage = film.querySelector(".stage"), said = film.querySelector(".said");
  const slider = film.querySelector("input"), play = film.querySelector("[data-by=play]");
  const last = pictures.length - 1;
  slider.max = last;
  let shown = 0, timer = 0;

  function show(number) {
    shown = Math.min(Math.max(number, 0), last);
    stage.innerHTML = pictures[shown];
    said.textContent = captions[shown] || `${shown} of ${last}`;
    slider.value = shown;
  }
  function label(word) {
    play.textContent = word;
    play.setAttribute("aria-label", word);
  }
  function stop() {
    clearTimeout(timer);
    timer = 0;
    label("play");
  }
  function next() {
    if (shown === last) return stop();
    timer = setTimeout(() => { touched = Date.now(); show(shown + 1); next(); }, 1000 * seconds[shown]);
  }
  const moves = {
    start: () => show(0),
    back: () => show(shown - 1),
    on: () => show(shown + 1),
    end: () => show(last),
    slide: () => show(Number(slider.value)),
    play: () => {
      if (shown === last) show(0);
      label("stop");
      next();
    },
  };
  film.go = (by) => {
    const playing = timer !== 0;
    touched = Date.now();
    used = film;
    stop();
    if (by !== "play" || !playing) moves[by]();
  };
  film.addEventListener("click", (event) => {
    const by = event.target.dataset.by;
    if (by) film.go(by);
  });
  slider.addEventListener("input", () => film.go("slide"));
  show(0);
}

const KEYS = { ArrowLeft: "back", ArrowRight: "on", Home: "start", End: "end", " ": "play" };
document.addEventListener("keydown", (event) => {
  const by = KEYS[event.key], at = event.target;
  if (!by || event.ctrlKey || event.altKey || event.metaKey || at.matches("input, button")) return;
  const inside = at.closest(".film");
  const film = inside || (event.key.startsWith("Arrow") ? used : null);
  if (!film || !film.go) return;
  event.preventDefault();
  film.go(by);
});
for (const film of document.querySelectorAll(".film")) begin(film).catch(() => {
  film.querySelector(".said").textContent = "These pictures are damaged.";
});

// The page of a run that goes on is written again; whoever plays a film is not disturbed.
const every = 1000 * Number(document.body.dataset.refresh || 0);
if (every) setInterval(() => { if (Date.now() - touched > every) location.reload(); }, every);

// The page of `serve`. The server keeps no game: the list of moves is here, and each question sends it.

const BLUNDER = 0.2; // of the winning chance
const WORTH_SHOWING = 0.02; // of the search, on the board
const $ = (id) => document.getElementById(id);
const token = location.hash.slice(1);

let about; // what the game is
let shown; // the last position that was answered
let answered = 0; // the number of moves before it
let thought = null; // what the player thinks of it
let moves = [];
let seed = 0;
let turn = 0; // counts what the person does, so that late answers are known
let focused = 0; // the cell that the keyboard is at
// By the number of moves before it: whose turn it is, and the winning chance of who moved first.
let sides = [];
let chances = [];

function make(kind, text = "", className = "") {
  const element = document.createElement(kind);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function say(text, alert = false) {
  $("status").textContent = text;
  $("status").classList.toggle("alert", alert);
}

const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
const chance = (value) => (1 + value / about.max_value) / 2;
const simulations = () => Number($("strength").value);
const person = () => ($("side").value === "both" ? null : Number($("side").value));
const isPersons = (side) => person() === null || person() === side;
const who = (side) => (person() === null ? about.sides[side] : isPersons(side) ? "You" : "The player");

// ---- the server

async function fetched(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  for (;;) {
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch {
      throw new Error("The server does not answer: is it still running?");
    }
    if (response.status === 503) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
      continue;
    }
    const answer = await response.json().catch(() => ({ error: "no answer that can be read" }));
    if (!response.ok) throw new Error(`The server says: ${answer.error}`);
    return answer;
  }
}

function ask(list, think) {
  const question = { moves: list, simulations: simulations(), think, seed };
  return fetched("api/position", { method: "POST", body: JSON.stringify(question) });
}

let searching = 0;

/** Answers to questions that were asked before may still be under way: no more than two at a time. */
async function askThoughts(list, now) {
  while (searching >= 2) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    if (now !== turn) return null;
  }
  searching += 1;
  try {
    return await ask(list, true);
  } finally {
    searching -= 1;
  }
}

// ---- a game

function remember(list, answer) {
  if (list.some((move, i) => move !== moves[i])) return; // of a game that was taken back
  const n = list.length;
  sides[n] = answer.side;
  if (answer.over) chances[n] = answer.winner === null ? 0.5 : 1 - answer.winner;
  if (answer.thought) {
    const own = chance(answer.thought.value);
    chances[n] = answer.side === 0 ? own : 1 - own;
  }
  drawCurve();
}

async function refresh(spoken = "") {
  const now = ++turn;
  const list = [...moves];
  try {
    const answer = await ask(list, false);
    if (now !== turn) return;
    shown = answer;
    answered = list.length;
    thought = null;
    remember(list, answer);
    draw();
    if (answer.over) {
      say(`${spoken} ${outcome(answer.winner)}`.trim());
    } else {
      const mine = isPersons(answer.side);
      const turnOf = mine ? (person() === null ? `${about.sides[answer.side]} to move.` : "Your move.") : "The player thinks …";
      const first = answer.compiled ? "" : "The first search at this strength is compiled, which takes a while.";
      say(`${spoken} ${turnOf} ${first}`.trim());
      await consider(now, list, spoken);
    }
    if (now === turn) await fill(now);
  } catch (error) {
    if (now !== turn) return;
    moves.length = Math.min(moves.length, answered); // without what was not answered
    say(error.message, true);
  }
}

async function consider(now, list, spoken) {
  const answer = await askThoughts(list, now);
  if (answer) remember(list, answer);
  if (now !== turn) return;
  thought = answer.thought;
  if (isPersons(answer.side)) {
    draw();
    if (!shown.compiled) say(`${spoken} ${person() === null ? about.sides[answer.side] + " to move." : "Your move."}`.trim());
    shown.compiled = true;
  } else {
    moves.push(thought.move);
    await refresh(`The player plays ${thought.move}.`);
  }
}

/** Values of positions that nobody has thought about yet, as those of a loaded game. */
async function fill(now) {
  for (let n = 0; n < moves.length && now === turn; n++) {
    if (chances[n] !== undefined) continue;
    const list = moves.slice(0, n);
    const answer = await askThoughts(list, now);
    if (now === turn) remember(list, answer);
  }
}

function outcome(winner) {
  if (winner === null) return "The game is over: a draw.";
  const won = person() === null ? `${about.sides[winner]} wins` : winner === person() ? "you win" : "you lose";
  return `The game is over: ${won}.`;
}

function play(move) {
  if (!shown || shown.over || answered !== moves.length) return;
  if (!isPersons(shown.side)) return say("It is the player's turn.");
  if (!shown.legal.includes(move)) return say(`${move || "This"} is not a legal move now.`, true);
  moves.push(move);
  refresh(`${who(shown.side)} ${person() === null ? "plays" : "play"} ${move}.`);
}

function start(list = [], newSeed = about.chance ? Math.floor(Math.random() * 2 ** 31) : 0) {
  moves = list;
  seed = newSeed;
  sides = [];
  chances = [];
}

function undo() {
  if (!moves.length) return say("There is no move to take back.");
  const taken = moves.pop();
  // The player's reply and the person's move before it.
  while (moves.length && !isPersons(sides[moves.length] ?? moves.length % 2)) moves.pop();
  sides.length = chances.length = Math.min(chances.length, moves.length + 1);
  refresh(`Taken back to before ${moves.length ? `move ${moves.length + 1}` : taken && "the first move"}.`);
}

function text() {
  return [...(about.chance ? [`seed:${seed}`] : []), ...moves].join(" ");
}

async function load() {
  const words = $("text").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  let other = 0;
  if (words[0]?.startsWith("seed:")) other = Number(words.shift().slice(5)) || 0;
  const before = [moves, seed, sides, chances];
  turn += 1; // what is under way belongs to the game before
  start(words, other);
  try {
    await ask(words, false);
    refresh(`Loaded ${words.length} moves.`);
  } catch (error) {
    [moves, seed, sides, chances] = before;
    refresh(error.message);
  }
}

// ---- what is seen

function build() {
  const board = $("board");
  $("title").textContent = document.title = about.title;
  board.className = `${about.style} ${about.style === "squares" && about.sides[0] === "black" ? "felt" : ""}`;
  const { rows, columns } = about;
  const hexagons = about.style === "hexagons";
  board.style.setProperty("--rows", rows || 1);
  board.style.setProperty("--columns", columns || 1);
  board.style.setProperty("--half", hexagons ? rows - 1 : 0);
  for (const [i, name] of about.sides.entries()) $("side").append(new Option(`${name}, ${i ? "second" : "first"}`, i));
  $("side").append(new Option("both sides", "both"));
  for (const n of about.strengths) $("strength").append(new Option(n ? `${n} simulations` : "network alone", n));
  $("strength").value = about.strengths[Math.min(2, about.strengths.length - 1)];
  $("by-name").hidden = about.style !== "picture";
  if (about.style !== "picture") buildCells(board);
}

let names = []; // what is played by each cell

function buildCells(board) {
  const { rows, columns, places } = about;
  names = Array(rows * columns).fill("");
  for (const [name, cells] of Object.entries(places)) for (const cell of cells) names[cell] = name;
  const upright = about.style === "holes";
  const label = (content, row, column) => {
    const element = make("span", content, "label side");
    element.setAttribute("aria-hidden", "true");
    element.style.gridRow = row;
    element.style.gridColumn = column;
    element.style.setProperty("--row", Math.max(0, row - 2));
    board.append(element);
  };
  for (let c = 0; c < columns; c++) label(upright ? names[c] : names[c].replace(/\d+$/, ""), 1, c + 2);
  if (!upright) for (let r = 0; r < rows; r++) label(names[r * columns].replace(/^\D+/, ""), r + 2, 1);
  for (let i = 0; i < rows * columns; i++) {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const cell = make("button", "", "cell");
    cell.type = "button";
    cell.dataset.cell = i;
    cell.tabIndex = i ? -1 : 0;
    cell.style.gridRow = row + 2;
    cell.style.gridColumn = column + 2;
    cell.style.setProperty("--row", row);
    for (const [edge, at] of [["north", row === 0], ["south", row === rows - 1], ["west", column === 0], ["east", column === columns - 1]])
      cell.classList.toggle(edge, at);
    cell.addEventListener("click", () => (focus(i, false), play(names[i])));
    board.append(cell);
  }
}

function focus(i, moveThere = true) {
  for (const cell of document.querySelectorAll(".cell")) cell.tabIndex = Number(cell.dataset.cell) === i ? 0 : -1;
  focused = i;
  if (moveThere) document.querySelector(`.cell[data-cell="${i}"]`).focus();
}

function draw() {
  const analysis = $("analysis").checked ? thought : null;
  if (about.style === "picture") drawPicture();
  else drawCells(analysis);
  drawOthers();
  drawThought(analysis);
  $("undo").disabled = !moves.length;
  if (document.activeElement !== $("text")) $("text").value = text();
}

/** The cell where a move would be seen: the lowest empty one of a column. */
function target(name) {
  return about.places[name].filter((cell) => !shown.cells[cell]).at(-1);
}

function drawCells(analysis) {
  const mine = isPersons(shown.side);
  const ideas = new Map((analysis?.moves ?? []).map((idea) => [idea.name, idea]));
  const targets = new Map(shown.legal.map((name) => [target(name), name]));
  for (const cell of document.querySelectorAll(".cell")) {
    const i = Number(cell.dataset.cell);
    const stone = shown.cells[i];
    const name = targets.get(i);
    const idea = ideas.get(name);
    const legal = shown.legal.includes(names[i]);
    const at = about.style === "holes" ? `column ${names[i]}, row ${about.rows - Math.floor(i / about.columns)}` : names[i];
    const what = stone ? about.sides[stone - 1] : "empty";
    const said = idea ? `, ${percent(idea.weight)} of the search` : "";
    cell.setAttribute("aria-label", `${at}: ${what}${i === shown.last ? ", last move" : ""}${legal && mine ? ", legal" : ""}${said}`);
    cell.setAttribute("aria-disabled", String(!(legal && mine)));
    cell.toggleAttribute("data-legal", legal && mine);
    cell.classList.toggle("last", i === shown.last);
    cell.classList.toggle("best", Boolean(idea) && name === analysis.move);
    cell.replaceChildren();
    if (stone) cell.append(make("span", "", `stone ${about.sides[stone - 1]}`));
    if (idea && (idea.weight >= WORTH_SHOWING || name === analysis.move)) cell.append(drawIdea(idea));
    else if (name && mine) cell.append(make("span", "", "hint"));
  }
}

function drawIdea(idea) {
  const element = make("span", percent(idea.weight), "idea");
  element.style.setProperty("--weight", idea.weight.toFixed(3));
  if (idea.value !== null) element.append(make("small", percent(chance(idea.value))));
  return element;
}

let picture = "";

function drawPicture() {
  const image = $("board").querySelector("img") ?? $("board").appendChild(new Image());
  URL.revokeObjectURL(picture);
  picture = URL.createObjectURL(new Blob([shown.svg], { type: "image/svg+xml" }));
  image.src = picture;
  image.alt = `The board after ${moves.length} moves${moves.length ? `, the last one ${moves.at(-1)}` : ""}`;
}

/** Moves without a cell, such as a pass; of a picture all. */
function drawOthers() {
  const apart = shown.legal.filter((name) => !about.places[name]?.length);
  const buttons = apart.map((name) => {
    const button = make("button", name);
    button.disabled = !isPersons(shown.side);
    button.setAttribute("aria-label", `Play ${name}`);
    button.addEventListener("click", () => play(name));
    return button;
  });
  $("others").replaceChildren(...buttons);
  $("legal").replaceChildren(...apart.map((name) => new Option(name)));
}

function drawThought(analysis) {
  $("thoughts").hidden = !$("analysis").checked;
  if (!analysis) {
    $("value").textContent = shown.over ? "The game is over." : "…";
    $("line").textContent = "";
    $("candidates").replaceChildren();
    return;
  }
  $("value").textContent = `${about.sides[shown.side]} to move, winning chance ${percent(chance(analysis.value))}.`;
  $("line").textContent = analysis.line.length ? `Expected: ${analysis.line.join(" ")}` : "";
  const played = (idea) => Number(idea.name === analysis.move);
  const best = [...analysis.moves]
    .sort((a, b) => played(b) - played(a) || b.weight - a.weight || b.prior - a.prior)
    .slice(0, 20);
  const rows = best.map((idea) => {
    const row = make("tr", "", idea.name === analysis.move ? "played" : "");
    const wins = idea.value === null ? "–" : percent(chance(idea.value));
    for (const entry of [idea.name, idea.visits || "–", percent(idea.weight), wins, percent(idea.prior)]) row.append(make("td", entry));
    return row;
  });
  $("candidates").replaceChildren(...rows);
}

/** The numbers of moves that cost their player much of the winning chance. */
function blunders() {
  return moves.map((_, n) => n).filter((n) => {
    if (chances[n] === undefined || chances[n + 1] === undefined) return false;
    const loss = (chances[n] - chances[n + 1]) * (sides[n] === 0 ? 1 : -1);
    return loss >= BLUNDER;
  });
}

function svg(kind, attributes, content = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = content;
  return element;
}

function drawCurve() {
  const bad = blunders();
  const x = (n) => 8 + (304 * n) / Math.max(moves.length, 10);
  const y = (share) => 116 - 102 * share;
  const known = chances.map((share, n) => [n, share]).filter(([n, share]) => share !== undefined && n <= moves.length);
  const parts = [
    svg("line", { class: "middle", x1: 8, x2: 312, y1: y(0.5), y2: y(0.5) }),
    svg("text", { x: 8, y: 10 }, `${about.sides[0]} wins`),
    svg("text", { x: 8, y: 128 }, `${about.sides[1]} wins`),
    svg("polyline", { class: "value", points: known.map(([n, share]) => `${x(n)},${y(share)}`).join(" ") }),
  ];
  if (known.length) {
    const [n, share] = known.at(-1);
    parts.push(svg("circle", { class: "dot", cx: x(n), cy: y(share), r: 3 }));
  }
  for (const n of bad) {
    const mark = svg("circle", { class: "blunder", cx: x(n + 1), cy: y(chances[n + 1]), r: 5 });
    mark.append(svg("title", {}, `${n + 1}. ${moves[n]}`));
    parts.push(mark);
  }
  $("curve").replaceChildren(...parts);
  const said = bad.map((n) => `${n + 1}. ${moves[n]}`).join(", ");
  const now = known.length ? `winning chance of ${about.sides[0]} ${percent(known.at(-1)[1])}` : "no value yet";
  $("curve").setAttribute("aria-label", `Winning chance over ${moves.length} moves: now ${now}`);
  $("curve-note").textContent = `${now[0].toUpperCase()}${now.slice(1)}. ${said ? `Blunders (${percent(BLUNDER)} or more lost): ${said}.` : ""}`;
  $("moves").replaceChildren(
    ...moves.map((move, n) => make("li", `${n + 1}. ${move}${bad.includes(n) ? " ?" : ""}`, bad.includes(n) ? "blunder" : "")),
  );
}

// ---- what the person does

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !about) return;
  if (event.target.matches("textarea, select, input:not([type=checkbox])")) return;
  const step = STEPS[event.key];
  if (step && about.rows) {
    const row = Math.min(about.rows - 1, Math.max(0, Math.floor(focused / about.columns) + step[0]));
    const column = Math.min(about.columns - 1, Math.max(0, (focused % about.columns) + step[1]));
    event.preventDefault();
    focus(about.columns * row + column);
  } else if (event.key === "u") undo();
  else if (event.key === "n") newGame();
});

function newGame() {
  start();
  refresh("A new game.");
}

$("new").addEventListener("click", newGame);
$("undo").addEventListener("click", undo);
$("side").addEventListener("change", () => refresh());
$("strength").addEventListener("change", () => refresh());
$("analysis").addEventListener("change", () => shown && draw());
$("load").addEventListener("click", load);
$("copy").addEventListener("click", async () => {
  $("text").select();
  try {
    await navigator.clipboard.writeText($("text").value);
    say("The moves are copied.");
  } catch {
    say("The moves are selected: copy them with the keyboard.");
  }
});
$("by-name").addEventListener("submit", (event) => {
  event.preventDefault();
  play($("move").value.trim().toLowerCase());
  $("move").value = "";
});

try {
  about = await fetched("api/game");
  build();
  newGame();
} catch (error) {
  say(error.message, true);
}

// The page of `serve`. The server keeps no game: the moves are here, and each question sends them.

import { fetched, inTurn } from "./api.js";
import { buildCells, chance, drawCells, legend, outlook, told } from "./board.js";
import { curve, make, percent } from "./draw.js";
import { aroundZeros, opened } from "./mines.js";

const BLUNDER = 0.2; // of the winning chance
const BUSY = "The server is busy. The page goes on asking.";
const PATIENCE = 5; // tries, after which the page says so
const $ = (id) => document.getElementById(id);

let games; // what is served
let about; // the one of them that is played
let game; // as `start` makes it
let shown; // its ply that is drawn: the last one that was answered
let turn = 0; // counts what the person does, so that late answers are known
let focused = 0; // the cell that the keyboard is at
let selected = null; // the cell of the piece that is to be moved
let choosing = []; // moves between the same cells, of which one is asked for

function say(text, alert = false) {
  if ($("status").textContent !== text) $("status").textContent = text; // equal words would be read out again
  $("status").classList.toggle("alert", alert);
}

/** Says something in the place of `old`, unless the person did something since, which was answered. */
function replace(old, text, alert) {
  if ([old, BUSY].includes($("status").textContent)) say(text, alert);
}

/** The answer to a question, which a busy server is asked again until the person does something else;
    then it is null. */
function answerTo(path, question, awaited = true) {
  const now = turn;
  return fetched(path, question, (tries) => {
    if (now === turn && awaited && tries === PATIENCE) say(BUSY, true);
    return now === turn;
  });
}

const simulations = () => Number($("strength").value);
const person = () => (about.alone ? 0 : $("side").value === "both" ? null : Number($("side").value));
const isPersons = (side) => person() === null || person() === side;
const who = (side) => (person() === null ? about.sides[side] : isPersons(side) ? "You" : "The player");
const advised = () => $("analysis").checked;
const pathTo = (what) => `api/${games.indexOf(about)}/${what}`;

// ---- a game and its plies

/** A position: the move that led to it, and whether that was a move of the person's own or of a loaded
    game. It gets the server's answer, and by strength the player's thoughts. */
const newPly = (move, own) => ({ move, own, thoughts: new Map() });
const here = () => game.plies.at(-1);
const thoughtOf = (ply) => ply.thoughts.get(simulations()) ?? null;
/** What is shown: of a game alone the exact risks, until the search has its own thoughts. */
const adviceOn = (ply) => thoughtOf(ply) ?? (about.alone ? ply.thoughts.get(0) : null) ?? null;
const wasPlayed = ({ plies }) => plies.some(({ own }) => own);

/** `terms` are what a game begins with and every question says: its seed, and a komi and a handicap that were loaded. */
function start(list = [], terms = { seed: 0 }) {
  const before = game && (wasPlayed(game) ? game : game.before); // which `undo` brings back
  const plies = [newPly("", false), ...list.map((move) => newPly(move, true))];
  game = { about, terms, before, flags: new Set(), plies };
}

/** The winning chance of who moved first, as the player of the chosen strength thinks. */
function chanceOf(ply) {
  if (ply.over && about.points) return chance(about, ply.total);
  if (ply.over) return ply.winner === null ? 0.5 : 1 - ply.winner;
  const value = thoughtOf(ply)?.value ?? null;
  if (value === null) return undefined;
  return ply.side === 0 ? chance(about, value) : 1 - chance(about, value);
}

/** Of a move in a game alone: its risk, which is exact at every strength, and whether another cell was safe. */
function taken(n) {
  const [thought] = game.plies[n].thoughts.values();
  const risk = thought?.moves.find(({ name }) => name === game.plies[n + 1].move)?.risk ?? null;
  return { risk, needless: risk > 0 && thought.moves.some((idea) => idea.risk === 0) };
}

/** Fills in a ply, which may have been taken back meanwhile. */
async function ask(ply, think, strength = simulations()) {
  const { plies, terms } = game;
  const moves = plies.slice(1, plies.indexOf(ply) + 1).map(({ move }) => move);
  const question = { moves, simulations: strength, think, ...terms };
  const answer = await answerTo(pathTo("position"), question, ply === here());
  if (!answer) return;
  const { thought, ...position } = answer;
  Object.assign(ply, position);
  if (thought) ply.thoughts.set(strength, thought);
  drawCurve();
}

const askThoughts = (ply, now) => inTurn(() => ask(ply, true), () => now !== turn);

async function refresh(spoken = "", opening = false, alert = false) {
  const [now, ply, before] = [++turn, here(), $("status").textContent];
  selected = null;
  choosing = [];
  if (ply.legal) {
    shown = ply;
    draw();
  }
  try {
    await ask(ply, false);
    if (now !== turn) return;
    shown = ply;
    const more = opening && !ply.over ? aroundZeros(about, ply, game.flags) : [];
    if (more.length) {
      game.plies.push(...more.map((move) => newPly(move, false)));
      return await refresh(spoken, true, alert);
    }
    draw();
    if (ply.over) {
      say(`${spoken} ${outcome(ply)}`.trim(), alert);
    } else {
      const first = ply.compiled ? "" : "The first search at this strength is compiled, which takes a while.";
      const waiting = `${spoken} ${isPersons(ply.side) ? yours(ply.side) : "The player thinks …"} ${first}`.trim();
      replace(before, waiting, alert);
      await consider(now, ply, spoken, waiting, alert);
    }
    if (now === turn) await fill(now);
  } catch (error) {
    if (now !== turn) return;
    if (game.plies.includes(shown)) game.plies.length = game.plies.indexOf(shown) + 1; // without what was not answered
    say(error.message, true);
  }
}

const yours = (side) => (person() === null ? `${about.sides[side]} to move.` : "Your move.");

async function consider(now, ply, spoken, waiting, alert) {
  if (about.alone && simulations() && !ply.thoughts.size) {
    await ask(ply, true, 0); // exact risks need no search
    if (now !== turn) return;
    draw();
  }
  if (!thoughtOf(ply)) await askThoughts(ply, now);
  if (now !== turn) return;
  if (isPersons(ply.side)) {
    draw();
    replace(waiting, `${spoken} ${yours(ply.side)}`.trim(), alert);
  } else {
    const { move, score } = thoughtOf(ply);
    game.plies.push(newPly(move, false));
    await refresh(`The player plays ${move}${score === null ? "" : `: ${ends(score)} for it`}.`);
  }
}

/** What the player of this strength has not thought about yet, as positions of a loaded game. */
async function fill(now) {
  for (let n = 0; n < game.plies.length - 1 && now === turn; n++) {
    const [ply, next] = game.plies.slice(n, n + 2);
    if (!thoughtOf(ply) && !(about.alone && !next.own)) await askThoughts(ply, now);
  }
}

function outcome({ winner, result }) {
  const said = result ? `: ${result}` : "";
  if (about.alone) return `${winner === 0 ? "You win" : "You lose"}${said}. The game is over.`;
  if (person() === null || winner === null) return `The game is over${said}.`;
  return `The game is over${said}, ${winner === person() ? "you win" : "you lose"}.`;
}

function play(move) {
  if (!shown || shown.over || shown !== here()) return;
  if (!isPersons(shown.side)) return say("It is the player's turn.");
  if (!(move in shown.legal)) return say(`${move || "This"} is not a legal move now.`, true);
  game.plies.push(newPly(move, true));
  refresh(about.alone ? `You open ${move}.` : `${who(shown.side)} ${person() === null ? "plays" : "play"} ${move}.`, about.alone);
}

function choose(chosen) {
  if (chosen === about) return;
  [about, shown] = [chosen, undefined];
  $("game").value = games.indexOf(about);
  build();
}

function newGame(chosen = about) {
  const given = $("seed").value.trim();
  if (chosen.chance && given && !/^\d{1,9}$/.test(given)) return say(`${given} is no seed: give a whole number below 1,000,000,000, or none.`, true);
  choose(chosen);
  start([], { seed: !about.chance ? 0 : given ? Number(given) : Math.floor(Math.random() * 1e9) });
  refresh(game.before ? "A new game. Undo brings the one before back." : "A new game.");
}

async function undo() {
  const { plies, before } = game;
  if (!wasPlayed(game)) {
    if (!before) return say("There is no move to take back.");
    choose(before.about);
    game = before;
    return refresh("The game before is back.");
  }
  const now = ++turn;
  const kept = [...plies];
  let last = plies.pop();
  // With what followed of itself: the player's reply, or cells that were opened around a zero.
  try {
    while (plies.length > 1) {
      if (!about.alone && here().side === undefined) await ask(here(), false); // of a loaded game
      if (now !== turn) return;
      if (about.alone ? last.own : isPersons(here().side)) break;
      last = plies.pop();
    }
  } catch (error) {
    if (now !== turn) return;
    plies.splice(0, plies.length, ...kept);
    return say(error.message, true);
  }
  refresh(`Taken back to before ${plies.length > 1 ? `move ${plies.length}` : "the first move"}.`);
}

/** A file's text, in UTF-16 with its mark, in UTF-8, or else in the character set that it names. */
function decode(bytes) {
  const [first, second] = new Uint8Array(bytes, 0, Math.min(2, bytes.byteLength));
  if (first + second === 0xff + 0xfe) return new TextDecoder(first === 0xff ? "utf-16le" : "utf-16be").decode(bytes);
  const said = /CA\[\s*([\w.:-]+)\s*\]/.exec(new TextDecoder("latin1").decode(bytes));
  for (const charset of ["utf-8", said?.[1] ?? "latin1"]) {
    try {
      return new TextDecoder(charset, { fatal: true }).decode(bytes);
    } catch {
      continue; // it is in another, or its name is unknown
    }
  }
  return new TextDecoder("latin1").decode(bytes);
}

async function load(text) {
  const now = ++turn; // what is under way belongs to the game before
  try {
    const read = await answerTo(pathTo("read"), { text });
    if (read) await answerTo(pathTo("position"), read); // which refuses moves that cannot be made
    if (now !== turn) return;
    const { moves, ...terms } = read;
    start(moves, terms);
    refresh(`Loaded ${moves.length} moves.`);
  } catch (error) {
    if (now === turn) refresh(`Nothing was loaded. ${error.message}`, false, true);
  }
}

// ---- a minefield

function open(i) {
  if (!shown || shown.over) return;
  const { cells, refused } = opened(about, shown, game.flags, i);
  if (refused) say(refused, true);
  else if (!shown.cells[i]) play(about.names[i]);
  else if (cells.length && shown === here()) openAll(cells);
}

/** One after another: after a mine nothing can be opened any more. */
async function openAll(cells) {
  const now = ++turn;
  const first = game.plies.length;
  for (const i of cells) {
    const ply = newPly(about.names[i], i === cells[0]);
    game.plies.push(ply);
    await ask(ply, false).catch(() => null); // `refresh` asks again, and says why
    if (now !== turn) return;
    if (!ply.legal || ply.over) break;
  }
  const number = game.plies.length - first;
  refresh(`You open ${number} ${number === 1 ? "cell" : "cells"}.`, true);
}

function flag(i) {
  if (!shown || shown.over) return;
  const { flags } = game;
  if (shown.cells[i]) return say(`${about.names[i]} is open and cannot have a flag.`, true);
  if (!flags.delete(i)) flags.add(i);
  say(`${about.names[i]}: ${flags.has(i) ? "a flag" : "no flag any more"}.`);
  draw();
}

// ---- what is seen

function build() {
  const board = $("board");
  $("title").textContent = document.title = about.title;
  const felt = about.style === "squares" && about.sides[0] === "black";
  board.className = `${about.style} ${felt ? "felt" : ""} ${about.twoStep ? "pieces" : ""}`;
  const { rows, columns } = about;
  const hexagons = about.style === "hexagons";
  board.style.setProperty("--rows", rows || 1);
  board.style.setProperty("--columns", columns || 1);
  board.style.setProperty("--half", hexagons ? rows - 1 : 0);
  $("side").replaceChildren(...about.sides.map((name, i) => new Option(`${name}, ${i ? "second" : "first"}`, i)), new Option("both sides", "both"));
  const without = about.alone ? "exact risks alone" : "network alone";
  const named = (n) => (!n ? without : about.seconds && n === about.strengths.at(-1) ? `${about.seconds} seconds` : `${n} simulations`);
  $("strength").replaceChildren(...about.strengths.map((n) => new Option(named(n), n)));
  $("strength").value = about.strengths[Math.min(2, about.strengths.length - 1)];
  $("strength-label").firstChild.textContent = about.alone ? "Advice " : "Strength ";
  $("analysis-label").textContent = about.alone ? "Show the risks and the best cell" : "Show the analysis";
  $("side-label").hidden = about.alone;
  $("strength-label").hidden = about.strengths.length < 2;
  $("seed-label").hidden = !about.chance;
  $("flag").hidden = about.style !== "mines";
  $("by-name").hidden = about.style !== "picture" && !about.twoStep;
  $("text-note").textContent = about.notation
    ? `This game in ${about.notation}. Keep the text, or put another here, in ${about.notation} or as moves, and load it.`
    : "The moves of this game. Keep the line, or put another here and load it.";
  const columnsOf = about.alone ? ["Cell", "Mine", "Visits", "Wins"] : ["Move", "Visits", "Share", about.points ? "Result" : "Wins", "Network"];
  $("columns").replaceChildren(...columnsOf.map((name) => make("th", name)));
  const keys = about.style === "mines" ? "arrow keys move, Enter opens, f puts a flag" : "arrow keys move, Enter plays";
  board.setAttribute("aria-label", `Board: ${keys}`);
  focused = 0;
  board.replaceChildren();
  if (rows) buildCells(board, about);
}

function focus(i, moveThere = true) {
  for (const cell of document.querySelectorAll(".cell")) cell.tabIndex = Number(cell.dataset.cell) === i ? 0 : -1;
  focused = i;
  if (moveThere) document.querySelector(`.cell[data-cell="${i}"]`).focus();
}

/** A cell was clicked, or Enter was pressed on it. */
function press(i) {
  if (!shown) return;
  if (about.style === "mines") return $("flag").getAttribute("aria-pressed") === "true" ? flag(i) : open(i);
  const legal = Object.entries(shown.legal);
  if (about.twoStep && !shown.over && !isPersons(shown.side)) return say("It is the player's turn.");
  if (!about.twoStep) return play(legal.find(([, cells]) => cells.includes(i))?.[0] ?? about.names[i]);
  const ends = ([, cells]) => cells.at(-1) === i && (cells.length === 1 ? selected === null : cells[0] === selected);
  const fits = legal.filter(ends).map(([name]) => name);
  const begins = legal.some(([, cells]) => cells.length === 2 && cells[0] === i);
  choosing = fits.length > 1 ? fits : [];
  if (fits.length === 1) return play(fits[0]);
  if (!fits.length) selected = begins && selected !== i ? i : null;
  draw();
  if (fits.length) {
    say("Which move?");
    $("others").querySelector("button").focus();
  } else if (selected !== null) say(`${about.names[i]}, ${shown.cells[i]}: where to?`);
  else if (!begins) say(`${about.names[i]} is no move now.`, true);
}

function draw() {
  const analysis = advised() ? adviceOn(shown) : null;
  const { flags } = game;
  if (about.style === "picture") drawPicture();
  else drawCells({ about, shown, analysis, selected, flags, mine: isPersons(shown.side) });
  drawOthers();
  drawThought(analysis);
  drawCurve();
  const flagged = about.style === "mines" ? `, ${flags.size} ${flags.size === 1 ? "flag" : "flags"}` : "";
  $("note").hidden = !shown.note;
  $("note").textContent = `${shown.note ?? ""}${flagged}`;
  $("legend").hidden = !analysis || about.style === "picture";
  $("legend").textContent = analysis ? legend(about, analysis === thoughtOf(shown) ? simulations() : 0, analysis.score !== null) : "";
  $("undo").disabled = !wasPlayed(game) && !game.before;
  if (document.activeElement !== $("text")) $("text").value = shown.text;
}

let picture = "";

function drawPicture() {
  const image = $("board").querySelector("img") ?? $("board").appendChild(new Image());
  URL.revokeObjectURL(picture);
  picture = URL.createObjectURL(new Blob([shown.svg], { type: "image/svg+xml" }));
  image.src = picture;
  image.alt = `The board after ${game.plies.length - 1} moves${shown.move ? `, the last one ${shown.move}` : ""}`;
}

/** Moves without a cell, such as a pass; of a picture all; or those of which one is to be chosen. */
function drawOthers() {
  const apart = Object.keys(shown.legal).filter((name) => !shown.legal[name].length);
  const buttons = (choosing.length ? choosing : apart).map((name) => {
    const button = make("button", name);
    button.disabled = !isPersons(shown.side);
    button.setAttribute("aria-label", `Play ${name}`);
    button.addEventListener("click", () => play(name));
    return button;
  });
  $("others").replaceChildren(...buttons);
  $("legal").replaceChildren(...(about.twoStep ? Object.keys(shown.legal) : apart).map((name) => new Option(name)));
}

const ends = (score) => `it ends ${score > 0 ? "+" : ""}${score}`;

function summaryOf({ move, value, score }) {
  const after = shown.move ? `After ${shown.move}` : "At the start";
  const mover = about.alone ? `best cell ${move}` : `${about.sides[shown.side]} to move`;
  if (score !== null) return `${after}: ${mover}, solved: ${ends(score)} for ${about.sides[shown.side]} if both play the best moves.`;
  return `${after}: ${mover}${value === null ? "" : `, ${outlook(about)} ${told(about, value)}`}.`;
}

function drawThought(analysis) {
  $("thoughts").hidden = !advised();
  // It is read out when it changes.
  const summary = analysis ? summaryOf(analysis) : shown.over ? "The game is over." : "…";
  if ($("value").textContent !== summary) $("value").textContent = summary;
  if (!analysis) {
    $("line").textContent = "";
    $("candidates").replaceChildren();
    return;
  }
  $("line").textContent = analysis.line.length ? `Expected: ${analysis.line.join(" ")}` : "";
  const played = (idea) => Number(idea.name === analysis.move);
  const order = (a, b) => played(b) - played(a) || b.weight - a.weight || (a.risk ?? 1) - (b.risk ?? 1) || b.prior - a.prior;
  const rows = [...analysis.moves].sort(order).slice(0, 20).map((idea) => {
    const row = make("tr", "", idea.name === analysis.move ? "played" : "");
    const wins = idea.value === null ? "–" : told(about, idea.value);
    const risk = idea.risk === null ? "?" : percent(idea.risk);
    const entries = about.alone ? [idea.name, risk, idea.visits || "–", wins] : [idea.name, idea.visits || "–", percent(idea.weight), wins, percent(idea.prior)];
    row.append(...entries.map((entry) => make("td", entry)));
    return row;
  });
  $("candidates").replaceChildren(...rows);
}

/** The numbers of moves that cost their player much of the winning chance, or a risk for nothing. */
function blunders(chances) {
  const numbers = [...chances.keys()].slice(0, -1);
  if (about.alone) return advised() || shown?.over ? numbers.filter((n) => taken(n).needless) : [];
  const loss = (n) => (chances[n] - chances[n + 1]) * (game.plies[n].side === 0 ? 1 : -1);
  return numbers.filter((n) => loss(n) >= BLUNDER); // and not where one is unknown
}

function drawCurve() {
  const moves = game.plies.slice(1).map(({ move }) => move);
  const chances = game.plies.map(chanceOf);
  const bad = blunders(chances);
  const first = about.alone ? "you" : about.sides[0];
  const ends = about.alone ? ["you win", "you lose"] : about.sides.map((name) => `${name} wins`);
  $("curve").replaceChildren(...curve(chances, moves, bad, ends));
  const said = bad.map((n) => `${n + 1}. ${moves[n]}`).join(", ");
  const now = chances.at(-1);
  const value = now === undefined ? "no value yet" : `${outlook(about)} of ${first} ${told(about, about.min_value + now * (about.max_value - about.min_value))}`;
  const last = moves.length ? `, the last one ${moves.at(-1)}` : "";
  $("curve").setAttribute("aria-label", `${outlook(about)[0].toUpperCase()}${outlook(about).slice(1)} over ${moves.length} moves${last}: now ${value}`);
  const kind = about.alone ? "Needless risks" : `Blunders (${about.points ? (BLUNDER * (about.max_value - about.min_value)).toFixed(2) : percent(BLUNDER)} or more lost)`;
  const without = about.alone && !simulations() ? "The exact solver has no winning chance" : value[0].toUpperCase() + value.slice(1);
  $("curve-note").textContent = `${without}. ${said ? `${kind}: ${said}.` : ""}`;
  $("curve").toggleAttribute("hidden", about.alone && !simulations());
  const risk = (n) => (about.alone && (advised() || shown?.over) && taken(n).risk > 0 ? ` ${percent(taken(n).risk)}` : "");
  $("moves").replaceChildren(
    ...moves.map((move, n) => make("li", `${n + 1}. ${move}${risk(n)}${bad.includes(n) ? " ?" : ""}`, bad.includes(n) ? "blunder" : "")),
  );
}

// ---- what the person does

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !about) return;
  if (event.target.matches("textarea, select, input:not([type=checkbox])")) return;
  const step = STEPS[event.key];
  if (step && about.rows && !event.target.matches(".scroll")) {
    const row = Math.min(about.rows - 1, Math.max(0, Math.floor(focused / about.columns) + step[0]));
    const column = Math.min(about.columns - 1, Math.max(0, (focused % about.columns) + step[1]));
    event.preventDefault();
    focus(about.columns * row + column);
  } else if (event.key === "u") undo();
  else if (event.key === "n") newGame();
  else if (event.key === "f" && about.style === "mines") flag(focused);
  else if (event.key === "Escape" && (selected !== null || choosing.length)) {
    selected = null;
    choosing = [];
    draw();
  }
});

const cellOf = (event) => event.target.closest(".cell")?.dataset.cell;

$("board").addEventListener("click", (event) => {
  const i = cellOf(event);
  if (i !== undefined) focus(Number(i), false), press(Number(i));
});
$("board").addEventListener("contextmenu", (event) => {
  const i = cellOf(event);
  if (i !== undefined && about.style === "mines") event.preventDefault(), focus(Number(i), false), flag(Number(i));
});
$("new").addEventListener("click", () => newGame());
$("undo").addEventListener("click", undo);
$("flag").addEventListener("click", () => {
  const pressed = $("flag").getAttribute("aria-pressed") !== "true";
  $("flag").setAttribute("aria-pressed", String(pressed));
  say(pressed ? "Cells that you press get a flag." : "Cells that you press are opened.");
});
$("game").addEventListener("change", () => {
  newGame(games[Number($("game").value)]);
  $("game").value = games.indexOf(about);
});
$("side").addEventListener("change", () => refresh());
$("strength").addEventListener("change", () => refresh());
$("analysis").addEventListener("change", () => shown && draw());
$("load").addEventListener("click", () => load($("text").value));
$("file").addEventListener("change", async () => {
  const [file] = $("file").files;
  if (file) load(decode(await file.arrayBuffer()));
  $("file").value = "";
});
$("save").addEventListener("click", () => {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([`${shown.text}\n`], { type: "text/plain" }));
  link.download = `game.${(about.notation ?? "txt").toLowerCase()}`;
  link.click();
  URL.revokeObjectURL(link.href);
});
$("copy").addEventListener("click", async () => {
  $("text").select();
  try {
    await navigator.clipboard.writeText($("text").value);
    say("The game is copied.");
  } catch {
    say("The game is selected: copy it with the keyboard.");
  }
});
$("by-name").addEventListener("submit", (event) => {
  event.preventDefault();
  play($("move").value.trim().toLowerCase());
  $("move").value = "";
});

try {
  const described = (game) => ({ ...game, alone: game.players === 1, twoStep: game.style === "pieces" || game.style === "wood" });
  games = (await answerTo("api/games")).map(described);
  $("game").replaceChildren(...games.map((game, i) => new Option(games.length > 1 ? game.title.replace(/^\S+ /, "") : game.title, i)));
  $("game-label").hidden = games.length < 2;
  newGame(games[0]);
} catch (error) {
  say(error.message, true);
}

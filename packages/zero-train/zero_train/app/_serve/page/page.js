// The page of `serve`. The server keeps no game: the list of moves is here, and each question sends it.

import { fetched, inTurn } from "./api.js";
import { around, buildCells, chance, drawCells } from "./board.js";
import { curve, make, percent } from "./draw.js";

const BLUNDER = 0.2; // of the winning chance
const $ = (id) => document.getElementById(id);

let games; // what is served
let about; // the game that was chosen of them
let shown; // the last position that was answered
let answered = 0; // the number of moves before it
let thought = null; // what the player thinks of it
let moves = [];
let seed = 0;
let turn = 0; // counts what the person does, so that late answers are known
let focused = 0; // the cell that the keyboard is at
let selected = null; // the cell of the piece that is to be moved
let choosing = []; // moves between the same cells, of which one is asked for
let flags = new Set();
// By the number of moves before it: whose turn it is, the winning chance of who moved first, and the
// risk of each move. Of moves: whether the person chose it, and is not a consequence of one before.
let sides = [];
let chances = [];
let risks = [];
let own = [];

function say(text, alert = false) {
  $("status").textContent = text;
  $("status").classList.toggle("alert", alert);
}

const simulations = () => Number($("strength").value);
const person = () => (about.alone ? 0 : $("side").value === "both" ? null : Number($("side").value));
const isPersons = (side) => person() === null || person() === side;
const who = (side) => (person() === null ? about.sides[side] : isPersons(side) ? "You" : "The player");
const advised = () => $("analysis").checked;

// ---- the server

function ask(list, think) {
  const question = { moves: list, simulations: simulations(), think, seed };
  return fetched(`api/${games.indexOf(about)}/position`, question);
}

const askThoughts = (list, now) => inTurn(() => ask(list, true), () => now !== turn);

// ---- a game

function remember(list, answer) {
  if (list.some((move, i) => move !== moves[i])) return; // of a game that was taken back
  const n = list.length;
  sides[n] = answer.side;
  if (answer.over) chances[n] = answer.winner === null ? 0.5 : 1 - answer.winner;
  if (answer.thought) {
    if (answer.thought.value !== null) {
      const mine = chance(about, answer.thought.value);
      chances[n] = answer.side === 0 ? mine : 1 - mine;
    }
    if (about.alone) risks[n] = new Map(answer.thought.moves.map((move) => [move.name, move.risk]));
  }
  drawCurve();
}

async function refresh(spoken = "", opening = false) {
  const now = ++turn;
  const list = [...moves];
  selected = null;
  choosing = [];
  try {
    const answer = await ask(list, false);
    if (now !== turn) return;
    shown = answer;
    answered = list.length;
    thought = null;
    remember(list, answer);
    const more = opening && !answer.over ? aroundZeros() : [];
    if (more.length) {
      for (const move of more) (own[moves.length] = false), moves.push(move);
      return await refresh(spoken, true);
    }
    draw();
    if (answer.over) {
      say(`${spoken} ${outcome(answer)}`.trim());
    } else {
      const first = answer.compiled ? "" : "The first search at this strength is compiled, which takes a while.";
      say(`${spoken} ${isPersons(answer.side) ? yours(answer.side) : "The player thinks …"} ${first}`.trim());
      await consider(now, list, spoken);
    }
    if (now === turn) await fill(now);
  } catch (error) {
    if (now !== turn) return;
    moves.length = Math.min(moves.length, answered); // without what was not answered
    say(error.message, true);
  }
}

const yours = (side) => (person() === null ? `${about.sides[side]} to move.` : "Your move.");

async function consider(now, list, spoken) {
  const answer = await askThoughts(list, now);
  if (answer) remember(list, answer);
  if (now !== turn) return;
  thought = answer.thought;
  if (isPersons(answer.side)) {
    draw();
    if (!shown.compiled) say(`${spoken} ${yours(answer.side)}`.trim());
    shown.compiled = true;
  } else {
    moves.push(thought.move);
    await refresh(`The player plays ${thought.move}.`);
  }
}

/** What is not known of positions that nobody has thought about yet, as those of a loaded game. */
async function fill(now) {
  for (let n = 0; n < moves.length && now === turn; n++) {
    if (about.alone ? risks[n] !== undefined || own[n] === false : chances[n] !== undefined) continue;
    const list = moves.slice(0, n);
    const answer = await askThoughts(list, now);
    if (now === turn) remember(list, answer);
  }
}

function outcome({ winner, result }) {
  const said = result ? `: ${result}` : "";
  if (about.alone) return `${winner === 0 ? "You win" : "You lose"}${said}. The game is over.`;
  if (person() === null || winner === null) return `The game is over${said}.`;
  return `The game is over${said}, ${winner === person() ? "you win" : "you lose"}.`;
}

function play(move) {
  if (!shown || shown.over || answered !== moves.length) return;
  if (!isPersons(shown.side)) return say("It is the player's turn.");
  if (!(move in shown.legal)) return say(`${move || "This"} is not a legal move now.`, true);
  own[moves.length] = true;
  moves.push(move);
  refresh(about.alone ? `You open ${move}.` : `${who(shown.side)} ${person() === null ? "plays" : "play"} ${move}.`, about.alone);
}

function start(list = [], newSeed = 0) {
  moves = list;
  seed = newSeed;
  [sides, chances, risks, own] = [[], [], [], []];
  flags = new Set();
  selected = null;
}

function newGame() {
  const given = $("seed").value.trim();
  if (about.chance && given && !/^\d{1,9}$/.test(given)) return say(`${given} is no seed: give a whole number below 1,000,000,000, or none.`, true);
  start([], !about.chance ? 0 : given ? Number(given) : Math.floor(Math.random() * 1e9));
  refresh("A new game.");
}

function undo() {
  if (!moves.length) return say("There is no move to take back.");
  moves.pop();
  // With what followed of itself: the player's reply, or cells that were opened around a zero.
  const followed = () => (about.alone ? own[moves.length] === false : !isPersons(sides[moves.length] ?? moves.length % 2));
  while (moves.length && followed()) moves.pop();
  const left = moves.length + 1;
  for (const kept of [sides, chances, risks]) kept.length = Math.min(kept.length, left);
  refresh(`Taken back to before ${moves.length ? `move ${left}` : "the first move"}.`);
}

async function load(text) {
  const before = [moves, seed, sides, chances, risks, own, flags];
  turn += 1; // what is under way belongs to the game before
  try {
    const read = await fetched(`api/${games.indexOf(about)}/read`, { text });
    start(read.moves, read.seed);
    await ask(read.moves, false);
    refresh(`Loaded ${read.moves.length} moves.`);
  } catch (error) {
    [moves, seed, sides, chances, risks, own, flags] = before;
    refresh(error.message);
  }
}

// ---- a minefield

/** The covered cells around every 0, of which none is a mine. */
function aroundZeros() {
  const found = new Set();
  shown.cells.forEach((word, i) => {
    if (word === "0") for (const near of around(about, i)) if (!shown.cells[near] && !flags.has(near)) found.add(near);
  });
  return [...found].map((i) => about.names[i]);
}

function open(i) {
  if (!shown || shown.over) return;
  if (flags.has(i)) return say(`${about.names[i]} has a flag: take it away first.`, true);
  const number = shown.cells[i];
  if (!number) return play(about.names[i]);
  // An open cell with all its flags opens what is left around it.
  const left = around(about, i).filter((near) => !shown.cells[near] && !flags.has(near));
  const flagged = around(about, i).filter((near) => flags.has(near)).length;
  if (!left.length || answered !== moves.length) return;
  if (flagged !== Number(number)) return say(`${about.names[i]} shows ${number} and has ${flagged} flags around it.`, true);
  openAll(left);
}

/** One after another: after a mine nothing can be opened any more. */
async function openAll(cells) {
  const now = ++turn;
  for (const [k, i] of cells.entries()) {
    const list = [...moves, about.names[i]];
    own[moves.length] = k === 0;
    moves = list;
    const answer = await ask(list, false).catch(() => null); // `refresh` asks again, and says why
    if (now !== turn) return;
    if (!answer || answer.over) break;
  }
  refresh(`You open ${cells.length} cells.`, true);
}

function flag(i) {
  if (!shown || shown.over) return;
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
  $("strength").replaceChildren(...about.strengths.map((n) => new Option(n ? `${n} simulations` : without, n)));
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
  const columnsOf = about.alone ? ["Cell", "Mine", "Visits", "Wins"] : ["Move", "Visits", "Share", "Wins", "Network"];
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
  if (!about.twoStep) return play(legal.find(([, cells]) => cells.includes(i))?.[0] ?? about.names[i]);
  const ends = ([, cells]) => cells.at(-1) === i && (cells.length === 1 ? selected === null : cells[0] === selected);
  const fits = legal.filter(ends).map(([name]) => name);
  const begins = legal.some(([, cells]) => cells.length === 2 && cells[0] === i);
  choosing = fits.length > 1 ? fits : [];
  if (fits.length === 1) return play(fits[0]);
  if (!fits.length) selected = begins && selected !== i && isPersons(shown.side) ? i : null;
  draw();
  if (fits.length) {
    say("Which move?");
    $("others").querySelector("button").focus();
  } else if (selected !== null) say(`${about.names[i]}, ${shown.cells[i]}: where to?`);
  else if (!begins) say(`${about.names[i]} is no move now.`, true);
}

function draw() {
  const analysis = advised() ? thought : null;
  if (about.style === "picture") drawPicture();
  else drawCells({ about, shown, analysis, selected, flags, mine: isPersons(shown.side) });
  drawOthers();
  drawThought(analysis);
  drawCurve();
  const flagged = about.style === "mines" ? `, ${flags.size} flags` : "";
  $("note").hidden = !shown.note;
  $("note").textContent = `${shown.note ?? ""}${flagged}`;
  $("undo").disabled = !moves.length;
  if (document.activeElement !== $("text")) $("text").value = shown.text;
}

let picture = "";

function drawPicture() {
  const image = $("board").querySelector("img") ?? $("board").appendChild(new Image());
  URL.revokeObjectURL(picture);
  picture = URL.createObjectURL(new Blob([shown.svg], { type: "image/svg+xml" }));
  image.src = picture;
  image.alt = `The board after ${moves.length} moves${moves.length ? `, the last one ${moves.at(-1)}` : ""}`;
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

function drawThought(analysis) {
  $("thoughts").hidden = !advised();
  if (!analysis) {
    $("value").textContent = shown.over ? "The game is over." : "…";
    $("line").textContent = "";
    $("candidates").replaceChildren();
    return;
  }
  const chanceNow = analysis.value === null ? "" : `, winning chance ${percent(chance(about, analysis.value))}`;
  const mover = about.alone ? `Best cell ${analysis.move}` : `${about.sides[shown.side]} to move`;
  $("value").textContent = `${mover}${chanceNow}.`;
  $("line").textContent = analysis.line.length ? `Expected: ${analysis.line.join(" ")}` : "";
  const played = (idea) => Number(idea.name === analysis.move);
  const order = (a, b) => played(b) - played(a) || b.weight - a.weight || (a.risk ?? 1) - (b.risk ?? 1) || b.prior - a.prior;
  const rows = [...analysis.moves].sort(order).slice(0, 20).map((idea) => {
    const row = make("tr", "", idea.name === analysis.move ? "played" : "");
    const wins = idea.value === null ? "–" : percent(chance(about, idea.value));
    const risk = idea.risk === null ? "?" : percent(idea.risk);
    const entries = about.alone ? [idea.name, risk, idea.visits || "–", wins] : [idea.name, idea.visits || "–", percent(idea.weight), wins, percent(idea.prior)];
    row.append(...entries.map((entry) => make("td", entry)));
    return row;
  });
  $("candidates").replaceChildren(...rows);
}

/** Of a move in a game alone: its risk, and whether another cell was safe. */
function taken(n) {
  const known = risks[n];
  const risk = known?.get(moves[n]) ?? null;
  return { risk, needless: risk > 0 && [...known.values()].includes(0) };
}

/** The numbers of moves that cost their player much of the winning chance, or a risk for nothing. */
function blunders() {
  const numbers = moves.map((_, n) => n);
  if (about.alone) return advised() || shown?.over ? numbers.filter((n) => taken(n).needless) : [];
  return numbers.filter((n) => {
    if (chances[n] === undefined || chances[n + 1] === undefined) return false;
    const loss = (chances[n] - chances[n + 1]) * (sides[n] === 0 ? 1 : -1);
    return loss >= BLUNDER;
  });
}

function drawCurve() {
  const bad = blunders();
  const first = about.alone ? "you" : about.sides[0];
  const ends = about.alone ? ["you win", "you lose"] : about.sides.map((name) => `${name} wins`);
  const { parts, now } = curve(chances, moves, bad, ends);
  $("curve").replaceChildren(...parts);
  const said = bad.map((n) => `${n + 1}. ${moves[n]}`).join(", ");
  const value = now === undefined ? "no value yet" : `winning chance of ${first} ${percent(now)}`;
  $("curve").setAttribute("aria-label", `Winning chance over ${moves.length} moves: now ${value}`);
  const kind = about.alone ? "Needless risks" : `Blunders (${percent(BLUNDER)} or more lost)`;
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
  else if (event.key === "Escape" && selected !== null) {
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
$("new").addEventListener("click", newGame);
$("undo").addEventListener("click", undo);
$("flag").addEventListener("click", () => {
  const pressed = $("flag").getAttribute("aria-pressed") !== "true";
  $("flag").setAttribute("aria-pressed", String(pressed));
  say(pressed ? "Cells that you press get a flag." : "Cells that you press are opened.");
});
$("game").addEventListener("change", () => {
  turn += 1;
  [about, shown, thought] = [games[Number($("game").value)], undefined, null];
  build();
  newGame();
});
$("side").addEventListener("change", () => refresh());
$("strength").addEventListener("change", () => refresh());
$("analysis").addEventListener("change", () => shown && draw());
$("load").addEventListener("click", () => load($("text").value));
$("file").addEventListener("change", async () => {
  const [file] = $("file").files;
  if (file) load(await file.text());
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
  games = (await fetched("api/games")).map(described);
  about = games[0];
  $("game").replaceChildren(...games.map((game, i) => new Option(games.length > 1 ? game.title.replace(/^\S+ /, "") : game.title, i)));
  $("game-label").hidden = games.length < 2;
  build();
  newGame();
} catch (error) {
  say(error.message, true);
}

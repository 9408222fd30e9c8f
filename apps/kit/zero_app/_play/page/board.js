// The cells of a board: how they are built, what is drawn on each, and what of it is read out.

import { ideaChip, make, percent, riskChip } from "./draw.js";
import { drawMine, readMine } from "./mines.js";

const WORTH_SHOWING = 0.02; // of the search

/** A value as a winning chance. */
export const chance = (about, value) => (value - about.min_value) / (about.max_value - about.min_value);

/** What is told of a value: a chance to win or, where a win may pay more than another, what is expected. */
export const outlook = (about) => (about.points ? "expected result" : "winning chance");
export const told = (about, value) => (about.points ? `${value < -0.005 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}` : percent(chance(about, value)));

/** The cells of a board, with the names of its columns and rows. */
export function buildCells(board, about) {
  const { rows, columns, names } = about;
  const upright = about.style === "holes";
  const label = (content, row, column) => {
    const element = make("span", content, "label side");
    element.setAttribute("aria-hidden", "true");
    element.style.gridRow = row;
    element.style.gridColumn = column;
    element.style.setProperty("--row", Math.max(0, row - 2));
    board.append(element);
  };
  // Of a name such as b3 or 7f the first part is the column, the rest the row.
  const parts = (name) => /^([a-z]+|\d+)(.*)$/.exec(name).slice(1);
  for (let c = 0; c < columns; c++) label(parts(names[c])[0], 1, c + 2);
  if (!upright) for (let r = 0; r < rows; r++) label(parts(names[r * columns])[1], r + 2, 1);
  for (let i = 0; i < rows * columns; i++) {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const cell = make("button", "", "cell");
    cell.type = "button";
    cell.dataset.cell = i;
    cell.tabIndex = i ? -1 : 0;
    cell.style.gridRow = row + 2;
    cell.style.gridColumn = column + 2;
    cell.style.setProperty("--row", row);
    for (const [edge, at] of [["north", row === 0], ["south", row === rows - 1], ["west", column === 0], ["east", column === columns - 1], ["odd", (row + column) % 2]])
      cell.classList.toggle(edge, Boolean(at));
    board.append(cell);
  }
}

/** What the numbers on the cells are. */
export function legend(about, simulations, solved) {
  if (about.alone) return "On covered cells: the chance of a mine in percent, exact. Green is safe, a frame marks the best cell.";
  const share = solved ? "which moves are the best" : simulations ? "the share of the search" : "how likely the network plays there";
  const wins = simulations || solved ? `; below, the ${outlook(about)} of whoever moves` : "";
  const from = about.twoStep ? " Of a piece it is that of all its moves; choose the piece for each." : "";
  return `On the cells: ${share}${wins}. A frame marks the player's choice.${from}`;
}

/** What is on the cells. `seen` has the game, the position, the analysis or null, the selected cell, the
    flags, and whether it is the person's turn. */
export function drawCells(seen) {
  const { about, shown, analysis, selected, mine } = seen;
  const ideas = ideasOnCells(seen);
  const targets = targetsNow(seen);
  const best = about.twoStep && analysis ? (shown.legal[analysis.move] ?? []) : [];
  for (const cell of document.querySelectorAll(".cell")) {
    const i = Number(cell.dataset.cell);
    const word = shown.cells[i];
    const idea = ideas.get(i);
    const legal = targets.has(i);
    cell.setAttribute("aria-label", `${read(seen, i, word)}${legal && mine ? ", legal" : ""}${heard(about, idea)}`);
    // An open number of a minefield can be pressed too.
    cell.setAttribute("aria-disabled", String(about.style === "mines" ? shown.over : !(legal && mine)));
    cell.toggleAttribute("data-legal", legal && mine);
    cell.classList.toggle("last", i === shown.last);
    cell.classList.toggle("selected", i === selected);
    cell.classList.toggle("best", about.twoStep ? best.includes(i) : Boolean(idea?.best));
    cell.dataset.word = word;
    cell.replaceChildren();
    if (about.style === "mines") drawMine(cell, word, seen.flags.has(i), shown.over);
    else if (word) cell.append(about.glyphs[word] ? make("span", about.glyphs[word], `piece ${word.split(" ")[0]}`) : make("span", "", `stone ${word}`));
    if (idea && "risk" in idea) cell.append(riskChip(idea.risk));
    else if (idea && (idea.weight >= WORTH_SHOWING || idea.best)) cell.append(ideaChip(idea.weight, idea.wins));
    else if (targets.get(i) === "seen" && mine && about.style !== "mines") cell.append(make("span", "", "hint"));
  }
}

/** The cells where the person can play now; "seen" where a mark says so. */
function targetsNow({ about, shown, selected }) {
  const found = new Map();
  for (const cells of Object.values(shown.legal)) {
    if (about.twoStep) {
      if (selected === null) found.set(cells[0], "");
      else if (cells[0] === selected) found.set(cells.at(-1), "seen");
    } else {
      // Of a column all cells take the move, and the lowest empty one is where it would be seen.
      for (const i of cells) if (!found.has(i)) found.set(i, "");
      const seen = cells.filter((i) => !shown.cells[i]).at(-1);
      if (seen !== undefined) found.set(seen, "seen");
    }
  }
  return found;
}

/** What the analysis says of each cell: of moves between cells, of those that begin there. */
function ideasOnCells({ about, shown, analysis, selected }) {
  const found = new Map();
  // Of moves that share a cell the result of the recommended one is told, or of the heaviest.
  for (const idea of [...(analysis?.moves ?? [])].sort((a, b) => a.weight - b.weight)) {
    const cells = shown.legal[idea.name] ?? [];
    const best = idea.name === analysis.move;
    const wins = idea.value === null ? null : told(about, idea.value);
    const here = { weight: idea.weight, wins, best };
    if (about.alone) found.set(cells[0], { ...here, risk: idea.risk });
    else if (!about.twoStep) found.set(cells.filter((i) => !shown.cells[i]).at(-1), here);
    else if (cells[0] === selected || (selected === null && cells.length === 2)) {
      // Several moves begin at a cell, and some end at the same one, such as promotions.
      const cell = selected === null ? cells[0] : cells.at(-1);
      const before = found.get(cell);
      const weight = idea.weight + (before?.weight ?? 0);
      const said = before?.best ? before.wins : wins;
      found.set(cell, { weight, wins: selected === null ? null : said, best: best || Boolean(before?.best) });
    }
  }
  return found;
}

/** A cell and what is on it, for a screen reader. */
function read({ about, shown, selected, flags }, i, word) {
  const name = about.style === "holes" ? `column ${about.names[i]}, row ${about.rows - Math.floor(i / about.columns)}` : about.names[i];
  const last = i === shown.last ? ", last move" : "";
  if (about.style !== "mines") return `${name}: ${word || "empty"}${last}${i === selected ? ", selected" : ""}`;
  return `${readMine(name, word, flags.has(i))}${last}`;
}

function heard(about, idea) {
  if (!idea) return "";
  const risk = idea.risk === null ? "risk unknown" : `${percent(idea.risk)} a mine`;
  const found = "risk" in idea ? risk : `${percent(idea.weight)} of the search`;
  const wins = idea.wins === null ? "" : `, ${outlook(about)} ${idea.wins}`;
  return `, ${found}${wins}${idea.best ? ", recommended" : ""}`;
}

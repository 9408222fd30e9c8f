// What is special to a minefield. Flags are a set of cells.

import { make } from "./draw.js";

/** The cells around a cell. */
function around(about, i) {
  const [row, column] = [Math.floor(i / about.columns), i % about.columns];
  const near = [];
  for (let r = Math.max(0, row - 1); r < Math.min(about.rows, row + 2); r++)
    for (let c = Math.max(0, column - 1); c < Math.min(about.columns, column + 2); c++)
      if (r !== row || c !== column) near.push(about.columns * r + c);
  return near;
}

const isLeft = (shown, flags) => (i) => !shown.cells[i] && !flags.has(i);

/** The names of the covered cells around every 0, of which none is a mine. */
export function aroundZeros(about, shown, flags) {
  const zeros = shown.cells.flatMap((word, i) => (word === "0" ? [i] : []));
  const found = new Set(zeros.flatMap((i) => around(about, i).filter(isLeft(shown, flags))));
  return [...found].map((i) => about.names[i]);
}

/** The cells that are opened where one is pressed, or why they are not: a covered one itself, an open
    one with all its flags what is left around it. */
export function opened(about, shown, flags, i) {
  const [name, number] = [about.names[i], shown.cells[i]];
  if (flags.has(i)) return { refused: `${name} has a flag: take it away first.` };
  if (!number) return { cells: [i] };
  const cells = around(about, i).filter(isLeft(shown, flags));
  const flagged = around(about, i).filter((near) => flags.has(near)).length;
  if (!cells.length || flagged === Number(number)) return { cells };
  return { refused: `${name} shows ${number} and has ${flagged} flags around it.` };
}

/** A cell and what is on it, for a screen reader. */
export function readMine(name, word, flagged) {
  if (/^\d$/.test(word)) return `${name}: ${word === "1" ? "1 mine" : `${word} mines`} around`;
  return `${name}: ${word || "covered"}${flagged ? ", flag" : ""}`;
}

export function drawMine(cell, word, flagged, over) {
  const wrong = over && flagged && word !== "mine";
  if (/^[1-8]$/.test(word)) cell.append(make("span", word, `number n${word}`));
  else if (word === "mine" || word === "opened mine") cell.append(make("span", flagged ? "⚑" : "✹", "mine"));
  if (!word && flagged) cell.append(make("span", wrong ? "✗" : "⚑", "flag"));
}

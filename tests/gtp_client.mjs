// A game over GTP, by the client that Sabaki uses: `node gtp_client.mjs PACKAGES GAME COMMAND ...`.

import assert from "node:assert";
import { createRequire } from "node:module";

const [packages, game, command, ...words] = process.argv.slice(2);
const { Controller } = createRequire(`${packages}/`)("@sabaki/gtp");
const controller = new Controller(command, words);
const failed = [];

controller.on("stderr", ({ content }) => console.error(content));
controller.start();

async function ask(name, ...args) {
  const { error, content } = await controller.sendCommand({ name, args });
  if (error) failed.push(`${name} ${args.join(" ")}: ${content}`);
  return content;
}

async function refused(name, ...args) {
  const { error, content } = await controller.sendCommand({ name, args });
  assert(error, `${name} was not refused`);
  return content;
}

const size = game === "othello" ? "8" : "9";
assert.equal(await ask("protocol_version"), "2");
const known = (await ask("list_commands")).split("\n");
for (const name of ["lz-analyze", "kata-analyze", "loadsgf", "time_left", "undo"]) assert(known.includes(name), name);
await ask("boardsize", size);
assert.equal(await refused("boardsize", "20"), "unacceptable size");
assert.equal(await refused("no-such-command"), "unknown command");
await ask("clear_board");
await ask("komi", "7.5");
await ask("kgs-time_settings", "canadian", "60", "30", "10");
await ask("time_left", "b", "60", "0");

// What Sabaki sends with a command of analysis: the colour, its interval and, to KataGo's, one key more.
const asked = (style, colour) => [colour, "50", ...(style.startsWith("kata") ? ["ownership", "true"] : [])];

// A streamed analysis, which the next command ends.
for (const style of ["lz-analyze", "kata-analyze"]) {
  const lines = [];
  const analysis = controller.sendCommand({ name: style, args: asked(style, "B") }, ({ line }) => lines.push(line));
  while (lines.filter((line) => line.startsWith("info ")).length < 3) await new Promise((done) => setTimeout(done, 20));
  const name = ask("name");
  const { error } = await analysis;
  assert(!error && (await name).startsWith("zero"));
  const visits = lines
    .filter((line) => line.startsWith("info "))
    .map((line) => [...line.matchAll(/ visits (\d+)/g)].reduce((sum, found) => sum + Number(found[1]), 0));
  assert(visits.at(-1) > visits[0], `${style} does not grow: ${visits}`);
  console.log(`${style}: ${visits.length} lines, ${visits[0]} to ${visits.at(-1)} visits`);
}

// A game against itself; every other move is analysed while it is found.
let moves = 0;
for (let passes = 0; passes < 2 && moves < 40; moves++) {
  const colour = "bw"[moves % 2];
  const style = ["genmove", "genmove", "lz-genmove_analyze", "kata-genmove_analyze"][moves % 4];
  const said = await ask(style, ...(style === "genmove" ? [colour] : asked(style, colour)));
  const move = said.trim().split(/\s+/).at(-1);
  passes = move.toLowerCase() === "pass" ? passes + 1 : 0;
}
await ask("undo");
assert(/^([BW]\+[\d.]+|0)$/.test(await ask("final_score")));
assert(/\ba +b +c/i.test(await ask("showboard")));
assert((await ask("printsgf")).startsWith("(;"));
await ask("quit");
await controller.stop();
assert.deepEqual(failed, []);
console.log(`${game}: ${moves} moves were played`);

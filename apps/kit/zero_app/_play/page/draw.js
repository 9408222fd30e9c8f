// Small pieces of the page, drawn from what they are given.

export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

export function make(kind, text = "", className = "") {
  const element = document.createElement(kind);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

export function svg(kind, attributes, content = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = content;
  return element;
}

/** The winning chance over the moves, with marks at bad ones. `ends` says what is up and down. */
export function curve(chances, moves, bad, ends) {
  const x = (n) => 8 + (304 * n) / Math.max(moves.length, 10);
  const y = (share) => 116 - 102 * share;
  const known = chances.map((share, n) => [n, share]).filter(([n, share]) => share !== undefined && n <= moves.length);
  const parts = [
    svg("line", { class: "middle", x1: 8, x2: 312, y1: y(0.5), y2: y(0.5) }),
    svg("text", { x: 8, y: 10 }, ends[0]),
    svg("text", { x: 8, y: 128 }, ends[1]),
    svg("polyline", { class: "value", points: known.map(([n, share]) => `${x(n)},${y(share)}`).join(" ") }),
  ];
  if (known.length) {
    const [n, share] = known.at(-1);
    parts.push(svg("circle", { class: "dot", cx: x(n), cy: y(share), r: 3 }));
  }
  for (const n of bad) {
    if (chances[n + 1] === undefined) continue;
    const mark = svg("circle", { class: "blunder", cx: x(n + 1), cy: y(chances[n + 1]), r: 5 });
    mark.append(svg("title", {}, `${n + 1}. ${moves[n]}`));
    parts.push(mark);
  }
  return parts;
}

/** A move's share of the search and, below, what is told of its value. */
export function ideaChip(weight, wins) {
  const element = make("span", percent(weight), "idea");
  element.style.setProperty("--weight", weight.toFixed(3));
  if (wins !== null) element.append(make("small", wins));
  return element;
}

/** The chance of a mine: whole percents, which the colour says too. */
export function riskChip(risk) {
  if (risk === null) return make("span", "?", "risk");
  const whole = Math.round(100 * risk);
  const element = make("span", risk > 0 && whole < 1 ? "<1" : `${whole}`, `risk ${risk === 0 ? "safe" : ""}`);
  element.style.setProperty("--risk", Math.min(1, risk ** 0.6).toFixed(3));
  return element;
}

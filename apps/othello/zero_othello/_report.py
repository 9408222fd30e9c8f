"""A run as one page."""

import html
import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from zero_train import read_lines

from ._chart import draw, Series
from ._view import clock, number


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{
  color-scheme: light dark;
  --page: #ffffff; --card: #f7f7f8; --ink: #1d1f23; --soft: #6b7078; --line: #e2e4e8;
  --series-0: #2f6fb3; --series-1: #d0741c; --series-2: #2e8b62;
  --series-3: #8160b8; --series-4: #bf4a3d; --series-5: #7a7f87;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --page: #16181c; --card: #1e2126; --ink: #e7e9ec; --soft: #9aa0a9; --line: #33373e;
    --series-0: #6aa6e6; --series-1: #eb9a4d; --series-2: #5bbd90;
    --series-3: #b198e0; --series-4: #e57f73; --series-5: #a5abb4;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; max-width: 1120px; padding: 32px 24px 64px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}}
h1 {{ margin: 0 0 24px; font-size: 26px; font-weight: 650; letter-spacing: -0.01em; }}
h2 {{ margin: 40px 0 12px; font-size: 18px; font-weight: 650; }}
h3 {{ margin: 0; font-size: 14px; font-weight: 600; }}
p {{ margin: 0; color: var(--soft); font-size: 13px; }}
.figures, .charts {{ display: grid; gap: 12px; }}
.figures {{ grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }}
.figures div, figure {{ background: var(--card); border-radius: 8px; padding: 14px 16px; }}
.figures b {{ display: block; font-size: 20px; font-weight: 600; }}
.figures b, td {{ font-variant-numeric: tabular-nums; }}
.charts {{ grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); }}
.tables {{ display: flex; flex-wrap: wrap; column-gap: 64px; }}
figure {{ margin: 0; }}
figure .none {{ padding: 48px 0; text-align: center; }}
svg {{ display: block; width: 100%; height: auto; margin-top: 8px; }}
svg text {{ font-family: inherit !important; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; }}
th {{ color: var(--soft); font-weight: 500; }}
th, td {{ padding: 5px 16px 5px 0; text-align: right; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; }}
dl {{ margin: 0; columns: 3 260px; column-gap: 40px; font-size: 14px; }}
dl div {{
  display: flex; justify-content: space-between; gap: 12px; break-inside: avoid;
  border-bottom: 1px solid var(--line); padding: 4px 0;
}}
dt {{ color: var(--soft); }}
dd {{ margin: 0; font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def write_report(run_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes `report.html` into a run folder, replacing an earlier one at once.

    The page stands alone: it loads nothing. Files of the run that are missing or still short
    leave out what would be made of them.

    **Returns:** the page's path.
    """
    folder = pathlib.Path(run_dir).absolute()
    metrics = read_lines(folder / "metrics.jsonl")
    timings = read_lines(folder / "timings.jsonl")
    evaluations = read_lines(folder / "evaluations.jsonl")
    players = _read_json(folder / "elo.json").get("players", [])
    body = [
        _figures(metrics, timings, players, evaluations),
        '<h2>Learning</h2><div class="charts">',
        *_learning(metrics),
        '</div><h2>Strength</h2><div class="charts">',
        *_strength(players, evaluations),
        "</div>",
        '<div class="tables">',
        _last_evaluation(evaluations),
        _ladder(players),
        "</div>",
        '<h2>Speed</h2><div class="charts">',
        *_speed(timings),
        "</div>",
        _configuration(_read_json(folder / "config.json")),
    ]
    path = folder / "report.html"
    temporary = folder / ".report.html.tmp"
    title = html.escape(f"Othello AlphaZero: {folder.name}")
    temporary.write_text(_PAGE.format(title=title, body="\n".join(filter(None, body))))
    temporary.replace(path)
    return path


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _curve(rows: Iterable[dict[str, Any]], name: str, label: str = "") -> Series:
    rows = [row for row in rows if row.get(name) is not None]
    return Series(label, [row["step"] for row in rows], [row[name] for row in rows])


def _chart(heading: str, caption: str, svg: str | None) -> str:
    shown = svg or '<p class="none">nothing yet</p>'
    return f"<figure><h3>{heading}</h3><p>{caption}</p>{shown}</figure>"


def _learning(metrics: list[dict[str, Any]]) -> list[str]:
    policy = [_curve(metrics, "policy_loss", "loss"), _curve(metrics, "target_entropy", "floor")]
    return [
        _chart(
            "Policy loss",
            "Cross-entropy to the search, in nats; its floor is the search's own entropy.",
            draw(policy),
        ),
        _chart(
            "Value loss",
            "Half the squared error of the predicted outcome.",
            draw([_curve(metrics, "value_loss")]),
        ),
        _chart(
            "Policy entropy",
            "How undecided the network is about the next move, in nats.",
            draw([_curve(metrics, "policy_entropy")]),
        ),
        _chart(
            "Value error",
            "Mean distance between predicted and final outcome (a loss is -1, a win 1).",
            draw([_curve(metrics, "value_error")]),
        ),
    ]


def _strength(players: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> list[str]:
    past = sorted((p for p in players if p["step"] is not None), key=lambda p: p["step"])
    error = [2 * p["se"] for p in past]
    ladder = Series("", [p["step"] for p in past], [p["elo"] for p in past], (error, error))
    levels = [(p["name"], p["elo"]) for p in players if p["step"] is None] if past else []
    return [
        _chart(
            "Elo",
            "Past players on one ladder; bars are two standard errors.",
            draw([ladder], levels=levels),
        ),
        _chart(
            "Score against fixed opponents",
            "A draw is half a win; bars are 95 % confidence intervals.",
            draw(_scores(evaluations), percent=True),
        ),
    ]


def _scores(evaluations: list[dict[str, Any]]) -> list[Series]:
    fixed = [row for row in evaluations if not row["opponent"].startswith("step ")]
    several = len({row["simulations"] for row in fixed}) > 1
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in fixed:
        detail = f", {row['simulations']} simulations" if several else ""
        groups.setdefault(row["opponent"] + detail, []).append(row)
    return [
        Series(
            label,
            [row["step"] for row in rows],
            [row["score"] for row in rows],
            (
                [max(row["score"] - row["score_low"], 0.0) for row in rows],
                [max(row["score_high"] - row["score"], 0.0) for row in rows],
            ),
        )
        for label, rows in groups.items()
    ]


def _speed(timings: list[dict[str, Any]]) -> list[str]:
    return [
        _chart(heading, caption, draw([_curve(timings, name)], from_zero=True))
        for heading, caption, name in (
            ("Positions a second", "Collected while also learning.", "positions_per_second"),
            ("Games a second", "Finished while also learning.", "games_per_second"),
        )
    ]


def _figures(
    metrics: list[dict[str, Any]],
    timings: list[dict[str, Any]],
    players: list[dict[str, Any]],
    evaluations: list[dict[str, Any]],
) -> str:
    shown: list[tuple[str, str]] = []
    if metrics:
        shown.append(("steps", number(metrics[-1]["step"])))
        for name in ("games", "positions"):
            if metrics[-1].get(name) is not None:
                shown.append((name, f"{metrics[-1][name]:,.0f}"))
    if timings:
        shown.append(("training time", clock(sum(row.get("seconds") or 0 for row in timings))))
    past = [p for p in players if p["step"] is not None]
    if past:
        newest = max(past, key=lambda p: p["step"])
        shown.append(("Elo", f"{newest['elo']:.0f} ± {newest['se']:.0f}"))
    against = [row for row in evaluations if row["opponent"] == "random"]
    if against:
        shown.append(("against random", f"{100 * against[-1]['score']:.1f} %"))
    cells = "".join(f"<div><b>{value}</b><p>{name}</p></div>" for name, value in shown)
    return f'<div class="figures">{cells}</div>'


def _table(heading: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(x))}</td>' for x in row)}</tr>" for row in rows
    )
    table = f"<table><tr>{head}</tr>{body}</table>"
    return f'<div class="scroll"><h2>{heading}</h2>{table}</div>'


def _last_evaluation(evaluations: list[dict[str, Any]]) -> str:
    if not evaluations:
        return ""
    step = evaluations[-1]["step"]
    names = ("opponent", "simulations", "games", "wins", "draws", "losses")
    rows = [
        [
            *(row[name] for name in names),
            f"{100 * row['score']:.1f} %",
            f"{100 * row['score_low']:.1f} to {100 * row['score_high']:.1f} %",
        ]
        for row in evaluations
        if row["step"] == step
    ]
    heading = f"Last evaluation, at step {step:,}"
    return _table(heading, [*names, "score", "95 % interval"], rows)


def _ladder(players: list[dict[str, Any]]) -> str:
    if not players:
        return ""
    rows = [
        [p["name"], f"{p['elo']:.0f}", f"± {p['se']:.0f}" if p["se"] else "anchor"]
        for p in sorted(players, key=lambda p: -p["elo"])
    ]
    return _table("Elo ladder", ["player", "Elo", "standard error"], rows)


def _configuration(config: dict[str, Any]) -> str:
    if not config:
        return ""
    items = "".join(
        f"<div><dt>{html.escape(key)}</dt><dd>{html.escape(_shown(value))}</dd></div>"
        for key, value in config.items()
    )
    return f"<h2>Configuration</h2><dl>{items}</dl>"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

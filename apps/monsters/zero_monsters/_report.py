"""The report of a run: one HTML page."""

from collections.abc import Mapping
from typing import Any

from zero_train.app import (
    chart,
    charts,
    curve,
    imitation,
    last_evaluation,
    LOST,
    RETURN,
    Series,
    StoredRun,
    tables,
    WON,
)


#: The exact results of optimal play: the return of 32 steps, and the fractions of first episodes
#: that are won and lost.
OPTIMUM = {"moving": (4.589, 0.9474, 0.0524), "stationary": (5.404, 0.9952, 0.0)}


def page(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of the report."""
    world = run.config.get("world", "moving")
    learning = imitation(
        run,
        value_loss="Cross-entropy of the value's distribution, in nats.",
        value_error="Mean distance between predicted value and its target.",
    )
    return _strongest(run.evaluations), [
        charts("Play", *_play(run, world)),
        tables(_comparison(run, world)),
        learning,
    ]


def _play(run: StoredRun, world: str) -> list[str]:
    players = _followed(run.evaluations)
    returned, won, lost = OPTIMUM[world]

    def part(heading: str, caption: str, name: str, best: float, percent: bool = True) -> str:
        series = [_series(label, rows, name) for label, rows in players.items()]
        return chart(run, heading, caption, *series, levels=[("optimum", best)], percent=percent)

    return [
        part(
            "Return of 32 steps",
            "A fresh start follows every end; bars are 95 % intervals.",
            "return_mean",
            returned,
            percent=False,
        ),
        chart(
            run,
            "Regret",
            "The loss of a decision compared with the best one (gamma 0.99).",
            *(_series(label, rows, "regret_mean") for label, rows in players.items()),
            from_zero=True,
        ),
        part("Episodes won", "Within 32 steps, the first of each rollout.", "win_rate", won),
        part("Episodes lost", "The same episodes; the others are not over.", "loss_rate", lost),
    ]


def _followed(evaluations: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each player that was evaluated during training."""
    players: dict[str, list[dict[str, Any]]] = {}
    for row in evaluations:
        if row["leaf"] == "network":
            players.setdefault(_label(row), []).append(row)
    first = evaluations[0]["step"] if evaluations else 0
    return {name: rows for name, rows in players.items() if rows[0]["step"] == first}


def _label(row: dict[str, Any]) -> str:
    alone = row["planner"] == "network"
    return "network alone" if alone else f"{row['planner']}, {row['simulations']} simulations"


def _series(label: str, rows: list[dict[str, Any]], name: str) -> Series:
    # The spread of the regret is not kept.
    bars = {one.name: one.bars for one in (LOST, RETURN, WON)}
    return curve(rows, name, label, error=bars.get(name))


def _strongest(evaluations: list[dict[str, Any]]) -> dict[str, str]:
    if not evaluations:
        return {}
    row = next(row for row in evaluations if row["step"] == evaluations[-1]["step"])
    return {
        f"return of 32 steps, {_label(row)} (95 %)": RETURN.shown(row),
        "won": _percent(row["win_rate"]),
    }


def _comparison(run: StoredRun, world: str) -> str:
    """A table of the last evaluation of all planners, with the optimum in the first row."""
    returned, won, lost = OPTIMUM[world]
    return last_evaluation(
        run,
        ["planner", "simulations", "leaf value", "return (95 %)", "won", "lost", "regret"],
        lambda row: [
            *_player(row),
            RETURN.shown(row),
            _percent(row["win_rate"]),
            _percent(row["loss_rate"]),
            f"{row['regret_mean']:.4f}",
        ],
        ["optimum", "", "", f"{returned:.3f}", _percent(won), _percent(lost), "0"],
    )


def _player(row: Mapping[str, Any]) -> list[str]:
    if row["planner"] == "network":
        return ["network alone", "", ""]
    return [row["planner"], str(row["simulations"]), row["leaf"]]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

"""The report of a run: one HTML page."""

from typing import Any

from zero_app import (
    chart,
    charts,
    curve,
    imitation,
    last_evaluation,
    LOST,
    RETURN,
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
    newest = {}
    if rows := run.evaluations:
        row = next(row for row in rows if row["step"] == rows[-1]["step"])
        returned = f"return of 32 steps, {_label(row)} (95 %)"
        newest = {returned: RETURN.shown(row), "won": _percent(row["win_rate"])}
    return newest, [charts("Play", *_play(run, world)), tables(_comparison(run, world)), learning]


def _play(run: StoredRun, world: str) -> list[str]:
    rows = run.evaluations
    # Who was measured at the end alone has no curve.
    first = [row for row in rows if row["step"] == rows[0]["step"] and row["leaf"] == "network"]
    followed = {
        label: [row for row in rows if _label(row) == label and row["leaf"] == "network"]
        for label in map(_label, first)
    }
    # The spread of the regret is not kept.
    bars = {one.name: one.bars for one in (LOST, RETURN, WON)}
    returned, won, lost = OPTIMUM[world]
    fresh = "A fresh start follows every end; bars are 95 % intervals."
    loss = "The loss of a decision compared with the best one (gamma 0.99)."
    return [
        chart(
            run,
            heading,
            caption,
            *(curve(mine, name, who, error=bars.get(name)) for who, mine in followed.items()),
            levels=[] if best is None else [("optimum", best)],
            percent=name in (WON.name, LOST.name),
            from_zero=best is None,
        )
        for heading, caption, name, best in (
            ("Return of 32 steps", fresh, RETURN.name, returned),
            ("Regret", loss, "regret_mean", None),
            ("Episodes won", "Within 32 steps, the first of each rollout.", WON.name, won),
            ("Episodes lost", "The same episodes; the others are not over.", LOST.name, lost),
        )
    ]


def _label(row: dict[str, Any]) -> str:
    alone = row["planner"] == "network"
    return "network alone" if alone else f"{row['planner']}, {row['simulations']} simulations"


def _comparison(run: StoredRun, world: str) -> str:
    """A table of the last evaluation of all planners, with the optimum in the first row."""
    returned, won, lost = OPTIMUM[world]
    return last_evaluation(
        run,
        ["planner", "simulations", "leaf value", "return (95 %)", "won", "lost", "regret"],
        lambda row: [
            *(
                ["network alone", "", ""]
                if row["planner"] == "network"
                else [row["planner"], row["simulations"], row["leaf"]]
            ),
            RETURN.shown(row),
            _percent(row["win_rate"]),
            _percent(row["loss_rate"]),
            f"{row['regret_mean']:.4f}",
        ],
        ["optimum", "", "", f"{returned:.3f}", _percent(won), _percent(lost), "0"],
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

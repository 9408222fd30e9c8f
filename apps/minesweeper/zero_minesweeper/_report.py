"""The report of a run: one HTML page."""

from zero_app import (
    chart,
    charts,
    curve,
    imitation,
    last_evaluation,
    RETURN,
    StoredRun,
    tables,
    WON,
)

from ._pictures import pictures


#: The agents of evaluations during training.
FOLLOWED = ("network", "belief")
#: Win rates and returns on the default board, 10 x 10 with 10 mines, measured elsewhere or
#: computed; for `belief` those of the best hand-written solver.
KNOWN = {
    "random": (0.0, 8.18),
    "rules": (0.747, 71.7),
    "minprob": (0.8127, 74.20),
    "tiebreak": (0.857, 78.0),
    "hindsight-8": (0.190, 24.1),
    "hindsight-32": (0.577, 56.3),
    "hindsight-128": (0.809, 73.9),
    "belief": (0.857, 78.0),
}
#: Upper bounds of both without observing the mines, by exact expectimax over optimistic positions.
BOUND = (0.8711, 78.43)


def page(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of the report."""
    size = tuple(run.config.get(name) for name in ("rows", "columns", "mines"))
    known = size == (10, 10, 10)
    learning = imitation(
        run,
        value_loss="Half the squared error of the probability of winning.",
        value_error="Mean distance between the probability of winning and its target.",
    )
    mines = chart(
        run,
        "Mines",
        "Divergence from the exact probability of a mine, in nats per hidden cell.",
        curve(run.metrics, "auxiliary_loss"),
        from_zero=True,
    )
    figures = {"board": "{} x {}, {} mines".format(*size)} if None not in size else {}
    newest = {row["agent"]: row for row in run.evaluations}
    labels = {"belief": "wins of belief trees (95 %)", "network": "of the network alone (95 %)"}
    figures |= {label: WON.shown(newest[name]) for name, label in labels.items() if name in newest}
    return figures, [
        charts("Play", *_play(run, known)),
        tables(_comparison(run, known)),
        learning,
        charts("Boards", mines, *pictures(run.folder)),
    ]


def _play(run: StoredRun, known: bool) -> list[str]:
    names = FOLLOWED if run.evaluations else ()
    rows = {name: [row for row in run.evaluations if row["agent"] == name] for name in names}
    levels = lambda i: [("bound", BOUND[i]), ("hand-written", KNOWN["tiebreak"][i])]
    parts = [("Games won", WON, 0, True), ("Safe cells opened", RETURN, 1, False)]
    return [
        chart(
            run,
            heading,
            "Estimates that do not depend on the actual mines; bars are 95 % intervals.",
            *(curve(mine, one.name, name, error=one.bars) for name, mine in rows.items()),
            levels=levels(i) if known else [],
            percent=percent,
        )
        for heading, one, i, percent in parts
    ]


def _comparison(run: StoredRun, known: bool) -> str:
    """A table of the last evaluation, with the upper bounds in the first row."""
    bound = [["upper bound", f"{BOUND[0]}", f"{BOUND[1]}", "", ""]] if known else []
    return last_evaluation(
        run,
        ["agent", "wins (95 %)", "safe cells (95 %)", "needless risks", "known"],
        lambda row: [
            row["agent"],
            WON.shown(row),
            RETURN.shown(row),
            row["needless_risks"],
            "{:g}, {:g}".format(*KNOWN[row["agent"]]) if known and row["agent"] in KNOWN else "",
        ],
        *bound,
    )

"""In how many minutes of two cores does Othello's player pass fixed bars? See `_speedrun.py`.

    uv run --extra judges python benchmarks/othello_speedrun.py ten-minutes
    uv run --extra judges python benchmarks/othello_speedrun.py hour --seeds 1 -- --blocks 4

The flags after -- are those of `zero train othello`. The median of the seeds is what counts.
"""

from _speedrun import Bar, speedrun


def bars(random: float, positional: float, uct: float, shallow: float, deep: float, kept: float,
         lost: float) -> list[Bar]:  # fmt: skip
    """What the network alone scores, what 64 simulations and 800, and how those play endings."""
    return [
        ("--simulations 0 --opponent random", "score", random),
        ("--simulations 0 --opponent positional", "score", positional),
        ("--simulations 64 --opponent uct-1000", "score", uct),
        ("--simulations 64 --opponent alpha-beta-4", "score", shallow),
        ("--simulations 800 --suite endgames", "kept", kept),
        ("--simulations 800 --suite endgames", "loss_mean", lost),
        ("--simulations 800 --opponent alpha-beta-6", "score", deep),
    ]


if __name__ == "__main__":
    levels = {
        "ten-minutes": (10, bars(0.995, 0.93, 0.92, 0.75, 0.60, 0.80, 3.5)),
        "hour": (60, bars(0.998, 0.97, 0.97, 0.90, 0.85, 0.87, 2.0)),
        "night": (150, bars(0.999, 0.99, 0.99, 0.96, 0.95, 0.92, 1.0)),
    }
    speedrun("othello", levels, __doc__)

"""In how many minutes of two cores does Connect Four's player pass fixed bars? See `_speedrun.py`.

    uv run python benchmarks/connect_four_speedrun.py hour
    uv run python benchmarks/connect_four_speedrun.py night --seeds 1 -- --preset quick --steps 4000

The flags after -- are those of `zero train pgx/connect_four`. The median of the seeds is what
counts. The bars of a night are what AlphaZero.jl reached after 15 to 30 hours of a GPU.
"""

from _speedrun import Bar, speedrun


def bars(**mistakes: float) -> list[Bar]:
    """The shares of moves in solved positions that keep the result, with 800 simulations."""
    return [
        (f"--simulations 800 --suite {name.replace('_', '-')}", "kept", 1 - share)
        for name, share in mistakes.items()
    ]


if __name__ == "__main__":
    levels = {
        "hour": (
            60,
            bars(end_easy=0, middle_easy=0.005, middle_medium=0.03, begin_medium=0.03,
                 begin_hard=0.10),
        ),
        "night": (
            150,
            bars(end_easy=0, middle_easy=0, middle_medium=0.02, begin_medium=0.02,
                 begin_hard=0.07),
        ),
    }  # fmt: skip
    speedrun("pgx/connect_four", levels, __doc__)

"""Every hyperparameter of a training run, and the presets."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import tyro
from annotated_types import Ge, Interval

from zero_app import AbstractTreeSearchConfig, Count, Fraction, NonNegative, UnusedWhere, UsageError


#: More plies than any game has: there are 60 discs to place, and at most every other ply is a pass.
LONGEST_GAME = 128
#: The number of uniformly random plies at the start of a game. Each opening is played with both
#: colours.
OPENING_PLIES = 6


@dataclasses.dataclass(frozen=True)
class Config(AbstractTreeSearchConfig):
    """The configuration of a run; config.json in the run's folder has the same fields."""

    steps: Count = 1200
    envs: Count = 256
    updates: Count = 2
    batch: Count = 2048
    warmup: int = 50
    capacity: Annotated[int, Ge(2 * LONGEST_GAME)] = 512
    lines: bool = True
    """Look up every row, column and diagonal of the board in tables. Both heads then have more
    channels."""
    blocks: Annotated[int, Interval(ge=0, le=256)] = 0
    """Residual blocks."""
    channels: Annotated[int, Interval(ge=1, le=2**13)] = 8
    """Channels of the tower."""
    symmetries: bool = True
    """Apply a random symmetry of the board, of eight, to every position."""
    average: Fraction = 0.98
    player_exploration: NonNegative = 2.5
    prior_temperature: Annotated[float, Ge(0.01)] = 2.0
    decisive_moves: bool = True
    opening_plies: int = 10
    engine: Literal["zero", "mctx"] = "zero"
    """The search engine of self-play. mctx is for comparisons, with muzero and gumbel only."""
    env_engine: Literal["zero", "pgx"] = "zero"
    """Whose Othello is played. Both are the same game, and zero's is several times as fast. Runs of
    before there was a choice are resumed with pgx."""
    disc_weight: Annotated[float, Interval(ge=0, le=100)] = 0.0
    """What a lead of all 64 discs adds to a win: with 0 only the result counts."""
    nodes: Annotated[int, Interval(ge=1, le=10**6)] = 34
    """Nodes of the tree per game (puct and muzero keep the subtree of the played move)."""
    l2: NonNegative = 0.0
    """Weight of the squared parameters in the loss."""
    evaluate_every: Annotated[Count, tyro.conf.arg(aliases=["--ladder-every"])] = 100
    """Steps between two players of the Elo ladder."""
    ladder_games: Annotated[int, Interval(ge=2, le=10**8)] = 100
    """Games of each match of the ladder."""
    ladder_simulations: Annotated[int, Interval(ge=0, le=10**6 - 1)] = 0
    """Simulations per move in the ladder; 0 for the network without a search."""

    absent: ClassVar[Mapping[str, Any]] = {
        "env_engine": "pgx",
        "lines": False,
        "disc_weight": 0.0,
        "player_exploration": 2.5,
        "prior_temperature": 2.0,
        "decisive_moves": True,
    }
    unused_where: ClassVar[UnusedWhere] = (
        (("exploration", "nodes"), ("search",), lambda c: c.search == "gumbel"),
        (("exploration", "nodes"), ("engine",), lambda c: c.engine == "mctx"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # The buffer also holds games in progress, which cannot be sampled yet.
        room = (self.capacity - LONGEST_GAME) * self.envs
        if room < self.batch:
            raise UsageError(
                f"--capacity {self.capacity} for --envs {self.envs} leaves room for {room} "
                f"positions of finished games; --batch {self.batch} needs as many."
            )
        if self.ladder_games % 2:
            raise UsageError(
                f"--ladder-games {self.ladder_games} is odd; every opening is played with both "
                "colours, so give an even number."
            )
        if self.search != "gumbel" and self.engine == "zero" and self.nodes <= self.simulations:
            raise UsageError(
                f"--nodes {self.nodes} cannot hold the root and --simulations "
                f"{self.simulations}; give at least {self.simulations + 1}."
            )
        if self.env_engine == "pgx" and self.disc_weight:
            raise UsageError(
                f"--disc-weight {self.disc_weight:g} is not for --env-engine pgx, whose rewards do "
                "not count discs; use --env-engine zero."
            )
        if self.engine == "mctx" and self.search == "puct":
            raise UsageError(
                "--engine mctx has no --search puct; use --search muzero or --search gumbel."
            )


_HOUR = Config(
    steps=4200, channels=16, simulations=32, considered=16, capacity=1024, evaluate_every=300
)

#: `tiny` is as small as turbozero's hello-world; on two cores `quick` takes eight minutes, `hour`
#: 55, and `night` two hours.
PRESETS: dict[str, Config] = {
    "tiny": Config(
        steps=10,
        envs=16,
        unroll=10,
        updates=10,
        batch=16,
        search="puct",
        simulations=25,
        nodes=50,
        exploration=1.0,
        lines=False,
        blocks=2,
        channels=4,
        learning_rate=1e-4,
        warmup=0,
        decay=1.0,
        weight_decay=0.0,
        l2=1e-4,
        clip=0.0,
        value_mix=0.0,
        average=0.0,
        symmetries=False,
        evaluate_every=1,
    ),
    "quick": Config(),
    "hour": _HOUR,
    "night": dataclasses.replace(_HOUR, steps=7200),
    "standard": Config(
        steps=4000,
        envs=1024,
        unroll=16,
        updates=16,
        batch=2048,
        simulations=32,
        considered=16,
        lines=False,
        blocks=6,
        channels=128,
        evaluate_every=250,
        ladder_simulations=32,
    ),
    "large": Config(
        steps=20000,
        envs=4096,
        unroll=16,
        updates=16,
        batch=4096,
        simulations=64,
        considered=16,
        lines=False,
        blocks=10,
        channels=192,
        player_simulations=256,
        evaluate_every=1000,
        ladder_simulations=32,
    ),
}

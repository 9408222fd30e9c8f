"""Every hyperparameter of a training run, and the presets."""

import dataclasses
from typing import Annotated

from annotated_types import Ge, Interval

from zero_app import AbstractAdamWConfig, Count, Fraction, NonNegative, UsageError


#: The maximum is that of `zero_envs.list_mines`.
Layouts = Annotated[int, Interval(ge=1, le=65536)]
Simulations = Annotated[int, Interval(ge=1, le=10**6 - 1)]
Side = Annotated[int, Interval(ge=2, le=100)]
#: How many are played; a standard error needs two.
Boards = Annotated[int, Interval(ge=2, le=10**8)]


@dataclasses.dataclass(frozen=True)
class Config(AbstractAdamWConfig):
    """The configuration of a run; config.json in the run's folder has the same fields."""

    steps: Count = 300
    envs: Count = 256
    unroll: Count = 8
    batch: Count = 16
    """Windows per gradient update, over all learning devices."""
    learning_rate: Annotated[float, Interval(ge=1e-12, le=1)] = 2e-3
    decay: Annotated[float, Interval(ge=1e-6, le=1)] = 0.02
    evaluate_every: Count = 75

    rows: Side = 10
    """Rows of the board."""
    columns: Side = 10
    """Columns of the board."""
    mines: Annotated[int, Ge(0)] = 10
    """Mines on the board. The first cell may be a mine."""
    max_states: int = 512
    """Maximum number of states of the exact posterior, a power of two. Boards of many mines need
    more. If a posterior needs more, the network's policy plays."""

    length: Annotated[int, Interval(ge=2, le=10**8)] = 33
    """Rows in a window. The last row is only bootstrapped from."""
    capacity: Count = 1024
    """Rows kept for replay, per parallel board."""

    # --- search
    simulations: Simulations = 128
    """Simulations per searched move, while collecting and in the run's evaluations."""
    player_simulations: Simulations = 512
    """Simulations per searched move in the other commands, where they are not given a number."""
    layouts: Layouts = 256
    """Particles of a belief, which is exact if the board has at most this number of layouts."""
    exploration: NonNegative = 1.0
    """PUCT: weight of the prior, while collecting."""
    player_exploration: NonNegative = 0.1
    """PUCT: weight of the prior in evaluations."""
    temperature: NonNegative = 1.0
    """Temperature of the visits from which a move is drawn, while collecting."""

    # --- network
    channels: Annotated[int, Interval(ge=1, le=2**13)] = 32
    """Channels of the convolutions."""
    blocks: Annotated[int, Interval(ge=1, le=256)] = 6
    """Residual blocks of two convolutions each."""

    # --- learning
    n_steps: Count = 32
    """Number of rewards in a value target, before the target network's value."""
    value_weight: NonNegative = 20.0
    """Weight of the value loss."""
    mine_weight: NonNegative = 10.0
    """Weight of the loss of the mines' probabilities."""
    target_rate: Fraction = 0.02
    """Fraction of the way to the parameters that the target network moves in every update."""
    symmetries: bool = True
    """Apply a random symmetry of the board to every window."""

    # --- evaluation
    boards: Boards = 250
    """Boards in an evaluation; four times as many in the last one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mines >= self.rows * self.columns:
            raise UsageError(
                f"--mines {self.mines} was given for --rows {self.rows} and --columns "
                f"{self.columns}; give 0 to {self.rows * self.columns - 1}, as one cell is safe."
            )
        if self.capacity < self.length:
            raise UsageError(
                f"--capacity {self.capacity} holds no window of --length {self.length}; give at "
                f"least {self.length}."
            )


#: `tiny` runs all parts in little more than a minute, on a small board.
PRESETS: dict[str, Config] = {
    "default": Config(),
    "tiny": Config(
        rows=5,
        columns=5,
        mines=4,
        max_states=64,
        steps=20,
        envs=16,
        unroll=8,
        updates=2,
        length=9,
        capacity=256,
        simulations=16,
        player_simulations=32,
        layouts=64,
        channels=8,
        blocks=2,
        n_steps=8,
        evaluate_every=10,
        boards=50,
    ),
}

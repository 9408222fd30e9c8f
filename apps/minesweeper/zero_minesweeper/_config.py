"""Every hyperparameter of a training run, and the presets."""

import dataclasses
import math
from typing import ClassVar

from zero_app import AbstractAdamWConfig, Bounds, UsageError


#: The maximum number of layouts of `zero_envs.list_mines`.
MOST_LAYOUTS = 65536
#: The allowed range of `--simulations`, inclusive.
SIMULATIONS = (1, 10**6 - 1)
#: The allowed range of the sides of a board, inclusive.
SIDES = (2, 100)


@dataclasses.dataclass(frozen=True)
class Config(AbstractAdamWConfig):
    """The configuration of a run; config.json in the run's folder has the same fields."""

    steps: int = 300
    envs: int = 256
    unroll: int = 8
    batch: int = 16
    """Windows per gradient update, over all learning devices."""
    learning_rate: float = 2e-3
    decay: float = 0.02
    evaluate_every: int = 75

    rows: int = 10
    """Rows of the board."""
    columns: int = 10
    """Columns of the board."""
    mines: int = 10
    """Mines on the board. The first cell may be a mine."""
    max_states: int = 512
    """Maximum number of states of the exact posterior, a power of two. Boards of many mines need
    more. If a posterior needs more, the network's policy plays."""

    length: int = 33
    """Rows in a window. The last row is only bootstrapped from."""
    capacity: int = 1024
    """Rows kept for replay, per parallel board."""

    # --- search
    simulations: int = 128
    """Simulations per searched move, while collecting and in the run's evaluations."""
    player_simulations: int = 512
    """Simulations per searched move in the other commands, where they are not given a number."""
    layouts: int = 256
    """Particles of a belief, which is exact if the board has at most this number of layouts."""
    exploration: float = 1.0
    """PUCT: weight of the prior, while collecting."""
    player_exploration: float = 0.1
    """PUCT: weight of the prior in evaluations."""
    temperature: float = 1.0
    """Temperature of the visits from which a move is drawn, while collecting."""

    # --- network
    channels: int = 32
    """Channels of the convolutions."""
    blocks: int = 6
    """Residual blocks of two convolutions each."""

    # --- learning
    n_steps: int = 32
    """Number of rewards in a value target, before the target network's value."""
    value_weight: float = 20.0
    """Weight of the value loss."""
    mine_weight: float = 10.0
    """Weight of the loss of the mines' probabilities."""
    target_rate: float = 0.02
    """Fraction of the way to the parameters that the target network moves in every update."""
    symmetries: bool = True
    """Apply a random symmetry of the board to every window."""

    # --- evaluation
    boards: int = 250
    """Boards in an evaluation; four times as many in the last one."""

    bounds: ClassVar[Bounds] = {
        **dict.fromkeys(("capacity", "n_steps"), (1, math.inf)),
        **dict.fromkeys(("simulations", "player_simulations"), SIMULATIONS),
        "blocks": (1, 256),
        "channels": (1, 2**13),
        "layouts": (1, MOST_LAYOUTS),
        **dict.fromkeys(("rows", "columns"), SIDES),
        **dict.fromkeys(("length", "boards"), (2, 10**8)),
        **dict.fromkeys(("exploration", "player_exploration", "temperature"), (0, math.inf)),
        **dict.fromkeys(("mines", "value_weight", "mine_weight"), (0, math.inf)),
        "target_rate": (0, 1),
        "decay": (1e-6, 1),
    }

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

"""Every hyperparameter of a training run, and the presets."""

import dataclasses
import math

from zero_train.app import check_bounds, UsageError


@dataclasses.dataclass(frozen=True)
class Config:
    """What a run trains, and how. The run folder's config.json holds exactly these."""

    rows: int = 10
    """Of the board."""
    columns: int = 10
    """Of the board."""
    mines: int = 10
    """On the board; the first cell may be one."""
    max_states: int = 512
    """Room for the exact posterior, a power of two; boards of many mines need more. Where one does
    not fit, the network's policy plays."""
    seed: int = 0
    """Everything random in the run derives from it."""

    # --- how much
    steps: int = 300
    """Steps of the loop: each collects from every environment, then updates."""
    envs: int = 256
    """Boards played at once, over all devices."""
    unroll: int = 8
    """Cells opened on every board per step."""
    updates: int = 4
    """Gradient updates per step."""
    batch: int = 16
    """Windows per gradient update, over all devices."""
    length: int = 33
    """Rows in a window; all but the last are learned from."""
    capacity: int = 1024
    """Rows kept for replay, per board played."""
    shards: int = 8
    """Parts that replay is drawn in; any number of devices that divides it gives the same run."""

    # --- search
    simulations: int = 128
    """Simulations per move that must be searched, while collecting and in the run's evaluations."""
    player_simulations: int = 512
    """The same at full strength, when not said otherwise."""
    layouts: int = 256
    """Particles of a belief, which is exact where the board has no more layouts."""
    exploration: float = 1.0
    """PUCT: weight of the prior, while collecting."""
    player_exploration: float = 0.1
    """The same at full strength."""
    temperature: float = 1.0
    """Of the visits that a move is drawn by, while collecting."""

    # --- network
    channels: int = 32
    """Of the convolutions."""
    blocks: int = 6
    """Residual blocks of two convolutions each."""

    # --- learning
    n_steps: int = 32
    """Rewards in a value target before the target network's value."""
    value_weight: float = 20.0
    """Weight of the value loss."""
    mine_weight: float = 10.0
    """Weight of the loss of the mines' probabilities."""
    target_rate: float = 0.02
    """How far the target network moves towards the parameters with every update."""
    learning_rate: float = 2e-3
    """Learning rate of AdamW at the first update."""
    decay: float = 0.02
    """Share of the learning rate that is left at the last update; it falls as a cosine."""
    weight_decay: float = 1e-4
    """AdamW's decoupled weight decay."""
    clip: float = 1.0
    """Gradients are scaled down to this global norm; 0 leaves them."""
    symmetries: bool = True
    """Learn from each window in a random one of the board's symmetries."""

    # --- watching
    evaluate_every: int = 75
    """Steps between two evaluations."""
    boards: int = 250
    """Boards in each; four times as many in the last one."""
    checkpoint_every: int = 50
    """Steps between two checkpoints of the whole state."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        for name in ("envs", "batch"):
            if getattr(self, name) % self.shards:
                raise UsageError(
                    f"--{name} {getattr(self, name)} does not divide into --shards {self.shards}; "
                    f"give a multiple of {self.shards}, or other --shards."
                )
        if self.capacity < self.length:
            raise UsageError(
                f"--capacity {self.capacity} holds no window of --length {self.length}; give at "
                f"least {self.length}."
            )


#: As many as `zero_envs.list_mines` can tell apart.
MOST_LAYOUTS = 65536
#: What every `--simulations` may be.
SIMULATIONS = (1, 10**6 - 1)
#: What the sides of a board may be.
SIDES = (2, 100)
#: What each flag may be, ends included; boards are looked at by `zero_envs.Minesweeper` too.
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("steps", "envs", "unroll", "updates", "batch", "shards"), (1, math.inf)),
    **dict.fromkeys(("capacity", "n_steps"), (1, math.inf)),
    **dict.fromkeys(("simulations", "player_simulations"), SIMULATIONS),
    **dict.fromkeys(("channels", "blocks"), (1, 10**4)),
    "layouts": (1, MOST_LAYOUTS),
    **dict.fromkeys(("rows", "columns"), SIDES),
    **dict.fromkeys(("evaluate_every", "checkpoint_every"), (1, math.inf)),
    **dict.fromkeys(("length", "boards"), (2, 10**8)),
    **dict.fromkeys(("exploration", "player_exploration", "temperature", "mines"), (0, math.inf)),
    **dict.fromkeys(("value_weight", "mine_weight", "weight_decay", "clip"), (0, math.inf)),
    **dict.fromkeys(("target_rate", "learning_rate"), (0, 1)),
    "decay": (1e-6, 1),
}

#: `tiny` shows every part in a few minutes, on a small board.
PRESETS: dict[str, Config] = {
    "default": Config(),
    "tiny": Config(
        rows=5,
        columns=5,
        mines=4,
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
        checkpoint_every=10,
    ),
}

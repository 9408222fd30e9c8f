"""Every hyperparameter of a training run, and the presets."""

import dataclasses
import math
from typing import Literal

from zero_train.app import check_bounds, UsageError


@dataclasses.dataclass(frozen=True)
class Config:
    """What a run trains, and how. The run folder's config.json holds exactly these."""

    seed: int = 0
    """Everything random in the run derives from it."""

    # --- how much
    steps: int = 450
    """Steps of the loop: each collects from every game, then updates."""
    envs: int = 128
    """Games played at once, over all devices."""
    unroll: int = 4
    """Moves played in every game per step."""
    updates: int = 4
    """Gradient updates per step."""
    batch: int = 512
    """Positions per gradient update, over all devices."""
    capacity: int = 512
    """Positions kept for replay, per game played at once."""
    shards: int = 8
    """Parts that games and replay are drawn in; any number of devices that divides it gives the
    same run."""

    # --- search
    search: Literal["puct", "muzero", "gumbel"] = "gumbel"
    """AlphaZero PUCT, MuZero PUCT, or Gumbel sequential halving."""
    engine: Literal["zero", "mctx"] = "zero"
    """Whose search collects; mctx (muzero or gumbel only) is there to compare with."""
    simulations: int = 16
    """Simulations per move while collecting."""
    nodes: int = 34
    """Nodes of the tree per game (puct and muzero keep the played move's subtree)."""
    considered: int = 8
    """Gumbel: moves considered at the root."""
    exploration: float = 1.25
    """PUCT: weight of the prior."""
    noise: float = 0.25
    """PUCT: share of Dirichlet noise in the root's prior."""
    concentration: float = 10.0
    """PUCT: total Dirichlet concentration, divided by the number of legal moves."""
    temperature_moves: int = 20
    """PUCT: plies of a game that sample from the visits; later ones play the most visited."""
    player_simulations: int = 64
    """Simulations per move at full strength, when not said otherwise."""

    # --- network
    blocks: int = 3
    """Residual blocks."""
    channels: int = 32
    """Channels of the tower."""

    # --- learning
    learning_rate: float = 3e-3
    """Peak learning rate of AdamW."""
    warmup: int = 50
    """Updates over which the learning rate rises to its peak."""
    decay: float = 0.05
    """The learning rate falls along a cosine to this share of its peak; 1 keeps it constant."""
    weight_decay: float = 1e-4
    """AdamW's decoupled weight decay."""
    l2: float = 0.0
    """Weight of the squared parameters in the loss."""
    clip: float = 1.0
    """Gradients are scaled down to this global norm; 0 leaves them."""
    value_weight: float = 1.0
    """Weight of the value loss."""
    value_mix: float = 0.3
    """Share of the searched value in the value target; the rest is the game's outcome."""
    average: float = 0.98
    """Decay of the parameters' moving average, which plays; 0 plays the newest parameters."""
    symmetries: bool = True
    """Learn from each sampled position in a random one of its eight symmetries."""

    # --- watching
    ladder_every: int = 50
    """Steps between two players of the Elo ladder."""
    ladder_games: int = 100
    """Games for each pair of the ladder that plays."""
    ladder_simulations: int = 0
    """Simulations per move in the ladder; 0 is the network alone."""
    checkpoint_every: int = 100
    """Steps between two checkpoints of the whole state."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        for name in ("envs", "batch"):
            value = getattr(self, name)
            if value % self.shards:
                raise UsageError(
                    f"--{name} {value} does not divide into --shards {self.shards}; "
                    f"give a multiple of {self.shards}, or other --shards."
                )
        # A ring also holds the game in progress, which cannot be sampled yet.
        room = (self.capacity - LONGEST_GAME) * self.envs
        if room < self.batch:
            raise UsageError(
                f"--capacity {self.capacity} for --envs {self.envs} leaves room for {room} "
                f"positions of finished games; --batch {self.batch} needs as many."
            )
        if self.ladder_games % 2:
            raise UsageError(
                f"--ladder-games {self.ladder_games} is odd; every opening is played from both "
                "seats, so give an even number."
            )
        if self.search != "gumbel" and self.engine == "zero" and self.nodes <= self.simulations:
            raise UsageError(
                f"--nodes {self.nodes} cannot hold the root and --simulations "
                f"{self.simulations}; give at least {self.simulations + 1}."
            )
        if self.engine == "mctx" and self.search == "puct":
            raise UsageError(
                "--engine mctx has no --search puct; use --search muzero or --search gumbel."
            )


#: More plies than any game has: 60 discs to place, and passes.
LONGEST_GAME = 128

#: What `--simulations` may be where 0 is the network alone.
SIMULATIONS = (0, 10**6 - 1)
#: What each flag may be, ends included.
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("steps", "envs", "unroll", "updates", "batch", "shards"), (1, math.inf)),
    **dict.fromkeys(("simulations", "player_simulations", "nodes"), (1, 10**6)),
    "considered": (1, math.inf),
    **dict.fromkeys(("blocks", "channels"), (1, 10**4)),
    **dict.fromkeys(("ladder_every", "checkpoint_every"), (1, math.inf)),
    "capacity": (2 * LONGEST_GAME, math.inf),
    "ladder_games": (2, 10**8),
    "ladder_simulations": SIMULATIONS,
    **dict.fromkeys(("exploration", "temperature_moves", "warmup"), (0, math.inf)),
    "concentration": (1e-6, math.inf),
    "learning_rate": (0, 1),
    **dict.fromkeys(("weight_decay", "l2", "clip", "value_weight"), (0, math.inf)),
    **dict.fromkeys(("noise", "decay", "value_mix", "average"), (0, 1)),
}


#: `tiny` is a hello-world of the size of turbozero's; `quick` fills ten minutes of two cores.
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
        ladder_every=1,
        checkpoint_every=1,
    ),
    "quick": Config(),
    "standard": Config(
        steps=4000,
        envs=1024,
        unroll=16,
        updates=16,
        batch=2048,
        simulations=32,
        considered=16,
        blocks=6,
        channels=128,
        ladder_every=250,
        ladder_simulations=32,
        checkpoint_every=250,
    ),
    "large": Config(
        steps=20000,
        envs=4096,
        unroll=16,
        updates=16,
        batch=4096,
        simulations=64,
        considered=16,
        blocks=10,
        channels=192,
        player_simulations=256,
        ladder_every=1000,
        ladder_simulations=32,
        checkpoint_every=500,
    ),
}

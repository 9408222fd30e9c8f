"""Every hyperparameter of a training run, and the presets."""

import dataclasses
import math
from typing import Literal

from zero_train.app import check_bounds, UsageError


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a run; config.json in the run's folder has the same fields."""

    seed: int = 0
    """The seed of all randomness."""

    # --- how much
    steps: int = 450
    """Steps of the loop, each of which collects from every game and then updates."""
    envs: int = 128
    """Parallel games, over all devices."""
    unroll: int = 4
    """Moves in every game per step."""
    updates: int = 4
    """Gradient updates per step."""
    batch: int = 512
    """Positions per gradient update, over all devices."""
    capacity: int = 512
    """Positions kept for replay, per parallel game."""
    shards: int = 8
    """Parts of the replay buffer. The run is the same for every number of devices that divides
    it."""

    # --- search
    search: Literal["puct", "muzero", "gumbel"] = "gumbel"
    """AlphaZero PUCT, MuZero PUCT, or Gumbel sequential halving."""
    engine: Literal["zero", "mctx"] = "zero"
    """The search engine of self-play. mctx is for comparisons, with muzero and gumbel only."""
    simulations: int = 16
    """Simulations per move while collecting."""
    nodes: int = 34
    """Nodes of the tree per game (puct and muzero keep the subtree of the played move)."""
    considered: int = 8
    """Gumbel: moves considered at the root."""
    exploration: float = 1.25
    """PUCT: weight of the prior."""
    noise: float = 0.25
    """PUCT: fraction of Dirichlet noise in the root's prior."""
    concentration: float = 10.0
    """PUCT: total concentration of the Dirichlet noise, divided by the number of legal moves."""
    temperature_moves: int = 20
    """PUCT: plies of a game in which the move is sampled from the visits; in later plies the most
    visited move is played."""
    player_simulations: int = 64
    """Simulations per move in matches, by default."""

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
    """The learning rate falls along a cosine to this fraction of its peak; 1 keeps it constant."""
    weight_decay: float = 1e-4
    """AdamW's decoupled weight decay."""
    l2: float = 0.0
    """Weight of the squared parameters in the loss."""
    clip: float = 1.0
    """Maximum global norm of the gradient; 0 for no maximum."""
    value_weight: float = 1.0
    """Weight of the value loss."""
    value_mix: float = 0.3
    """Fraction of the searched value in the value target; the rest is the outcome of the game."""
    average: float = 0.98
    """Decay of the moving average of the parameters, which plays; with 0 the newest parameters
    play."""
    symmetries: bool = True
    """Apply a random symmetry of the board, of eight, to every position."""

    # --- evaluation
    ladder_every: int = 50
    """Steps between two players of the Elo ladder."""
    ladder_games: int = 100
    """Games of each match of the ladder."""
    ladder_simulations: int = 0
    """Simulations per move in the ladder; 0 for the network without a search."""
    checkpoint_every: int = 100
    """Steps between two checkpoints."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        for name in ("envs", "batch"):
            value = getattr(self, name)
            if value % self.shards:
                raise UsageError(
                    f"--{name} {value} does not divide into --shards {self.shards}; "
                    f"give a multiple of {self.shards}, or other --shards."
                )
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
        if self.engine == "mctx" and self.search == "puct":
            raise UsageError(
                "--engine mctx has no --search puct; use --search muzero or --search gumbel."
            )


#: More plies than any game has. There are 60 discs to place, and passes.
LONGEST_GAME = 128

#: The allowed range of `--simulations`, inclusive; 0 is the network without a search.
SIMULATIONS = (0, 10**6 - 1)
#: The allowed range of each flag, inclusive.
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


#: `tiny` is as small as turbozero's hello-world; `quick` takes ten minutes on two cores.
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

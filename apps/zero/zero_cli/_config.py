"""Every hyperparameter of a run that searches a tree, and the presets by size of game."""

import dataclasses
import math
from typing import Literal

from zero_train.app import check_bounds, UsageError


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a run; config.json in the run's folder has the same fields."""

    env: str
    """The environment, as `zero list` names it, or module:Class."""
    agent: Literal["alphazero", "expert"] = "alphazero"
    """AlphaZero learns the outcomes of whole games; expert iteration learns n-step returns, with
    chance nodes where the odds are known."""
    network: str = "auto"
    """module:Class of a network, or auto: convolutions for boards, a perceptron for the rest."""
    seed: int = 0
    """The seed of all randomness."""

    # --- how much
    steps: int = 200
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
    """Positions kept for replay, per parallel game; longer games are not learned from."""
    shards: int = 8
    """Parts of the replay buffer. The run is the same for every number of devices that divides
    it."""

    # --- search
    search: Literal["gumbel", "puct"] = "gumbel"
    """Gumbel sequential halving, or AlphaZero PUCT."""
    simulations: int = 16
    """Simulations per move while collecting."""
    considered: int = 8
    """Gumbel: moves considered at the root."""
    exploration: float = 1.25
    """PUCT: weight of the prior."""
    noise: float = 0.25
    """PUCT: fraction of Dirichlet noise in the root's prior."""
    concentration: float = 10.0
    """PUCT: total concentration of the Dirichlet noise, divided by the number of legal moves."""
    temperature_moves: int = 20
    """PUCT: plies of a game in which the move is sampled from the visits."""
    player_simulations: int = 64
    """Simulations per move in `eval`, `play` and `compare`, by default."""

    # --- network
    blocks: int = 2
    """Residual blocks, or layers of the perceptron."""
    channels: int = 32
    """Channels of the blocks. A perceptron is four times as wide."""

    # --- learning
    learning_rate: float = 3e-3
    """Peak learning rate of AdamW."""
    warmup: int = 20
    """Updates over which the learning rate rises to its peak."""
    decay: float = 0.05
    """The learning rate falls along a cosine to this fraction of its peak."""
    weight_decay: float = 1e-4
    """AdamW's decoupled weight decay."""
    clip: float = 1.0
    """Maximum global norm of the gradient; 0 for no maximum."""
    value_weight: float = 1.0
    """Weight of the value loss."""
    value_mix: float = 0.3
    """Fraction of the searched value in the value target."""
    average: float = 0.95
    """Decay of the moving average of the parameters, which plays."""
    symmetries: bool = True
    """Apply a random symmetry of the board to every position, in games that are known to have
    some."""
    gamma: float = 0.997
    """Expert iteration: the discount factor."""
    n_steps: int = 8
    """Expert iteration: rewards in a return before the value is bootstrapped from."""
    window: int = 16
    """Expert iteration: consecutive positions in a sample of the replay."""

    # --- evaluation
    evaluate_every: int = 25
    """Steps between two evaluations of the network without a search."""
    games: int = 200
    """Games of each evaluation: against random moves, or alone where there is one player."""
    max_moves: int = 1000
    """Moves after which a game of an evaluation is broken off."""
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
        if self.games % 2:
            raise UsageError(
                f"--games {self.games} is odd; every opening is played from both seats, so give "
                "an even number."
            )
        if self.window <= self.n_steps:
            raise UsageError(
                f"--window {self.window} has no return of --n-steps {self.n_steps}; give at least "
                f"{self.n_steps + 1}."
            )


#: The allowed range of `--simulations`, inclusive; 0 is the network without a search.
SIMULATIONS = (0, 10**6)
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("steps", "envs", "unroll", "updates", "batch", "shards"), (1, math.inf)),
    **dict.fromkeys(("simulations", "player_simulations", "considered"), (1, 10**6)),
    **dict.fromkeys(("blocks", "channels"), (1, 10**4)),
    **dict.fromkeys(("evaluate_every", "checkpoint_every", "max_moves", "n_steps"), (1, math.inf)),
    "capacity": (2, math.inf),
    "games": (2, 10**8),
    "window": (2, math.inf),
    **dict.fromkeys(("exploration", "temperature_moves", "warmup"), (0, math.inf)),
    "concentration": (1e-6, math.inf),
    "learning_rate": (0, 1),
    **dict.fromkeys(("weight_decay", "clip", "value_weight"), (0, math.inf)),
    **dict.fromkeys(("noise", "decay", "value_mix", "average", "gamma"), (0, 1)),
}


def presets(env: str, agent: Literal["alphazero", "expert"], size: int) -> dict[str, Config]:
    """The presets of an environment whose observations have `size` numbers.

    `quick` takes minutes on two cores, `standard` needs an accelerator, and `tiny` runs all parts.
    """
    quick = Config(env, agent)
    if size <= 32:
        quick = dataclasses.replace(quick, steps=120, unroll=2, channels=16, batch=256)
    if size > 400:
        quick = dataclasses.replace(quick, blocks=3, capacity=1024)
    if agent == "expert":
        quick = dataclasses.replace(quick, simulations=32, unroll=8, max_moves=10_000)
    tiny = dataclasses.replace(
        quick,
        steps=4,
        envs=16,
        unroll=8,
        updates=2,
        batch=16,
        simulations=4,
        considered=4,
        blocks=1,
        channels=8,
        warmup=0,
        evaluate_every=2,
        games=16,
        max_moves=100,
        checkpoint_every=2,
    )
    standard = dataclasses.replace(
        quick,
        steps=4000,
        envs=1024,
        unroll=16,
        updates=16,
        batch=2048,
        simulations=32,
        considered=16,
        blocks=6,
        channels=128,
        warmup=500,
        average=0.99,
        evaluate_every=250,
        checkpoint_every=250,
    )
    return {"tiny": tiny, "quick": quick, "standard": standard}

"""Every hyperparameter of a training run, and the presets."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval

from zero_app import AbstractAdamWConfig, Count, Fraction, NonNegative, UnusedWhere, UsageError

from ._names import checked, PlannerName


#: The standard error of a mean needs two.
Rollouts = Annotated[int, Interval(ge=2, le=10**8)]
Simulations = Annotated[int, Interval(ge=1, le=10**6)]


@dataclasses.dataclass(frozen=True)
class Config(AbstractAdamWConfig):
    """The configuration of a run; config.json in the run's folder has the same fields."""

    absent: ClassVar[Mapping[str, Any]] = {"step_penalty": 0.0}
    unused_where: ClassVar[UnusedWhere] = (
        (("alpha",), ("noise",), lambda c: not c.noise),
        (("width", "layers"), ("network",), lambda c: c.network == "original"),
    )

    steps: Count = 1440
    envs: Count = 64
    updates: Count = 16
    batch: Count = 64
    """Windows per gradient update, over all learning devices."""
    learning_rate: Annotated[float, Interval(ge=1e-12, le=1)] = 1e-3
    decay: Annotated[float, Interval(ge=1e-6, le=1)] = 0.05
    evaluate_every: Count = 200

    world: Literal["moving", "stationary"] = "moving"
    """Whether the monsters move."""

    length: Annotated[int, Ge(2)] = 17
    """Rows in a window. The last row is only bootstrapped from."""
    capacity: Count = 512
    """Rows kept for replay, per environment."""
    time_limit: Count = 64
    """Moves after which a training episode is truncated."""

    # --- search
    planner: str = "chance"
    """frozen, hindsight-K or chance."""
    outcomes: Literal["proportional", "weighted", "sampled"] = "weighted"
    """How chance nodes visit outcomes: in proportion to their probabilities; equally often, with
    values weighted by the probabilities; or at random."""
    simulations: Simulations = 32
    """Simulations per move while collecting, in all trees together."""
    exploration: NonNegative = 2.5
    """PUCT: weight of the prior."""
    first_play: float | None = None
    """Q-value of an unvisited action. With None it is estimated from the visited siblings and the
    parent, and Q-values are scaled to [0, 1]."""
    noise: Fraction = 0.25
    """Fraction of Dirichlet noise in the root's prior."""
    alpha: Annotated[float, Ge(1e-6)] = 0.5
    """Concentration of the Dirichlet noise for every legal move."""
    temperature: Annotated[float, Ge(1e-6)] = 0.3
    """Temperature of the softmax over Q-values, which acts and is the policy target, at the first
    update."""
    temperature_end: Annotated[float, Ge(1e-6)] = 0.05
    """The temperature at the last update; in between it falls exponentially."""
    player_simulations: Simulations = 50
    """Simulations per move in evaluations."""

    # --- network
    network: Literal["small", "original"] = "small"
    """small is a multi-layer perceptron on the board; original is the residual network of the
    original system, on words."""
    width: Annotated[int, Interval(ge=1, le=10**4)] = 512
    """small: width of the hidden layers."""
    layers: Annotated[int, Interval(ge=1, le=256)] = 2
    """small: hidden layers."""
    atoms: Annotated[int, Ge(2)] = 21
    """Atoms of the value's distribution, evenly over all possible returns."""

    # --- learning
    gamma: Annotated[float, Interval(ge=1e-6, le=1)] = 0.85
    """Discount of one move, in planning and in returns."""
    step_penalty: NonNegative = 0.14
    """Cost of a move in planning and in training, and not in evaluations. The default is what a
    move earns on average, so an episode is worth its reward less what its moves earn elsewhere."""
    n_steps: Count = 5
    """Number of rewards in a value target, before the target network's value."""
    value_mix: Fraction = 1.0
    """Fraction of the searched value in the value target."""
    value_weight: NonNegative = 1.0
    """Weight of the value loss."""
    entropy_bonus: NonNegative = 0.0
    """Weight of the policy's entropy."""
    target_period: Count = 1
    """Updates between two changes of the target network."""
    target_rate: Fraction = 0.02
    """Fraction of the way to the parameters that the target network moves in each change."""
    symmetries: bool = True
    """Apply a random symmetry of the board, of eight, to every window."""

    # --- evaluation
    rollouts: Rollouts = 500
    """Rollouts of 32 steps in an evaluation; four times as many in the last one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if PlannerName.parse(self.planner).playout:
            raise UsageError(
                f"--planner {self.planner} evaluates leaves by playouts instead of the network, "
                f"which learns to; give {self.planner.removesuffix('+playout')}."
            )
        for name in ("simulations", "player_simulations"):
            try:
                checked(self.planner, getattr(self, name))
            except UsageError as e:
                raise UsageError(f"--planner, --{name.replace('_', '-')}: {e}") from e
        if self.step_penalty and self.gamma == 1:
            raise UsageError(
                f"--gamma 1 and --step-penalty {self.step_penalty}, so returns have no bound; give "
                "a --gamma below 1, or --step-penalty 0."
            )
        if self.capacity < self.length:
            raise UsageError(
                f"--capacity {self.capacity} holds no window of --length {self.length}; give at "
                f"least {self.length}."
            )
        if self.temperature_end > self.temperature:
            raise UsageError(
                f"--temperature-end {self.temperature_end} is above --temperature "
                f"{self.temperature}; give at most that."
            )


#: `tiny` runs all parts within a minute. `original` is the configuration of the original system:
#: its batches of 32 rollouts of 32 moves are windows of 33 rows here. Unlike in the original, no
#: tree is reused between moves.
PRESETS: dict[str, Config] = {
    "tiny": Config(
        steps=10,
        envs=16,
        batch=16,
        updates=2,
        simulations=8,
        player_simulations=16,
        width=32,
        evaluate_every=5,
        rollouts=20,
    ),
    "default": Config(),
    "original": Config(
        steps=1250,
        envs=32,
        unroll=4,
        updates=4,
        batch=32,
        length=33,
        capacity=1056,
        time_limit=1000,
        outcomes="sampled",
        simulations=50,
        exploration=1.0,
        first_play=0.5,
        temperature=1.0,
        temperature_end=0.1,
        network="original",
        gamma=0.99,
        step_penalty=0.0,
        value_mix=0.0,
        entropy_bonus=0.01,
        target_period=8,
        target_rate=0.5,
        decay=0.01,
        schedule="exponential",
        weight_decay=0.0,
        clip=0.0,
        symmetries=False,
        evaluate_every=80,
    ),
}

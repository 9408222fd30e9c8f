"""Every hyperparameter of a run that searches a tree, and the presets by size of game."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval

from zero_app import AbstractTreeSearchConfig, Count, Fraction, UsageError


#: The agents that search a tree.
Agent = Literal["alphazero", "expert", "muzero", "stochastic"]
#: Those that plan over a model that they learn.
LATENT = ("muzero", "stochastic")


@dataclasses.dataclass(frozen=True)
class Config(AbstractTreeSearchConfig):
    """The configuration of a run; config.json in the run's folder has the same fields."""

    env: str = dataclasses.field(kw_only=True)
    """The environment, as `zero list` names it, or module:Class."""
    agent: Agent = "alphazero"
    """AlphaZero learns the outcomes of whole games; expert iteration learns n-step returns, with
    chance nodes where the odds are known; MuZero plans over a model that it learns, and does not
    use --symmetries, --value-mix and --average; stochastic is MuZero with a model of chance."""
    network: str = "auto"
    """module:Class or file.py:Class of a network, or auto: convolutions for boards, a perceptron
    for the rest."""
    warmup: int = 20
    capacity: Annotated[int, Ge(2)] = 512
    """Positions kept for replay, per parallel game; longer games are not learned from."""
    blocks: Annotated[int, Interval(ge=1, le=256)] = 2
    """Residual blocks, or layers of the perceptron."""
    channels: Annotated[int, Interval(ge=1, le=2**13)] = 32
    """Channels of the blocks. A perceptron is four times as wide."""
    symmetries: bool = True
    """Apply a random symmetry of the board to every position, in games that are known to have
    some."""
    gamma: Fraction = 0.997
    """Expert iteration, MuZero: the discount factor; 1 in games of two."""
    n_steps: Count = 8
    """Expert iteration, MuZero: rewards in a return before the value is bootstrapped from."""
    model_steps: Count = 5
    """MuZero: steps that the model is unrolled to learn."""
    normalise_observations: bool = True
    """MuZero: normalise observations that are no boards by their running mean and deviation."""
    window: Annotated[int, Ge(2)] = 16
    """Expert iteration: consecutive positions in a sample of the replay."""
    games: Annotated[int, Interval(ge=2, le=10**8)] = 200
    """Games of each evaluation of the network without a search: against random moves, or alone
    where there is one player."""
    max_moves: Count = 1000
    """Moves after which a game of an evaluation is cut off."""

    absent: ClassVar[Mapping[str, Any]] = types.MappingProxyType(
        {"model_steps": 5, "normalise_observations": True}
    )
    code: ClassVar[tuple[str, ...]] = ("env", "network")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.games % 2:
            raise UsageError(
                f"--games {self.games} is odd; every opening is played from both seats, so give "
                "an even number."
            )
        if self.agent in LATENT and self.capacity <= self.model_steps + self.n_steps:
            raise UsageError(
                f"--capacity {self.capacity} has no window of --model-steps {self.model_steps} and "
                f"--n-steps {self.n_steps}; give at least {self.model_steps + self.n_steps + 1}."
            )
        if self.agent == "expert" and self.window <= self.n_steps:
            raise UsageError(
                f"--window {self.window} has no return of --n-steps {self.n_steps}; give at least "
                f"{self.n_steps + 1}."
            )


def presets(env: str, agent: Agent, size: int) -> dict[str, Config]:
    """The presets of an environment whose observations have `size` numbers.

    `quick` takes minutes on two cores, `standard` needs an accelerator, and `tiny` runs all parts.
    """
    quick = Config(env=env, agent=agent)
    if size <= 32:
        quick = dataclasses.replace(quick, steps=120, unroll=2, channels=16, batch=256)
    if size > 400:
        quick = dataclasses.replace(quick, blocks=3, capacity=1024)
    if agent != "alphazero":
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
    )
    return {"tiny": tiny, "quick": quick, "standard": standard}

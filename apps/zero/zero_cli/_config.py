"""Every hyperparameter of a run that searches a tree, and the presets by size of game."""

import dataclasses
import functools as ft
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval

from zero_app import AbstractTreeSearchConfig, Count, Fraction, NonNegative, UnusedWhere, UsageError
from zero_envs import known_environments

from ._agents import SYMMETRIES


#: The agents that search a tree.
Agent = Literal["alphazero", "expert", "muzero", "stochastic", "sampled", "sampled-alphazero"]


@dataclasses.dataclass(frozen=True)
class Config(AbstractTreeSearchConfig):
    """The configuration of a run; config.json in the run's folder has the same fields."""

    env: str = dataclasses.field(kw_only=True)
    """The environment, as `zero list` names it, or module:Class."""
    agent: Agent = "alphazero"
    """AlphaZero learns the outcomes of whole games; expert iteration learns n-step returns, with
    chance nodes where the odds are known; MuZero plans over a model that it learns, stochastic is
    MuZero with a model of chance. Of continuous actions, and those of several components, sampled
    is Sampled MuZero, and sampled-alphazero plans over the environment. Those that learn a model do
    not use --symmetries, --value-mix and --average."""
    network: str = "auto"
    """module:Class or file.py:Class of a network, or auto: convolutions for boards and images,
    a perceptron for the rest. Of expert, parts: an observation's arrays of two axes are parts with
    an action each, the last ones, and share a perceptron --channels wide, in --blocks - 1 rounds of
    which each sees all others. Of alphazero, lines: every row, column and diagonal of a small board
    is looked up in tables, before --blocks - 1 residual blocks."""
    warmup: int = 20
    capacity: Annotated[int, Ge(2)] = 512
    """Positions kept for replay, per parallel game; of longer games the last ones."""
    blocks: Annotated[int, Interval(ge=1, le=256)] = 2
    """Residual blocks, or layers of the perceptron."""
    channels: Annotated[int, Interval(ge=1, le=2**13)] = 32
    """Channels of the blocks. A perceptron is four times as wide."""
    symmetries: bool = True
    """Apply a random symmetry of the board to every position, in games that are known to have
    some."""
    gamma: Fraction = 0.997
    """All but alphazero: the discount factor; 1 in games of two."""
    n_steps: Count = 8
    """All but alphazero: rewards in a return before the value is bootstrapped from."""
    model_steps: Count = 5
    """Agents that learn a model: steps that it is unrolled to learn."""
    reward_weight: NonNegative = 1.0
    """Agents that learn a model: weight of the loss of rewards, each of which counts 1 /
    --model-steps."""
    normalise_observations: bool = True
    """Agents that learn a model: normalise observations that are no boards by their running mean
    and deviation."""
    reanalyse: Fraction = 0.0
    """Share of every batch whose plans are made anew before they are learned from. The replay of
    agents that know the rules then keeps states as well."""
    consistency: NonNegative = 0.0
    """Agents that learn a model: weight of the loss by which unrolled hidden states agree with what
    is observed."""
    value_prefix: Annotated[int, Ge(0)] = 0
    """muzero, sampled: predict sums of at most so many rewards, beginning anew after as many steps,
    instead of single rewards; 0 predicts single rewards."""
    correction: Annotated[int, Ge(0)] = 0
    """Agents that learn a model: shortens a row's return by one step, down to one, for every so
    many updates since the row was collected; 0 never does."""
    memory: bool = False
    """muzero, of one player: let the network remember the episode, by a recurrent layer (GRU) of
    4 * --channels units."""
    memory_steps: Count = 16
    """With --memory: steps before those that the model is unrolled over, to learn what to
    remember."""
    candidates: Count = 20
    """Sampled agents: actions that are drawn from the policy at every node of a search."""
    entropy_bonus: NonNegative = 0.0
    """All but alphazero: weight of the policy's entropy, which its loss is lowered by."""
    entropy_decay: Annotated[float, Interval(ge=0.001, le=1)] = 1.0
    """Expert iteration, sampled-alphazero: the entropy bonus falls exponentially to this fraction
    of itself until the end of the run; 1 keeps it constant."""
    value_scale: NonNegative = 0.0
    """Expert iteration with Gumbel: Q-values are added to logits as they are, times this and 50
    plus the most visits of an action, and the trained player searches so too. With 0 those of a
    node are stretched to [0, 1] first, times 0.1, which makes much of small differences; the
    trained player then searches by PUCT."""
    window: Annotated[int, Ge(2)] = 16
    """Expert iteration, sampled-alphazero: consecutive positions in a sample of the replay."""
    games: Annotated[int, Interval(ge=2, le=10**8)] = 200
    """Games of each evaluation of the network without a search: against random moves, or alone
    where there is one player."""
    max_moves: Count = 1000
    """Moves after which a game of an evaluation is cut off."""

    absent: ClassVar[Mapping[str, Any]] = {
        "model_steps": 5,
        "reward_weight": 1.0,
        "normalise_observations": True,
        "reanalyse": 0.0,
        "consistency": 0.0,
        "value_prefix": 0,
        "correction": 0,
        "memory": False,
        "memory_steps": 16,
        "candidates": 20,
        "entropy_bonus": 0.0,
        "entropy_decay": 1.0,
        "value_scale": 0.0,
    }
    code: ClassVar[tuple[str, ...]] = ("env", "network")
    unused_where: ClassVar[UnusedWhere] = (
        (
            ("exploration",),
            ("agent", "search"),
            lambda c: c.search == "gumbel" and (c.agent == "alphazero" or c.samples),
        ),
        (("exploration",), ("agent", "search", "value_scale"), lambda c: c.keeps_values),
        (("entropy_bonus", "gamma", "n_steps"), ("agent",), lambda c: c.agent == "alphazero"),
        (
            ("player_exploration", "prior_temperature", "decisive_moves"),
            ("agent",),
            lambda c: c.agent != "alphazero",
        ),
        (("symmetries",), ("env",), lambda c: c.env not in SYMMETRIES),
        (("gamma",), ("env",), lambda c: _players(c.env) == 2),
        (("symmetries", "value_mix", "average"), ("agent",), lambda c: c.learns_model),
        (
            ("consistency", "correction", "reward_weight", "model_steps", "normalise_observations"),
            ("agent",),
            lambda c: not c.learns_model,
        ),
        (("value_prefix",), ("agent",), lambda c: c.agent not in ("muzero", "sampled")),
        (("memory",), ("agent",), lambda c: c.agent != "muzero"),
        (("memory_steps",), ("memory",), lambda c: not c.memory),
        (("entropy_decay",), ("entropy_bonus",), lambda c: not c.entropy_bonus),
        (("window", "entropy_decay"), ("agent",), lambda c: not c.learns_windows),
        (("value_scale",), ("search",), lambda c: c.search != "gumbel"),
        (("value_scale",), ("agent",), lambda c: c.agent != "expert"),
        (("candidates",), ("agent",), lambda c: not c.samples),
        (("blocks", "channels"), ("network",), lambda c: ":" in c.network),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.games % 2:
            raise UsageError(
                f"--games {self.games} is odd; every opening is played from both seats, so give "
                "an even number."
            )
        for name in ("memory", "value_prefix"):  # with which a network is another one
            if getattr(self, name) and name in self.unused():
                raise self.unused_error(name)
        if self.value_prefix > self.model_steps:
            raise UsageError(
                f"--value-prefix {self.value_prefix} is more than --model-steps "
                f"{self.model_steps}, so longer sums would never be learned; give at most "
                f"{self.model_steps}."
            )
        if self.learns_model and self.capacity < self.model_window:
            remembered = f", --memory-steps {self.memory_steps}" if self.memory else ""
            raise UsageError(
                f"--capacity {self.capacity} has no window of --model-steps {self.model_steps}"
                f"{remembered} and --n-steps {self.n_steps}; give at least {self.model_window}."
            )
        if self.learns_windows and self.window <= self.n_steps:
            raise UsageError(
                f"--window {self.window} has no return of --n-steps {self.n_steps}; give at least "
                f"{self.n_steps + 1}."
            )

    @property
    def keeps_values(self) -> bool:
        """Whether searches take Q-values as they are."""
        return self.value_scale > 0 and self.agent == "expert" and self.search == "gumbel"

    @property
    def learns_model(self) -> bool:
        """Whether the agent plans over a model that it learns."""
        return self.agent in ("muzero", "stochastic", "sampled")

    @property
    def learns_windows(self) -> bool:
        """Whether the agent learns n-step returns from windows, and no model."""
        return self.agent in ("expert", "sampled-alphazero")

    @property
    def model_window(self) -> int:
        """The rows of a window that a model is learned from: as long as what leads to an unroll,
        the unroll and its last return."""
        before = self.memory_steps if self.memory else 0
        return before + self.model_steps + self.n_steps + 1

    @property
    def samples(self) -> bool:
        """Whether the agent searches among candidates that it draws."""
        return self.agent in ("sampled", "sampled-alphazero")

    def planners(self) -> dict[str, Any]:
        """The `explorer` and the `planner` of the agent. One that draws candidates searches them by
        Gumbel at full strength too: visits of many candidates that are equally likely before the
        search say little."""
        if not self.samples and not self.keeps_values:
            return {"explorer": self.explorer(), "planner": self.planner()}
        # with JAX
        from zero_search import CompletedByMixedValue, SampledSearch, TreeSearch

        parts: dict[str, Any] = {"kernels": "auto"}
        if self.keeps_values:
            parts["qtransform"] = CompletedByMixedValue(self.value_scale, rescale_values=False)
        most = self.candidates if self.samples else self.considered
        gumbel = ft.partial(TreeSearch.gumbel, max_num_considered_actions=most, **parts)
        strong = gumbel(self.player_simulations, gumbel_scale=0.0)
        if not self.samples:
            return {"explorer": gumbel(self.simulations), "planner": strong}
        sampled = ft.partial(SampledSearch, num_candidates=self.candidates)
        return {"explorer": sampled(self.explorer()), "planner": sampled(strong)}


#: Of agents that draw candidates, tuned for pendulum.
_SAMPLED: dict[str, Any] = {
    "steps": 390,
    "envs": 16,
    "updates": 16,
    "batch": 64,
    "learning_rate": 1e-3,
    "gamma": 0.97,
    "considered": 20,
}
#: Of MuZero on a small board for two, tuned for tic-tac-toe: strong root noise, so that most games
#: explore, and a larger weight of the reward loss, since only a game's last move has a reward.
_SMALL_BOARD: dict[str, Any] = {
    "steps": 1000,
    "evaluate_every": 100,
    "updates": 32,
    "batch": 128,
    "capacity": 2048,
    "learning_rate": 2e-3,
    "clip": 5.0,
    "search": "muzero",
    "noise": 0.75,
    "temperature_moves": 4,
    "temperature": 0.25,
    "blocks": 1,
    "n_steps": 3,
    "reward_weight": 5.0,
}
#: Of agents that learn a model and play alone, tuned for cartpole: few rows, learned from often
#: while they are new, since values of positions that only worse players reached stay low, and moves
#: that try both actions where the search finds them alike.
_FEW_ROWS: dict[str, Any] = {
    "envs": 16,
    "unroll": 16,
    "updates": 32,
    "batch": 128,
    "capacity": 512,
    "learning_rate": 2e-3,
    "clip": 5.0,
    "search": "muzero",
    "temperature_moves": 0,
    "temperature": 0.25,
    "simulations": 16,
    "player_simulations": 16,
    "blocks": 1,
    "channels": 32,
    "gamma": 0.99,
    "n_steps": 10,
    "value_weight": 0.25,
    "consistency": 2.0,
    "reanalyse": 0.25,
}


#: Of expert iteration over beliefs. What is good is many moves away, so little is made of small
#: differences between Q-values, and the policy stays wide at first.
_BELIEFS: dict[str, Any] = {
    "updates": 8,
    "batch": 64,
    "capacity": 256,
    "simulations": 16,
    "learning_rate": 2e-3,
    "gamma": 0.95,
}
_ROCKS: dict[str, Any] = _BELIEFS | {
    "steps": 2300,
    "channels": 32,
    "network": "parts",
    "value_scale": 0.005,
    "entropy_bonus": 0.3,
    "entropy_decay": 0.02,
    "evaluate_every": 250,
}
_TAG: dict[str, Any] = _BELIEFS | {
    "steps": 1300,
    "channels": 64,
    "value_scale": 0.02,
    "entropy_bonus": 0.03,
    "entropy_decay": 0.1,
    "evaluate_every": 200,
}
_LIGHT: dict[str, Any] = _BELIEFS | {
    "steps": 600,
    "channels": 64,
    "value_scale": 0.01,
    "entropy_bonus": 0.1,
    "entropy_decay": 0.05,
    "evaluate_every": 100,
}
_BACKGAMMON: dict[str, Any] = {
    "steps": 1000,
    "envs": 256,
    "unroll": 8,
    "updates": 16,
    "channels": 64,
    "evaluate_every": 125,
}
#: By environment and agent. Tuned in RockSample (7,8), Tag, LightDark and backgammon, in minutes of
#: one core.
_TUNED: dict[tuple[str, Agent], dict[str, Any]] = {
    ("rocksample-7-8", "expert"): _ROCKS,
    ("rocksample-11-11", "expert"): _ROCKS,
    ("rocksample-15-15", "expert"): _ROCKS,
    ("tag", "expert"): _TAG,
    ("lasertag", "expert"): _TAG,
    ("lightdark", "expert"): _LIGHT,
    ("lightdark-10", "expert"): _LIGHT | {"gamma": 0.9},
    ("lightdark-5", "expert"): _LIGHT | {"gamma": 0.9, "value_scale": 0.1},
    ("pgx/backgammon", "alphazero"): _BACKGAMMON,
}
#: Connect Four's longer presets: about an hour of two cores, and a night of nearly three.
_HOUR: dict[str, Any] = {
    "steps": 3600,
    "blocks": 3,
    "channels": 48,
    "simulations": 32,
    "opening_plies": 8,
    "evaluate_every": 200,
}
_NIGHT: dict[str, Any] = _HOUR | {"steps": 5600, "blocks": 4, "channels": 64}
_LONGER: dict[tuple[str, Agent], dict[str, dict[str, Any]]] = {
    ("pgx/connect_four", "alphazero"): {"hour": _HOUR, "night": _NIGHT}
}


def _players(env: str) -> int:
    """The players of an environment; of one's own code none is known."""
    facts = known_environments().get(env)
    return 0 if facts is None else facts.num_players


def presets(
    env: str, agent: Agent, size: int, players: int = 2, *, board: bool = False
) -> dict[str, Config]:
    """The presets of an environment whose observations have `size` numbers, which `board` says to
    be a board or image.

    `quick` takes minutes on two cores; `hour` and `night`, of Connect Four alone, about an hour and
    nearly three; `standard` needs an accelerator, and `tiny` runs all parts.
    """
    quick = Config(env=env, agent=agent)
    if size <= 32:
        quick = dataclasses.replace(quick, steps=120, unroll=2, channels=16, batch=256)
    if size > 400:
        quick = dataclasses.replace(quick, blocks=3, capacity=1024)
    if agent != "alphazero":
        quick = dataclasses.replace(quick, simulations=32, unroll=8, max_moves=10_000)
    if quick.samples:
        quick = dataclasses.replace(quick, **_SAMPLED)
    elif quick.learns_model and size <= 32 and players == 1:
        quick = dataclasses.replace(quick, **_FEW_ROWS)
    elif agent == "muzero" and size <= 32:
        quick = dataclasses.replace(quick, **_SMALL_BOARD)
    # Convolutions cost more than a perceptron: a batch of windows has fewer of them.
    windows = quick.window if board and quick.learns_windows else 1
    quick = dataclasses.replace(quick, batch=max(16, quick.batch // windows))
    quick = dataclasses.replace(quick, **_TUNED.get((env, agent), {}))
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
    longer = _LONGER.get((env, agent), {})
    more = {name: dataclasses.replace(quick, **changed) for name, changed in longer.items()}
    return {"tiny": tiny, "quick": quick, **more, "standard": standard}

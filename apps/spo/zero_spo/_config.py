"""Every hyperparameter of a training run, and the presets."""

import dataclasses
import functools as ft
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval

from zero_app import AbstractConfig, Count, Fraction, NonNegative, UnusedWhere, UsageError
from zero_envs import known_environments


Agent = Literal["spo", "mpo", "ppo", "vmpo"]
#: The fields of the trust region that discrete actions alone have, and those that continuous ones
#: alone have.
_DISCRETE_REGION = ("epsilon_policy", "multiplier")
_CONTINUOUS_REGION = (
    *("epsilon_mean", "epsilon_stddev", "multiplier_mean", "multiplier_stddev"),
    "per_dimension",
)
#: The fields of the search, which spo alone has.
_SEARCH = (
    *("particles", "depth", "resample", "period", "ess_threshold", "resampling"),
    *("search_gamma", "search_lambda", "noise", "alpha", "adaptive", "player_readout"),
)


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    """The configuration of a run; config.json in the run's folder has the same fields."""

    steps: Annotated[int, Interval(ge=1, le=10**12)] = 51_200
    """Total steps in all environments, rounded up to whole blocks, besides those before the first
    step, with which the replay can first be sampled."""
    envs: Count = 16
    unroll: Count = 32
    """Rows collected from every environment in a block."""
    updates: Count = 128
    """Gradient steps after every block. Those of ppo and vmpo deal out all windows of the block,
    again and again."""
    batch: Count = 32
    """Windows per gradient step, over all learning devices."""
    evaluate_every: Count = 20
    """Blocks between two evaluations."""

    env: str = "pendulum"
    """pendulum, cartpole, brax/NAME, gymnax/NAME, jumanji/NAME, pgx/NAME of one player,
    playground/NAME, gymnasium/NAME, ale/NAME, envpool/NAME, or module:Class."""
    backend: str = "auto"
    """The physics backend of brax: generalized, mjx, positional, spring, or auto: spring where the
    environment supports it."""
    agent: Agent = "spo"
    """mpo is the same without a search: it evaluates actions by a Q-network. ppo and vmpo (V-MPO)
    learn from the newest block alone, by the advantages of the actions that were played."""

    length: Annotated[int, Ge(2)] = 33
    """Rows in a window. The last row is only bootstrapped from."""
    replay: Count = 65_536
    """spo, mpo: rows kept for replay, over all environments."""

    # --- search (spo)
    particles: Count = 16
    """Particles in every search."""
    depth: Count = 4
    """Steps of every particle."""
    resample: Literal["period", "ess", "never"] = "period"
    """When particles are resampled: after every --period steps, or when the effective sample size
    is below --ess-threshold."""
    period: Count = 4
    """period: steps between two resamplings."""
    ess_threshold: Fraction = 0.5
    """ess: the threshold, as a fraction of the particles."""
    resampling: Literal["multinomial", "systematic"] = "multinomial"
    """The resampling scheme."""
    search_gamma: Annotated[float, Interval(ge=1e-6, le=1)] = 1.0
    """Discount of one step in the search."""
    search_lambda: Fraction = 1.0
    """The lambda of the advantages from which the temperature is learned."""
    noise: NonNegative = 0.0
    """Noise of the first actions: the fraction of Dirichlet noise for discrete actions, the
    standard deviation of Gaussian noise for continuous ones."""
    alpha: Annotated[float, Ge(1e-9)] = 1.0
    """Dirichlet concentration of the noise."""
    adaptive: bool = True
    """Whether searches use the learned temperature instead of the initial one."""
    player_readout: Literal["sampled", "argmax", "mean"] = "sampled"
    """The action in evaluations: drawn by weight, the one of the highest weight, or the weighted
    mean."""

    # --- mpo
    samples: Count = 16
    """Actions drawn in each state of a batch."""

    # --- ppo
    entropy_bonus: NonNegative = 0.0
    """ppo, vmpo: weight of the policy's entropy in the loss."""

    # --- network
    width: Annotated[int, Interval(ge=1, le=10**4)] = 256
    """Width of the hidden layers."""
    layers: Annotated[int, Interval(ge=1, le=256)] = 4
    """Hidden layers of the policy, and of the critic."""
    activation: Literal["silu", "relu", "tanh"] = "silu"
    """Activation of the hidden layers."""
    min_scale: NonNegative = 1e-3
    """Minimum standard deviation of a continuous policy, before the squashing."""
    memory: bool = False
    """ppo, vmpo: put a recurrent layer (GRU) of that width behind the hidden ones."""
    normalise_observations: bool = False
    """Normalise observations by their running mean and standard deviation."""

    # --- learning
    gamma: Fraction = 0.99
    """Discount of one step for the critic."""
    critic_lambda: Fraction = 0.95
    """The lambda of the critic's returns."""
    policy_rate: Annotated[float, Interval(ge=1e-12, le=1)] = 3e-4
    """Learning rate of the policy."""
    critic_rate: Annotated[float, Interval(ge=1e-12, le=1)] = 3e-4
    """Learning rate of the critic."""
    decay: Fraction = 1.0
    """Both rates fall evenly to this fraction by the end of the run; 1 keeps them constant."""
    dual_rate: Fraction = 1e-3
    """Learning rate of the temperature and the multipliers."""
    target_rate: Fraction = 0.005
    """Fraction of the way to the parameters that target networks move in every gradient step."""
    clip: NonNegative = 0.5
    """Maximum global norm of each of the three gradients; 0 for no maximum."""
    epsilon: Annotated[float, Ge(1e-9)] = 0.2
    """Bound of the KL divergence of the search's policy from the network's, in nats; of ppo the
    distance from 1 at which ratios of probabilities are clipped."""
    epsilon_policy: Annotated[float, Ge(1e-9)] = 1e-3
    """Discrete: bound of the KL divergence of the policy from the target policy, in nats."""
    epsilon_mean: Annotated[float, Ge(1e-9)] = 0.05
    """Continuous: the part of the same bound for the mean, in nats for each dimension."""
    epsilon_stddev: Annotated[float, Ge(1e-7)] = 5e-4
    """Continuous: the part for the standard deviation, in nats for each dimension."""
    temperature: Annotated[float, Ge(1e-7)] = 10.0
    """Initial temperature, in the unit of rewards."""
    multiplier: Annotated[float, Ge(1e-7)] = 3.0
    """Discrete: initial multiplier of the policy's bound."""
    multiplier_mean: Annotated[float, Ge(1e-7)] = 10.0
    """Continuous: initial multiplier of the mean's bound."""
    multiplier_stddev: Annotated[float, Ge(1e-7)] = 500.0
    """Continuous: initial multiplier of the standard deviation's bound."""
    per_dimension: bool = True
    """Continuous: whether each dimension has bounds and multipliers of its own, or only their
    sum."""

    # --- evaluation
    episodes: Annotated[int, Ge(2)] = 128
    """Episodes in an evaluation."""

    absent: ClassVar[Mapping[str, Any]] = {"decay": 1.0, "entropy_bonus": 0.0, "memory": False}
    code: ClassVar[tuple[str, ...]] = ("env",)
    unused_where: ClassVar[UnusedWhere] = (
        (("alpha",), ("noise",), lambda c: not c.noise),
        (("alpha", *_DISCRETE_REGION), ("env",), lambda c: _continuous(c.env)),
        (("min_scale", *_CONTINUOUS_REGION), ("env",), lambda c: not _continuous(c.env)),
        (("backend",), ("env",), lambda c: not c.env.startswith("brax/")),
        (("period",), ("resample",), lambda c: c.resample != "period"),
        (("ess_threshold",), ("resample",), lambda c: c.resample != "ess"),
        (("resampling",), ("resample",), lambda c: c.resample == "never"),
        (_SEARCH, ("agent",), lambda c: c.agent != "spo"),
        (("samples",), ("agent",), lambda c: c.agent != "mpo"),
        (
            ("temperature", "dual_rate", *_DISCRETE_REGION, *_CONTINUOUS_REGION),
            ("agent",),
            lambda c: c.agent == "ppo",
        ),
        (("replay", "target_rate"), ("agent",), lambda c: c.on_policy),
        (("entropy_bonus", "memory"), ("agent",), lambda c: not c.on_policy),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_policy:
            self._check_windows()
        elif self.capacity < max(self.length, self.unroll):
            least = self.envs * max(self.length, self.unroll)
            raise UsageError(
                f"--replay {self.replay} is {self.capacity} rows of each of --envs {self.envs}, "
                f"less than --length {self.length} or --unroll {self.unroll}; give at least "
                f"{least}."
            )
        if self.agent == "spo" and self.resample == "period" and self.period > self.depth:
            raise UsageError(
                f"--period {self.period} is longer than --depth {self.depth}; give at most that, "
                "or --resample never."
            )
        if self.player_readout == "mean" and not _continuous(self.env):
            raise UsageError(
                f"--player-readout mean was given for --env {self.env}, whose actions are discrete "
                "and have no mean; give sampled or argmax."
            )

    def _check_windows(self) -> None:
        """Refuses windows that a block cannot be cut into, and batches that do not deal out all."""
        step = self.length - 1
        if self.unroll % step:
            raise UsageError(
                f"--length {self.length} was given with --unroll {self.unroll}, which --agent "
                f"{self.agent} cuts into windows; give an unroll of a multiple of {step}."
            )
        windows = self.envs * self.unroll // step
        if windows % self.batch:
            raise UsageError(
                f"--batch {self.batch} was given for the {windows} windows of a block; --agent "
                f"{self.agent} learns from each as often, so give a divisor of {windows}."
            )

    @property
    def on_policy(self) -> bool:
        """Whether the agent learns from the newest block only."""
        return self.agent in ("ppo", "vmpo")

    @property
    def capacity(self) -> int:
        """The number of rows kept of each environment: on policy those of a block and the one
        before, which was only bootstrapped from until now."""
        return self.unroll + 1 if self.on_policy else self.replay // self.envs

    @property
    def blocks(self) -> int:
        """The number of blocks: `steps` rounded up."""
        return -(-self.steps // (self.envs * self.unroll))


#: softplus(3), the reference's initial duals for discrete actions.
_SOFTPLUS_3 = 3.048587351573742
#: The hyperparameters of the reference that differ for discrete actions.
_DISCRETE: dict[str, Any] = {
    "width": 256,
    "layers": 2,
    "activation": "relu",
    "epsilon": 0.5,
    "temperature": _SOFTPLUS_3,
    "multiplier": _SOFTPLUS_3,
}
#: The hyperparameters of the paper that differ from the reference, for discrete actions.
_PAPER_DISCRETE: dict[str, Any] = {
    "dual_rate": 3e-4,
    "unroll": 21,
    "updates": 16,
    "batch": 64,
    "length": 18,
    "temperature": 0.5,
    "multiplier": 0.5,
    "noise": 0.25,
    "alpha": 0.03,
}
#: Shared by all tuned presets: small networks, and smaller initial multipliers than those of the
#: reference, which take long to fall.
_SMALL: dict[str, Any] = {
    "width": 64,
    "layers": 2,
    "policy_rate": 1e-3,
    "critic_rate": 1e-3,
    "dual_rate": 1e-2,
    "target_rate": 0.01,
    "multiplier": 1.0,
    "multiplier_mean": 1.0,
    "multiplier_stddev": 10.0,
}
_FAR_SIGHTED: dict[str, Any] = {"depth": 8, "period": 8}
#: Plans are targets made by an earlier policy. In a large replay most of them are outdated.
_FRESH: dict[str, Any] = {"replay": 4096}
_BALANCED: dict[str, Any] = {
    "backend": "generalized",
    "steps": 20_480,
    "temperature": 1.0,
    # An episode of 1 000 planned steps takes 65 000 physics steps.
    "evaluate_every": 10,
    "episodes": 16,
}
_TINY: dict[str, Any] = {
    "envs": 8,
    "steps": 128,
    "unroll": 8,
    "updates": 2,
    "batch": 8,
    "length": 4,
    "width": 8,
    "layers": 1,
    "particles": 4,
    "depth": 2,
    "period": 2,
    "episodes": 2,
    "evaluate_every": 2,
}
#: Of ppo and vmpo: ten times through 64 windows, eight at a time.
_ON_POLICY: dict[str, Any] = {
    "steps": 100_000,
    "unroll": 128,
    "length": 33,
    "updates": 80,
    "batch": 8,
    "evaluate_every": 10,
    "width": 64,
    "layers": 2,
    "activation": "tanh",
    "policy_rate": 1e-3,
    "critic_rate": 5e-3,
    "decay": 0.0,
    "epsilon": 0.2,
}
_BOUNDED: dict[str, Any] = {
    "dual_rate": 1e-2,
    "epsilon": 0.1,
    "epsilon_policy": 1e-2,
    "epsilon_mean": 0.02,
    "epsilon_stddev": 2e-3,
    "temperature": 1.0,
    "multiplier": 1.0,
    "multiplier_mean": 1.0,
    "multiplier_stddev": 1.0,
}
#: All environments are at the same step of an episode, of 200 steps, so a block has whole ones.
_SWINGING: dict[str, Any] = {
    "unroll": 200,
    "length": 41,
    "updates": 100,
    "evaluate_every": 5,
    "activation": "silu",
    "critic_rate": 3e-3,
    "gamma": 0.95,
    "normalise_observations": True,
}
#: The tuned presets by environment and agent; the README describes the tuning.
_TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("pendulum", "spo"): _SMALL
    | _FAR_SIGHTED
    | _FRESH
    | {"particles": 32, "epsilon": 2.0, "critic_lambda": 0.8, "player_readout": "mean"},
    ("pendulum", "mpo"): _SMALL | {"replay": 16_384, "critic_lambda": 0.8},
    ("cartpole", "spo"): _SMALL | _FAR_SIGHTED | {"temperature": 1.0, "player_readout": "argmax"},
    ("cartpole", "mpo"): _SMALL | {"temperature": 1.0, "epsilon": 0.2},
    ("brax/inverted_pendulum", "spo"): _SMALL
    | _BALANCED
    | {"epsilon": 1.0, "player_readout": "mean"},
    ("brax/inverted_pendulum", "mpo"): _SMALL | _BALANCED,
    ("pendulum", "ppo"): _SWINGING,
    ("pendulum", "vmpo"): _SWINGING | {"updates": 200},
    ("cartpole", "ppo"): {},
    # The better half of more rows.
    ("cartpole", "vmpo"): {"batch": 32, "updates": 20},
}


def presets(env: str, agent: str) -> dict[str, Config]:
    """The presets of an environment and an agent, of `ppo` and `vmpo` the first three.

    `reference` has the hyperparameters of the reference implementation, and `paper` those of the
    paper. `tuned` was tuned for the environment; if it was not, it is equal to `reference`. `quick`
    is a small one for any environment, and `tiny` runs all parts. All presets of `pendulum` and
    `cartpole` but `tiny` have 16 environments, and 51 200 steps or, of `ppo` and `vmpo`, 100 000.
    """
    small = env in ("pendulum", "cartpole")
    kind: dict[str, Any] = {} if _continuous(env) else _DISCRETE
    base: dict[str, Any] = {"env": env, "agent": agent}
    if agent in ("ppo", "vmpo"):
        quick = base | kind | _ON_POLICY | (_BOUNDED if agent == "vmpo" else {})
        quick |= _TUNED.get((env, agent), {})
        large: dict[str, Any] = {"envs": 1024, "steps": 10_000_000, "batch": 512}
        tiny: dict[str, Any] = quick | _TINY | {"length": 5}
        return {
            "tuned": Config(**quick if (env, agent) in _TUNED else quick | large),
            "quick": Config(**quick),
            "tiny": Config(**tiny),
        }
    scale: dict[str, Any] = {} if small else {"envs": 1024, "steps": 10_000_000}
    reference = Config(**base | scale | kind)
    paper = scale | kind
    if not _continuous(env):
        paper |= _PAPER_DISCRETE
    if not small:
        paper |= {"envs": 1024 if _continuous(env) else 768, "steps": 100_000_000}
    tuned = _TUNED.get((env, agent))
    quick: dict[str, Any] = base | kind | _SMALL | {"episodes": 16, "evaluate_every": 20}
    if _sees_image(env):
        # The paper's number, because each takes ten times as long as one of perceptrons.
        quick |= {"updates": 16}
    return {
        "tuned": reference if tuned is None else Config(**base | kind | tuned),
        "quick": Config(**quick),
        "tiny": Config(**quick | _TINY),
        "reference": reference,
        "paper": Config(**base | paper),
    }


def has_known_presets(env: str) -> bool:
    """Whether the presets follow from the name of an environment. Others make it, which starts JAX,
    and brax takes seconds to import; some of Gymnasium's that are continuous show images."""
    own = ":" in env or env.startswith("gymnasium/")
    return env == "cartpole" or (not own and _continuous(env))


@ft.cache
def _continuous(name: str) -> bool:
    """Whether the actions of the named environment are continuous."""
    if name.startswith(("brax/", "playground/")):  # of which all are, also where they are missing
        return True
    if (facts := known_environments().get(name)) is not None:
        return facts.actions == "continuous"
    from zero_envs import AbstractContinuousEnvironment

    from ._worlds import build_world

    return isinstance(build_world(name, "auto"), AbstractContinuousEnvironment)


def _sees_image(name: str) -> bool:
    """Whether an observation of the named environment is a board or image."""
    if has_known_presets(name):
        return False
    from zero_app import is_image

    from ._worlds import build_world, features_of

    return is_image(features_of(build_world(name, "auto")))

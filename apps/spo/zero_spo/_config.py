"""Every hyperparameter of a training run, and the presets."""

import dataclasses
import math
from typing import Any, Literal

from zero_train.app import check_bounds, UsageError

from ._worlds import continuous


@dataclasses.dataclass(frozen=True)
class Config:
    """What a run trains, and how. The run folder's config.json holds exactly these."""

    env: str = "pendulum"
    """pendulum, cartpole, brax/NAME or jumanji/NAME."""
    backend: str = "spring"
    """The physics of brax: generalized, mjx, positional or spring."""
    agent: Literal["spo", "mpo"] = "spo"
    """mpo is the same without a search, with Q-values in its place."""
    seed: int = 0
    """Everything random in the run derives from it."""

    # --- how much
    steps: int = 51_200
    """Steps in the environments, over all of them; rounded up to whole blocks."""
    envs: int = 16
    """Environments acted in at once, over all devices."""
    unroll: int = 32
    """Rows collected from every environment in a block."""
    updates: int = 128
    """Gradient steps after every block."""
    batch: int = 32
    """Windows per gradient step, over all devices."""
    length: int = 33
    """Rows in a window; all but the last are learned from."""
    replay: int = 65_536
    """Rows kept for replay, over all environments."""
    shards: int = 8
    """Parts that replay is drawn in; any number of devices that divides it gives the same run."""

    # --- search (spo)
    particles: int = 16
    """Rollouts in every search."""
    depth: int = 4
    """Steps of each."""
    resample: Literal["period", "ess", "never"] = "period"
    """When particles are drawn anew: every so many steps, or where the effective sample size is
    low."""
    period: int = 4
    """period: steps between two draws."""
    ess_threshold: float = 0.5
    """ess: share of the particles below which they are drawn anew."""
    resampling: Literal["multinomial", "systematic"] = "multinomial"
    """How they are drawn."""
    search_gamma: float = 1.0
    """Discount of one step in the search."""
    search_lambda: float = 1.0
    """How far-sighted the advantages are that the temperature learns from."""
    noise: float = 0.0
    """Of the first actions: the share of Dirichlet noise where they are discrete, the standard
    deviation of Gaussian noise where they are continuous."""
    alpha: float = 1.0
    """Dirichlet concentration of the noise."""
    adaptive: bool = True
    """Whether searches have the temperature that is learned, or always the initial one."""
    player_readout: Literal["sampled", "argmax", "mean"] = "sampled"
    """What is played at full strength: an action drawn by weight, the heaviest, or their mean."""

    # --- mpo
    samples: int = 16
    """Actions drawn in each state that is learned from."""

    # --- network
    width: int = 256
    """Width of the hidden layers."""
    layers: int = 4
    """Hidden layers of the policy, and of the critic."""
    activation: Literal["silu", "relu", "tanh"] = "silu"
    """Of the hidden layers."""
    min_scale: float = 1e-3
    """Least standard deviation of a continuous policy, before the squashing."""
    normalise_observations: bool = False
    """Shift and scale observations by their running mean and standard deviation."""

    # --- learning
    gamma: float = 0.99
    """Discount of one step for the critic."""
    critic_lambda: float = 0.95
    """Of the critic's returns."""
    policy_rate: float = 3e-4
    """Learning rate of the policy."""
    critic_rate: float = 3e-4
    """Learning rate of the critic."""
    dual_rate: float = 1e-3
    """Learning rate of temperature and multipliers."""
    target_rate: float = 0.005
    """How far target networks move with every gradient step."""
    clip: float = 0.5
    """Each of the three gradients is scaled down to this global norm; 0 leaves them."""
    epsilon: float = 0.2
    """How far the search may lead from the policy, in nats."""
    epsilon_policy: float = 1e-3
    """Discrete: how far the policy may be from the target policy, in nats."""
    epsilon_mean: float = 0.05
    """Continuous: how far its mean may move it, in nats a dimension."""
    epsilon_stddev: float = 5e-4
    """Continuous: how far its deviation may move it, in nats a dimension."""
    temperature: float = 10.0
    """Temperature at first, in the unit of rewards."""
    multiplier: float = 3.0
    """Discrete: multiplier of the policy's bound at first."""
    multiplier_mean: float = 10.0
    """Continuous: multiplier of the mean's bound at first."""
    multiplier_stddev: float = 500.0
    """Continuous: multiplier of the deviation's bound at first."""
    per_dimension: bool = True
    """Continuous: whether every dimension is held to the bounds by itself, or their sum."""

    # --- watching
    evaluate_every: int = 20
    """Blocks between two evaluations."""
    episodes: int = 128
    """Episodes in each."""
    checkpoint_every: int = 20
    """Blocks between two checkpoints of the whole state."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        for name in ("envs", "batch"):
            if getattr(self, name) % self.shards:
                raise UsageError(
                    f"--{name} {getattr(self, name)} does not divide into --shards {self.shards}; "
                    f"give a multiple of {self.shards}, or other --shards."
                )
        if self.capacity < max(self.length, self.unroll):
            least = self.envs * max(self.length, self.unroll)
            raise UsageError(
                f"--replay {self.replay} is {self.capacity} rows of each of --envs {self.envs}, "
                f"less than --length {self.length} or --unroll {self.unroll}; give at least "
                f"{least}."
            )
        if self.resample == "period" and self.period > self.depth:
            raise UsageError(
                f"--period {self.period} is longer than --depth {self.depth}; give at most that, "
                "or --resample never."
            )
        if self.player_readout == "mean" and not continuous(self.env):
            raise UsageError(
                f"--player-readout mean was given for --env {self.env}, whose actions are discrete "
                "and have no mean; give sampled or argmax."
            )

    @property
    def capacity(self) -> int:
        """Rows kept of each environment."""
        return self.replay // self.envs

    @property
    def blocks(self) -> int:
        """How many are collected: whole ones only."""
        return -(-self.steps // (self.envs * self.unroll))


#: What each flag may be, ends included.
_BOUNDS: dict[str, tuple[float, float]] = {
    "steps": (1, 10**12),
    **dict.fromkeys(("envs", "unroll", "updates", "batch", "replay"), (1, math.inf)),
    **dict.fromkeys(("shards", "particles", "depth", "period", "samples"), (1, math.inf)),
    **dict.fromkeys(("width", "layers"), (1, 10**4)),
    **dict.fromkeys(("evaluate_every", "checkpoint_every"), (1, math.inf)),
    **dict.fromkeys(("length", "episodes"), (2, math.inf)),
    **dict.fromkeys(("noise", "clip", "min_scale"), (0, math.inf)),
    **dict.fromkeys(("alpha", "epsilon", "epsilon_policy", "epsilon_mean"), (1e-9, math.inf)),
    **dict.fromkeys(("epsilon_stddev", "temperature", "multiplier"), (1e-7, math.inf)),
    **dict.fromkeys(("multiplier_mean", "multiplier_stddev"), (1e-7, math.inf)),
    "search_gamma": (1e-6, 1),
    **dict.fromkeys(("search_lambda", "gamma", "critic_lambda"), (0, 1)),
    **dict.fromkeys(("ess_threshold", "policy_rate", "critic_rate", "dual_rate"), (0, 1)),
    "target_rate": (0, 1),
}

#: softplus(3), the reference's initial duals for discrete actions.
_SOFTPLUS_3 = 3.048587351573742
#: What discrete actions change in the reference's hyperparameters.
_DISCRETE: dict[str, Any] = {
    "width": 256,
    "layers": 2,
    "activation": "relu",
    "epsilon": 0.5,
    "temperature": _SOFTPLUS_3,
    "multiplier": _SOFTPLUS_3,
}
#: What the paper says otherwise, of discrete actions.
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
#: What all that was tuned here has in common: small networks, and duals that need not first come
#: down from the reference's.
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
#: Plans are targets of the policy that made them: in a large replay most are of a policy long gone.
_FRESH: dict[str, Any] = {"replay": 4096}
_BALANCED: dict[str, Any] = {
    "backend": "generalized",
    "steps": 20_480,
    "temperature": 1.0,
    # An episode of 1 000 planned steps is 65 000 of physics.
    "evaluate_every": 10,
    "episodes": 16,
}
#: What was tuned here, by environment and agent: see the README for how.
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
}


def presets(env: str, agent: str) -> dict[str, Config]:
    """The presets of an environment: `tuned` for it where that was done (otherwise it is the
    `reference`), the reference implementation's hyperparameters, and the paper's.

    `pendulum` and `cartpole` have 16 environments and 51 200 steps with all of them.
    """
    small = env in ("pendulum", "cartpole")
    kind: dict[str, Any] = {} if continuous(env) else _DISCRETE
    base: dict[str, Any] = {"env": env, "agent": agent}
    scale: dict[str, Any] = {} if small else {"envs": 1024, "steps": 10_000_000}
    reference = Config(**base | scale | kind)
    paper = scale | kind
    if not continuous(env):
        paper |= _PAPER_DISCRETE
    if not small:
        paper |= {"envs": 1024 if continuous(env) else 768, "steps": 100_000_000}
    tuned = _TUNED.get((env, agent))
    return {
        "tuned": reference if tuned is None else Config(**base | kind | tuned),
        "reference": reference,
        "paper": Config(**base | paper),
    }

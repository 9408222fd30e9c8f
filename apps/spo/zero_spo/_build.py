"""Builds environment, agent and loop from a configuration."""

import functools as ft
from typing import Any

import jax
import optax
from jaxtyping import PyTree

from zero_app import loop_of, UsageError
from zero_envs import AbstractContinuousEnvironment, Hosted
from zero_memory import Latest, TrajectoryBuffer
from zero_nets import RunningStatistics
from zero_search import AbstractModel, DirichletNoise, GaussianNoise, ParticleSearch
from zero_train import AbstractAgent, Clip, EnvironmentModel, Loop, MPO, PolicyModel, PPO, SPO, VMPO
from zero_train.losses import AbstractTrustRegion, DecoupledTrustRegion, Dual, TrustRegion

from ._config import Config
from ._network import build_both, build_critic, build_policy
from ._worlds import build_world, features_of, World


def build_env(config: Config) -> World:
    """The environment of training and evaluation."""
    env = build_world(config.env, config.backend)
    if isinstance(env, Hosted) and config.agent == "spo":
        raise UsageError(
            f"--env {config.env} has a simulator that runs on the host and cannot be copied, and "
            "--agent spo plans in it; give --agent ppo, vmpo or mpo."
        )
    if env.hidden and config.agent == "spo":
        raise UsageError(
            f"--env {config.env} has a state that the player cannot fully observe, and the plans "
            "of --agent spo would see all of it; give --agent ppo, vmpo or mpo."
        )
    return env


def build_agent(config: Config, env: World) -> AbstractAgent:
    policy = _optimiser(config, config.policy_rate, decay=config.decay)
    critic = _optimiser(config, config.critic_rate, decay=config.decay)
    region, duals = _region(config, env), _optimiser(config, config.dual_rate)
    shared: dict[str, Any] = {
        "gamma": config.gamma,
        "lambda_": config.critic_lambda,
        "statistics": _statistics(config, env),
    }
    if config.on_policy:
        return PPO(
            network=ft.partial(build_both, config, env),
            optimiser=optax.multi_transform({"policy": policy, "critic": critic}, _parts),
            objective=VMPO(region, duals) if config.agent == "vmpo" else Clip(config.epsilon),
            entropy_bonus=config.entropy_bonus,
            **shared,
        )
    shared |= {
        "policy": ft.partial(build_policy, config, env),
        "critic": ft.partial(build_critic, config, env),
        "region": region,
        "policy_optimiser": policy,
        "critic_optimiser": critic,
        "dual_optimiser": duals,
        "target_rate": config.target_rate,
    }
    if config.agent == "mpo":
        return MPO(num_samples=config.samples, **shared)
    return SPO(
        model=ft.partial(_model, config, env),
        explorer=_search(config, env, readout="sampled", noise=config.noise),
        planner=_search(config, env, readout=config.player_readout, noise=0.0),
        adaptive=config.adaptive,
        **shared,
    )


def build_loop(config: Config) -> Loop:
    env = build_env(config)
    buffer: Any = Latest if config.on_policy else TrajectoryBuffer
    return loop_of(config, env, build_agent(config, env), ft.partial(buffer, length=config.length))


def _parts(learned: PyTree) -> PyTree[str]:
    """Which optimiser moves each array of `(network, duals)`, of a network of policy and value."""
    is_value = lambda path: getattr(path[1], "name", "") == "value"
    name = lambda path, _: "critic" if is_value(path) else "policy"
    return jax.tree_util.tree_map_with_path(name, learned)


def _model(config: Config, env: World, evaluate: Any, *, gamma: float) -> AbstractModel:
    """The model of the searches, which have a discount factor of their own."""
    del gamma
    kind = PolicyModel if isinstance(env, AbstractContinuousEnvironment) else EnvironmentModel
    return kind(env, evaluate, config.search_gamma)


def _search(config: Config, env: World, *, readout: str, noise: float) -> ParticleSearch:
    widen = None
    if noise:
        is_continuous = isinstance(env, AbstractContinuousEnvironment)
        widen = GaussianNoise(noise) if is_continuous else DirichletNoise(noise, config.alpha)
    return ParticleSearch(
        config.particles,
        config.depth,
        temperature=config.temperature,
        lambda_=config.search_lambda,
        resample_every=config.period if config.resample == "period" else None,
        resample_below=config.ess_threshold if config.resample == "ess" else None,
        resampling=config.resampling,
        noise=widen,
        readout=readout,
    )


def _region(config: Config, env: World) -> AbstractTrustRegion:
    temperature = Dual.from_value(config.temperature)
    if not isinstance(env, AbstractContinuousEnvironment):
        alpha = Dual.from_value(config.multiplier)
        return TrustRegion(config.epsilon, config.epsilon_policy, temperature, alpha)
    shape = (env.action_size,) if config.per_dimension else ()
    return DecoupledTrustRegion(
        config.epsilon,
        config.epsilon_mean,
        config.epsilon_stddev,
        temperature,
        Dual.from_value(config.multiplier_mean, shape),
        Dual.from_value(config.multiplier_stddev, shape),
    )


def _statistics(config: Config, env: World) -> RunningStatistics | None:
    return RunningStatistics.init(features_of(env)) if config.normalise_observations else None


def _optimiser(config: Config, rate: float, *, decay: float = 1.0) -> optax.GradientTransformation:
    total = config.blocks * config.updates
    falling = optax.linear_schedule(rate, decay * rate, total) if decay < 1 else rate
    # So that the rate is logged.
    adam = optax.inject_hyperparams(optax.adam, static_args=("b1", "b2", "eps", "eps_root"))(
        falling, eps=1e-5
    )
    return optax.chain(optax.clip_by_global_norm(config.clip), adam) if config.clip else adam

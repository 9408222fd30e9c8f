"""The networks: the policy and the critic are separate multi-layer perceptrons, which begin with
convolutions where an observation is an image. Those of PPO and V-MPO may have a memory."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from zero_app import is_image
from zero_envs import AbstractContinuousEnvironment
from zero_nets import (
    ActorCritic,
    CategoricalHead,
    Chain,
    CNN,
    Concatenate,
    ConcatenateOneHot,
    LinearHead,
    MLP,
    Recurrent,
    RNN,
    TanhGaussianHead,
)

from ._config import Config
from ._worlds import features_of, World


_ACTIVATIONS = {"silu": jax.nn.silu, "relu": jax.nn.relu, "tanh": jax.nn.tanh}


def build_policy(config: Config, env: World, *, key: PRNGKeyArray) -> Chain:
    """A network that maps features to a distribution over actions."""
    tkey, hkey = jr.split(key)
    if isinstance(env, AbstractContinuousEnvironment):
        head = TanhGaussianHead(config.width, env.action_size, min_scale=config.min_scale, key=hkey)
    else:
        head = CategoricalHead(config.width, env.num_actions, key=hkey)
    return Chain(*_torso(config, env, tkey), head)


def build_critic(config: Config, env: World, *, key: PRNGKeyArray) -> Chain:
    """A network that maps features to a value or, for MPO, features and an action to a Q-value."""
    tkey, hkey = jr.split(key)
    head = LinearHead(config.width, key=hkey)
    if config.agent != "mpo":
        return Chain(*_torso(config, env, tkey), head)
    if isinstance(env, AbstractContinuousEnvironment):
        size, join = env.action_size, Concatenate()
    else:
        size, join = env.num_actions, ConcatenateOneHot(env.num_actions)
    embed, features = Concatenate(), _num_features(env)
    if is_image(features_of(env)):
        embed = _cnn(config, env, (), jr.fold_in(key, 2))
        features = embed.out_size
    return Chain(_WithAction(embed, join), _perceptron(config, features + size, tkey), head)


def build_both(config: Config, env: World, *, key: PRNGKeyArray) -> "ActorCritic | RecurrentPair":
    """Policy and critic as one network, of PPO and V-MPO."""
    pkey, ckey, mkey = jr.split(key, 3)
    policy, critic = build_policy(config, env, key=pkey), build_critic(config, env, key=ckey)
    if not config.memory:
        return ActorCritic(policy, critic)
    first, second = jr.split(mkey)
    return RecurrentPair(_remembering(config, policy, first), _remembering(config, critic, second))


class RecurrentPair(eqx.Module):
    """A policy and a value of the same features, each with a memory of its own."""

    policy: Recurrent
    value: Recurrent

    def init(self) -> tuple[PyTree[Array], PyTree[Array]]:
        return self.policy.init(), self.value.init()

    def __call__(self, features: PyTree[Array], memory: tuple) -> tuple[tuple, tuple]:
        policy, acting = self.policy(features, memory[0])
        value, judging = self.value(features, memory[1])
        return (policy, value), (acting, judging)

    def scan(
        self, features: PyTree[Array], resets: Bool[Array, " time"], memory: tuple
    ) -> tuple[tuple, tuple]:
        policy, acting = self.policy.scan(features, resets, memory[0])
        value, judging = self.value.scan(features, resets, memory[1])
        return (policy, value), (acting, judging)


class _WithAction(eqx.Module):
    """Joins an embedding of features and an action to one vector."""

    embed: Callable[..., Any]
    join: Concatenate | ConcatenateOneHot

    def __call__(
        self, features: PyTree[Array], action: Array, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " size"]:
        del key
        return self.join(self.embed(features), action)


def _torso(config: Config, env: World, key: PRNGKeyArray) -> tuple[Callable[..., Any], ...]:
    """The layers from the features to the head."""
    if is_image(features_of(env)):
        return (_cnn(config, env, (config.width,) * config.layers, key),)
    return Concatenate(), _perceptron(config, _num_features(env), key)


def _cnn(config: Config, env: World, widths: tuple[int, ...], key: PRNGKeyArray) -> CNN:
    """Convolutions, and hidden layers of these widths behind them."""
    return CNN(
        features_of(env).shape,
        channels=(16, 32),
        sizes=(3, 3),
        strides=(1, 2),
        padding="SAME",
        widths=widths,
        activation=_ACTIVATIONS[config.activation],
        key=key,
    )


def _perceptron(config: Config, size: int, key: PRNGKeyArray) -> MLP:
    activation = _ACTIVATIONS[config.activation]
    return MLP(size, (config.width,) * config.layers, activation=activation, key=key)


def _remembering(config: Config, network: Chain, key: PRNGKeyArray) -> Recurrent:
    """The network with a memory before its head."""
    *torso, head = network.layers
    rnn = RNN(config.width, config.width, cell=eqx.nn.GRUCell, key=key)
    return Recurrent(Chain(*torso), rnn, head)


def _num_features(env: World) -> int:
    return sum(x.size for x in jax.tree.leaves(features_of(env)))

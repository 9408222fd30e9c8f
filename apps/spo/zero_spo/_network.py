"""The networks: the policy and the critic are separate multi-layer perceptrons."""

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from zero_envs import AbstractContinuousEnvironment
from zero_nets import (
    CategoricalHead,
    Chain,
    Concatenate,
    ConcatenateOneHot,
    LinearHead,
    MLP,
    TanhGaussianHead,
)

from ._config import Config
from ._worlds import World


_ACTIVATIONS = {"silu": jax.nn.silu, "relu": jax.nn.relu, "tanh": jax.nn.tanh}


def build_policy(config: Config, env: World, *, key: PRNGKeyArray) -> Chain:
    """A network that maps features to a distribution over actions."""
    tkey, hkey = jr.split(key)
    if isinstance(env, AbstractContinuousEnvironment):
        head = TanhGaussianHead(config.width, env.action_size, min_scale=config.min_scale, key=hkey)
    else:
        head = CategoricalHead(config.width, env.num_actions, key=hkey)
    return Chain(Concatenate(), _torso(config, _num_features(env), tkey), head)


def build_critic(config: Config, env: World, *, key: PRNGKeyArray) -> Chain:
    """A network that maps features to a value or, for MPO, features and an action to a Q-value."""
    tkey, hkey = jr.split(key)
    size, join = _num_features(env), Concatenate()
    if config.agent == "mpo":
        if isinstance(env, AbstractContinuousEnvironment):
            size += env.action_size
        else:
            size, join = size + env.num_actions, _WithAction(env.num_actions)
    head = LinearHead(config.width, key=hkey)
    return Chain(join, _torso(config, size, tkey), head)


class _WithAction(eqx.Module):
    """Concatenates features of any structure and a one-hot action."""

    num_actions: int = eqx.field(static=True)

    def __call__(
        self, features: PyTree[Array], action: Int[Array, ""], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " size"]:
        del key
        return ConcatenateOneHot(self.num_actions)(Concatenate()(features), action)


def _torso(config: Config, size: int, key: PRNGKeyArray) -> MLP:
    activation = _ACTIVATIONS[config.activation]
    return MLP(size, (config.width,) * config.layers, activation=activation, key=key)


def _num_features(env: World) -> int:
    """The number of elements of an observation."""
    obs = jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0))))
    return sum(x.size for x in jax.tree.leaves(obs.features))

"""The canary: were the import hook or a strict mode off, half of the other tests would be blind."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError


def test_a_wrong_shape_is_caught():
    import zero_envs

    good = jnp.zeros(())
    zero_envs.Transition(reward=good, discount=good, last=jnp.zeros((), dtype=bool))
    with pytest.raises(TypeCheckError):
        zero_envs.Transition(reward=good, discount=jnp.zeros(3), last=jnp.zeros((), dtype=bool))

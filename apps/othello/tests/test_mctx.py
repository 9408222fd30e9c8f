"""mctx behind the planner's interface: evaluations that are not finite."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_othello._mctx import MctxSearch
from zero_search import AbstractPriorModel


class Nim(AbstractPriorModel):
    """Take 1 to 3; whoever takes the last one wins. With `sick` heaps of 2 are worth NaN."""

    sick: bool | Array = False

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        left = jnp.maximum(node - action - 1, 0)
        over = left == 0
        return left, jnp.where(over, 1.0, 0.0), jnp.where(over, 0.0, -1.0), over

    def predict(self, node, *, key):
        legal = jnp.arange(3, dtype=jnp.int32)[None] < node[:, None]
        value = jnp.where((node == 2) & self.sick, jnp.nan, 0.0)
        return jnp.where(legal, 0.0, -jnp.inf), value


@pytest.mark.parametrize("considered", [None, 3])
def test_invalid_evaluations_are_replaced_and_counted(considered):
    planner = MctxSearch(24, considered)

    @jax.jit
    def plan(sick):
        model, heaps = Nim(sick), jnp.asarray([1, 2, 7])
        return planner.plan(model, heaps, planner.init(model, heaps), key=jr.split(jr.key(0), 3))[0]

    sound, sick = (jax.device_get(plan(sick)) for sick in (False, True))
    assert sound.stats["invalid"].tolist() == [0, 0, 0]
    invalid = sick.stats["invalid"].tolist()
    assert invalid[0] == 0 and invalid[1] == 1 and invalid[2] > 1
    for name in ("action", "weights", "visits", "qvalues", "value"):
        np.testing.assert_array_equal(getattr(sound, name), getattr(sick, name), name)
    with pytest.raises(ValueError, match="NaN or infinity"):
        sick.check()

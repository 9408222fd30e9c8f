"""The best parameters: which are kept, that nobody else changes them, and on disk."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from zero_app import Checkpoints
from zero_envs.testing import Corridor
from zero_train import BestSoFar, data_mesh, evaluate, FeatureEvaluator, PolicyActor

from .games import close_to


def params(value: float) -> dict[str, jax.Array]:
    return {"weight": jnp.full((3,), value), "key": jr.key(int(value))}


def test_the_highest_score_stays_and_of_equals_the_newer():
    best = BestSoFar.start(params(0.0))
    assert (float(best.score), int(best.step)) == (-np.inf, -1)
    kept = []
    scores = [np.nan, -3.0, -5.0, np.nan, 2.0, 2.0, 1.0, -np.inf]
    for step, score in enumerate(scores):
        best = best.update(params(float(step)), score, step)
        kept.append(int(best.step))
        if kept[-1] >= 0:
            assert float(best.score) == scores[kept[-1]]
            np.testing.assert_array_equal(best.params["weight"], float(kept[-1]))
    assert kept == [-1, 1, 1, 1, 4, 5, 5, 5]


def test_what_is_kept_survives_the_donation_of_the_original():
    train = jax.jit(lambda p: {**p, "weight": p["weight"] + 1}, donate_argnums=0)
    state = params(0.0)
    best = BestSoFar.start(state)
    for step in range(3):
        state = train(state)
        best = best.update(state, -float(step), step)
        assert int(best.step) == 0
    # The original is gone, and an alias of it would be too.
    given = params(0.0)
    train(given)
    assert given["weight"].is_deleted()
    np.testing.assert_array_equal(best.params["weight"], 1.0)


def test_it_is_saved_and_restored_as_part_of_the_state(tmp_path):
    """Also where parameters are on all devices and the score is not."""
    everywhere = jax.NamedSharding(data_mesh(8), jax.sharding.PartitionSpec())
    place = lambda value: jax.device_put(params(value), everywhere)
    best = BestSoFar.start(place(0.0)).update(place(1.0), 0.5, 10)
    Checkpoints(tmp_path).save(1, {"best": best})
    restored = Checkpoints(tmp_path).restore({"best": BestSoFar.start(place(0.0))})["best"]
    assert (float(restored.score), int(restored.step)) == (0.5, 10)
    assert restored.params["weight"].sharding.is_equivalent_to(everywhere, 1)
    assert int(restored.update(place(2.0), 0.4, 20).step) == 10
    assert int(restored.update(place(2.0), 0.6, 20).step) == 20


def test_other_parameters_are_refused():
    best = BestSoFar.start(params(0.0))
    for other in ({"weight": jnp.zeros(3)}, {"weight": jnp.zeros(4), "key": jr.key(0)}):
        with pytest.raises(ValueError, match="another kind of parameters"):
            best.update(other, 1.0, 1)


@pytest.mark.parametrize("step", [2**31, 3_000_000_000, -1])
def test_steps_beyond_32_bits_are_refused(step):
    with pytest.raises(ValueError, match=r"step=.*must be from 0 to 2147483647"):
        BestSoFar.start(params(0.0)).update(params(1.0), 1.0, step)
    for known in (7, jnp.int32(7), jnp.int8(7)):
        assert int(BestSoFar.start(params(0.0)).update(params(1.0), 1.0, known).step) == 7


class Walk(eqx.Module):
    """A network of one number: by how much walking right is the more likely, as a logit."""

    logit: Float[Array, ""]

    def __call__(self, features: Array) -> tuple[Float[Array, " two"], Float[Array, ""]]:
        return jnp.stack([jnp.zeros(()), self.logit]), jnp.zeros(())


def test_ten_times_the_episodes_tell_luck_from_skill():
    """All are random walkers, half of whom arrive in four steps (test_evaluate.py): the best
    score of forty is luck, the absolute metric is not."""
    actor = PolicyActor(FeatureEvaluator(Walk(jnp.zeros(()))), 1.0)

    def returns(actor: PolicyActor, num_episodes: int, seed: int) -> np.ndarray:
        args: Any = dict(num_episodes=num_episodes, max_steps=4, key=jr.key(seed))
        return np.asarray(evaluate(Corridor(3), actor, **args).returns)

    best = BestSoFar.start(actor)
    for step in range(40):
        best = best.update(actor, float(returns(actor, 32, step).mean()), step)
    assert float(best.score) > 0.6
    assert close_to(int(returns(best.params, 320, 1000).sum()), 320, 1 / 2)

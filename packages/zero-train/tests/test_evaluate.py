"""Evaluation: no bias to short episodes, greedy or sampled, solved or not, on any devices."""

import dataclasses
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
from scipy import stats

from zero_envs import AbstractDiscreteEnvironment, Observation, Transition
from zero_envs.testing import Corridor, Nim
from zero_search import TreeSearch
from zero_train import (
    AbstractReflexActor,
    data_mesh,
    EnvironmentModel,
    evaluate,
    FeatureEvaluator,
    PlanningActor,
    PolicyActor,
    RandomActor,
    rollout,
)

from .games import close_to, Drift


class LotState(eqx.Module):
    long: Bool[Array, ""]
    time: Int[Array, ""]


class Lot(AbstractDiscreteEnvironment[LotState]):
    """Every other episode takes 1 step and gives 0, the others take 9 and give 1."""

    num_actions: int = 1
    hidden: bool = False

    def init(self, *, key: PRNGKeyArray) -> LotState:
        return LotState(jr.bernoulli(key), jnp.zeros((), jnp.int32))

    def step(
        self, state: LotState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[LotState, Transition]:
        del action, key
        time = state.time + 1
        last = time >= jnp.where(state.long, 9, 1)
        reward = (last & state.long).astype(jnp.float32)
        return LotState(state.long, time), Transition(reward, (~last).astype(jnp.float32), last)

    def observe(self, state: LotState) -> Observation:
        return Observation(jnp.zeros(1), jnp.ones(1, bool))


def test_episodes_are_counted_by_number_and_not_by_who_finishes_first():
    num = 512
    result = evaluate(Lot(), RandomActor(), num_episodes=num, max_steps=20, key=jr.key(0))
    lengths = np.asarray(result.lengths)
    assert set(lengths) == {1, 9}
    assert close_to(int((lengths == 9).sum()), num, 0.5)
    np.testing.assert_array_equal(result.returns, lengths == 9)
    assert result.summary().truncated == 0
    # The trap: the first 64 to finish in 64 environments that restart are nearly all short.
    rows = rollout(Lot(), RandomActor(), num_steps=20, num_envs=64, key=jr.key(0))
    last, reward = np.asarray(rows.last), np.asarray(rows.reward)
    first = [reward[env, time - 1] for time, env in np.argwhere(last.T)[:64]]
    assert len(first) == 64 and np.mean(first) < 0.2


# ---- solved


@pytest.fixture(scope="module")
def walks():
    return evaluate(Corridor(3), RandomActor(), num_episodes=400, max_steps=4, key=jr.key(1))


def test_the_solve_rate_is_the_share_of_episodes_that_reach_the_threshold(walks):
    # RR, LRR, LLRR or RLRR: a half of all walks are at the end after four steps.
    solved = int(np.asarray(walks.terminated).sum())
    assert close_to(solved, 400, 1 / 2)
    summary = walks.summary(solved_at=1.0)
    assert summary.solved == solved / 400
    exact = stats.binomtest(solved, 400).proportion_ci(method="wilson")
    np.testing.assert_allclose((summary.solved_low, summary.solved_high), exact, atol=1e-6)
    # Every episode is asked, not their mean, which is below this threshold.
    assert walks.summary(solved_at=summary.mean + 0.01).solved == summary.solved
    assert walks.summary(solved_at=1.01).solved == 0
    assert walks.summary(solved_at=0.0).solved == 1
    tenths = dataclasses.replace(walks, returns=0.9 * walks.returns)  # in float32
    for threshold in (0.9, np.float64(0.9)):
        assert tenths.summary(solved_at=threshold).solved == solved / 400
    assert walks.summary().solved is None


def test_metrics_hold_every_episode(walks):
    metrics = walks.metrics(solved_at=1.0)
    np.testing.assert_array_equal(metrics["return"], walks.returns)
    np.testing.assert_array_equal(metrics["length"], walks.lengths)
    np.testing.assert_array_equal(metrics["solved"], np.asarray(walks.terminated))
    assert set(walks.metrics()) == {"return", "length"}
    with pytest.raises(ValueError, match="solved_at=nan"):
        walks.metrics(solved_at=float("nan"))


# ---- greedy or sampled


def lean_right(features: Float[Array, " cells"]) -> tuple[Float[Array, " two"], Float[Array, ""]]:
    return jnp.log(jnp.asarray([1.0, 3.0])), jnp.zeros(())


def test_a_policy_is_greedy_or_sampled_as_its_temperature_says():
    def lengths(temperature: float) -> np.ndarray:
        actor = PolicyActor(FeatureEvaluator(lean_right), temperature)
        result = evaluate(Corridor(3), actor, num_episodes=512, max_steps=9, key=jr.key(2))
        return np.asarray(result.lengths)

    assert (lengths(0.0) == 2).all()
    assert close_to(int((lengths(1.0) == 2).sum()), 512, (3 / 4) ** 2)
    # Logits over one half: odds of 9 to 1.
    assert close_to(int((lengths(0.5) == 2).sum()), 512, (9 / 10) ** 2)


def indifferent(features: Float[Array, " heap"]) -> tuple[Float[Array, " two"], Float[Array, ""]]:
    return jnp.zeros(2), jnp.zeros(())


def test_a_planner_is_greedy_or_sampled_as_its_temperature_says():
    """Taking both objects wins at once; taking one loses a move later."""
    env = Nim(2, 2)
    model = EnvironmentModel(env, FeatureEvaluator(indifferent))

    def actor(temperature: float) -> PlanningActor:
        return PlanningActor(TreeSearch.alphazero(8, temperature=temperature), model)

    result = evaluate(env, actor(0.0), num_episodes=512, max_steps=4, key=jr.key(3))
    assert (np.asarray(result.lengths) == 1).all()
    rows = rollout(env, actor(1.0), num_steps=1, num_envs=512, key=jr.key(1))
    weights, actions = np.asarray(rows.record.weights), np.asarray(rows.action)
    assert (weights == weights[0]).all() and 0.5 < weights[0, 0, 1] < 0.9
    assert close_to(int(actions.sum()), 512, float(weights[0, 0, 1]))


class Push(AbstractReflexActor):
    """Pushes the point to 0, or, where it is not greedy, to 0 or 1."""

    greedy: bool

    def act(
        self,
        state: Float[Array, "batch 1"],
        obs: Observation,
        carry: None,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Float[Array, "batch 1"], None, None]:
        noise = jax.vmap(lambda key: jr.bernoulli(key, 0.5, (1,)))(key).astype(jnp.float32)
        return (0.0 if self.greedy else noise) - obs.features, None, None


def test_continuous_actions_are_the_mode_or_a_sample():
    def returns(greedy: bool, max_steps: int) -> np.ndarray:
        actor = Push(greedy)
        result = evaluate(Drift(), actor, num_episodes=256, max_steps=max_steps, key=jr.key(4))
        return np.asarray(result.returns)

    start = returns(True, 1)  # the reward is minus the distance before the push
    np.testing.assert_array_equal(returns(True, 3), start)
    pushes = np.round(start - returns(False, 2), 5)
    assert set(pushes) == {0, 1}
    assert close_to(int(pushes.sum()), 256, 1 / 2)


# ---- devices


class Table(eqx.Module):
    """A network that is a table, so that there are arrays to be put on every device."""

    logits: Float[Array, "heap two"]

    def __call__(self, features: Float[Array, " heap"]) -> tuple[Array, Float[Array, ""]]:
        return features @ self.logits, jnp.zeros(())


@pytest.mark.parametrize("search", [False, True], ids=["network", "search"])
def test_devices_do_not_matter(search):
    env = Nim(11, 2)
    network = FeatureEvaluator(Table(jr.normal(jr.key(0), (12, 2))))
    planner = TreeSearch.alphazero(4, temperature=1.0)
    actor = PolicyActor(network, 1.0)
    if search:
        actor = PlanningActor(planner, EnvironmentModel(env, network))
    play = lambda mesh: evaluate(
        env, actor, num_episodes=32, max_steps=12, key=jr.key(5), mesh=mesh
    )
    alone = play(None)
    longest = np.asarray(alone.lengths).reshape(8, 4).max(axis=1)
    assert len(set(longest)) > 1  # the devices will be done at different times
    for devices in (8,) if search else (1, 8):
        result = play(data_mesh(devices))
        assert len(result.returns.sharding.device_set) == devices
        assert result.returns.is_fully_replicated  # each of several hosts has it all
        for x, y in zip(jax.tree.leaves(result), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(x, y)


def test_devices_do_not_wait_for_each_other():
    run: Any = eqx.filter_jit(
        lambda key: evaluate(
            Corridor(3), RandomActor(), num_episodes=8, max_steps=9, key=key, mesh=data_mesh(8)
        )
    )
    text = run.lower(jr.key(0)).lowered.compile().as_text()
    assert "while(" in text
    # Only what came of the episodes is gathered, after the loop, each of its five arrays at most
    # once; a common end of the loop would need an all-reduce.
    found = re.findall(r"\s(all-\w+|collective-\w+|reduce-scatter)(?:-start)?\(", text)
    assert set(found) == {"all-gather"} and len(found) <= 5


def test_episodes_need_not_divide_over_the_devices():
    args: dict[str, Any] = dict(num_episodes=12, max_steps=9, key=jr.key(0))
    apart = evaluate(Corridor(3), RandomActor(), mesh=data_mesh(8), **args)
    together = evaluate(Corridor(3), RandomActor(), **args)
    jax.tree.map(np.testing.assert_array_equal, apart, together)

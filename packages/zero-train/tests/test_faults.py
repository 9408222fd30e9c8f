"""What no game allows is noticed: NaN policies, impossible moves and rewards, no opponent."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from zero_app import check_finite, NonFiniteError
from zero_envs import (
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    CartPole,
    Observation,
    Pendulum,
    Transition,
)
from zero_envs.testing import Corridor, Nim, NimState
from zero_memory import Batch, TrajectoryBuffer
from zero_search import TreeSearch
from zero_train import (
    AbstractActor,
    AbstractAgent,
    challenge,
    collect,
    DistributionActor,
    EnvironmentModel,
    evaluate,
    fill,
    init,
    match,
    Metrics,
    PlanningActor,
    PolicyActor,
    RandomActor,
    rollout,
    start,
    step,
)

from .games import perfect_nim
from .nim_agent import nim_loop
from .policies import Categorical, Gaussian


NIM = Nim(7, 3)


class Broken(eqx.Module):
    """The perfect player of Nim, who does not know what to think of 3 objects or fewer."""

    wrong: Float[Array, ""]

    def __call__(self, obs: Any) -> tuple[Array, Array]:
        logits, value = perfect_nim(obs)
        few = obs.features[:4].sum() > 0
        return jnp.where(few, logits.at[1].set(self.wrong), logits), value


class Fixed(AbstractActor[None]):
    """Always the same action."""

    action: Int[Array, ""]

    def init(self, state: Any) -> None:
        del state

    def act(self, state: Any, obs: Any, carry: None, *, key: Array) -> tuple[Array, Any, None]:
        del state, obs, carry
        return jnp.broadcast_to(self.action, key.shape), None, None

    def advance(self, carry: None, action: Any, transition: Transition) -> None:
        del carry, action, transition


class Odd(AbstractDiscreteEnvironment[Int[Array, ""]]):
    """Two steps of one player, the second of which has the given reward and discount."""

    reward: Float[Array, ""]
    discount: Float[Array, ""]
    num_actions: int = 3
    hidden: bool = False

    def init(self, *, key: Array) -> Int[Array, ""]:
        del key
        return jnp.zeros((), jnp.int32)

    def step(self, state: Array, action: Array, *, key: Array) -> tuple[Array, Transition]:
        del action, key
        second = state == 1
        reward, discount = (
            jnp.where(second, self.reward, 0.0),
            jnp.where(second, self.discount, 1.0),
        )
        return state + 1, Transition(reward, discount, second)

    def observe(self, state: Array) -> Any:
        return Nim(7, 3).observe(NimState(state))


def play(env: AbstractEnvironment, actor: AbstractActor, **changes: Any) -> Any:
    args: dict[str, Any] = dict(num_episodes=4, max_steps=9, key=jr.key(0))
    return evaluate(env, actor, **(args | changes))


def odd(reward: float = 0.0, discount: float = 1.0) -> Odd:
    return Odd(reward=jnp.float32(reward), discount=jnp.float32(discount))


#: Compiled as part of something else, where nothing can be raised.
inside = eqx.filter_jit(
    lambda env, actor: rollout(env, actor, num_steps=3, num_envs=2, key=jr.key(0))
)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("wrong", [jnp.nan, jnp.inf])
def test_a_policy_that_is_no_number_is_not_played_on_with(temperature, wrong):
    actor = PolicyActor(Broken(jnp.asarray(wrong)), temperature)
    with pytest.raises(
        ValueError, match=r"evaluate: an action was NaN or out of .* range \(4 of 4 "
    ):
        play(NIM, actor)


def test_nor_is_it_against_another():
    actor = PolicyActor(Broken(jnp.asarray(jnp.nan)))
    with pytest.raises(ValueError, match=r"match: an action was NaN or out of .* range"):
        match(NIM, RandomActor(), actor, num_games=8, max_steps=9, key=jr.key(0))
    with pytest.raises(ValueError, match=r"challenge: an action was NaN or out of .* range"):
        challenge(NIM, actor, actor, num_games=8, max_steps=9, key=jr.key(0))


@pytest.mark.parametrize("action", [3, -1, 3.0, -1.0, np.nan])
def test_an_action_outside_of_a_discrete_range_is_refused_whatever_its_type(action):
    actor = Fixed(jnp.asarray(action))
    with pytest.raises(ValueError, match="evaluate: an action was NaN or out of .* range"):
        play(odd(), actor)
    with pytest.raises(ValueError, match="rollout: an action was NaN or out of .* range"):
        rollout(odd(), actor, num_steps=3, num_envs=2, key=jr.key(0))


def test_compiled_results_are_nan_and_their_summary_raises():
    actor = PolicyActor(Broken(jnp.asarray(jnp.nan)))
    result = jax.jit(lambda key: play(NIM, actor, key=key))(jr.key(0))
    assert np.isnan(result.returns).all()
    for look in (result.summary, result.metrics):
        with pytest.raises(ValueError, match="an action was NaN or out of .* range"):
            look()
    games = lambda key: match(
        NIM, PolicyActor(perfect_nim), actor, num_games=4, max_steps=9, key=key
    )
    result = jax.jit(games)(jr.key(0))
    # The perfect player wins before the other one meets 3 objects, if it may begin.
    for x in (result.returns, result.outcomes):
        assert np.isnan(x).tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match="an action was NaN or out of .* range"):
        result.summary()


class Bare(AbstractAgent[Array]):
    """Acts by a broken policy without a search. Its loss is the mean reward of a batch."""

    wrong: float

    def init(self, *, key: Array) -> Array:
        del key
        return jnp.zeros((), jnp.float32)

    def actor(self, state: Array, *, explore: bool) -> PolicyActor:
        del state, explore
        return PolicyActor(Broken(jnp.float32(self.wrong)), 1.0)

    def update(self, state: Array, batch: Batch, *, key: Array) -> tuple[Array, Metrics]:
        del key
        return state, {"loss": jnp.mean(batch.items.reward)}


class Doubled(AbstractDiscreteEnvironment[NimState]):
    """Nim, whose discounts are twice as far from 0 as they may be."""

    num_actions: int = 3
    hidden: bool = False

    def init(self, *, key: Array) -> NimState:
        return NIM.init(key=key)

    def step(self, state: NimState, action: Array, *, key: Array) -> tuple[NimState, Transition]:
        state, transition = NIM.step(state, action, key=key)
        return state, eqx.tree_at(lambda t: t.discount, transition, 2 * transition.discount)

    def observe(self, state: NimState) -> Observation:
        return NIM.observe(state)


@pytest.mark.parametrize("env, wrong", [(NIM, jnp.nan), (Doubled(), 0.0)], ids=["agent", "env"])
def test_a_run_of_a_broken_policy_or_in_a_wrong_environment_stops(env, wrong):
    """The loss of the rows is NaN, so no parameter changes, and the guard says so."""
    window = TrajectoryBuffer(capacity=8, num_envs=16, batch_size=16, length=4, num_shards=8)
    loop = nim_loop(1, env=env, agent=Bare(wrong), buffer=window)
    _, metrics = step(loop, fill(loop, init(loop, key=jr.key(0))))
    with pytest.raises(NonFiniteError):
        check_finite(1, metrics)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("dims", [None, 2])
def test_a_distribution_that_is_no_number_is_not_played_on_with(greedy, dims):
    nan = lambda *shape: jnp.full(shape, jnp.nan)
    policy = lambda features: Gaussian(nan(1), nan(1)) if dims else Categorical(nan(2))
    env = Pendulum() if dims else CartPole()
    with pytest.raises(ValueError, match=r"evaluate: an action was NaN"):
        play(env, DistributionActor(policy, None, greedy))


@pytest.mark.parametrize("action", [-1, 3, 99])
def test_actions_out_of_range_are_not_played_on_with(action):
    actor = Fixed(jnp.asarray(action, jnp.int32))
    with pytest.raises(
        ValueError, match=r"evaluate: an action was NaN or out of .* range \(4 of 4 "
    ):
        play(NIM, actor)
    with pytest.raises(ValueError, match="rollout: an action was NaN or out of .* range"):
        rollout(NIM, actor, num_steps=3, num_envs=2, key=jr.key(0))
    rows = inside(NIM, actor)
    np.testing.assert_array_equal(np.isnan(rows.reward), ~rows.last)


BAD = [dict(discount=1.5), dict(discount=-2.0), dict(discount=jnp.nan), dict(reward=jnp.inf)]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_wrong_transitions_are_not_played_on_with(bad):
    env, actor = odd(**bad), RandomActor()
    message = r"a reward was not finite or a discount not between -1 and 1"
    with pytest.raises(ValueError, match=rf"evaluate: {message} \(4 of 4 "):
        play(env, actor)
    with pytest.raises(ValueError, match=rf"rollout: {message} \(2 of 6 "):
        rollout(env, actor, num_steps=3, num_envs=2, key=jr.key(0))
    episodes = start(env, actor, keys=jr.split(jr.key(0), 2))
    numbers = jnp.arange(2, dtype=jnp.int32)
    with pytest.raises(ValueError, match=rf"collect: {message}"):
        collect(env, actor, episodes, indices=numbers, key=jr.key(1), num_steps=3)
    rows = inside(env, actor)
    np.testing.assert_array_equal(np.isnan(rows.reward), [[False, True, False]] * 2)


def test_a_match_needs_an_opponent():
    games = lambda key: match(
        Corridor(3), RandomActor(), RandomActor(), num_games=8, max_steps=50, key=key
    )
    message = r"match: the move never passed to an opponent \(8 of 8 games\).*`evaluate`"
    with pytest.raises(ValueError, match=message):
        games(jr.key(0))
    result = jax.jit(games)(jr.key(0))
    assert np.isnan(result.outcomes).all()
    with pytest.raises(ValueError, match="the move never passed to an opponent"):
        result.summary()


def test_a_game_that_is_won_at_once_has_an_opponent():
    first = PolicyActor(perfect_nim)
    result = match(Nim(3, 3), first, first, num_games=4, max_steps=9, key=jr.key(0))
    assert result.outcomes.tolist() == [1, 1, -1, -1] and result.lengths.tolist() == [1] * 4


advance = eqx.filter_jit(PlanningActor.advance)


class Setting(eqx.Module):
    actor: PlanningActor
    state: NimState
    carry: Any


@pytest.fixture(scope="module")
def planned() -> Setting:
    actor = PlanningActor(
        TreeSearch(num_simulations=8, reuse=True), EnvironmentModel(NIM, perfect_nim)
    )
    state = jax.vmap(NimState)(jnp.asarray([7, 6], jnp.int32))
    see = jax.vmap(NIM.observe)
    run = jax.jit(lambda state, key: actor.act(state, see(state), actor.init(state), key=key)[2])
    return Setting(actor, state, run(state, jr.split(jr.key(0), 2)))


def heard(discount: float) -> Transition:
    return Transition(jnp.zeros(2), jnp.asarray([-1.0, discount]), jnp.zeros(2, bool))


@pytest.mark.parametrize("action, discount, message", [
    (-1, -1.0, "an action was NaN or out of"),
    (1, 1.5, "a discount not between -1 and 1"), (1, jnp.nan, "a discount not between -1 and 1"),
])  # fmt: skip
def test_an_actor_is_told_of_possible_moves_only(planned, action, discount, message):
    actor, actions = planned.actor, jnp.asarray([0, action], jnp.int32)
    with pytest.raises(ValueError, match=rf"PlanningActor.advance: .*{message}.* \(1 of 2 rows\)"):
        actor.advance(planned.carry, actions, heard(discount))
    carry = advance(actor, planned.carry, actions, heard(discount))
    # Compiled, the row starts anew, as after the end of an episode.
    fresh = Transition(jnp.zeros(2), -jnp.ones(2), jnp.asarray([False, True]))
    wanted = advance(actor, planned.carry, jnp.asarray([0, 1], jnp.int32), fresh)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(carry), jax.device_get(wanted))
    for other in (PolicyActor(perfect_nim), RandomActor(), DistributionActor(Categorical, None)):
        with pytest.raises(ValueError, match=rf"{type(other).__name__}.advance: .*{message}"):
            other.advance(None, actions, heard(discount))


@pytest.mark.parametrize("counts", [(0, 2), (-1, 2), (2, 0)], ids=str)
def test_a_rollout_of_nothing_is_refused(counts):
    steps, envs = counts
    with pytest.raises(ValueError, match=r"rollout\(num_.*must be an integer, at least 1"):
        rollout(NIM, RandomActor(), num_steps=steps, num_envs=envs, key=jr.key(0))

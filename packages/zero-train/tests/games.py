"""Games and players whose every result is known, shared by the tests of this package."""

import functools as ft

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree
from scipy import stats

from zero_envs import (
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractHiddenEnvironment,
    Observation,
    Transition,
)
from zero_train import AbstractActor


def close_to(successes: int, num: int, probability: float) -> bool:
    """So many successes are no surprise."""
    return float(stats.binomtest(successes, num, probability).pvalue) > 1e-3


class RelayState(eqx.Module):
    heap: Int[Array, ""]


class Relay(AbstractDiscreteEnvironment[RelayState]):
    """A heap of 4 to 9; who takes 1 moves again, who takes 2 does not; the last taker wins."""

    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key: PRNGKeyArray) -> RelayState:
        return RelayState(jr.randint(key, (), 4, 10, jnp.int32))

    def step(
        self, state: RelayState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[RelayState, Transition]:
        del key
        over = state.heap <= 0
        heap = jnp.maximum(state.heap - 1 - action, 0)
        last = heap == 0
        discount = jnp.where(last, 0.0, jnp.where(action == 0, 1.0, -1.0))
        reward = jnp.where(last & ~over, 1.0, 0.0)
        return RelayState(heap), Transition(reward, discount, last)

    def observe(self, state: RelayState) -> Observation:
        return Observation(
            features=state.heap.astype(jnp.float32),
            legal=jnp.arange(1, 3, dtype=jnp.int32) <= state.heap,
        )


class Counter(AbstractActor[Int[Array, "batch two"]]):
    """Its move depends on how many moves it has heard of and how often it was asked."""

    offset: int

    def init(self, state: RelayState) -> Int[Array, "batch two"]:
        return jnp.full((state.heap.shape[0], 2), self.offset, jnp.int32)

    def act(
        self,
        state: RelayState,
        obs: Observation,
        carry: Int[Array, "batch two"],
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Int[Array, " batch"], None, Int[Array, "batch two"]]:
        del state, key
        assert obs.legal is not None
        wish = (carry[:, 0] + carry[:, 1] // 2) % 2
        action = jnp.where(obs.legal[:, 1], wish, 0)
        return action, None, carry + jnp.asarray([[0, 1]], jnp.int32)

    def advance(
        self, carry: Int[Array, "batch two"], action: Int[Array, " batch"], transition: Transition
    ) -> Int[Array, "batch two"]:
        return carry + jnp.asarray([[1, 0]], jnp.int32)


def play_relay(heap: int, offsets: tuple[int, int], mover: int) -> tuple[int, int]:
    """Two `Counter`s in plain Python: the first one's outcome and the number of moves."""
    heard, asked, moves = list(offsets), list(offsets), 0
    while True:
        take = 1 + ((heard[mover] + asked[mover] // 2) % 2 if heap >= 2 else 0)
        asked[mover] += 1
        heap, moves = heap - take, moves + 1
        heard = [count + 1 for count in heard]
        if heap == 0:
            return (1 if mover == 0 else -1), moves
        if take == 2:
            mover = 1 - mover


class CupsState(eqx.Module):
    ball: Int[Array, ""]
    over: Bool[Array, ""]


class Cups(AbstractHiddenEnvironment[CupsState]):
    """The ball is under one of three cups; one guess."""

    num_actions: int = 3
    num_signals: int = 2
    hidden: bool = True

    def init(self, *, key: PRNGKeyArray) -> CupsState:
        return CupsState(jr.randint(key, (), 0, 3, jnp.int32), jnp.zeros((), bool))

    def step(
        self, state: CupsState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[CupsState, Transition]:
        del key
        reward = ((action == state.ball) & ~state.over).astype(jnp.float32)
        last = jnp.ones((), bool)
        return CupsState(state.ball, last), Transition(reward, jnp.zeros(()), last)

    def observe(self, state: CupsState) -> Observation:
        return Observation(features=jnp.zeros(1), legal=jnp.ones(3, bool) & ~state.over)

    def resample(self, state: CupsState, *, key: PRNGKeyArray) -> CupsState:
        return CupsState(jr.randint(key, (), 0, 3, jnp.int32), state.over)

    def signal(
        self, state: CupsState, action: Int[Array, ""], next_state: CupsState
    ) -> Int[Array, ""]:
        return (action == state.ball).astype(jnp.int32)


class SealedCups(AbstractDiscreteEnvironment[CupsState]):
    """Cups that cannot be resampled."""

    num_actions: int = 3
    hidden: bool = True

    def init(self, *, key: PRNGKeyArray) -> CupsState:
        return Cups().init(key=key)

    def step(
        self, state: CupsState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[CupsState, Transition]:
        return Cups().step(state, action, key=key)

    def observe(self, state: CupsState) -> Observation:
        return Cups().observe(state)


class Drift(AbstractContinuousEnvironment[Float[Array, " one"]]):
    """A point that is pushed about."""

    action_size: int = 1
    hidden: bool = False

    def init(self, *, key: PRNGKeyArray) -> Float[Array, " one"]:
        return jr.normal(key, (1,))

    def step(
        self, state: Float[Array, " one"], action: Float[Array, " one"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, " one"], Transition]:
        del key
        transition = Transition(-jnp.abs(state[0]), jnp.ones(()), jnp.zeros((), bool))
        return state + action, transition

    def observe(self, state: Float[Array, " one"]) -> Observation:
        return Observation(features=state, legal=None)


def perfect_nim(obs: Observation) -> tuple[Float[Array, " actions"], Float[Array, ""]]:
    """Bouton's strategy for three at most: leave a multiple of 4; take 1 if that cannot be."""
    heap = jnp.argmax(obs.features)
    best = jnp.maximum(heap % 4 - 1, 0)
    logits = jnp.where(jnp.arange(3) == best, 50.0, 0.0)
    return logits, jnp.where(heap % 4 == 0, -1.0, 1.0)


def take_one(obs: Observation) -> tuple[Float[Array, " actions"], Float[Array, ""]]:
    """Always takes one object."""
    assert obs.legal is not None
    return -jnp.arange(obs.legal.shape[0], dtype=jnp.float32), jnp.zeros(())


@ft.cache
def perfect_wins(heap: int, perfect_moves: bool) -> float:
    """How likely the perfect Nim player beats a uniformly random one from here."""
    if heap == 0:
        return 0.0 if perfect_moves else 1.0
    if perfect_moves:
        return perfect_wins(heap - max(heap % 4, 1), False)
    takes = range(1, min(3, heap) + 1)
    return sum(perfect_wins(heap - take, True) for take in takes) / len(takes)


class Scalar(AbstractActor[PyTree[Array]]):
    """An actor that breaks the rules: its carry has no batch axis."""

    def init(self, state: PyTree[Array]) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)

    def act(
        self, state: PyTree[Array], obs: Observation, carry: PyTree, *, key: Key[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], None, PyTree[Array]]:
        return jnp.zeros(key.shape, jnp.int32), None, carry

    def advance(self, carry: PyTree, action: Array, transition: Transition) -> PyTree[Array]:
        return carry

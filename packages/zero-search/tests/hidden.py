"""A world that hides something, and the exact values of what its player may know."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_search import AbstractHiddenModel, Belief


LISTEN, LEFT, RIGHT = range(3)
HONEST = 0.85


class Doors(NamedTuple):
    """Behind one of two doors is the tiger; `lies` says which of the roars to come mislead."""

    tiger: jax.Array
    lies: jax.Array
    heard: jax.Array  # roars from the left, roars from the right
    time: jax.Array
    over: jax.Array


class Tiger(AbstractHiddenModel[Doors]):
    """The tiger problem of Kaelbling, Littman and Cassandra 1998, until a door is opened.

    All that is random is hidden in the state, or with `noisy` drawn as it happens. After `horizon`
    moves it is over. In the first `locked` moves there is only listening. Where it `leaks`, a root
    is the true state.
    """

    horizon: int = 3
    noisy: bool = False
    locked: int | jax.Array = 0
    gamma: float = 1.0
    leaks: bool | jax.Array = False

    @property
    def num_signals(self):
        return 3  # a roar from the left, one from the right, a door

    def start(self, batch: int, tiger: int = 0, lie: bool = False) -> Doors:
        zeros = np.zeros((batch,), np.int32)
        return Doors(
            tiger=jnp.asarray(zeros + tiger),
            lies=jnp.asarray(np.full((batch, self.horizon), lie)),
            heard=jnp.asarray(np.zeros((batch, 2), np.int32)),
            time=jnp.asarray(zeros),
            over=jnp.asarray(zeros > 0),
        )

    def step(self, node, action, *, key):
        now = jnp.arange(self.horizon, dtype=jnp.int32)[None] == node.time[:, None]
        lie = jnp.any(now & node.lies, axis=1)
        if self.noisy:
            lie = jax.vmap(lambda k: jr.bernoulli(k, 1 - HONEST))(key)
        roar = jnp.where(lie, 1 - node.tiger, node.tiger)
        listens = (action == LISTEN) & ~node.over
        more = jax.nn.one_hot(roar, 2, dtype=jnp.int32)
        heard = node.heard + jnp.where(listens[:, None], more, 0)
        reward = jnp.where(action - 1 == node.tiger, -100.0, 10.0)
        reward = jnp.where(action == LISTEN, -1.0, reward)
        time = jnp.minimum(node.time + 1, self.horizon)
        over = node.over | (action != LISTEN) | (time == self.horizon)
        after = Doors(node.tiger, node.lies, heard, time, over)
        return after, jnp.where(node.over, 0.0, reward), jnp.where(over, 0.0, self.gamma), over

    def signal(self, node, action, next_node):
        more = (next_node.heard - node.heard) > 0
        return jnp.where(more[:, 0], 0, jnp.where(more[:, 1], 1, 2))

    def predict(self, node, *, key):
        doors = (node.time >= self.locked)[:, None]
        legal = jnp.concatenate([jnp.ones_like(doors), doors, doors], axis=1)
        legal = legal & ~node.over[:, None]
        return jnp.where(legal, 0.0, -jnp.inf), jnp.zeros(node.time.shape, jnp.float32)

    def root(self, state, obs, *, key):
        def one(state, key):
            tkey, lkey = jr.split(key)
            told = state.heard[0] - state.heard[1]
            left = jax.nn.sigmoid(told.astype(jnp.float32) * jnp.log(HONEST / (1 - HONEST)))
            tiger = jr.bernoulli(tkey, 1 - left).astype(jnp.int32)
            return tiger, jr.bernoulli(lkey, 1 - HONEST, (self.horizon,))

        tiger, lies = jax.vmap(one)(state, key)
        tiger = jnp.where(self.leaks, state.tiger, tiger)
        return state._replace(tiger=tiger, lies=jnp.where(self.leaks, state.lies, lies))

    def belief(self, batch: int) -> Belief:
        """Everything that may be hidden at the start, with its probability."""
        every = list(itertools.product((0, 1), *[(False, True)] * self.horizon))
        chance = lambda lies: HONEST ** lies.count(False) * (1 - HONEST) ** lies.count(True)
        particles = self.start(len(every))._replace(
            tiger=np.asarray([x[0] for x in every], np.int32),
            lies=np.asarray([x[1:] for x in every]),
        )
        weights = np.asarray([0.5 * chance(x[1:]) for x in every], np.float32)
        rows = lambda x: jnp.asarray(np.repeat(np.asarray(x)[None], batch, axis=0))
        particles = jax.tree.map(rows, particles)
        return Belief(particles, rows(weights), jnp.asarray(np.zeros((batch,), np.uint32)))


def tiger_values(tiger: Tiger) -> list[float]:
    """Exact Q-values at the start: dynamic programming over the belief that the tiger is left."""

    @functools.cache
    def qvalues(left: float, time: int) -> tuple[float, ...]:
        if time == tiger.horizon:
            return (0.0,)
        total = -1.0
        for likely in (HONEST, 1 - HONEST):  # of a roar from the left
            chance = likely * left + (1 - likely) * (1 - left)
            total += tiger.gamma * chance * max(qvalues(likely * left / chance, time + 1))
        if time < tiger.locked:
            return (total,)
        return total, 10 - 110 * left, 10 - 110 * (1 - left)

    return list(qvalues(0.5, 0))


def expectimax(model: Any, belief: Any, levels: int) -> jax.Array:
    """Q-values of a chance model by its public methods, over all actions and outcomes."""
    keys = lambda n: jr.split(jr.key(0), n)
    batch = jax.tree.leaves(belief)[0].shape[0]
    legal = jnp.isfinite(model.predict(belief, key=keys(batch))[0])
    actions = legal.shape[1]
    repeat = lambda x, n: jax.tree.map(lambda y: jnp.repeat(y, n, axis=0), x)
    each = lambda n, m: jnp.tile(jnp.arange(n, dtype=jnp.int32), m)
    after = model.afterstate(repeat(belief, actions), each(actions, batch))
    probs = jax.nn.softmax(model.outcome_logits(after))
    outcomes = probs.shape[1]
    wide = repeat(after, outcomes)
    landed, total, discount, last = model.resolve(wide, each(outcomes, batch * actions))
    if levels > 1:
        best = jnp.max(expectimax(model, landed, levels - 1), axis=1)
    else:
        best = model.predict(landed, key=keys(total.shape[0]))[1]
    judged = jnp.where(last, model.predict(landed, key=keys(total.shape[0]))[1], best)
    total += jnp.where(discount == 0, 0.0, discount * judged)
    total = jnp.sum(probs * total.reshape(probs.shape), axis=1).reshape(batch, actions)
    return jnp.where(legal, total, -jnp.inf)

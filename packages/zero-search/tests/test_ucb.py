"""The rules that add a confidence bound to plain Q-values: against a search in NumPy."""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractPriorModel, NodeStatistics, PlainQ, PUCB, PUCT, TreeSearch, UCB1
from zero_search._rules import best_action, prepare

from .helpers import fresh, quick_jit


GAMES, ACTIONS, DEPTH, SIMULATIONS, GAMMA = 6, 3, 4, 70, 0.9
SIZE = (ACTIONS ** (DEPTH + 1) - 1) // (ACTIONS - 1)


class State(NamedTuple):
    game: jax.Array
    node: jax.Array


class Table(AbstractPriorModel[State]):
    """Complete trees of random rewards, turns, ends, priors and raw values, by node number."""

    reward: jax.Array
    discount: jax.Array
    logits: jax.Array
    value: jax.Array

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        child = jnp.minimum(ACTIONS * node.node + 1 + action, SIZE - 1)
        discount = GAMMA * self.discount[node.game, child]
        return State(node.game, child), self.reward[node.game, child], discount, discount == 0

    def predict(self, node, *, key):
        return self.logits[node.game, node.node], self.value[node.game, node.node]


@pytest.fixture(scope="module")
def table() -> Table:
    rng = np.random.default_rng(0)
    discount = rng.choice([1.0, -1.0, 0.0], (GAMES, SIZE), p=[0.45, 0.45, 0.1])
    discount[:, -(ACTIONS**DEPTH) :] = 0
    logits = rng.normal(size=(GAMES, SIZE, ACTIONS))
    illegal = rng.random(logits.shape) < 0.2
    illegal[..., 0] = False
    f32 = lambda x: jnp.asarray(np.asarray(x, np.float32))
    return Table(
        reward=f32(rng.uniform(-1, 1, (GAMES, SIZE))),
        discount=f32(discount),
        logits=f32(np.where(illegal, -np.inf, logits)),
        value=f32(rng.uniform(-1, 1, (GAMES, SIZE))),
    )


# Of one node: q and n of the actions, p their prior, t the visits of the node.
ORACLES = {
    "ucb1": (
        UCB1(0.7, PlainQ(0.0), epsilon=1e-3),
        0.0,
        lambda q, n, p, t: q + 0.7 * np.sqrt(np.log(t) / (n + 1e-3)),
    ),
    "log": (
        PUCT(1.3, PlainQ(1.0), bound="log"),
        1.0,
        lambda q, n, p, t: q + 1.3 * p * np.sqrt(np.log(t + 1) / (n + 1)),
    ),
    "alphago": (PUCT(1.3, PlainQ(0.5)), 0.5, lambda q, n, p, t: q + 1.3 * p * np.sqrt(t) / (n + 1)),
    "rosin": (PUCB(), 1.0, lambda q, n, p, t: q + predictor(n, p, t)),
}


def predictor(n, p, t):
    """Rosin 2011, section 3.1."""
    bound = [np.sqrt(3 * np.log(t) / (2 * each)) if each else 0.0 for each in n]
    weight = np.sqrt(np.maximum(p, 1e-12)) / np.sqrt(p).sum()
    return bound - 2 / weight * (np.sqrt(np.log(t) / t) if t > 1 else 1.0)


class Oracle:
    """Nodes of Python objects: N visits, W the sum of values, both of the node itself. A node's
    first visit is its own evaluation, so its N is one more than those of its children together.
    """

    def __init__(self, table: Table, game: int, unvisited, rule):
        fields = (table.reward, table.discount, table.logits, table.value)
        self.reward, self.discount, self.logits, self.raw = (
            np.asarray(x[game], np.float64) for x in fields
        )
        self.unvisited, self.rule = unvisited, rule
        self.tree: dict[int, SimpleNamespace] = {}
        self.add(0)

    def add(self, node: int) -> float:
        """Evaluates a new node."""
        prior = np.exp(self.logits[node])
        value = self.raw[node] if node == 0 or self.discount[node] != 0 else 0.0
        self.tree[node] = SimpleNamespace(prior=prior / prior.sum(), N=1, W=value)
        return value

    def visits(self, node: int) -> np.ndarray:
        children = [ACTIONS * node + 1 + a for a in range(ACTIONS)]
        return np.array([self.tree[c].N if c in self.tree else 0 for c in children])

    def qvalue(self, node: int, action: int) -> float:
        child = ACTIONS * node + 1 + action
        if child not in self.tree:
            return self.unvisited
        at = self.tree[child]
        return self.reward[child] + GAMMA * self.discount[child] * at.W / at.N

    def simulate(self, node: int = 0) -> float:
        """One more visit of a node that is known; the value that it backs up."""
        at = self.tree[node]
        if node and self.discount[node] == 0:
            value = 0.0
        else:
            q = np.array([self.qvalue(node, a) for a in range(ACTIONS)])
            score = self.rule(q, self.visits(node), at.prior, at.N)
            action = int(np.argmax(np.where(at.prior > 0, score, -np.inf)))
            child = ACTIONS * node + 1 + action
            below = self.simulate(child) if child in self.tree else self.add(child)
            value = self.reward[child] + GAMMA * self.discount[child] * below
        at.N, at.W = at.N + 1, at.W + value
        return value


@pytest.mark.parametrize("name", ORACLES)
def test_visits_of_all_nodes_equal_numpy(name, table):
    selection, unvisited, rule = ORACLES[name]
    planner = TreeSearch(SIMULATIONS, selection)

    @quick_jit
    def run(keys):
        zero = jnp.zeros((GAMES,), jnp.int32)
        state = State(jnp.arange(GAMES, dtype=jnp.int32), zero)
        return fresh(planner, table, state, keys)[1]

    tree = jax.tree.map(np.asarray, run(jr.split(jr.key(0), GAMES)))
    for game in range(GAMES):
        oracle = Oracle(table, game, unvisited, rule)
        for _ in range(SIMULATIONS):
            oracle.simulate()
        size = int(tree.size[game])
        assert sorted(tree.state.node[game, :size]) == sorted(oracle.tree)
        for slot in range(size):
            node = int(tree.state.node[game, slot])
            assert np.array_equal(tree.edge[game, slot, 0], oracle.visits(node))
        seen = oracle.visits(0) > 0
        q = np.array([oracle.qvalue(0, a) for a in range(ACTIONS)])
        assert np.allclose(tree.edge[game, 0, 1][seen], q[seen], atol=1e-5)


@pytest.mark.parametrize(
    "selection",
    [
        UCB1(0.0, PlainQ(), epsilon=1e-3),
        PUCT(0.0, PlainQ(1.0), bound="log"),
        PUCB(),
        PUCT(0.0, PlainQ(9.0)),
        PUCT(0.0),
        PUCT(0.0, c_base=1e9),
        UCB1(0.0),
    ],
)
def test_no_illegal_or_impossible_action_is_taken(selection):
    # Illegal ones, of which `0 * -inf` is no score; a probability that underflows; a node never
    # scored before; one legal action; all that was seen is bad.
    rows = [[-np.inf, 1, -np.inf, 0], [0, -np.inf, -300, 0], [0, -np.inf, 0, 0]]
    rows += [[-np.inf, -np.inf, -np.inf, 0], [0, -np.inf, -np.inf, 0]]
    visits = [[0, 2, 0, 1], [3, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 5], [3, 0, 0, 0]]
    logits, visits = np.asarray(rows, np.float32), np.asarray(visits, np.float32)

    @quick_jit
    def run(logits, visits):
        node = NodeStatistics(
            prior=prepare(selection, logits),
            visits=visits,
            qvalues=jnp.where(visits > 0, -1.0, 0.0),
            count=1 + jnp.sum(visits, axis=1),
            value=jnp.full((5,), -0.5),
            raw_value=jnp.zeros((5,)),
        )
        # With a constant of 0 an illegal action may score NaN, which the choice leaves out.
        score = jnp.where(logits > -jnp.inf, selection.score(node), 0.0)
        return best_action(selection, node), score

    best, score = map(np.asarray, run(logits, visits))
    assert np.all(np.isfinite(logits)[np.arange(5), best]) and not np.any(np.isnan(score))


def test_an_unlikely_action_waits(getkey):
    # Rosin's penalty is the larger the less likely an action is; before any visit there is no
    # other difference.
    @quick_jit
    def run(key):
        logits = jr.normal(key, (20, 5))
        zeros, each = jnp.zeros((20, 5)), jnp.zeros((20,))
        node = NodeStatistics(prepare(PUCB(), logits), zeros, zeros, each + 1, each, each)
        return logits, best_action(PUCB(), node), PUCB().score(node)

    logits, best, score = map(np.asarray, run(getkey()))
    assert np.array_equal(best, np.argmax(logits, axis=1))
    root = np.exp(logits / 2) / np.sqrt(np.sum(np.exp(logits), axis=1, keepdims=True))
    assert np.allclose(score, 1 - 2 * np.sum(root, axis=1, keepdims=True) / root, rtol=1e-5)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: UCB1(-1.0), r"`UCB1\(c=-1.0\)`: must be finite, 0 or more"),
        (lambda: UCB1(epsilon=0.0), r"`UCB1\(epsilon=0.0\)`: must be finite"),
        (lambda: PUCT(np.nan, bound="log"), r"`PUCT\(c=nan\)`: must be finite, 0 or more"),
        (lambda: PlainQ(np.inf), r"`PlainQ\(unvisited=inf\)`: must be finite"),
    ],
)
def test_bad_constants_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()

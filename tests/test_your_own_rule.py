"""The page on writing rules: it runs, prints what it says, and its rules are what it claims."""

from types import SimpleNamespace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractPriorModel, FirstPlayUrgency, PUCT, TreeSearch

from . import workspace


GAMES, ACTIONS, DEPTH = 12, 3, 3
SIZE = (ACTIONS ** (DEPTH + 1) - 1) // (ACTIONS - 1)


@pytest.fixture(scope="module")
def page():
    return workspace.run_page("your-own-rule")


def test_the_page_prints_what_it_says(page):
    _, printed, said = page
    assert len(said) == 3 and printed == said


class State(NamedTuple):
    game: jax.Array
    node: jax.Array


class Table(AbstractPriorModel[State]):
    """Complete trees of random rewards, turns, ends, priors and raw values, by node number."""

    reward: np.ndarray
    discount: np.ndarray
    logits: np.ndarray
    value: np.ndarray
    gamma: float = 1.0

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        child = jnp.minimum(ACTIONS * node.node + 1 + action, SIZE - 1)
        reward, discount = (jnp.asarray(x)[node.game, child] for x in (self.reward, self.discount))
        return State(node.game, child), reward, self.gamma * discount, discount == 0

    def predict(self, node, *, key):
        logits, value = (jnp.asarray(x)[node.game, node.node] for x in (self.logits, self.value))
        return logits, value


@pytest.fixture(scope="module")
def table() -> Table:
    """With arrays of NumPy, for the oracle reads them number by number."""
    rng = np.random.default_rng(0)
    discount = rng.choice([1.0, -1.0, -1.0], (GAMES, SIZE))
    discount[:, -(ACTIONS**DEPTH) :] = 0
    logits = rng.normal(size=(GAMES, SIZE, ACTIONS))
    illegal = rng.random(logits.shape) < 0.2
    illegal[..., 0] = False
    f32 = lambda x: np.asarray(x, np.float32)
    return Table(
        reward=f32(rng.uniform(-1, 1, (GAMES, SIZE))),
        discount=f32(discount),
        logits=f32(np.where(illegal, -np.inf, logits)),
        value=f32(rng.uniform(-1, 1, (GAMES, SIZE))),
        gamma=0.9,
    )


def plan(table, planner, temperature):
    """`temperature` is an array, so that one compilation serves several."""
    planner = eqx.tree_at(lambda p: p.backup.temperature, planner, temperature)
    zero = jnp.zeros((GAMES,), jnp.int32)
    state, keys = State(jnp.arange(GAMES, dtype=jnp.int32), zero), jr.split(jr.key(0), GAMES)
    return planner.plan(table, state, planner.init(table, state), key=keys)[0]


class Oracle:
    """The page's rules in NumPy, one game, a dictionary of nodes."""

    def __init__(self, table: Table, game: int, *, c, reduction, temperature):
        self.reward, self.discount, self.logits, self.raw = (
            np.asarray(x[game], np.float64)
            for x in (table.reward, table.discount, table.logits, table.value)
        )
        self.gamma, self.c, self.reduction, self.temperature = (
            table.gamma,
            c,
            reduction,
            temperature,
        )
        self.tree: dict[int, SimpleNamespace] = {}
        self.add(0)

    def add(self, node):
        prior = np.exp(self.logits[node])
        zeros = np.zeros(ACTIONS)
        self.tree[node] = SimpleNamespace(
            prior=prior / prior.sum(), visits=zeros, q=zeros.copy(), value=self.raw[node]
        )

    def simulate(self, node=0):
        at = self.tree[node]
        seen, count = at.visits > 0, 1 + at.visits.sum()
        first = at.value - self.reduction * np.sqrt(at.prior[seen].sum())
        score = np.where(seen, at.q, first) + self.c * at.prior * np.sqrt(count) / (at.visits + 1)
        action = int(np.argmax(np.where(at.prior > 0, score, -np.inf)))
        child = ACTIONS * node + 1 + action
        if child not in self.tree:
            self.add(child)
        elif self.discount[child] != 0:
            self.simulate(child)
        step = self.gamma * self.discount[child]
        at.q[action] = self.reward[child] + step * self.tree[child].value
        at.visits[action] += 1
        q, n = at.q[at.visits > 0], at.visits.sum()
        weights = np.exp((q - q.max()) / self.temperature)
        at.value = (n * (weights @ q) / weights.sum() + self.raw[node]) / (n + 1)


def test_rules_equal_a_search_in_numpy(page, table):
    rules, _, _ = page
    options = dict(c=1.3, reduction=0.4)
    backup = rules.SoftmaxBackup()
    # The page's rule is one that the library has, written out.
    for selection in (rules.UrgentPUCT(**options), PUCT(1.3, FirstPlayUrgency(0.4))):
        planner = TreeSearch(60, selection, backup=backup)
        run = workspace.quick_jit(lambda t, planner=planner: plan(table, planner, t))
        found = jax.device_get(run(np.float32(0.2)))
        for game in range(GAMES):
            oracle = Oracle(table, game, temperature=0.2, **options)
            for _ in range(60):
                oracle.simulate()
            root = oracle.tree[0]
            assert np.array_equal(found.visits[game], root.visits)
            assert np.allclose(found.value[game], root.value, atol=1e-5)
            seen = root.visits > 0
            assert np.allclose(found.qvalues[game][seen], root.q[seen], atol=1e-5)
            assert int(found.stats["nodes"][game]) == len(oracle.tree)


def exact(table, game, best, node=0) -> float:
    """The value of a node if `best` of the legal actions' values is what counts."""
    values = []
    for action in np.flatnonzero(np.isfinite(table.logits[game, node])):
        child = ACTIONS * node + 1 + int(action)
        discount = float(table.discount[game, child])
        after = discount * exact(table, game, best, child) if discount else 0.0
        values.append(float(table.reward[game, child]) + after)
    return best(values)


def test_limits_of_the_temperature(page, table):
    # So much exploration that all is visited often: an evaluation counts for little then.
    rules, _, _ = page
    even = np.where(np.isfinite(table.logits), np.float32(0), -np.inf).astype(np.float32)
    table = Table(table.reward, table.discount, even, table.value)
    explore, backup = rules.UrgentPUCT(c=100.0), rules.SoftmaxBackup()
    planner = TreeSearch(2000, explore, max_nodes=SIZE, backup=backup)
    run = workspace.quick_jit(lambda t: plan(table, planner, t))
    limits = [np.asarray([exact(table, i, best) for i in range(GAMES)]) for best in (max, np.mean)]
    for temperature, limit in zip((1e-3, 1e6), limits, strict=True):
        assert np.allclose(run(np.float32(temperature)).value, limit, atol=0.03)
    assert np.mean(np.abs(limits[0] - limits[1])) > 0.3


def test_a_temperature_of_zero_is_refused(page):
    with pytest.raises(ValueError, match=r"SoftmaxBackup\(temperature=0.0\)"):
        page[0].SoftmaxBackup(0.0)

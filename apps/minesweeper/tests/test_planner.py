"""The solver with a belief tree inside: what is safe is opened, and guesses are as good as any."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Minesweeper, MinesweeperState
from zero_minesweeper._agents import build_agent, Indifferent
from zero_minesweeper._build import build_model, build_planner
from zero_search import Plan


ENV = Minesweeper(3, 4, 3, max_states=32)
MODEL = build_model(ENV, Indifferent())
PLANNER = build_planner(24, 32, temperature=1.0)


@pytest.fixture(scope="module")
def planned():
    """`planned(state, key)` for six rows, compiled once."""

    @jax.jit
    def plan(state: MinesweeperState, key) -> Plan:
        return PLANNER.plan(MODEL, state, None, key=jr.split(key, 6))[0]

    return plan


@pytest.fixture(scope="module")
def states() -> MinesweeperState:
    """A cell or two open on some boards; one is over and one has safe cells."""
    state = jax.vmap(lambda k: ENV.init(key=k))(jr.split(jr.key(5), 6))
    step = jax.jit(jax.vmap(lambda s, a: ENV.step(s, a, key=jr.key(0))))
    mines = np.asarray(state.mines).reshape(6, -1)
    first = [int(np.flatnonzero(~row)[0]) for row in mines]
    first[1] = int(np.flatnonzero(mines[1])[0])
    state, _ = step(state, jnp.asarray(first, jnp.int32))
    second = [int(np.flatnonzero(~row)[-1]) for row in mines]
    moved, _ = step(state, jnp.asarray(second, jnp.int32))
    return jax.tree.map(lambda x, y: jnp.concatenate([x[:3], y[3:]]), state, moved)


def pick(state: MinesweeperState, rows: list[int]) -> MinesweeperState:
    return jax.tree.map(lambda x: x[jnp.asarray(rows)], state)


def test_what_is_safe_is_opened(planned, states):
    """All safe cells alike, and nothing is searched; elsewhere the risk is exact."""
    plan = planned(states, jr.key(0))
    risk = np.asarray(plan.stats["probability"]).reshape(6, -1)
    hidden = (np.asarray(states.board) < 0).reshape(6, -1)
    safe = hidden & (risk == 0)
    kinds = set()
    for row in range(6):
        kind = "over" if states.over[row] else "safe" if safe[row].any() else "guess"
        kinds.add(kind)
        weights = np.asarray(plan.weights[row])
        assert plan.stats["searched"][row] == (kind == "guess")
        if kind == "safe":
            np.testing.assert_allclose(weights, safe[row] / safe[row].sum(), atol=1e-6)
        if kind == "over":
            assert not weights.any()
        else:
            assert hidden[row, plan.action[row]] and weights[plan.action[row]] > 0
            assert weights.sum() == pytest.approx(1, abs=1e-5) and not weights[~hidden[row]].any()
    assert kinds == {"over", "safe", "guess"}


def test_a_plan_does_not_depend_on_the_rows_beside_it(planned, states):
    """However many must be searched, and wherever they are; equal boards are planned alike."""
    plan = planned(states, jr.key(0))
    order = [5, 3, 0, 2, 4, 1]
    other = planned(pick(states, order), jr.key(1))
    for name in ("weights", "qvalues", "value"):
        np.testing.assert_array_equal(getattr(other, name), getattr(plan, name)[jnp.asarray(order)])
    same = planned(pick(states, [0] * 6), jr.key(2))
    assert (np.asarray(same.weights) == np.asarray(plan.weights)[0]).all()


def test_where_the_posterior_does_not_fit_the_network_plays(states):
    tight = Minesweeper(3, 4, 3, max_states=1)
    model = build_model(tight, Indifferent())
    plan = jax.jit(lambda s: PLANNER.plan(model, s, None, key=jr.split(jr.key(0), 6))[0])(states)
    lost = np.isnan(plan.stats["probability"]).all(axis=(1, 2)) & ~np.asarray(states.over)
    assert lost.any()
    hidden = np.asarray(states.board[lost] < 0).reshape(lost.sum(), -1)
    uniform = hidden / hidden.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.asarray(plan.weights)[lost], uniform, atol=1e-6)


def won_of_all(env: Minesweeper, agent) -> int:
    """Of all layouts there are, how many an agent wins who plays the same on the same board."""
    cells, mines = env.num_actions, env.num_mines
    layouts = np.zeros((0, cells), bool)
    layouts = np.stack(
        [np.isin(np.arange(cells), x) for x in itertools.combinations(range(cells), mines)]
    ).reshape(-1, env.rows, env.columns)
    number = len(layouts)

    @jax.jit
    def step(state):
        obs = jax.vmap(env.observe)(state)
        action, _, _ = agent.act(state, obs, agent.init(state), key=jr.split(jr.key(0), number))
        return jax.vmap(lambda s, a: env.step(s, a, key=jr.key(0)))(state, action)[0]

    board = jnp.full(layouts.shape, -1, jnp.int8)
    state = MinesweeperState(board, jnp.asarray(layouts), jnp.zeros(number, jnp.bool_))
    while not state.over.all():
        state = step(state)
    return int(jax.vmap(env.won)(state).sum())


def best_of_all(rows: int, columns: int, mines: int) -> int:
    """How many layouts the best player wins, by exact expectimax in plain Python."""
    cells = [(i, j) for i in range(rows) for j in range(columns)]
    near = {
        x: frozenset(y for y in cells if y != x and max(abs(x[0] - y[0]), abs(x[1] - y[1])) < 2)
        for x in cells
    }
    layouts = frozenset(map(frozenset, itertools.combinations(cells, mines)))
    known: dict = {}

    def best(opened: frozenset, alive: frozenset) -> int:
        if len(opened) == len(cells) - mines:
            return len(alive)
        if (opened, alive) not in known:
            safe = [x for x in cells if x not in opened and not any(x in m for m in alive)]
            found = 0
            for x in safe[:1] or [x for x in cells if x not in opened]:
                shown: dict[int, set] = {}
                for layout in alive:
                    if x not in layout:
                        shown.setdefault(len(near[x] & layout), set()).add(layout)
                found = max(found, sum(best(opened | {x}, frozenset(m)) for m in shown.values()))
            known[opened, alive] = found
        return known[opened, alive]

    return best(frozenset(), layouts)


def test_nobody_does_better_on_a_tiny_board():
    """With every layout a particle, search is expectimax."""
    env = Minesweeper(2, 4, 2, max_states=32)
    agent = build_agent("belief-constant", env, layouts=256, simulations=300)
    assert won_of_all(env, agent) == best_of_all(2, 4, 2)


@pytest.mark.slow
def test_four_by_four_with_four_mines():
    """The exact optimum, 961 of 1820."""
    env = Minesweeper(4, 4, 4)
    agent = build_agent("belief-constant", env, layouts=8192, simulations=1000)
    assert won_of_all(env, agent) == 961

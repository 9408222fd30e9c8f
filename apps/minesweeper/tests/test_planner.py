"""The solver with a belief tree inside: what is safe is opened, and guesses are as good as any."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray

from zero_envs import Minesweeper, MinesweeperState
from zero_minesweeper._agents import Judge
from zero_minesweeper._build import build_model, build_planner
from zero_minesweeper._config import Config
from zero_minesweeper._planner import Judgement, SolverSearch
from zero_minesweeper._solvers import proven
from zero_search import Plan


ENV = Minesweeper(2, 4, 2, max_states=32)


def planner(simulations: int, layouts: int) -> SolverSearch:
    """One that explores: the values of these tests are no good."""
    return build_planner(
        Config(player_simulations=simulations, layouts=layouts, player_exploration=1.0)
    )


#: With every layout a particle, and room to look at every end.
PLANNER = planner(300, 28)


def every_layout(env: Minesweeper) -> MinesweeperState:
    """A board a layout, with nothing open."""
    cells, mines = env.num_actions, env.num_mines
    layouts = [np.isin(np.arange(cells), x) for x in itertools.combinations(range(cells), mines)]
    mined = np.stack(layouts).reshape(-1, env.rows, env.columns)
    over = jnp.zeros(len(layouts), jnp.bool_)
    state = MinesweeperState(jnp.full(mined.shape, -1, jnp.int8), jnp.asarray(mined), over)
    return jax.device_get(state)


def planning(env: Minesweeper, planner: SolverSearch) -> Callable[..., Plan]:
    """`plan(state, key)` for every layout at once, compiled once."""
    model = build_model(env, Judge())

    @jax.jit
    def plan(state: MinesweeperState, key: PRNGKeyArray) -> Plan:
        return planner.plan(model, state, None, key=jr.split(key, state.over.shape[0]))[0]

    return lambda state, key: jax.device_get(plan(state, key))


@pytest.fixture(scope="module")
def planned():
    return planning(ENV, PLANNER)


@eqx.filter_jit
def stepped(env: Minesweeper, state: MinesweeperState, action: Any) -> tuple[Any, Any]:
    """Every board after a move, and whether it is won."""
    after, _ = jax.vmap(lambda s, a: env.step(s, a, key=jr.key(0)))(state, action)
    return after, jax.vmap(env.won)(after)


@pytest.fixture(scope="module")
def states() -> MinesweeperState:
    """Boards on which nothing, one cell and three cells were opened; some are over."""
    state = every_layout(ENV)
    number = state.over.shape[0]
    for move in range(3):
        played = jax.device_get(stepped(ENV, state, np.full(number, 2 * move, np.int32))[0])
        some = np.arange(number) % 4 > move
        choose = lambda x, y, some=some: np.where(
            np.expand_dims(some, tuple(range(1, x.ndim))), x, y
        )
        state = jax.tree.map(choose, played, state)
    return state


def pick(state: MinesweeperState, rows: np.ndarray) -> MinesweeperState:
    return jax.tree.map(lambda x: x[rows], state)


def test_what_is_safe_is_opened(planned, states):
    """All safe cells alike, and nothing is searched; elsewhere the risk is exact."""
    plan = planned(states, jr.key(0))
    number = states.over.shape[0]
    risk = plan.extra.probability.reshape(number, -1)
    hidden = (states.board < 0).reshape(number, -1)
    safe = hidden & (risk == 0)
    kinds = set()
    for row in range(number):
        kind = "over" if states.over[row] else "safe" if safe[row].any() else "guess"
        kinds.add(kind)
        weights = plan.weights[row]
        assert plan.stats["invalid"][row] == 0
        assert plan.extra.searched[row] == (kind == "guess")
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
    order = np.random.default_rng(0).permutation(states.over.shape[0])
    other = planned(pick(states, order), jr.key(1))
    for name in ("weights", "qvalues", "value"):
        np.testing.assert_array_equal(getattr(other, name), getattr(plan, name)[order])
    (guess, *_) = np.flatnonzero(plan.extra.searched)
    same = planned(pick(states, np.full_like(order, guess)), jr.key(2))
    assert (same.weights == plan.weights[guess]).all()


def test_where_the_posterior_does_not_fit_numbers_and_the_network_play(states, monkeypatch):
    """What a single number proves safe comes first, and nothing is searched."""

    def unsearched(self, model, board, risk):
        nothing = jnp.full_like(risk, jnp.nan)
        return Judgement(nothing, nothing, nothing, nothing[:, 0], jnp.zeros(len(board), jnp.int32))

    monkeypatch.setattr(SolverSearch, "_search", unsearched)  # which takes seconds to compile
    tight = Minesweeper(2, 4, 2, max_states=1)
    plan = planning(tight, planner(1, 1))(states, jr.key(0))
    lost = np.isnan(plan.extra.probability).all(axis=(1, 2)) & ~states.over
    assert lost.any() and not plan.extra.searched[lost].any()
    hidden = (states.board[lost] < 0).reshape(lost.sum(), -1)
    proved, _ = jax.jit(jax.vmap(proven))(states.board)
    safe = np.asarray(proved)[lost]
    simple = safe.any(axis=1, keepdims=True)
    assert simple.any() and not simple.all() and not (safe & ~hidden).any()
    either = np.where(simple, safe, hidden)
    uniform = either / either.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(plan.weights[lost], uniform, atol=1e-6)
    mined = states.mines[lost].reshape(hidden.shape)
    assert not (safe & mined).any()


def won_of_all(env: Minesweeper, plan: Callable[..., Plan]) -> int:
    """How many layouts are won by a planner, which plays the same on the same board."""
    state, won = every_layout(env), np.zeros(0)
    while not state.over.all():
        state, won = jax.device_get(stepped(env, state, plan(state, jr.key(0)).action))
    return int(won.sum())


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


def test_nobody_does_better_on_a_tiny_board(planned):
    assert won_of_all(ENV, planned) == best_of_all(2, 4, 2)


@pytest.mark.slow
def test_nobody_does_better_on_four_by_four():
    """With leaves that are all worth a win, and every layout a particle: 961 of 1820."""
    env = Minesweeper(4, 4, 4, max_states=64)
    config = Config(player_simulations=2000, layouts=2048)
    assert won_of_all(env, planning(env, build_planner(config))) == best_of_all(4, 4, 4) == 961

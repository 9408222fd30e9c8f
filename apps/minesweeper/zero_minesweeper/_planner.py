"""A planner that opens safe cells, and searches a belief tree if there is none."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Int8, Key

from zero_envs import Minesweeper, MinesweeperState
from zero_search import (
    AbstractPlanner,
    Belief,
    BeliefModel,
    masked_prediction,
    Plan,
    safe_softmax,
    sample_action,
    TreeSearch,
)
from zero_train import EnvironmentModel

from ._beliefs import MineBelief, MineBeliefs
from ._layouts import find_layouts
from ._solvers import proven


class Judgement(eqx.Module):
    """The plan for each row: the figures of all cells, and the value."""

    weights: Float[Array, "rows cells"]
    visits: Float[Array, "rows cells"]
    qvalues: Float[Array, "rows cells"]
    value: Float[Array, " rows"]
    invalid: Int[Array, " rows"]


class Minefield(eqx.Module):
    """The `extra` of a plan of [`SolverSearch`][zero_minesweeper._planner.SolverSearch]: the
    probability of a mine in each cell, NaN if the posterior is unknown, and whether the plan is
    that of a search, because no cell was safe."""

    probability: Float[Array, "*axes rows columns"]
    searched: Bool[Array, "*axes"]


class SolverSearch(AbstractPlanner[EnvironmentModel, None]):
    """Opens cells that are safe by the exact posterior. If there are none, it searches a belief
    tree.

    Of the state it reads only the visible board and whether the game is over. If the board has at
    most `num_layouts` layouts, the particles of the belief are all of them, and the belief is the
    exact posterior. Otherwise they are drawn from the posterior, and weighted so that the
    probability of a mine in each cell is as close as possible to the exact one. The risk of the
    first move of a search is always the exact one.

    Most moves are safe. Therefore the rows of a batch that need a search are searched together,
    `lanes` at a time, and equal boards are searched once. The randomness of a search depends on the
    board only, so the plan of a row does not depend on the other rows; `key` is for drawing cells
    by their weights.

    The `weights` of a plan are equal for all safe cells, or the visits of the search. If the
    posterior needs more than `max_states`, they are equal for the cells that single numbers prove
    safe, or the network's policy if there are none. `extra` is a `Minefield`, and `stats` has the
    number of `invalid` evaluations.

    **Attributes:**

    - `search`: the tree search over beliefs.
    - `num_layouts`: the number of particles of a belief.
    - `temperature`: cells are drawn in proportion to `weights ** (1 / temperature)`; with 0 the
        first cell of the largest weight is opened.
    - `lanes`: the number of boards that are searched at once.
    """

    search: TreeSearch
    num_layouts: int = 256
    temperature: float = 0.0
    lanes: int = 4

    def init(self, model: EnvironmentModel, state: MinesweeperState) -> None:
        del model, state

    def plan(
        self,
        model: EnvironmentModel,
        state: MinesweeperState,
        carry: None,
        *,
        key: Key[Array, " batch"],
        obs: Any = None,
    ) -> tuple[Plan, None]:
        del carry, obs
        # Removed, so that nothing below can use them.
        state = eqx.tree_at(lambda s: s.mines, state, jnp.zeros_like(state.mines))
        posterior = jax.vmap(_rules(model).posterior)(state)
        batch, risk = state.over.shape[0], posterior.probability
        hidden = (state.board < 0) & ~state.over[:, None, None]
        flat = lambda x: x.reshape(batch, -1)
        safe, risky = flat(hidden & (risk == 0)), flat(hidden & (risk > 0) & (risk < 1))
        predict_key, draw_key = (jax.vmap(lambda k, i=i: jr.fold_in(k, i))(key) for i in range(2))
        told = _unsearched(model, state, safe, posterior.overflowed, predict_key)
        pending = ~jnp.any(safe, axis=1) & jnp.any(risky, axis=1)
        told = self._search_all(model, state.board, flat(risk), pending, told)
        plan = Plan.over_actions(
            sample_action(told.weights, self.temperature, key=draw_key),
            told.weights,
            visits=told.visits,
            qvalues=told.qvalues,
            value=told.value,
            stats={"invalid": told.invalid},
            extra=Minefield(risk, pending),
        )
        return plan, None

    def advance(self, carry: None, action: Array, last: Bool[Array, " batch"]) -> None:
        del carry, action, last

    def _search_all(
        self,
        model: EnvironmentModel,
        board: Int8[Array, "batch rows columns"],
        risk: Float[Array, "batch cells"],
        pending: Bool[Array, " batch"],
        told: Judgement,
    ) -> Judgement:
        """Replaces the plans of the rows that are `pending`."""

        def some(loop):
            pending, told = loop
            rows = jnp.argsort(~pending, stable=True)[: self.lanes]
            found = self._search(model, board[rows], risk[rows])
            equal = jnp.all(board[:, None] == board[rows][None], axis=(2, 3)) & pending[:, None]
            mine, lane = jnp.any(equal, axis=1), jnp.argmax(equal, axis=1)
            take = lambda old, new: jnp.where(jnp.expand_dims(mine, range(1, old.ndim)), new, old)
            told = jax.tree.map(lambda old, new: take(old, new[lane]), told, found)
            return pending & ~mine, told

        return jax.lax.while_loop(lambda loop: jnp.any(loop[0]), some, (pending, told))[1]

    def _search(
        self,
        model: EnvironmentModel,
        board: Int8[Array, "lanes rows columns"],
        risk: Float[Array, "lanes cells"],
    ) -> Judgement:
        dkey, tkey, fkey = jax.vmap(lambda b: tuple(jr.split(_key(b), 3)))(board)
        rules, number = _rules(model), self.num_layouts
        find = lambda board, key: find_layouts(
            board, rules.num_mines, number, key=key, max_states=rules.max_states
        )
        layouts, likely = jax.vmap(find)(board, dkey)
        particles = MinesweeperState(
            board=jnp.broadcast_to(board[:, None], layouts.shape),
            mines=layouts,
            over=jnp.zeros(layouts.shape[:2], jnp.bool_),
        )
        seed = jax.vmap(lambda k: jr.bits(k, (), jnp.uint32))(fkey)
        belief = MineBelief(Belief(particles, likely, seed), risk)
        beliefs = MineBeliefs(BeliefModel(model, number))
        carry = self.search.init(beliefs, belief)
        plan, _ = self.search.plan(beliefs, belief, carry, key=tkey)
        value = jnp.sum(plan.weights * plan.qvalues, axis=1)
        return Judgement(plan.weights, plan.visits, plan.qvalues, value, plan.stats["invalid"])


def _unsearched(
    world: EnvironmentModel,
    state: MinesweeperState,
    safe: Bool[Array, "batch cells"],
    overflowed: Bool[Array, " batch"],
    key: Key[Array, " batch"],
) -> Judgement:
    """The plans without a search: equal weights for safe cells. If the posterior is unknown, by
    single numbers and the policy."""
    predict = lambda: masked_prediction(*world.predict(state, key=key))
    known = _equal(safe)

    def some() -> Float[Array, "batch cells"]:
        simple, _ = jax.vmap(proven)(state.board)
        policy = safe_softmax(predict()[0])
        guess = jnp.where(jnp.any(simple, axis=1, keepdims=True), _equal(simple), policy)
        return jnp.where(overflowed[:, None], guess, known)

    # Such boards are rare.
    weights = jax.lax.cond(jnp.any(overflowed), some, lambda: known)
    # Not one evaluation for both: if the value is not used, XLA removes its computation.
    _, value, invalid = predict()
    return Judgement(
        weights=weights,
        visits=jnp.zeros_like(weights),
        qvalues=jnp.broadcast_to(value[:, None], weights.shape),
        value=value,
        invalid=invalid.astype(jnp.int32),
    )


def _key(board: Int8[Array, "rows columns"]) -> Key[Array, ""]:
    """A key that depends on the board only."""
    numbers = board.reshape(-1).astype(jnp.uint32)
    fold = lambda key, number: (jr.fold_in(key, number), None)
    return jax.lax.scan(fold, jr.key(0), numbers)[0]


def _equal(cells: Bool[Array, "batch cells"]) -> Float[Array, "batch cells"]:
    return safe_softmax(jnp.where(cells, 0.0, -jnp.inf))


def _rules(world: EnvironmentModel) -> Minesweeper:
    assert isinstance(world.env, Minesweeper)
    return world.env

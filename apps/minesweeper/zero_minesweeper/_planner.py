"""Opens what is safe, and searches where something must be risked."""

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
    """What is thought of every cell of every row, and of the rows."""

    weights: Float[Array, "rows cells"]
    visits: Float[Array, "rows cells"]
    qvalues: Float[Array, "rows cells"]
    value: Float[Array, " rows"]
    invalid: Int[Array, " rows"]


class Minefield(eqx.Module):
    """What a [`SolverSearch`][zero_minesweeper._planner.SolverSearch] knows of a board: the
    `extra` of its plans.

    **Attributes:**

    - `probability`: of a mine in each cell, NaN where it is not known.
    - `searched`: whether nothing was safe, so that the plan is that of a search.
    """

    probability: Float[Array, "*axes rows columns"]
    searched: Bool[Array, "*axes"]


class SolverSearch(AbstractPlanner[EnvironmentModel, None]):
    """The exact posterior says what is safe; only where nothing is, a belief tree is searched.

    Of the state it reads the visible board, and whether the game is over. The particles of a belief
    are all layouts, if `num_layouts` are enough for that, and the belief is the posterior itself.
    Otherwise they are drawn from it, and weighted so that a cell is as likely a mine among them as
    it really is, as far as they can show that. The risk of a first move is always that of the
    posterior, and the draws only say what it may show.

    Nearly all moves are safe ones, so of a batch the rows that must be searched are taken together,
    `lanes` at a time, and equal boards are searched once. What is random in a search follows from
    the board, so that a row's plan does not depend on those beside it; keys are for drawing cells.

    Its plans' `weights` are equal for all safe cells, and the search's visits elsewhere. Where the
    posterior does not fit into `max_states`, they are equal for what single numbers prove safe, and
    the network's policy otherwise. `extra` is a `Minefield`, and `stats` say how many evaluations
    were `invalid`.

    **Attributes:**

    - `search`: over beliefs.
    - `num_layouts`: particles of a belief.
    - `temperature`: cells are drawn by `weights ** (1 / temperature)`; 0 takes the first of the
        largest.
    - `lanes`: boards searched at once.
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
        # So that nothing below can look at them.
        state = eqx.tree_at(lambda s: s.mines, state, jnp.zeros_like(state.mines))
        posterior = jax.vmap(_rules(model).posterior)(state)
        batch, risk = state.over.shape[0], posterior.probability
        hidden = (state.board < 0) & ~state.over[:, None, None]
        flat = lambda x: x.reshape(batch, -1)
        safe, risky = flat(hidden & (risk == 0)), flat(hidden & (risk > 0) & (risk < 1))
        told = _unsearched(model, state, safe, posterior.overflowed, key)
        pending = ~jnp.any(safe, axis=1) & jnp.any(risky, axis=1)
        told = self._search_all(model, state.board, flat(risk), pending, told)
        cells = jnp.arange(safe.shape[1], dtype=jnp.int32)
        plan = Plan(
            action=sample_action(told.weights, self.temperature, key=key),
            candidates=jnp.broadcast_to(cells, safe.shape),
            weights=told.weights,
            visits=told.visits,
            qvalues=told.qvalues,
            advantages=told.qvalues - told.value[:, None],
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
        """Replaces what is told of the rows that are `pending`."""

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
    """Safe cells alike; where the posterior is not known, by single numbers and the policy."""

    def known() -> Float[Array, "batch cells"]:
        return _equal(safe)

    def some() -> Float[Array, "batch cells"]:
        simple, _ = jax.vmap(proven)(state.board)
        policy = safe_softmax(world.predict(state, key=key)[0])
        guess = jnp.where(jnp.any(simple, axis=1, keepdims=True), _equal(simple), policy)
        return jnp.where(overflowed[:, None], guess, known())

    # Such boards are rare, if there are any at all.
    weights = jax.lax.cond(jnp.any(overflowed), some, known)
    # Whoever does not look at the value does not pay for it.
    _, value = world.predict(state, key=key)
    return Judgement(
        weights=weights,
        visits=jnp.zeros_like(weights),
        qvalues=jnp.broadcast_to(value[:, None], weights.shape),
        value=value,
        invalid=(~jnp.isfinite(value)).astype(jnp.int32),
    )


def _key(board: Int8[Array, "rows columns"]) -> Key[Array, ""]:
    """A key of the board's own."""
    numbers = board.reshape(-1).astype(jnp.uint32)
    fold = lambda key, number: (jr.fold_in(key, number), None)
    return jax.lax.scan(fold, jr.key(0), numbers)[0]


def _equal(cells: Bool[Array, "batch cells"]) -> Float[Array, "batch cells"]:
    return safe_softmax(jnp.where(cells, 0.0, -jnp.inf))


def _rules(world: EnvironmentModel) -> Minesweeper:
    assert isinstance(world.env, Minesweeper)
    return world.env

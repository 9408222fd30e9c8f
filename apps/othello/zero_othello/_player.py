"""One game of Othello and a planner that follows it, for `othello play` and `othello gtp`."""

import dataclasses
import functools as ft
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from zero_envs import AbstractDiscreteEnvironment
from zero_search import AbstractPlanner, AbstractPriorModel, Plan

from ._board import name, other, Position, position


@dataclasses.dataclass(frozen=True, eq=False)
class Thought:
    """What the planner thinks of one position, as NumPy without a batch axis.

    Values are from the view of the player to move: 1 is a won game, -1 a lost one.

    **Attributes:**

    - `action`: the move it would play.
    - `weights`: the share of the search each action got; 0 where illegal.
    - `visits`: how many simulations began with each action, those kept from earlier moves
        included; 0 without a search.
    - `qvalues`: the value of each action; the position's own where it was never tried.
    - `prior`: the network's policy before any search.
    - `value`: the value of the position.
    - `stats`: the planner's own figures.
    """

    action: int
    weights: Float[np.ndarray, " actions"]
    visits: Int[np.ndarray, " actions"]
    qvalues: Float[np.ndarray, " actions"]
    prior: Float[np.ndarray, " actions"]
    value: float
    stats: Mapping[str, float]


@dataclasses.dataclass
class _Ply:
    """One position of the game's history. Arrays never change, so undo only goes back to it."""

    state: PyTree[Array]
    carry: PyTree[Array]
    position: Position
    action: int | None
    thought: Thought | None = None


class Player:
    """A game in progress, whose planner hears of every move and keeps what it knows between them.

    Mutable, for one game at a time: the edge between people or protocols and the pure functions.
    """

    def __init__(
        self,
        env: AbstractDiscreteEnvironment,
        planner: AbstractPlanner,
        model: AbstractPriorModel,
        *,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `env`: Othello.
        - `planner`: thinks. Give it temperature 0 and no root noise to play its strongest.
        - `model`: what it thinks with, over `env`'s states.
        - `key`: the same key and the same moves give the same thoughts.
        """
        self._env = env
        self._planner = planner
        self._model = model
        self._key = key
        self._history: list[_Ply] = []
        self.new()

    @property
    def state(self) -> PyTree[Array]:
        """The environment's state of the current position, without a batch axis."""
        return jax.tree.map(lambda x: x[0], self._history[-1].state)

    @property
    def position(self) -> Position:
        """The current position."""
        return self._history[-1].position

    @property
    def last_action(self) -> int | None:
        """The move that led here; `None` at the start."""
        return self._history[-1].action

    @property
    def num_plies(self) -> int:
        """Moves played so far, passes included."""
        return len(self._history) - 1

    def new(self) -> None:
        """Starts a new game."""
        state, carry, *seen = _start(self._env, self._planner, self._model, self._keys(0, 2))
        board = _position(*seen, colour="black")
        self._history = [_Ply(state, carry, board, None)]

    def play(self, action: int) -> None:
        """Plays a move for whoever is to move.

        Raises a `ValueError` that lists the legal moves, and plays nothing, if it is illegal.
        """
        now = self._history[-1]
        if now.position.over:
            raise ValueError(f"{name(action)} cannot be played: the game is over")
        if action not in now.position.legal:
            moves = " ".join(map(name, now.position.legal))
            colour = now.position.colour
            raise ValueError(f"{name(action)} is not legal; {colour} may play {moves}")
        moves = jnp.asarray([action], jnp.int32)
        state, carry, *seen = _advance(
            self._env, self._planner, now.state, now.carry, moves, self._keys(self.num_plies, 1)
        )
        board = _position(*seen, colour=other(now.position.colour))
        self._history.append(_Ply(state, carry, board, action))

    def undo(self) -> None:
        """Takes back the last move; raises a `ValueError` at the start of the game."""
        if not self.num_plies:
            raise ValueError("no move to take back: this is the start of the game")
        self._history.pop()

    def think(self) -> Thought:
        """Plans the current position, once: asking again costs nothing.

        Raises a `ValueError` when the game is over.
        """
        now = self._history[-1]
        if now.position.over:
            raise ValueError("nothing to think about: the game is over")
        if now.thought is None:
            plan, prior, now.carry = _think(
                self._planner, self._model, now.state, now.carry, self._keys(self.num_plies, 0)
            )
            now.thought = _thought(plan, prior)
        return now.thought

    def warm_up(self) -> None:
        """Compiles everything that a game needs, so that the first answer is quick. Starts a new
        game."""
        self.new()
        self.play(self.think().action)
        self.new()

    def _keys(self, ply: int, purpose: int) -> Key[Array, " batch"]:
        return jr.fold_in(jr.fold_in(self._key, ply), purpose)[None]


class NetworkAlone(AbstractPlanner[AbstractPriorModel, None]):
    """No search: the network's most likely move, for a player with 0 simulations.

    The plan's weights are the network's policy, and every value is the network's own.
    """

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> None:
        del model, state

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: None,
        *,
        key: Key[Array, " batch"],
        obs: Any = None,
    ) -> tuple[Plan, None]:
        root_key, predict_key = (jax.vmap(lambda k, i=i: jr.fold_in(k, i))(key) for i in range(2))
        node = model.root(state, obs, key=root_key)
        logits, value = model.predict(node, key=predict_key)
        known = jnp.isfinite(value) & ~jnp.any(jnp.isnan(logits), axis=1)
        weights = jax.nn.softmax(logits, axis=-1)
        actions = jnp.arange(logits.shape[1], dtype=jnp.int32)
        plan = Plan(
            action=jnp.argmax(logits, axis=-1).astype(jnp.int32),
            candidates=jnp.broadcast_to(actions[None], logits.shape),
            weights=weights,
            visits=jnp.zeros_like(weights),
            qvalues=jnp.broadcast_to(value[:, None], logits.shape),
            advantages=jnp.zeros_like(weights),
            value=value,
            stats={"invalid": (~known).astype(jnp.int32)},
        )
        return plan, None

    def advance(
        self, carry: None, action: Int[Array, " batch"], last: Bool[Array, " batch"]
    ) -> None:
        del carry, action, last


def _observe(env: AbstractDiscreteEnvironment, state: PyTree[Array]) -> tuple[Array, Array]:
    obs = jax.vmap(env.observe)(state)
    assert obs.legal is not None  # Othello's actions are discrete
    return obs.features[0], obs.legal[0]


@eqx.filter_jit
def _start(
    env: AbstractDiscreteEnvironment,
    planner: AbstractPlanner,
    model: AbstractPriorModel,
    keys: Key[Array, " batch"],
) -> tuple[Any, ...]:
    state = jax.vmap(lambda key: env.init(key=key))(keys)
    return state, planner.init(model, state), *_observe(env, state), jnp.zeros((), bool)


@eqx.filter_jit
def _advance(
    env: AbstractDiscreteEnvironment,
    planner: AbstractPlanner,
    state: PyTree[Array],
    carry: PyTree[Array],
    action: Int[Array, " batch"],
    key: Key[Array, " batch"],
) -> tuple[Any, ...]:
    state, transition = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(state, action, key)
    carry = planner.advance(carry, action, transition.last)
    return state, carry, *_observe(env, state), transition.last[0]


@eqx.filter_jit
def _think(
    planner: AbstractPlanner,
    model: AbstractPriorModel,
    state: PyTree[Array],
    carry: PyTree[Array],
    key: Key[Array, " batch"],
) -> tuple[Plan, Float[Array, "batch actions"], PyTree[Array]]:
    split = jax.vmap(jr.split)(key)
    plan, carry = planner.plan(model, state, carry, key=split[:, 0])
    logits, _ = model.predict(state, key=split[:, 1])
    return plan, jax.nn.softmax(logits, axis=-1), carry


def _position(features: Array, legal: Array, last: Array, *, colour: Any) -> Position:
    return position(np.asarray(features), np.asarray(legal), colour=colour, over=bool(last))


def _thought(plan: Plan, prior: Float[Array, "batch actions"]) -> Thought:
    row = ft.partial(jax.tree.map, lambda x: np.asarray(x)[0])
    return Thought(
        action=int(plan.action[0]),
        weights=row(plan.weights),
        visits=np.rint(row(plan.visits)).astype(np.int32),
        qvalues=row(plan.qvalues),
        prior=row(prior),
        value=float(plan.value[0]),
        stats={name: float(value[0]) for name, value in plan.stats.items()},
    )

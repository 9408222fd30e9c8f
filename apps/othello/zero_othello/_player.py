"""One game of Othello and its planner, for `othello play` and `othello gtp`."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from zero_envs import AbstractDiscreteEnvironment
from zero_search import (
    AbstractPlanner,
    AbstractPriorModel,
    masked_prediction,
    Plan,
    safe_softmax,
)
from zero_train.app import App, load, Thought, with_simulations

from ._board import name, other, Position, position
from ._config import Config


@dataclasses.dataclass
class _Ply:
    """One position of the game, to which `undo` returns."""

    state: PyTree[Array]
    carry: PyTree[Array]
    position: Position
    action: int | None
    thought: Thought | None = None


class Player:
    """A mutable game in progress, whose planner may keep its tree between moves."""

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
        - `planner`: plans the moves. It is strongest with temperature 0 and without root noise.
        - `model`: the model of the planner, over the states of `env`.
        - `key`: the same key and the same moves give the same plans.
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
        """The last move; `None` at the start."""
        return self._history[-1].action

    @property
    def num_plies(self) -> int:
        """The number of moves so far, including passes."""
        return len(self._history) - 1

    def new(self) -> None:
        """Starts a new game."""
        state, carry, *seen = _start(self._env, self._planner, self._model, self._keys(0, 2))
        board = _position(*seen, colour="black")
        self._history = [_Ply(state, carry, board, None)]

    def play(self, action: int) -> None:
        """Plays a move for the side to move.

        **Raises:** `ValueError` for an illegal move, with all legal ones.
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
        """Takes back the last move.

        **Raises:** `ValueError` at the start of the game.
        """
        if not self.num_plies:
            raise ValueError("no move to take back: this is the start of the game")
        self._history.pop()

    def think(self) -> Thought:
        """The plan for the current position, which is computed once.

        **Raises:** `ValueError` if the game is over.
        """
        now = self._history[-1]
        if now.position.over:
            raise ValueError("there is no move to plan: the game is over")
        if now.thought is None:
            plan, prior, now.carry = _think(
                self._planner, self._model, now.state, now.carry, self._keys(self.num_plies, 0)
            )
            now.thought = Thought.of(plan, prior)
        return now.thought

    def warm_up(self) -> None:
        """Compiles all functions, so that the first answer is fast, and starts a new game."""
        self.new()
        self.play(self.think().action)
        self.new()

    def _keys(self, ply: int, purpose: int) -> Key[Array, " batch"]:
        return jr.fold_in(jr.fold_in(self._key, ply), purpose)[None]


class NetworkAlone(AbstractPlanner[AbstractPriorModel, None]):
    """Plays the network's most likely move, without a search.

    The weights of the plan are the network's policy, and all values are the network's.
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
        logits, value, invalid = masked_prediction(logits, value)
        plan = Plan.over_actions(
            jnp.argmax(logits, axis=-1).astype(jnp.int32),
            safe_softmax(logits),
            visits=jnp.zeros_like(logits),
            qvalues=jnp.broadcast_to(value[:, None], logits.shape),
            value=value,
            stats={"invalid": invalid.astype(jnp.int32)},
        )
        return plan, None

    def advance(
        self, carry: None, action: Int[Array, " batch"], last: Bool[Array, " batch"]
    ) -> None:
        del carry, action, last


def load_player(app: App[Config], run: str, simulations: int | None, seed: int) -> Player:
    """The player of a run.

    **Arguments:**

    - `simulations`: simulations a move, 0 for the network without a search; by default those of the
        run's configuration.
    """
    trained = load(app, run)
    env: Any = trained.loop.env  # whose actions are discrete
    alone = simulations == 0
    actor: Any = with_simulations(trained.player, None if alone else simulations)
    planner = NetworkAlone() if alone else actor.planner
    return Player(env, planner, actor.model, key=jr.key(seed))


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

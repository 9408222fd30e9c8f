"""Leaves judged by playing on at random. Batch-native, as all models are."""

from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._chance import AbstractChanceModel
from ._check import check_count, check_kinds, check_prediction, check_range
from ._model import AbstractHiddenModel, AbstractPriorModel, State


Afterstate = TypeVar("Afterstate")


class Playout(eqx.Module):
    """How a leaf is judged: by one playout of uniformly random legal actions.

    Its return is `r + gamma d (r' + gamma d' (...))` for the player to move at the leaf, `d` being
    the signed discounts, so any number of players may take turns. It stops where the episode ends,
    where nothing is legal, or after `num_steps`. With `bootstrap` the evaluator's value of the
    state reached counts there (nothing follows a discount of 0), otherwise nothing more does.

    | a leaf is worth | |
    |---|---|
    | its evaluator's value | the model as it is |
    | a random playout | `Playout(20)` |
    | `k` random steps, then the evaluator's value | `Playout(k, bootstrap=True)` |
    | the mean of a playout and the evaluator's value | `Playout(20, mixing=0.5)` |

    A leaf is judged once and keeps its value, as good or bad as its luck was.

    **Arguments:**

    - `num_steps`: most steps of a playout, wherever in the tree it starts.
    - `gamma`: that of the planner.
    - `bootstrap`: whether the evaluator judges the state where a playout stops.
    - `mixing`: the playout's share; the rest is the evaluator's value of the leaf itself.
    - `rules`: another model of the same game, in which playouts are played. The model itself would
        have to evaluate its network to say what is legal, or the odds of all outcomes to draw one.

    Silver et al. 2016, "Mastering the game of Go with deep neural networks and tree search", mixed
    evenly.
    """

    num_steps: int
    gamma: float = 1.0
    bootstrap: bool = False
    mixing: float = 1.0
    rules: AbstractPriorModel | None = None

    def __check_init__(self):
        check_count("Playout", 1, num_steps=self.num_steps)
        check_range("Playout", 0, 1, gamma=self.gamma, mixing=self.mixing)
        if self.rules is not None:
            check_kinds("Playout", AbstractPriorModel, rules=self.rules)


class PlayoutModel(AbstractPriorModel[State], AbstractHiddenModel[State], Generic[State]):
    """`model` with leaves judged by playouts. Where it can `resample` and `signal`, so can this."""

    model: AbstractPriorModel[State]
    playout: Playout

    @property
    def num_signals(self) -> int:
        return _num_signals(self.model)

    def __check_init__(self):
        check_kinds("PlayoutModel", AbstractPriorModel, model=self.model)
        check_kinds("PlayoutModel", Playout, playout=self.playout)

    def step(
        self, state: State, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return self.model.step(state, action, key=key)

    def predict(
        self, state: State, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        return _judge(self.model, self.playout, state, key)

    def resample(self, state: State, *, key: Key[Array, " batch"]) -> State:
        return _resample(self.model, state, key)

    def signal(
        self, state: State, action: Int[Array, " batch"], next_state: State
    ) -> Int[Array, " batch"]:
        return _signal(self.model, state, action, next_state)


class ChancePlayoutModel(
    AbstractChanceModel[State, Afterstate],
    AbstractHiddenModel[State],
    Generic[State, Afterstate],
):
    """As [`zero_search.PlayoutModel`][], for models that know the probabilities of their dice.

    A value that the model has for afterstates is not used.
    """

    model: AbstractChanceModel[State, Afterstate]
    playout: Playout

    @property
    def num_signals(self) -> int:
        return _num_signals(self.model)

    def __check_init__(self):
        check_kinds("ChancePlayoutModel", AbstractChanceModel, model=self.model)
        check_kinds("ChancePlayoutModel", Playout, playout=self.playout)

    def afterstate(self, state: State, action: Int[Array, " batch"]) -> Afterstate:
        return self.model.afterstate(state, action)

    def outcome_logits(self, afterstate: Afterstate) -> Float[Array, "batch outcomes"]:
        return self.model.outcome_logits(afterstate)

    def resolve(
        self, afterstate: Afterstate, outcome: Int[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return self.model.resolve(afterstate, outcome)

    def predict(
        self, state: State, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        return _judge(self.model, self.playout, state, key)

    def resample(self, state: State, *, key: Key[Array, " batch"]) -> State:
        return _resample(self.model, state, key)

    def signal(
        self, state: State, action: Int[Array, " batch"], next_state: State
    ) -> Int[Array, " batch"]:
        return _signal(self.model, state, action, next_state)


class _Run(eqx.Module):
    """Playouts under way."""

    state: PyTree[Array]
    legal: Bool[Array, "batch actions"]
    value: Float[Array, " batch"]  # the evaluator's, of `state`
    going: Bool[Array, " batch"]
    total: Float[Array, " batch"]  # rewards so far
    scale: Float[Array, " batch"]  # what comes is multiplied by


def _judge(
    model: AbstractPriorModel, playout: Playout, state: PyTree[Array], key: Key[Array, " batch"]
) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
    """The evaluator's logits, and its value mixed with a playout's return."""
    look, go, end = jax.vmap(lambda k: tuple(jr.split(k, 3)))(key)
    logits, value = model.predict(state, key=look)
    check_prediction(logits, value, key.shape[0], None)
    value = value.astype(jnp.float32)
    run = _run(model, playout, state, logits > -jnp.inf, value, go)
    reached = run.value
    if playout.rules is not None:
        reached = model.predict(run.state, key=end)[1].astype(jnp.float32)
    future = jnp.where(playout.bootstrap & (run.scale != 0), run.scale * reached, 0.0)
    # Without a share, a value of any kind is without effect.
    own = jnp.where(playout.mixing < 1, (1.0 - playout.mixing) * value, 0.0)
    return logits, own + playout.mixing * (run.total + future)


def _run(
    model: AbstractPriorModel,
    playout: Playout,
    state: PyTree[Array],
    legal: Bool[Array, "batch actions"],
    value: Float[Array, " batch"],
    key: Key[Array, " batch"],
) -> _Run:
    """Plays on from every row that has a legal action, until all have stopped."""
    rules = model if playout.rules is None else playout.rules
    keys = jax.vmap(lambda k: tuple(jr.split(k, 3)))(key)

    def body(carry):
        i, run = carry
        # Apart, so that what a model has no use for is not computed.
        draw, go, look = (jax.vmap(lambda k: jr.fold_in(k, i))(k) for k in keys)
        action = _uniform(run.legal, draw)
        state, reward, discount, last = rules.step(run.state, action, key=go)
        logits, value = rules.predict(state, key=look)
        legal = logits > -jnp.inf
        after = _Run(
            state=state,
            legal=legal,
            value=value.astype(jnp.float32),
            going=~last & (discount != 0) & jnp.any(legal, axis=1),
            total=run.total + run.scale * reward.astype(jnp.float32),
            scale=run.scale * playout.gamma * discount.astype(jnp.float32),
        )
        return i + 1, jax.tree.map(lambda x, y: _where(run.going, x, y), after, run)

    going = jnp.any(legal, axis=1)
    # Made of `going`, so that they vary over devices as it does.
    zero, one = jnp.where(going, 0.0, 0.0), jnp.where(going, 1.0, 1.0)
    first = _Run(state, legal, value, going, zero, one)
    unfinished = lambda carry: (carry[0] < playout.num_steps) & jnp.any(carry[1].going)
    return jax.lax.while_loop(unfinished, body, (jnp.zeros((), jnp.int32), first))[1]


def _uniform(
    legal: Bool[Array, "batch actions"], key: Key[Array, " batch"]
) -> Int[Array, " batch"]:
    """A legal action a row, all with the same probability; action 0 where there is none."""
    number = jnp.cumsum(legal, axis=1, dtype=jnp.int32)
    share = jax.vmap(lambda k: jr.uniform(k, (), jnp.float32))(key)
    chosen = (share * number[:, -1].astype(jnp.float32)).astype(jnp.int32)
    return jnp.argmax(number > chosen[:, None], axis=1).astype(jnp.int32)


def _where(mask: Bool[Array, " batch"], x: Array, y: Array) -> Array:
    return jnp.where(mask.reshape((-1,) + (1,) * (x.ndim - 1)), x, y)


def _resample(model: AbstractPriorModel, state: State, key: Key[Array, " batch"]) -> State:
    return model.resample(state, key=key) if isinstance(model, AbstractHiddenModel) else state


def _num_signals(model: AbstractPriorModel) -> int:
    return model.num_signals if isinstance(model, AbstractHiddenModel) else 0


def _signal(
    model: AbstractPriorModel, state: State, action: Int[Array, " batch"], next_state: State
) -> Int[Array, " batch"]:
    if isinstance(model, AbstractHiddenModel):
        return model.signal(state, action, next_state)
    return jnp.zeros_like(action)

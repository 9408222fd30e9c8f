"""Leaves that are judged by random playouts."""

import dataclasses
from typing import Any, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._check import check_count, check_kinds, check_range
from ._model import (
    AbstractChanceModel,
    AbstractHiddenModel,
    AbstractPriorModel,
    Afterstate,
    predicted,
    stepped,
)
from ._sample import equal_rows, folded, inverted, split_rows, uniform, varying, where_rows
from ._types import Bools, Floats, Ints, Keys, Mask, Node, Prediction, Stepped


class PlayoutModel(
    AbstractChanceModel[Node, Afterstate], AbstractHiddenModel[Node], Generic[Node, Afterstate]
):
    """`model` with every leaf judged by one playout of uniformly random legal actions.

    The return of a playout is `r + d (r' + d' (...))` for the player to move at the leaf, `d` being
    the signed discounts, so any number of players may take turns. It stops where the episode ends,
    where nothing is legal, or after `num_steps`. With `bootstrap` the evaluator's value of the
    node reached counts there (nothing follows a discount of 0), otherwise nothing more does. A leaf
    whose first step ends the episode, pays nothing and leaves it as it is was truncated before. A
    leaf is evaluated once and keeps its value. Chance outcomes and signals are those of `model`; a
    value that it has for afterstates is not used.

    | a leaf is worth | |
    |---|---|
    | its evaluator's value | the model as it is |
    | a random playout | `PlayoutModel(model, 20)` |
    | `k` random steps, then the evaluator's value | `PlayoutModel(model, k, bootstrap=True)` |
    | the mean of a playout and the evaluator's value | `PlayoutModel(model, 20, mixing=0.5)` |

    **Arguments:**

    - `model`: evaluates the leaves' policies.
    - `num_steps`: most steps of a playout, wherever in the tree it starts.
    - `bootstrap`: whether the evaluator judges the node where a playout stops.
    - `mixing`: the playout's share; the rest is the evaluator's value of the leaf itself.
    - `playouts_in`: another model of the same nodes, in which playouts are played. `model` itself
        would have to evaluate its network to say what is legal, or the odds of all outcomes to
        draw one. Its discounts must be those of `model`. Its `root` is given every leaf, without
        an observation, and returns a node of the same kind: it may draw what is hidden there.

    Silver et al. 2016, "Mastering the game of Go with deep neural networks and tree search", mixed
    evenly.
    """

    model: AbstractPriorModel[Node]
    num_steps: int
    bootstrap: bool = eqx.field(static=True, default=False)
    mixing: float = 1.0
    playouts_in: AbstractPriorModel[Node] | None = None

    def __check_init__(self):
        check_kinds("PlayoutModel", AbstractPriorModel, model=self.model)
        check_count("PlayoutModel", 1, num_steps=self.num_steps)
        check_range("PlayoutModel", 0, 1, mixing=self.mixing)
        if self.playouts_in is not None:
            check_kinds("PlayoutModel", AbstractPriorModel, playouts_in=self.playouts_in)

    @property
    def num_outcomes(self) -> int:
        return self.model.num_outcomes if isinstance(self.model, AbstractChanceModel) else 0

    @property
    def num_signals(self) -> int:
        return self.model.num_signals if isinstance(self.model, AbstractHiddenModel) else 0

    @property
    def random(self) -> bool:
        return getattr(self.model, "random", False)

    def root(self, state: PyTree[Array], obs: Any, *, key: Keys) -> Node:
        return self.model.root(state, obs, key=key)

    def step(self, node: Node, action: Ints, *, key: Keys) -> Stepped[Node]:
        return self.model.step(node, action, key=key)

    def predict(self, node: Node, *, key: Keys) -> Prediction:
        """The evaluator's logits, and its value mixed with the return of a playout."""
        look, go, end = split_rows(key, 3)
        logits, value = predicted(self.model, node, look)
        value = value.astype(jnp.float32)
        if self.playouts_in is not None:
            draw, end = split_rows(end, 2)
            node = self.playouts_in.root(node, None, key=draw)
        run = _run(self, node, logits > -jnp.inf, value, go)
        future = jnp.zeros_like(value)
        if self.bootstrap:
            reached = run.value
            if self.playouts_in is not None:
                reached = self.model.predict(run.state, key=end)[1].astype(jnp.float32)
            future = jnp.where(run.scale != 0, run.scale * reached, 0.0)
        # With `mixing=1` even a NaN of the evaluator has no effect.
        own = jnp.where(self.mixing < 1, (1.0 - self.mixing) * value, 0.0)
        return logits, own + self.mixing * (run.total + future)

    def signal(self, node: Node, action: Ints, next_node: Node) -> Ints:
        if isinstance(self.model, AbstractHiddenModel):
            return self.model.signal(node, action, next_node)
        return jnp.zeros_like(action)

    def afterstate(self, node: Node, action: Ints) -> Afterstate:
        return self._chance.afterstate(node, action)

    def outcome_logits(self, afterstate: Afterstate) -> Float[Array, "batch outcomes"]:
        return self._chance.outcome_logits(afterstate)

    def afterstate_value(self, afterstate: Afterstate, *, key: Keys) -> None:
        return None

    def resolve(self, afterstate: Afterstate, outcome: Ints) -> Stepped[Node]:
        return self._chance.resolve(afterstate, outcome)

    @property
    def _chance(self) -> AbstractChanceModel[Node, Afterstate]:
        assert isinstance(self.model, AbstractChanceModel)  # `num_outcomes` is 0 otherwise
        return self.model


class _Run(eqx.Module):
    """Playouts under way."""

    state: PyTree[Array]
    legal: Mask
    value: Floats  # the evaluator's, of `state`
    going: Bools
    total: Floats  # rewards so far
    scale: Floats  # what comes is multiplied by


def _run(
    model: "PlayoutModel", state: PyTree[Array], legal: Mask, value: Floats, key: Keys
) -> _Run:
    """Plays on from every row that has a legal action, until all have stopped."""
    played = model.model if model.playouts_in is None else model.playouts_in
    keys = split_rows(key, 3)

    def body(carry):
        i, run = carry
        # Apart, so that what a model has no use for is not computed.
        draw, go, look = (folded(k, i) for k in keys)
        # Any legal action, all with the same probability.
        action = inverted(run.legal.astype(jnp.float32), uniform(draw))
        state, reward, discount, last = stepped(played, run.state, action, go)
        size = discount.astype(jnp.float32)
        logits, value = predicted(played, state, look, run.legal.shape[1])
        legal = logits > -jnp.inf
        after = _Run(
            state=state,
            legal=legal,
            value=value.astype(jnp.float32),
            going=~last & (discount != 0) & jnp.any(legal, axis=1),
            total=run.total + run.scale * reward.astype(jnp.float32),
            # A discount that is none makes the value NaN, which the search replaces and counts.
            scale=run.scale * jnp.where(jnp.abs(size) <= 1, size, jnp.nan),
        )
        if model.bootstrap:
            # A truncated leaf stays as it is, and its own value counts.
            nothing = (i == 0) & last & (discount == 0) & (reward == 0)
            still = nothing & equal_rows(state, run.state, 1)
            run = dataclasses.replace(run, going=run.going & ~still)
        return i + 1, where_rows(run.going, after, run)

    going = jnp.any(legal, axis=1)
    zero, one = jnp.zeros(going.shape, jnp.float32), jnp.ones(going.shape, jnp.float32)
    first = varying(_Run(state, legal, value, going, zero, one), (state, key, played))
    unfinished = lambda carry: (carry[0] < model.num_steps) & jnp.any(carry[1].going)
    return jax.lax.while_loop(unfinished, body, (jnp.zeros((), jnp.int32), first))[1]

"""One step of all particles. Arrays begin with `[batch, particles]`."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .._check import check_step
from .._model import AbstractModel, LARGEST, Proposal
from .._sample import safe_softmax, split_rows, where_rows
from ._model import judge


T = TypeVar("T")


class Particles(eqx.Module):
    """Where the particles are and what has led there. Values are for whoever moves next.

    **Attributes:**

    - `state`, `action`: where a particle is, and what it will do next.
    - `ancestor`: the number of the first action that it comes from.
    - `gain`: its discounted TD errors since it was last resampled, in the root's view.
    - `log_ratio`: what noise at the root has to be made good for, until the first resampling.
    - `scale`: the product of all discounts on the way, signs included.
    - `value`: of its state.
    - `alive`: whether the episode goes on.
    """

    state: PyTree[Array]
    action: PyTree[Array]
    ancestor: Int[Array, "batch particles"]
    gain: Float[Array, "batch particles"]
    log_ratio: Float[Array, "batch particles"]
    scale: Float[Array, "batch particles"]
    value: Float[Array, "batch particles"]
    alive: Bool[Array, "batch particles"]

    def weights(self, temperature: Float[Array, ""]) -> Float[Array, "batch particles"]:
        """`softmax(log_ratio + gain / temperature)` of every row."""
        # The highest is 0, so no temperature overflows it.
        lead = self.gain - jnp.max(self.gain, axis=1, keepdims=True)
        return safe_softmax(self.log_ratio + lead / temperature)


class Moved(eqx.Module):
    """What one step of the model has brought.

    **Attributes:**

    - `particles`: after the step, with the old `action`.
    - `policy`: of the states reached; its arrays begin with `[batch, particles]` as well.
    - `delta`: the discounted TD errors in the root's view, 0 of those no longer alive.
    - `invalid`: whose reward, discount or evaluation was not finite.
    """

    particles: Particles
    policy: Proposal
    delta: Float[Array, "batch particles"]
    invalid: Bool[Array, "batch particles"]


def move(model: AbstractModel, particles: Particles, key: Key[Array, "batch particles"]) -> Moved:
    """Plays every particle's action. No particle depends on another.

    A particle that is not alive stays as it is. Where something is not finite the step counts for
    nothing and the particle stops: a wrecked simulation must look neither good nor bad.
    """
    shape, old = particles.alive.shape, particles
    flat = lambda tree: jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)
    fold = lambda tree: fold_arrays(tree, shape)
    step_key, predict_key = split_rows(flat(key), 2)
    before = flat(old.state)
    after, reward, discount, last = model.step(before, flat(old.action), key=step_key)
    check_step(before, after, reward, discount, last)
    seen = judge(model, after, predict_key)
    edge = jnp.stack([reward.astype(jnp.float32), discount.astype(jnp.float32)])
    known = jnp.all(jnp.abs(edge) <= LARGEST, axis=0) & ~seen.invalid
    reward, discount = jnp.where(known, edge, 0.0)
    over = last | (discount == 0) | ~seen.playable
    after, reward, discount, known, over, value = fold(
        (after, reward, discount, known, over, seen.value)
    )
    counts = old.alive & known
    # A truncated state is bootstrapped: its discount is not 0.
    delta = jnp.where(counts, old.scale * (reward + discount * value - old.value), 0.0)
    particles = Particles(
        state=where_rows(counts, after, old.state),
        action=old.action,
        ancestor=old.ancestor,
        gain=old.gain + delta,
        log_ratio=old.log_ratio,
        scale=jnp.where(counts, old.scale * discount, old.scale),
        value=jnp.where(counts, value, old.value),
        alive=counts & ~over,
    )
    return Moved(particles, fold(seen.policy), delta, old.alive & ~known)


def pick(tree: T, index: Int[Array, "batch ..."]) -> T:
    """The particles of these numbers of each row, or one a row, leaf by leaf."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    arrays = jax.tree.map(lambda x: jax.vmap(lambda y, i: y[i])(x, index), arrays)
    return eqx.combine(arrays, rest)


def fold_arrays(tree: Any, shape: tuple[int, ...]) -> Any:
    """From one row a particle to `[batch, particles]`."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), arrays), rest)

"""Losses of return distributions given by the probabilities of fixed atoms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from .._arguments import check_axes


def categorical_projection(
    values: Float[Array, " samples"],
    probs: Float[Array, " samples"],
    atoms: Float[Array | np.ndarray, " atoms"],
) -> Float[Array, " atoms"]:
    """The distribution on `atoms` nearest in Cramér distance to the given one (Bellemare et al.
    2017, https://arxiv.org/abs/1707.06887, equation 7; Rowland et al. 2018): every value deals its
    probability to the two atoms beside it, the more the nearer. Values outside go to the outermost
    atom; within, the mean is kept.

    **Arguments:**

    - `values`: in any order, as a negative discount turns it round.
    - `probs`: of each value.
    - `atoms`: two or more in increasing order, at any distances.

    Raises a `ValueError` for atoms in another order, unless they are traced.
    """
    check_axes(
        "categorical_projection",
        values=(values, "samples"),
        probs=(probs, "samples"),
        atoms=(atoms, "atoms"),
    )
    _check_atoms("categorical_projection", atoms)
    atoms = jnp.asarray(atoms)
    values = jnp.clip(values, atoms[0], atoms[-1])
    # A search and a scatter: a table of all atoms by all values takes 70 times as long for 601.
    low = jnp.searchsorted(atoms, values, side="right") - 1
    low = jnp.clip(low, 0, atoms.size - 2)
    share = (values - atoms[low]) / (atoms[low + 1] - atoms[low])
    nothing = jnp.zeros(atoms.shape, probs.dtype)
    return nothing.at[low].add(probs * (1 - share)).at[low + 1].add(probs * share)


def categorical_td_loss(
    logits: Float[Array, " atoms"],
    atoms: Float[Array | np.ndarray, " atoms"],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_logits: Float[Array, " atoms"],
) -> Float[Array, ""]:
    """TD learning of a distribution (Bellemare et al. 2017, https://arxiv.org/abs/1707.06887,
    algorithm 1): the cross-entropy from the projection of `r + d * Z'` onto the atoms.

    **Arguments:**

    - `logits`: of the atoms, to learn, in the state before the step.
    - `atoms`: as in [`zero_train.losses.categorical_projection`][].
    - `reward`, `discount`: of the step; `discount` is gamma times the environment's signed one.
    - `next_logits`: of the same atoms in the state after it, from the view of the player to move
        there. The target is a constant.
    """
    check_axes(
        "categorical_td_loss",
        logits=(logits, "atoms"),
        atoms=(atoms, "atoms"),
        reward=(reward, ""),
        discount=(discount, ""),
        next_logits=(next_logits, "atoms"),
    )
    _check_atoms("categorical_td_loss", atoms)
    values = reward + discount * jnp.asarray(atoms)
    target = categorical_projection(values, jax.nn.softmax(next_logits), atoms)
    return optax.losses.safe_softmax_cross_entropy(logits, jax.lax.stop_gradient(target))


def categorical_double_q_learning_loss(
    logits: Float[Array, "actions atoms"],
    atoms: Float[Array | np.ndarray, " atoms"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_logits: Float[Array, "actions atoms"],
    selector: Float[Array, " actions"],
) -> Float[Array, ""]:
    """Double Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461) of
    distributions: [`zero_train.losses.categorical_td_loss`][] of the action taken and of
    `argmax(selector)` after it.

    **Arguments:** those of [`zero_train.losses.categorical_td_loss`][], for every action, and

    - `action`: the one taken.
    - `selector`: Q-values that choose the next action, -inf where illegal. Usually the learning
        network's; `jax.nn.softmax(next_logits) @ atoms` for the plain Q-learning of C51.
    """
    check_axes(
        "categorical_double_q_learning_loss",
        logits=(logits, "actions atoms"),
        atoms=(atoms, "atoms"),
        action=(action, ""),
        reward=(reward, ""),
        discount=(discount, ""),
        next_logits=(next_logits, "actions atoms"),
        selector=(selector, "actions"),
    )
    chosen = next_logits[jnp.argmax(selector)]
    return categorical_td_loss(logits[action], atoms, reward, discount, chosen)


def _check_atoms(owner: str, atoms: Array | np.ndarray) -> None:
    if atoms.size < 2:
        raise ValueError(f"`{owner}` was given {atoms.size} atom; it needs 2 or more.")
    if isinstance(atoms, Tracer):
        return
    steps = np.diff(np.asarray(atoms))
    if not np.all(steps > 0):
        i = int(np.argmin(steps > 0))
        raise ValueError(
            f"`{owner}` was given atoms out of order: atoms[{i}] = {atoms[i]:g} and "
            f"atoms[{i + 1}] = {atoms[i + 1]:g}. Sort them, each once."
        )

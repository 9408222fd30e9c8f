"""Input layers: a part of an observation, or an observation together with an action."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from ._checks import check_each


class Select(eqx.Module):
    """Selects one part of a structured observation.

    `Select("features")` returns `observation.features`. `Select("camera", 0)` returns the first
    entry of `observation.camera`, or of `observation["camera"]` if the observation is a mapping.
    `Select()` returns the observation itself.
    """

    path: tuple[str | int, ...] = eqx.field(static=True)

    def __init__(self, *path: str | int):
        """**Arguments:**

        - `path`: attributes, keys or indices, the outermost first.
        """
        self.path = path

    def __call__(self, observation: PyTree, *, key: PRNGKeyArray | None = None) -> PyTree:
        """`key` is ignored."""
        del key
        part = observation
        for step in self.path:
            try:
                if isinstance(step, str) and not isinstance(part, Mapping):
                    part = getattr(part, step)
                else:
                    part = part[step]
            except (AttributeError, KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"`Select{self.path}` finds no {step!r} in a {type(part).__name__}; name an "
                    "attribute, a key or an index of it."
                ) from error
        return part


class Concatenate(eqx.Module):
    """Concatenates all arrays of all inputs into one vector, in the order of their leaves.

    Use it for an observation of several arrays, or for an embedding and a continuous action.
    Booleans and integers are cast to float32.
    """

    def __call__(
        self, *inputs: PyTree[Array], key: PRNGKeyArray | None = None
    ) -> Float[Array, " size"]:
        """`key` is ignored."""
        del key
        leaves = [leaf.reshape(-1) for leaf in jax.tree.leaves(inputs)]
        if not leaves:
            raise ValueError("`Concatenate` got no arrays; give it at least one.")
        floating = [leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.result_type(*floating) if floating else jnp.float32
        return jnp.concatenate([leaf.astype(dtype) for leaf in leaves])


class ConcatenateOneHot(eqx.Module):
    """Concatenates an embedding and the one-hot encoding of a discrete action.

    **Attributes:**

    - `num_actions`: the number of actions, or a tuple with the number for each component of the
        action, whose one-hot vectors are concatenated.
    """

    num_actions: int | tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        check_each(num_actions=_sizes(self.num_actions))

    def __call__(
        self,
        embedding: Shaped[Array, " size"],
        action: Int[Array, "*components"],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " size_and_actions"]:
        """**Arguments:**

        - `embedding`: a vector.
        - `action`: an integer, or `[components]` if `num_actions` is a tuple.
        - `key`: ignored.
        """
        del key
        sizes = _sizes(self.num_actions)
        expected = (len(sizes),) if isinstance(self.num_actions, tuple) else ()
        if action.shape != expected:
            raise ValueError(
                f"The action has shape {action.shape}; `num_actions` of {self.num_actions} needs "
                f"{expected}. Use `jax.vmap` over a batch."
            )
        floating = jnp.issubdtype(embedding.dtype, jnp.floating)
        dtype = embedding.dtype if floating else jnp.dtype(jnp.float32)
        components = action.reshape(-1)
        hot = [jax.nn.one_hot(components[i], n, dtype=dtype) for i, n in enumerate(sizes)]
        return jnp.concatenate([embedding.astype(dtype), *hot])


def _sizes(num_actions: int | tuple[int, ...]) -> tuple[int, ...]:
    return num_actions if isinstance(num_actions, tuple) else (num_actions,)

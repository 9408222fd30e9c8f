"""Running means and standard deviations, for normalising inputs."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Float, PyTree, Shaped

from ._checks import check_number, numbers, shape_of
from ._precision import is_floating


class RunningStatistics(eqx.Module):
    """The mean and variance of every element of a pytree over all batches so far.

    Batches are merged by the formula of Chan, Golub and LeVeque (1983,
    https://doi.org/10.1080/00031305.1983.10483115, equation 2.1), which uses the mean of each batch
    and is therefore accurate in float32 also for means far from 0. An update takes a global batch:
    if it is split over a mesh, the compiler adds the reduction over devices under `jit`.

    The statistics are state. Keep them beside the parameters, but do not differentiate them.

    **Attributes:**

    - `count`: the number of examples so far, or the sum of their weights.
    - `mean`, `variance`: the statistics of every followed leaf, initially 0 and 1; `None` for other
        leaves.
    - `structure`: the `PyTreeDef` of one example.
    - `min_std`, `max_std`: the range to which `std` is clipped.
    """

    count: Float[Array, ""]
    mean: PyTree[Float[Array, "..."] | None]
    variance: PyTree[Float[Array, "..."] | None]
    structure: Any = eqx.field(static=True)
    min_std: float = eqx.field(static=True)
    max_std: float = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        example: PyTree,
        *,
        filter_spec: PyTree = True,
        min_std: float = 1e-6,
        max_std: float = 1e6,
    ) -> "RunningStatistics":
        """The statistics before any batch, with which `normalise` is the identity.

        **Arguments:**

        - `example`: one example without batch axes, or its `jax.eval_shape`.
        - `filter_spec`: the leaves to follow, as in `equinox.filter`: `True`, `False` or a function
            of a leaf, for each leaf or for whole branches. Only floating-point leaves are ever
            followed; `normalise` returns all others unchanged. There must be one.
        """
        check_number(0, above=True, min_std=min_std, max_std=max_std)
        if not min_std <= max_std:
            raise ValueError(
                f"`min_std` is {min_std} and `max_std` {max_std}; the first must not be larger."
            )
        followed = eqx.filter(eqx.filter(example, filter_spec), is_floating)
        if not jax.tree.leaves(followed):
            raise ValueError(
                f"There is no floating-point leaf to follow in {jax.tree.structure(example)} with "
                f"`filter_spec={filter_spec}`."
            )
        return cls(
            count=jnp.zeros((), jnp.result_type(float)),
            mean=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, _wide(leaf.dtype)), followed),
            variance=jax.tree.map(lambda leaf: jnp.ones(leaf.shape, _wide(leaf.dtype)), followed),
            structure=jax.tree.structure(example),
            min_std=min_std,
            max_std=max_std,
        )

    @property
    def std(self) -> PyTree[Float[Array, "..."] | None]:
        """The standard deviations, clipped to `[min_std, max_std]`."""
        return jax.tree.map(
            lambda v: jnp.clip(jnp.sqrt(v), self.min_std, self.max_std), self.variance
        )

    def update(
        self, batch: PyTree[Shaped[Array, "..."]], weights: Float[Array, "*batch"] | None = None
    ) -> "RunningStatistics":
        """The statistics including another batch.

        **Arguments:**

        - `batch`: a pytree like the example, with the same batch axes before the axes of each leaf.
        - `weights`: the weight of each example, at least 0; by default 1. Examples of weight 0 are
            ignored, even if they are NaN. A negative weight that is traced makes all NaN.
        """
        leaves, axes = self._leaves(batch)
        if weights is not None:
            known: Array = numbers(weights)
            if known.shape != axes:
                raise ValueError(f"`weights` has shape {known.shape}; the batch's axes are {axes}.")
            check_number(0, weights=known)
            # Values that are known only when the program runs cannot be refused.
            weights = jnp.where(known >= 0, known, jnp.nan)
        added = jnp.asarray(math.prod(axes), self.count.dtype)
        if weights is not None:
            added = jnp.sum(weights, dtype=self.count.dtype)
        count = self.count + added
        share = added / jnp.where(count > 0, count, 1)
        means, variances = self._flat(self.mean), self._flat(self.variance)
        for i, (mean, variance, leaf) in enumerate(zip(means, variances, leaves, strict=True)):
            if mean is not None:
                s = share.astype(mean.dtype)
                new_mean, new_variance = _moments(leaf.astype(mean.dtype), weights, len(axes))
                step = new_mean - mean
                means[i] = mean + s * step
                variances[i] = (1 - s) * variance + s * (new_variance + (1 - s) * step**2)
        return dataclasses.replace(
            self,
            count=count,
            mean=self.structure.unflatten(means),
            variance=self.structure.unflatten(variances),
        )

    def normalise(
        self, x: PyTree[Shaped[Array, "..."]], *, max_abs: float | None = 10.0
    ) -> PyTree[Shaped[Array, "..."]]:
        """`(x - mean) / std` for every followed leaf, in its own dtype, clipped to
        `[-max_abs, max_abs]` unless that is `None`: a number that never varied before would be a
        million deviations from its mean. Other leaves are unchanged. `x` is like the example, with
        or without batch axes."""
        if max_abs is not None:
            check_number(0, above=True, max_abs=max_abs)
        leaves, axes = self._leaves(x)
        new_axes = tuple(range(len(axes)))
        means, stds = self._flat(self.mean), self._flat(self.std)
        for i, (mean, std, leaf) in enumerate(zip(means, stds, leaves, strict=True)):
            if mean is None:
                continue
            # Rank promotion may be forbidden, so broadcasting is explicit.
            mean, std = (jnp.expand_dims(y, new_axes) for y in (mean, std))
            scaled = (leaf.astype(mean.dtype) - mean) / std
            if max_abs is not None:
                scaled = jnp.clip(scaled, -max_abs, max_abs)
            leaves[i] = scaled.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
        return self.structure.unflatten(leaves)

    def _flat(self, tree: PyTree) -> list:
        """The subtree for each leaf of the example, `None` if the leaf is not followed."""
        return self.structure.flatten_up_to(tree)

    def _leaves(self, x: PyTree) -> tuple[list, tuple[int, ...]]:
        """The leaves of `x` and its batch axes, once they have been checked."""
        structure = jax.tree.structure(x)
        if structure != self.structure:
            raise ValueError(f"These statistics are of {self.structure}; given was {structure}.")
        paths_and_leaves, _ = jtu.tree_flatten_with_path(x)
        axes = None
        for (path, leaf), mean in zip(paths_and_leaves, self._flat(self.mean), strict=True):
            if mean is None:
                continue
            shape = shape_of(jtu.keystr(path), leaf)
            if axes is None:
                axes = shape[: max(len(shape) - mean.ndim, 0)]
            if shape != (*axes, *mean.shape) or not is_floating(leaf):
                kind = getattr(leaf, "dtype", type(leaf).__name__)
                raise ValueError(
                    f"Leaf `{jtu.keystr(path)}` is {kind}{list(shape)}; expected is "
                    f"floating point of shape {list(mean.shape)} after the batch's axes, "
                    f"{list(axes)}."
                )
        assert axes is not None
        return [leaf for _, leaf in paths_and_leaves], axes


def _wide(dtype: Any) -> Any:
    # Half precision is too inaccurate for the mean of many numbers.
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    return max(dtype, jnp.result_type(float), key=lambda dtype: dtype.itemsize)


def _moments(
    x: Float[Array, "..."], weights: Float[Array, "*batch"] | None, num_axes: int
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """The weighted mean and variance over the leading axes, both 0 if all weights are 0."""
    axes = tuple(range(num_axes))
    if weights is None:
        total = max(math.prod(x.shape[:num_axes]), 1)
    else:
        weights = jnp.expand_dims(weights.astype(x.dtype), tuple(range(num_axes, x.ndim)))
        x = jnp.where(weights > 0, x, 0)
        total = jnp.sum(weights)
        total = jnp.where(total > 0, total, 1)
    weighted = lambda y: y if weights is None else weights * y
    mean_of = lambda y: jnp.sum(weighted(y), axes, keepdims=True) / total
    mean = mean_of(x)
    rest = x - mean
    # This corrects the rounding error of the mean. Without it, a variance far below the squared
    # mean would be dominated by that error.
    correction = mean_of(rest)
    variance = jnp.maximum(mean_of(rest**2) - correction**2, 0)
    return jnp.squeeze(mean + correction, axes), jnp.squeeze(variance, axes)

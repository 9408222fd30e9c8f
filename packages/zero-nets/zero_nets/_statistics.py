"""Means and deviations of everything seen so far, to normalise inputs by."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Float, PyTree, Shaped


class RunningStatistics(eqx.Module):
    """Mean and variance of every element of a pytree, over all batches so far.

    Batches are merged as by Chan, Golub and LeVeque (1983,
    https://doi.org/10.1080/00031305.1983.10483115, equation 2.1), each by its own mean, so that
    float32 is enough far from 0 as well. An update is ordinary code on a global batch: if that is
    split over a mesh, under `jit`, the compiler adds the reduction over the devices.

    It is state: keep it where the parameters are kept, but apart from what is differentiated.

    **Attributes:**

    - `count`: the number of examples seen, or the sum of their weights.
    - `mean`, `variance`: of every leaf that is followed, `None` for the others; 0 and 1 at first.
    - `structure`: the `PyTreeDef` of one example.
    - `min_std`, `max_std`: what `std` is clipped to.
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
        """Statistics of nothing yet: normalising by them changes nothing.

        **Arguments:**

        - `example`: one example, without batch axes; only shapes and types are read, so
            `jax.eval_shape` can provide it.
        - `filter_spec`: which leaves to follow: `True` or `False` for each or for whole branches,
            or functions of a leaf, as in `equinox.filter`. Only floating-point leaves are ever
            followed; all others pass through `normalise` untouched.
        - `min_std`, `max_std`: what standard deviations are clipped to.

        Raises a `ValueError` where this leaves nothing to follow.
        """
        if not 0 < min_std <= max_std:
            raise ValueError(
                f"`min_std` is {min_std} and `max_std` {max_std}; it takes 0 < min_std <= max_std."
            )
        followed = eqx.filter(eqx.filter(example, filter_spec), _is_floating)
        if not jax.tree.leaves(followed):
            raise ValueError(
                "There is no floating-point leaf to follow in "
                f"{jax.tree.structure(example)} under `filter_spec={filter_spec}`."
            )
        return cls(
            count=jnp.zeros((), jnp.result_type(float)),
            mean=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, _wide(leaf.dtype)), followed),
            variance=jax.tree.map(lambda leaf: jnp.ones(leaf.shape, _wide(leaf.dtype)), followed),
            structure=jax.tree.structure(example),
            min_std=min_std,
            max_std=max_std,
        )

    @classmethod
    def from_batch(
        cls,
        batch: PyTree[Shaped[Array, "..."]],
        weights: Float[Array, "*batch"] | None = None,
        *,
        num_axes: int = 1,
        filter_spec: PyTree = True,
        min_std: float = 5e-4,
        max_std: float = 5e4,
    ) -> "RunningStatistics":
        """Statistics of a first batch: of random play, say, that nothing is learned from.

        **Arguments:**

        - `batch`, `weights`: as `update` takes them.
        - `num_axes`: how many leading axes of every leaf are the batch's.
        - `filter_spec`, `min_std`, `max_std`: as `init` takes them. The deviations are clipped
            sooner, as few examples may happen to be all the same.
        """
        example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[num_axes:], x.dtype), batch)
        start = cls.init(example, filter_spec=filter_spec, min_std=min_std, max_std=max_std)
        return start.update(batch, weights)

    @property
    def std(self) -> PyTree[Float[Array, "..."] | None]:
        """The standard deviations, clipped to `[min_std, max_std]`."""
        return jax.tree.map(
            lambda v: jnp.clip(jnp.sqrt(v), self.min_std, self.max_std), self.variance
        )

    def update(
        self,
        batch: PyTree[Shaped[Array, "..."]],
        weights: Float[Array, "*batch"] | None = None,
    ) -> "RunningStatistics":
        """The statistics with another batch in them.

        **Arguments:**

        - `batch`: the structure of the example, with batch axes before every leaf's own.
        - `weights`: how often each example counts, at least 0; once if not given. What has a
            weight of 0 is not looked at and may be anything, NaN included.

        Raises a `ValueError` where structure or shapes are not those of the example.
        """
        leaves, axes = self._leaves(batch)
        if weights is not None and weights.shape != axes:
            raise ValueError(f"`weights` has shape {weights.shape}; the batch's axes are {axes}.")
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
        self, x: PyTree[Shaped[Array, "..."]], max_abs: PyTree[float | None] = None
    ) -> PyTree[Shaped[Array, "..."]]:
        """`(x - mean) / std` of every leaf that is followed, in its own type; others as they are.

        **Arguments:**

        - `x`: the structure of the example, with or without batch axes.
        - `max_abs`: clip what is normalised to `[-max_abs, max_abs]`: one number, or one or `None`
            for each leaf or whole branch of `x`.

        Raises a `ValueError` where structure or shapes are not those of the example.
        """
        scaled = self._each(lambda leaf, mean, std: (leaf - mean) / std, x)
        if max_abs is None:
            return scaled

        def clip(limit: float | None, branch: PyTree, followed: PyTree) -> PyTree:
            if limit is None:
                return branch
            return jax.tree.map(
                lambda leaf, mean: leaf if mean is None else jnp.clip(leaf, -limit, limit),
                branch,
                followed,
            )

        return jax.tree.map(clip, max_abs, scaled, self.mean, is_leaf=lambda limit: limit is None)

    def denormalise(self, x: PyTree[Shaped[Array, "..."]]) -> PyTree[Shaped[Array, "..."]]:
        """`x * std + mean`: what `normalise` was given, if it did not clip."""
        return self._each(lambda leaf, mean, std: leaf * std + mean, x)

    def _each(self, function: Callable[[Array, Array, Array], Array], x: PyTree) -> PyTree:
        """A function of every followed leaf, its mean and its standard deviation."""
        leaves, axes = self._leaves(x)
        new_axes = tuple(range(len(axes)))
        means, stds = self._flat(self.mean), self._flat(self.std)
        for i, (mean, std, leaf) in enumerate(zip(means, stds, leaves, strict=True)):
            if mean is not None:
                # By hand, as rank promotion may be forbidden.
                mean, std = (jnp.expand_dims(y, new_axes) for y in (mean, std))
                dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
                leaves[i] = function(leaf.astype(mean.dtype), mean, std).astype(dtype)
        return self.structure.unflatten(leaves)

    def _flat(self, tree: PyTree) -> list:
        """Its part for every leaf of the example, `None` for one that is not followed."""
        return self.structure.flatten_up_to(tree)

    def _leaves(self, x: PyTree) -> tuple[list, tuple[int, ...]]:
        """The leaves of `x` and its batch axes, if it is what these statistics are of."""
        structure = jax.tree.structure(x)
        if structure != self.structure:
            raise ValueError(f"These statistics are of {self.structure}; given was {structure}.")
        paths_and_leaves, _ = jtu.tree_flatten_with_path(x)
        axes = None
        for (path, leaf), mean in zip(paths_and_leaves, self._flat(self.mean), strict=True):
            if mean is None:
                continue
            split = leaf.ndim - mean.ndim
            if axes is None:
                axes = leaf.shape[: max(split, 0)]
            if leaf.shape != (*axes, *mean.shape) or not _is_floating(leaf):
                raise ValueError(
                    f"Leaf `{jtu.keystr(path)}` is {leaf.dtype}{list(leaf.shape)}; expected is "
                    f"floating point of shape {list(mean.shape)} after the batch's axes, "
                    f"{list(axes)}."
                )
        assert axes is not None
        return [leaf for _, leaf in paths_and_leaves], axes


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _wide(dtype: Any) -> Any:
    # Half precision is for networks: a mean of a thousand of its numbers would not be one.
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    return max(dtype, jnp.result_type(float), key=lambda dtype: dtype.itemsize)


def _moments(
    x: Float[Array, "..."], weights: Float[Array, "*batch"] | None, num_axes: int
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Weighted mean and variance over the leading axes, both 0 if there is no weight."""
    axes = tuple(range(num_axes))
    if weights is None:
        total = max(math.prod(x.shape[:num_axes]), 1)
    else:
        weights = jnp.expand_dims(weights.astype(x.dtype), tuple(range(num_axes, x.ndim)))
        x = jnp.where(weights > 0, x, 0)
        total = jnp.sum(weights)
        total = jnp.where(total > 0, total, 1)

    def mean_of(y):
        return jnp.sum(y if weights is None else weights * y, axes, keepdims=True) / total

    mean = mean_of(x)
    rest = x - mean
    # What rounding left in the mean of many numbers: without it a variance far below the squared
    # mean would be mostly error.
    correction = mean_of(rest)
    variance = jnp.maximum(mean_of(rest**2) - correction**2, 0)
    return jnp.squeeze(mean + correction, axes), jnp.squeeze(variance, axes)

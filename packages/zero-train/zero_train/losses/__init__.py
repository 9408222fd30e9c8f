"""Losses of one example: callers `jax.vmap`, then average with `masked_mean`."""

from ._mean import (
    masked_mean as masked_mean,
    standardise as standardise,
)

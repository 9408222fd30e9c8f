"""Losses of one example: callers `jax.vmap`, then average with `masked_mean`."""

from ._dual import (
    Dual as Dual,
    kl_penalty as kl_penalty,
)
from ._estep import (
    nonparametric_policy as nonparametric_policy,
    temperature_loss as temperature_loss,
)
from ._mean import (
    masked_mean as masked_mean,
    standardise as standardise,
)
from ._mpo import (
    mpo_categorical_loss as mpo_categorical_loss,
    mpo_decoupled_loss as mpo_decoupled_loss,
    mpo_loss as mpo_loss,
    vmpo_loss as vmpo_loss,
    weighted_policy_loss as weighted_policy_loss,
)
from ._policy import (
    DecoupledPolicy as DecoupledPolicy,
    Policy as Policy,
)

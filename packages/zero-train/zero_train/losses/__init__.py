"""Losses of one example: callers `jax.vmap`, then average with `masked_mean`."""

from ._categorical import (
    categorical_double_q_learning_loss as categorical_double_q_learning_loss,
    categorical_projection as categorical_projection,
    categorical_td_loss as categorical_td_loss,
)
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
from ._ppo import (
    dpo_loss as dpo_loss,
    ppo_clip_loss as ppo_clip_loss,
    ppo_penalty_loss as ppo_penalty_loss,
)
from ._q_learning import (
    double_q_learning_loss as double_q_learning_loss,
    munchausen_q_learning_loss as munchausen_q_learning_loss,
    q_learning_loss as q_learning_loss,
)
from ._quantile import (
    quantile_q_learning_loss as quantile_q_learning_loss,
    quantile_regression_loss as quantile_regression_loss,
)
from ._trust_region import (
    AbstractTrustRegion as AbstractTrustRegion,
    DecoupledTrustRegion as DecoupledTrustRegion,
    TrustRegion as TrustRegion,
)
from ._value import (
    clipped_value_loss as clipped_value_loss,
    td_learning_loss as td_learning_loss,
)

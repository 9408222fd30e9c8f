"""Losses of one example: callers `jax.vmap`, then average with `masked_mean`.

All raise a `ValueError` for arguments whose shapes do not fit together, and for bounds,
temperatures and other numbers that are out of range and not traced. Arrays of half precision and
of integers are cast to float32, which the results have as well.

What is not said again: bounds on a KL divergence, and all divergences and entropies, are in nats.
Advantages, values and Q-values are from the view of the player to move. A `discount` is gamma times
the environment's signed one. Logits, log-probabilities and Q-values of -inf mark illegal actions;
of a state without a legal one the loss is finite and meaningless, of an action that does not exist
it is NaN. Targets, weights and what the acting policy said are constants. A `selector` has the
Q-values that choose the next action, such as those of the learning network. From the error `huber`
on a loss is linear, with `None` never.
"""

from ._mean import masked_mean as masked_mean, standardise as standardise
from ._mpo import (
    Dual as Dual,
    kl_penalty as kl_penalty,
    mpo_categorical_loss as mpo_categorical_loss,
    mpo_decoupled_loss as mpo_decoupled_loss,
    mpo_loss as mpo_loss,
    nonparametric_policy as nonparametric_policy,
    temperature_loss as temperature_loss,
    vmpo_loss as vmpo_loss,
    weighted_policy_loss as weighted_policy_loss,
)
from ._policy import (
    DecoupledPolicy as DecoupledPolicy,
    dpo_loss as dpo_loss,
    Policy as Policy,
    ppo_clip_loss as ppo_clip_loss,
    ppo_penalty_loss as ppo_penalty_loss,
)
from ._td import (
    categorical_double_q_learning_loss as categorical_double_q_learning_loss,
    categorical_projection as categorical_projection,
    categorical_td_loss as categorical_td_loss,
    clipped_value_loss as clipped_value_loss,
    double_q_learning_loss as double_q_learning_loss,
    munchausen_q_learning_loss as munchausen_q_learning_loss,
    q_learning_loss as q_learning_loss,
    quantile_q_learning_loss as quantile_q_learning_loss,
    quantile_regression_loss as quantile_regression_loss,
    td_learning_loss as td_learning_loss,
)
from ._trust_region import (
    AbstractTrustRegion as AbstractTrustRegion,
    DecoupledTrustRegion as DecoupledTrustRegion,
    TrustRegion as TrustRegion,
)

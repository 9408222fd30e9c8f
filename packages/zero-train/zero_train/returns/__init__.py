"""Multistep targets of one window of rows; callers `jax.vmap` over a batch of them.

What is not said again: `log_ratio` is `log pi - log mu` of the action taken in each row, discrete
or continuous, of the policy `pi` to learn of and the policy `mu` that acted. Q-values of -inf mark
illegal actions, and the value of a row without a legal one is 0. `lambda_` is a number, or one for
each row. `reward` and `discount` are of the step after each row; `discount` is gamma times the
environment's signed one, so a return is from the view of the player to move, as values are. `last`
marks final observations. These rows and the last one of the window are *end rows*, which have no
step: `T` targets need `T + 1` rows. Their `lambda_` and `log_ratio` are not used. Without
`stop_gradient` all arguments have gradients.
"""

from ._multistep import (
    discounted_returns as discounted_returns,
    lambda_returns as lambda_returns,
    n_step_returns as n_step_returns,
    truncated_gae as truncated_gae,
    truncated_gae_from_successors as truncated_gae_from_successors,
)
from ._off_policy import (
    importance_corrected_td_errors as importance_corrected_td_errors,
    importance_sampling_returns as importance_sampling_returns,
    off_policy_returns as off_policy_returns,
    peng_q_lambda_returns as peng_q_lambda_returns,
    retrace_returns as retrace_returns,
    tree_backup_returns as tree_backup_returns,
    vtrace as vtrace,
    watkins_q_lambda_returns as watkins_q_lambda_returns,
)

"""How good one actor is: a fixed number of whole episodes."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from zero_envs import AbstractEnvironment

from ._actor import AbstractActor
from ._rows import row_keys, select_rows
from ._tally import check_positive, check_rows, start_tally


@dataclasses.dataclass(frozen=True)
class EvaluationSummary:
    """An [`zero_train.Evaluation`][] as plain numbers.

    **Attributes:**

    - `episodes`: how many were played.
    - `mean`: mean return, unfinished episodes included with what they had collected.
    - `standard_error`: of that mean (`nan` for one episode).
    - `mean_length`: mean number of steps.
    - `truncated`: episodes cut off by the environment or by `max_steps`.
    """

    episodes: int
    mean: float
    standard_error: float
    mean_length: float
    truncated: int


class Evaluation(eqx.Module):
    """The episodes of [`zero_train.evaluate`][], every one counted once.

    **Attributes:**

    - `returns`: undiscounted, from the view of whoever moved first (with one player: the return).
    - `lengths`: steps taken.
    - `terminated`: the episode came to its own end; otherwise it was truncated.
    """

    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    terminated: Bool[Array, " episodes"]

    def summary(self) -> EvaluationSummary:
        """Waits for the device and gives plain numbers."""
        returns = np.asarray(self.returns, np.float64)
        spread = returns.std(ddof=1) if returns.size > 1 else math.nan
        return EvaluationSummary(
            episodes=returns.size,
            mean=float(returns.mean()),
            standard_error=float(spread / math.sqrt(returns.size)),
            mean_length=float(np.asarray(self.lengths).mean()),
            truncated=int((~np.asarray(self.terminated)).sum()),
        )


@eqx.filter_jit
def evaluate(
    env: AbstractEnvironment,
    actor: AbstractActor,
    *,
    num_episodes: int,
    max_steps: int,
    key: PRNGKeyArray,
) -> Evaluation:
    """Plays a fixed number of independent episodes, each to its end.

    All run side by side in one loop that stops when the last one does. A finished episode is
    frozen and not restarted, so long episodes count as much as short ones. In a game the actor
    plays all sides. Every leaf of the actor's carry must have a leading `[batch]` axis.

    **Arguments:**

    - `env`: any environment.
    - `actor`: any actor.
    - `num_episodes`: how many to play.
    - `max_steps`: an episode that has not ended by then is cut off and counted as truncated.
    - `key`: consumed; episode `i` depends on it and on `i` only.

    **Returns:** an [`zero_train.Evaluation`][] of the episodes, each return from the view of the
    player who moved first.
    """
    check_positive("evaluate", num_episodes=num_episodes, max_steps=max_steps)
    ikey, akey, ekey = jr.split(key, 3)
    rows = jnp.arange(num_episodes, dtype=jnp.int32)
    state = jax.vmap(lambda key: env.init(key=key))(row_keys(ikey, rows))
    carry = check_rows(actor, actor.init(state), num_episodes)
    loop = (jnp.zeros((), jnp.int32), state, carry, start_tally(jnp.ones(rows.shape)))

    def body(loop: tuple) -> tuple:
        time, state, carry, count = loop
        akeys = row_keys(jr.fold_in(akey, time), rows)
        ekeys = row_keys(jr.fold_in(ekey, time), rows)
        obs = jax.vmap(env.observe)(state)
        action, _, acted = actor.act(state, obs, carry, key=akeys)
        next_state, transition = jax.vmap(env.step)(state, action, key=ekeys)
        heard = actor.advance(acted, action, next_state, transition)
        moved = ~count.over
        state, carry = select_rows(moved, (next_state, heard), (state, carry))
        count = count.add(moved, transition.reward, transition.discount, transition.last, max_steps)
        return time + 1, state, carry, count

    *_, count = jax.lax.while_loop(lambda loop: jnp.any(~loop[-1].over), body, loop)
    return Evaluation(count.returns, count.lengths, count.terminated)

"""The row that crosses from collecting to learning."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

from zero_envs import Observation


class Experience(eqx.Module):
    """One row of experience, for any leading axes.

    After a transition with `last`, the collector writes one more row holding the true final
    observation (`last=True`; reward 0, discount 0, a filler action), so a truncated episode can
    be bootstrapped and nothing is evaluated twice. Such rows are masked in every loss.

    **Attributes:**

    - `obs`: what the player to move saw.
    - `action`: what it played.
    - `reward`: the reward of that player; an end-of-episode buffer replaces it by the outcome.
    - `discount`: signed: -1 when the opponent moved next, 0 at the end.
    - `last`: the row is a final observation.
    - `record`: the part of the plan that is learned from.
    """

    obs: Observation
    action: PyTree[Array]
    reward: Float[Array, "*axes"]
    discount: Float[Array, "*axes"]
    last: Bool[Array, "*axes"]
    record: PyTree[Array]

"""Learning-rate schedules: the one thing optax's do not say."""

import jax.numpy as jnp
import optax


def per_update(schedule: optax.Schedule, num_steps: int) -> optax.Schedule:
    """A schedule of updates as the schedule of gradient steps that an optimiser asks for: constant
    within the `num_steps` gradient steps of one update.

    `per_update(optax.linear_schedule(3e-4, 0.0, num_updates), epochs * num_minibatches)` falls
    once per update, and reaches 0 only after the last. Any schedule of optax will do, such as
    `optax.warmup_cosine_decay_schedule` or several joined by `optax.join_schedules`.

    **Arguments:**

    - `schedule`: the learning rate, given the number of updates done.
    - `num_steps`: gradient steps an update.

    Raises a `ValueError` for less than one step.
    """
    if num_steps < 1:
        raise ValueError(f"`per_update(num_steps={num_steps})`: an update is at least one step.")
    return lambda count: schedule(jnp.floor_divide(count, num_steps))

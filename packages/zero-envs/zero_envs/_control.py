"""Two classic control problems in pure JAX, equal to Gymnasium's step by step."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._drawing import add, line, markup, sheet
from ._environment import (
    absorbing_transition,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    check_count,
    check_state,
    check_vector,
    checked_action,
    Observation,
    Transition,
)


# The distance (m) and the angle (rad) beyond which the episode terminates.
_TRACK = 2.4
_FALLEN = math.radians(12)


class CartPoleState(eqx.Module):
    """The state of a cart on a track, with a pole on the cart.

    **Attributes:**

    - `motion`: the cart's position (m) and velocity (m/s), and the pole's angle from upright (rad,
        positive to the right) and angular velocity (rad/s). The physics is computed in its dtype.
    - `steps`: the number of steps so far.
    """

    motion: Float[Array, " 4"]
    steps: Int[Array, ""]


class CartPole(AbstractDiscreteEnvironment[CartPoleState]):
    """Keep a pole upright by pushing its cart (Barto, Sutton and Anderson, 1983).

    This is Gymnasium's `CartPole-v1`. Action 0 pushes left and action 1 right. The reward of every
    step is 1, including the last. The episode terminates if the pole leans more than 12 degrees or
    the cart is more than 2.4 m from the centre. It is truncated (`last` with discount 1) after
    `max_steps` steps. The features are the `motion` of the state.
    """

    max_steps: int = 500
    num_actions: int = eqx.field(init=False, default=2)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=False)

    def __check_init__(self):
        check_count("CartPole", max_steps=self.max_steps)

    def init(self, *, key: PRNGKeyArray) -> CartPoleState:
        """Draws all four numbers uniformly within 0.05 of 0."""
        motion = jr.uniform(key, (4,), jnp.float32, minval=-0.05, maxval=0.05)
        return CartPoleState(motion, jnp.zeros((), jnp.int32))

    def step(
        self, state: CartPoleState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[CartPoleState, Transition]:
        """Pushes the cart for 0.02 s."""
        del key
        action = checked_action(self, action)
        check_state(self, state.motion, 1)
        over = _fallen(state.motion) | (state.steps >= self.max_steps)
        motion = jnp.where(over, state.motion, _swing_cart(state.motion, action))
        steps = jnp.where(over, state.steps, state.steps + 1)
        transition = absorbing_transition(
            over, 1.0, terminated=_fallen(motion), truncated=steps >= self.max_steps
        )
        return CartPoleState(motion, steps), transition

    def observe(self, state: CartPoleState) -> Observation:
        """Position, velocity, angle and angular velocity; both actions are always legal."""
        check_state(self, state.motion, 1)
        return Observation(features=state.motion.astype(jnp.float32), legal=jnp.ones(2, jnp.bool_))

    def render(self, state: CartPoleState, *, scale: float = 1.0) -> str:
        """An SVG image of the whole track, at 100 units a metre."""
        x, _, angle, _ = state.motion.tolist()
        reach, floor = 100 * _TRACK, 140
        middle = reach + 40
        caption = f"step {int(state.steps)}, cart at {x:.2f} m, pole at {_degrees(angle)}"
        svg = sheet(2 * middle, 180, scale, caption)
        line(svg, "line", middle - reach, floor, middle + reach, floor)
        for end in (middle - reach, middle + reach):
            line(svg, "line", end, floor - 8, end, floor + 8)
        cart, top = middle + 100 * x, floor - 15
        add(svg, "rect", "ink", x=cart - 25, y=top, width=50, height=15)
        # The pole is 1 m long.
        line(svg, "rod", cart, top, cart + 100 * math.sin(angle), top - 100 * math.cos(angle))
        return markup(svg)


class PendulumState(eqx.Module):
    """The state of a rod that swings about one end.

    **Attributes:**

    - `angle`: the angle from upright (rad), including full turns. The physics is computed in its
        dtype.
    - `velocity`: the angular velocity (rad/s), from -8 to 8.
    - `steps`: the number of steps so far.
    """

    angle: Float[Array, ""]
    velocity: Float[Array, ""]
    steps: Int[Array, ""]


class Pendulum(AbstractContinuousEnvironment[PendulumState]):
    """Swing a rod up and hold it with a motor that is too weak to lift it directly.

    This is Gymnasium's `Pendulum-v1`. The action is one number, the torque in units of 2 N m, which
    is clipped to [-1, 1]. The reward is `-(angle**2 + 0.1 velocity**2 + 0.001 torque**2)` with the
    angle in [-pi, pi]. The episode never terminates; it is truncated (`last` with discount 1) after
    `max_steps` steps. The features are the cosine and sine of the angle, and the velocity.
    """

    max_steps: int = 200
    action_size: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=False)

    def __check_init__(self):
        check_count("Pendulum", max_steps=self.max_steps)

    def init(self, *, key: PRNGKeyArray) -> PendulumState:
        """Draws a uniform angle, and a velocity uniformly within 1 rad/s of 0."""
        high = jnp.asarray([math.pi, 1.0], jnp.float32)
        angle, velocity = jnp.unstack(jr.uniform(key, (2,), jnp.float32, minval=-high, maxval=high))
        return PendulumState(angle, velocity, jnp.zeros((), jnp.int32))

    def step(
        self, state: PendulumState, action: Float[Array, " 1"], *, key: PRNGKeyArray
    ) -> tuple[PendulumState, Transition]:
        """Applies the torque for 0.05 s."""
        del key
        check_vector(self, action)
        check_state(self, state.angle, 0)
        over = state.steps >= self.max_steps
        torque = 2 * jnp.clip(action[0], -1.0, 1.0).astype(state.angle.dtype)
        angle = jnp.remainder(state.angle + math.pi, 2 * math.pi) - math.pi
        cost = angle**2 + 0.1 * state.velocity**2 + 0.001 * torque**2
        # The rod is 1 kg and 1 m, and g = 10 m/s^2. The angle is updated by the new velocity.
        velocity = state.velocity + (15 * jnp.sin(state.angle) + 3 * torque) * 0.05
        velocity = jnp.clip(velocity, -8.0, 8.0)
        next_state = PendulumState(
            angle=jnp.where(over, state.angle, state.angle + velocity * 0.05),
            velocity=jnp.where(over, state.velocity, velocity),
            steps=jnp.where(over, state.steps, state.steps + 1),
        )
        limit = next_state.steps >= self.max_steps
        return next_state, absorbing_transition(over, -cost, terminated=False, truncated=limit)

    def observe(self, state: PendulumState) -> Observation:
        """The cosine and sine of the angle, and the velocity."""
        check_state(self, state.angle, 0)
        features = jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity])
        return Observation(features=features.astype(jnp.float32), legal=None)

    def render(self, state: PendulumState, *, scale: float = 1.0) -> str:
        """An SVG image at 100 units a metre. Positive angles lean left, as in Gymnasium."""
        angle, velocity = state.angle.item(), state.velocity.item()
        caption = f"step {int(state.steps)}, {_degrees(angle)} from upright, {velocity:.2f} rad/s"
        svg = sheet(260, 280, scale, caption)
        line(svg, "rod", 130, 130, 130 - 100 * math.sin(angle), 130 - 100 * math.cos(angle))
        add(svg, "circle", "ink", cx=130, cy=130, r=5)
        return markup(svg)


def _swing_cart(motion: Float[Array, " 4"], action: Int[Array, ""]) -> Float[Array, " 4"]:
    """Euler's method on the equations of Florian (2007), without friction.

    The cart is 1 kg, the pole 0.1 kg and 1 m, g = 9.8 m/s^2, and the force is 10 N.
    """
    _, speed, angle, turning = jnp.unstack(motion)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = jnp.where(action == 1, 10.0, -10.0).astype(motion.dtype)
    shared = (push + 0.05 * turning**2 * sine) / 1.1
    spin = (9.8 * sine - cosine * shared) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    acceleration = shared - 0.05 * spin * cosine / 1.1
    return motion + 0.02 * jnp.stack([speed, acceleration, turning, spin])


def _fallen(motion: Float[Array, " 4"]) -> Bool[Array, ""]:
    return (jnp.abs(motion[0]) > _TRACK) | (jnp.abs(motion[2]) > _FALLEN)


def _degrees(angle: float) -> str:
    return f"{math.degrees(math.remainder(angle, 2 * math.pi)):.0f}°"

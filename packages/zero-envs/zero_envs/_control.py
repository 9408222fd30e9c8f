"""Two classic control problems in pure JAX, step by step those of Gymnasium."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._control_draw import draw_cart_pole, draw_pendulum, text_cart_pole, text_pendulum
from ._environment import (
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    Observation,
    Transition,
)


# Metres and radians beyond which the pole counts as fallen.
_TRACK = 2.4
_FALLEN = math.radians(12)


class CartPoleState(eqx.Module):
    """A cart on a track, a pole on the cart.

    **Attributes:**

    - `motion`: the cart's position (m) and velocity (m/s), the pole's angle from upright (rad,
        positive to the right) and angular velocity (rad/s). Its dtype is that of the physics.
    - `steps`: how many were taken.
    """

    motion: Float[Array, " 4"]
    steps: Int[Array, ""]


class CartPole(AbstractDiscreteEnvironment[CartPoleState]):
    """Keep a pole upright by pushing its cart (Barto, Sutton and Anderson, 1983).

    Gymnasium's `CartPole-v1`: action 0 pushes to the left, 1 to the right; every step pays 1, also
    the last one; the episode ends when the pole leans more than 12 degrees or the cart is more than
    2.4 m away. After `max_steps` steps it is truncated: `last` with discount 1, for the pole would
    have stood on. The features are the state's `motion`.
    """

    max_steps: int
    num_actions: int
    hidden: bool

    def __init__(self, max_steps: int = 500):
        _check_limit("CartPole", max_steps)
        self.max_steps = max_steps
        self.num_actions = 2
        self.hidden = False

    def init(self, *, key: PRNGKeyArray) -> CartPoleState:
        """Nearly at rest, each number uniform within 0.05 of 0."""
        motion = jr.uniform(key, (4,), jnp.float32, minval=-0.05, maxval=0.05)
        return CartPoleState(motion, jnp.zeros((), jnp.int32))

    def step(
        self, state: CartPoleState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[CartPoleState, Transition]:
        """Pushes for 0.02 s."""
        del key
        over = _fallen(state.motion) | (state.steps >= self.max_steps)
        motion = jnp.where(over, state.motion, _swing_cart(state.motion, action))
        steps = jnp.where(over, state.steps, state.steps + 1)
        ended = over | _fallen(motion)
        transition = Transition(
            reward=(~over).astype(jnp.float32),
            discount=(~ended).astype(jnp.float32),
            last=ended | (steps >= self.max_steps),
        )
        return CartPoleState(motion, steps), transition

    def observe(self, state: CartPoleState) -> Observation:
        """The motion; both pushes are always legal."""
        return Observation(features=state.motion.astype(jnp.float32), legal=jnp.ones(2, jnp.bool_))

    def text(self, state: CartPoleState) -> str:
        """Cart `O`, pole and track for a terminal."""
        x, _, angle, _ = state.motion.tolist()
        return text_cart_pole(x, angle, int(state.steps), _TRACK)

    def render(self, state: CartPoleState, *, scale: float = 1.0) -> str:
        """Cart, pole and track as an SVG image."""
        x, _, angle, _ = state.motion.tolist()
        return draw_cart_pole(x, angle, int(state.steps), _TRACK, scale)


class PendulumState(eqx.Module):
    """A rod that swings about one end.

    **Attributes:**

    - `angle`: from upright, in radians, with all turns counted. Its dtype is that of the physics.
    - `velocity`: in rad/s, at most 8 either way.
    - `steps`: how many were taken.
    """

    angle: Float[Array, ""]
    velocity: Float[Array, ""]
    steps: Int[Array, ""]


class Pendulum(AbstractContinuousEnvironment[PendulumState]):
    """Swing a rod up and hold it with a motor too weak to lift it.

    Gymnasium's `Pendulum-v1`: the action, one number, is the torque in units of 2 N m; what lies
    beyond [-1, 1] is cut off. A step costs `angle**2 + 0.1 velocity**2 + 0.001 torque**2`, the
    angle taken within half a turn of upright. Nothing ends an episode, so after `max_steps` steps
    it is truncated: `last` with discount 1. The features are the angle's cosine and sine and the
    velocity.
    """

    max_steps: int
    action_size: int
    hidden: bool

    def __init__(self, max_steps: int = 200):
        _check_limit("Pendulum", max_steps)
        self.max_steps = max_steps
        self.action_size = 1
        self.hidden = False

    def init(self, *, key: PRNGKeyArray) -> PendulumState:
        """Any angle, and a velocity of at most 1 rad/s."""
        high = jnp.asarray([math.pi, 1.0], jnp.float32)
        angle, velocity = jnp.unstack(jr.uniform(key, (2,), jnp.float32, minval=-high, maxval=high))
        return PendulumState(angle, velocity, jnp.zeros((), jnp.int32))

    def step(
        self, state: PendulumState, action: Float[Array, " 1"], *, key: PRNGKeyArray
    ) -> tuple[PendulumState, Transition]:
        """Turns the motor for 0.05 s."""
        del key
        over = state.steps >= self.max_steps
        torque = 2 * jnp.clip(action[0], -1.0, 1.0).astype(state.angle.dtype)
        angle = jnp.remainder(state.angle + math.pi, 2 * math.pi) - math.pi
        cost = angle**2 + 0.1 * state.velocity**2 + 0.001 * torque**2
        # A rod of 1 kg and 1 m with g = 10 m/s^2; the new velocity moves it already.
        velocity = state.velocity + (15 * jnp.sin(state.angle) + 3 * torque) * 0.05
        velocity = jnp.clip(velocity, -8.0, 8.0)
        next_state = PendulumState(
            angle=jnp.where(over, state.angle, state.angle + velocity * 0.05),
            velocity=jnp.where(over, state.velocity, velocity),
            steps=jnp.where(over, state.steps, state.steps + 1),
        )
        transition = Transition(
            reward=jnp.where(over, 0.0, -cost).astype(jnp.float32),
            discount=(~over).astype(jnp.float32),
            last=next_state.steps >= self.max_steps,
        )
        return next_state, transition

    def observe(self, state: PendulumState) -> Observation:
        """Cosine, sine and velocity."""
        features = jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity])
        return Observation(features=features.astype(jnp.float32), legal=None)

    def text(self, state: PendulumState) -> str:
        """Axle `O` and rod for a terminal."""
        return text_pendulum(state.angle.item(), state.velocity.item(), int(state.steps))

    def render(self, state: PendulumState, *, scale: float = 1.0) -> str:
        """The rod as an SVG image."""
        return draw_pendulum(state.angle.item(), state.velocity.item(), int(state.steps), scale)


def _swing_cart(motion: Float[Array, " 4"], action: Int[Array, ""]) -> Float[Array, " 4"]:
    """Euler's method on the equations of Florian (2007), without friction.

    A cart of 1 kg, a pole of 0.1 kg and 1 m, g = 9.8 m/s^2, pushed with 10 N.
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


def _check_limit(name: str, max_steps: int) -> None:
    if max_steps < 1:
        raise ValueError(f"{name}(max_steps={max_steps}): an episode has at least 1 step.")

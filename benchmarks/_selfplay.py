"""Where the time of collecting goes: the network, the environment, and the tree."""

import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from _turns import clocked
from jaxtyping import Array, PyTree

from zero_envs import Observation
from zero_train import act, init, Loop, LoopState


def measure(
    loop: Loop,
    evaluations: int,
    evaluator: Callable[[Any], Callable[[Observation], tuple[Array, Array]]],
    step: Callable[[PyTree[Array]], PyTree[Array]],
    repeats: int,
) -> dict[str, float]:
    """Rates of collecting with a fresh agent, and shares of its time.

    **Arguments:**

    - `evaluations`: of a move, in each environment.
    - `evaluator`: what the agent's state evaluates an observation with. Its share is that of as
        many evaluations alone, at the same batch size.
    - `step`: what a simulation asks of the environment, from one state to the next. Its share is
        that of as many steps alone; the tree has the rest.
    """
    state = init(loop, key=jax.random.key(0))

    @eqx.filter_jit
    def collect(state: LoopState) -> PyTree[Array]:
        actor = loop.agent.actor(state.agent, explore=True)
        return act(loop, actor, state.episodes, key=state.key)

    compile_s = clocked(collect, state)
    total = seconds(collect, state, repeats=repeats) / loop.unroll_length
    obs = jax.vmap(loop.env.observe)(state.episodes.state)
    network = seconds(_network_alone, evaluator(state.agent), obs, evaluations, repeats=repeats)
    environment = seconds(
        _environment_alone, step, state.episodes.state, evaluations, repeats=repeats
    )
    return {
        "envs": loop.num_envs,
        "first_call_s": round(compile_s, 1),
        "positions_per_s": round(loop.num_envs / total, 1),
        "evaluations_per_s": round(loop.num_envs * evaluations / total, 1),
        "network_evaluations_per_s": round(loop.num_envs * evaluations / network, 1),
        "network_share": round(network / total, 3),
        "environment_share": round(environment / total, 3),
        "tree_share": round(1 - (network + environment) / total, 3),
    }


def seconds(function: Callable[..., Any], *args: Any, repeats: int) -> float:
    """Median time of a jitted call, compiled beforehand."""
    jax.block_until_ready(function(*args))
    return statistics.median(clocked(function, *args) for _ in range(repeats))


@eqx.filter_jit
def _network_alone(
    evaluate: Callable[[Observation], tuple[Array, Array]], obs: Observation, number: int
) -> Array:
    def body(value: Array, _: None) -> tuple[Array, None]:
        # Depends on the evaluation before, so that none is hoisted out of the loop.
        never = value > 1e30
        hide = lambda x: jnp.where(never.reshape(-1, *(1,) * (x.ndim - 1)), jnp.zeros_like(x), x)
        logits, value = jax.vmap(evaluate)(jax.tree.map(hide, obs))
        return value + 1e-6 * logits[:, 0], None

    rows = jax.tree.leaves(obs)[0].shape[0]
    return jax.lax.scan(body, jnp.zeros(rows, jnp.float32), None, length=number)[0]


@eqx.filter_jit
def _environment_alone(
    step: Callable[[PyTree[Array]], PyTree[Array]], state: PyTree[Array], number: int
) -> PyTree[Array]:
    body = lambda state, _: (jax.vmap(step)(state), None)
    return jax.lax.scan(body, state, None, length=number)[0]

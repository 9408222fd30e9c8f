"""Environments, replay, networks, returns and losses compose: two agents without a search learn
to walk a corridor in the ordinary loop."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pytest
from jax import Array

from zero_envs import TimeLimit
from zero_envs.testing import Corridor
from zero_memory import Batch, Latest, TrajectoryBuffer
from zero_nets import ActorCritic, Categorical, LinearHead, MLP
from zero_train import (
    AbstractAgent,
    bind,
    evaluate,
    Experience,
    FeatureEvaluator,
    fill,
    gradient_step,
    init,
    init_optimiser,
    Loop,
    loss_weights,
    Metrics,
    parameters,
    PolicyActor,
    step,
    update_target,
)
from zero_train.losses import Dual, masked_mean, mpo_categorical_loss, ppo_clip_loss
from zero_train.returns import retrace_returns, truncated_gae


LENGTH, LIMIT, GAMMA = 5, 12, 0.95
ENV = TimeLimit(Corridor(LENGTH), LIMIT)
Rows = Experience


class Learner(eqx.Module):
    """What an agent without a search keeps."""

    params: Any
    target: Any
    optimiser: Any


class Agent(AbstractAgent[Learner]):
    """A network, an optimiser and a loss of a batch of windows."""

    network: Callable[..., Any]
    policy_logits: Callable[..., Any]
    loss: Callable[[Any, Any, Rows, Array], Array]
    optimiser: optax.GradientTransformation = optax.adam(1e-2)

    def init(self, *, key: Array) -> Learner:
        params = parameters(self.network, key=key)
        target = jax.tree.map(jnp.copy, params)
        return Learner(params, target, init_optimiser(self.optimiser, params))

    def actor(self, state: Learner, *, explore: bool) -> PolicyActor:
        net = bind(self.network, state.params)
        evaluate = FeatureEvaluator(lambda features: self.policy_logits(net(features)))
        return PolicyActor(evaluate, temperature=1.0 if explore else 0.0)

    def update(self, state: Learner, batch: Batch, *, key: Array) -> tuple[Learner, Metrics]:
        del key
        counts, target = loss_weights(batch), bind(self.network, state.target)

        def total(params: Any) -> tuple[Array, Metrics]:
            loss = self.loss(bind(self.network, params), target, batch.items, counts)
            return loss, {"loss": loss}

        params, optimiser, metrics = gradient_step(
            total, self.optimiser, state.params, state.optimiser
        )
        return Learner(params, update_target(state.target, params, 0.05), optimiser), metrics


def actor_critic(*, key: Array) -> ActorCritic:
    tkey, pkey, vkey = jr.split(key, 3)
    return ActorCritic(
        LinearHead(16, (2,), scale=0.01, key=pkey),
        LinearHead(16, key=vkey),
        torso=MLP(LENGTH, (16,), key=tkey),
    )


def ppo(net: Any, target: Any, rows: Rows, counts: Array) -> Array:
    """Proximal policy optimisation on the rows that were just collected."""
    del target

    def window(rows: Rows) -> tuple[Array, Array]:
        logits, value = jax.vmap(net)(rows.obs.features)
        behaviour = jax.vmap(lambda w, a: jnp.log(w[a]))(rows.record.weights, rows.action)
        advantage, goal = truncated_gae(
            rows.reward, GAMMA * rows.discount, rows.record.value, rows.last, lambda_=0.9
        )
        log_prob = jax.vmap(lambda x, a: Categorical(x).log_prob(a))(logits, rows.action)
        clip = lambda *args: ppo_clip_loss(*args, epsilon=0.2)
        return jax.vmap(clip)(log_prob, behaviour, advantage), jnp.square(value - goal)

    policy_loss, value_loss = jax.vmap(window)(rows)
    return masked_mean(policy_loss, counts) + 0.5 * masked_mean(value_loss, counts)


class PolicyAndQ(eqx.Module):
    """Logits and action values of separate networks, with the two duals of MPO."""

    policy: MLP
    critic: MLP
    temperature: Dual
    alpha: Dual

    def __init__(self, *, key: Array):
        pkey, ckey = jr.split(key)
        self.policy = MLP(LENGTH, (16, 2), activate_final=False, key=pkey)
        self.critic = MLP(LENGTH, (16, 2), activate_final=False, key=ckey)
        self.temperature = Dual.from_value(0.1)
        self.alpha = Dual.from_value(0.1)

    def __call__(self, features: Array) -> tuple[Array, Array]:
        return self.policy(features), self.critic(features)


def mpo(net: Any, target: Any, rows: Rows, counts: Array) -> Array:
    """Maximum a posteriori policy optimisation on replayed windows, with retrace."""

    def window(rows: Rows) -> tuple[Array, Array]:
        logits, qvalues = jax.vmap(net)(rows.obs.features)
        target_logits, target_q = jax.vmap(target)(rows.obs.features)
        pick = jax.vmap(lambda x, a: x[a])
        policy = jax.nn.softmax(target_logits)
        ratio = jnp.log(pick(policy, rows.action)) - jnp.log(pick(rows.record.weights, rows.action))
        goal = retrace_returns(
            rows.reward,
            GAMMA * rows.discount,
            pick(target_q, rows.action),
            jnp.sum(policy * target_q, axis=-1),
            ratio,
            rows.last,
            lambda_=0.9,
        )
        improve = lambda *args: mpo_categorical_loss(
            *args, temperature=net.temperature, alpha=net.alpha, epsilon=0.1, epsilon_policy=0.05
        )[0]
        loss = jax.vmap(improve)(logits, target_logits, jax.lax.stop_gradient(target_q))
        return loss, jnp.square(pick(qvalues, rows.action) - goal)

    policy_loss, value_loss = jax.vmap(window)(rows)
    return masked_mean(policy_loss, counts) + masked_mean(value_loss, counts)


LATEST = Latest(capacity=17, num_envs=16, batch_size=16, length=17)
REPLAY = TrajectoryBuffer(capacity=128, num_envs=16, batch_size=32, length=9)


@pytest.mark.parametrize(
    "agent, buffer",
    [
        pytest.param(Agent(actor_critic, lambda out: out, ppo), LATEST, id="ppo"),
        pytest.param(
            Agent(PolicyAndQ, lambda out: (out[0], jnp.max(out[1])), mpo), REPLAY, id="mpo"
        ),
    ],
)
def test_agents_without_a_search_learn_the_shortest_way(agent: Agent, buffer: Any) -> None:
    loop = Loop(env=ENV, agent=agent, buffer=buffer, unroll_length=17, num_updates=2)
    state = fill(loop, init(loop, key=jr.key(0)))
    before = _play(agent, state.agent)
    for _ in range(60):
        state, _ = step(loop, state)
    after = _play(agent, state.agent)
    # Going right with probability p takes about 4 / (2 p - 1) steps.
    assert before > 1.8 * (LENGTH - 1)
    assert after < 1.2 * (LENGTH - 1)


def _play(agent: Agent, learner: Learner) -> float:
    """How many steps an episode takes if the policy is sampled."""
    actor = agent.actor(learner, explore=True)
    return (
        evaluate(ENV, actor, num_episodes=128, max_steps=LIMIT, key=jr.key(1)).summary().mean_length
    )

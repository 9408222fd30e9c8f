"""Beliefs: worlds that hide something, searched over what the player knows."""

from typing import Any, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, UInt32

from ._chance import sampled_step
from ._check import (
    batch_size,
    check_answer,
    check_belief,
    check_count,
    check_keys,
    check_kinds,
    plain_numbers,
)
from ._model import AbstractChanceModel, AbstractHiddenModel, guesses, predicted, State, stepped
from ._sample import folded, inverted, numbered, seeds, split_rows, uniform
from ._types import Ints, Keys, Prediction, Stepped


class Belief(eqx.Module, Generic[State]):
    """What a player knows: states of which one may be the real one, and how likely each is.

    **Attributes:**

    - `particles`: states; all leaves begin with `[batch, particles]`. Those of a row that have a
        weight must look alike to its player. The others are dead and may be anything.
    - `weights`: probabilities up to a constant a row: 0, or 1e-30 to 1e30. A row of zeros is
        filler. If one is negative or not finite, the search counts the evaluation as `invalid`.
    - `seed`: what the futures of the particles are drawn from: particle `i` of a row always steps
        with the same key, whatever the action. Any number will do where `step` draws nothing.
    """

    particles: State
    weights: Float[Array, "*axes particles"]
    seed: UInt32[Array, "*axes"]


class PredictedBelief(eqx.Module, Generic[State]):
    """A belief after an action and before its signal.

    **Attributes:**

    - `particles`, `weights`, `seed`: those of the next belief, whichever signal comes.
    - `signal`: what each particle will tell.
    - `logits`: log-weights of the signals.
    - `reward`, `discount`, `last`: of the step, by signal.
    """

    particles: State
    weights: Float[Array, "*axes particles"]
    seed: UInt32[Array, "*axes"]
    signal: Int[Array, "*axes particles"]
    logits: Float[Array, "*axes signals"]
    reward: Float[Array, "*axes signals"]
    discount: Float[Array, "*axes signals"]
    last: Bool[Array, "*axes signals"]


class BeliefModel(AbstractChanceModel[Belief[State], PredictedBelief[State]], Generic[State]):
    """The belief MDP of a hidden world: what a player knows, as a world in which chance moves.

    Its nodes are beliefs. A search over it is a belief-tree search: it plans what to do by what
    will have been seen. A root is `num_particles` draws of `model.root`, equally weighted. An
    action steps every particle, and the signals that they give are its outcomes, weighted as the
    particles are. The player then believes in those that gave the signal: Bayes' rule. So every
    decision rests on what has been seen, and information is worth the decisions that it allows.
    [`zero_search.Hindsight`][] over `model` plans for every guess apart, as if it were known, so it
    never pays for information.

    A [`zero_search.Belief`][] in place of a state is a root as it stands. With every possible state
    as a particle, weighted by its probability, and a `step` that draws nothing, this is the belief
    MDP itself and its expectimax the best there is. Otherwise particles are samples, each with one
    frozen future (a *scenario*): its steps are drawn from `seed`, never from the keys of the real
    world. Signals then split few particles among many nodes. A node with one particle knows
    everything that is hidden and that will happen, so its value is too high, as in Hindsight. With
    more particles this happens deeper in the tree; `min_particles` ends the tree before it. The
    price is memory and steps: a node holds `num_particles` states, twice, and a simulation steps as
    many.

    **Requirements.** All players must see the same. A card game in which each player sees only
    their own hand cannot be searched this way. Particles of a node that give the same signal must
    agree in `discount` and `last` (where they do not, or a signal is none of those below
    `num_signals`, the search counts the evaluation as `invalid`). Rewards may differ: the next
    belief is paid their mean.

    **Evaluation.** `model` is asked about one particle, drawn by weight. As all look alike, a
    network is shown what the player sees, and a random playout is one fair sample.

    **Depletion.** Signals that no particle gave have probability 0. If resolved nevertheless they
    are the end: reward 0, discount 0, `last`, and a belief without weights. Such a row has no
    legal action and value 0.

    **Arguments:**

    - `model`: of the hidden world.
    - `num_particles`: states of a root belief. Each costs memory and time in every simulation.
    - `min_particles`: a belief in fewer is `last`, a truncation: worth what the evaluator says.

    Kaelbling, Littman and Cassandra 1998, "Planning and acting in partially observable stochastic
    domains", section 3.3; scenarios: Somani, Ye, Hsu and Lee 2013, "DESPOT: online POMDP planning
    with regularization".
    """

    model: AbstractHiddenModel[State]
    # A shape, so that a jitted function may take the model as an argument.
    num_particles: int = eqx.field(default=32, static=True)
    min_particles: int = 1

    def __post_init__(self):
        plain_numbers(self)

    def __check_init__(self):
        check_kinds("BeliefModel", AbstractHiddenModel, model=self.model)
        check_count("BeliefModel", 1, num_particles=self.num_particles)
        check_count("BeliefModel", 1, min_particles=self.min_particles)
        if self.min_particles > self.num_particles:
            raise ValueError(
                f"`BeliefModel(num_particles={self.num_particles}, "
                f"min_particles={self.min_particles})`: no belief has so many particles; "
                "min_particles must be from 1 to num_particles."
            )
        if self.model.num_signals < 1:
            raise ValueError(
                f"`BeliefModel(model={type(self.model).__name__})`: has "
                f"`num_signals={self.model.num_signals}`, so it tells the player nothing; it must "
                "be 1 or more: where nothing is hidden, search without a belief."
            )

    @property
    def num_outcomes(self) -> int:
        return self.model.num_signals

    def root(self, state: Any, obs: Any, *, key: Keys) -> Belief[State]:
        if isinstance(state, Belief):
            return state
        batch = batch_size(state)
        check_keys(key, batch)
        guess_key, fate_key = split_rows(key, 2)
        own = lambda i: folded(guess_key, i)
        particles = guesses(self.model, state, obs, self.num_particles, own)
        weights = jnp.full((batch, self.num_particles), 1 / self.num_particles, jnp.float32)
        return Belief(particles, weights, seeds(fate_key))

    def step(self, node: Belief[State], action: Ints, *, key: Keys) -> Stepped[Belief[State]]:
        return sampled_step(self, node, action, key=key)

    def afterstate(self, node: Belief[State], action: Ints) -> PredictedBelief[State]:
        batch, number = check_belief(node, action)
        flat = lambda x: x.reshape(batch * number, *x.shape[2:])
        before = jax.tree.map(flat, node.particles)
        key = jax.vmap(jr.key)(node.seed)
        keys, seed = numbered(key, number), seeds(folded(key, number))
        actions = jnp.repeat(action, number)
        after, reward, discount, last = stepped(self.model, before, actions, keys.reshape(-1))
        signal = self.model.signal(before, actions, after)
        each = "one number below `num_signals` for every step"
        check_answer("signal", signal, "int", (batch * number,), "steps", each)
        split = lambda x: x.reshape(batch, number, *x.shape[1:])
        signal = split(signal.astype(jnp.int32))
        step = [split(x.astype(jnp.float32)) for x in (reward, discount)] + [split(last)]
        told = _by_signal(node.weights, signal, self.num_outcomes, *step)
        return PredictedBelief(jax.tree.map(split, after), node.weights, seed, signal, *told)

    def outcome_logits(self, afterstate: PredictedBelief[State]) -> Float[Array, "batch signals"]:
        return afterstate.logits

    def afterstate_value(self, afterstate: PredictedBelief[State], *, key: Keys) -> None:
        return None

    def resolve(self, afterstate: PredictedBelief[State], outcome: Ints) -> Stepped[Belief[State]]:
        alive = afterstate.signal == outcome[:, None]
        weights = jnp.where(alive, afterstate.weights, 0.0)
        total = jnp.sum(weights, axis=1, keepdims=True)
        belief = Belief(
            afterstate.particles, weights / jnp.where(total > 0, total, 1.0), afterstate.seed
        )
        lane = jnp.arange(outcome.shape[0])
        told = (afterstate.reward, afterstate.discount, afterstate.last)
        reward, discount, last = (x[lane, outcome] for x in told)
        few = jnp.sum(weights > 0, axis=1) < self.min_particles
        return belief, reward, discount, last | few

    def predict(self, node: Belief[State], *, key: Keys) -> Prediction:
        batch, _ = check_belief(node)
        draw, ask = split_rows(key, 2)
        index, lane = inverted(node.weights, uniform(draw)), jnp.arange(batch)
        one = jax.tree.map(lambda x: x[lane, index], node.particles)
        logits, value = predicted(self.model, one, ask)
        known = jnp.any(node.weights > 0, axis=1)
        # Else a posterior that has become NaN would pass for filler.
        sound = jnp.all((node.weights >= 0) & (node.weights < jnp.inf), axis=1)
        value = jnp.where(sound, jnp.where(known, value, 0.0), jnp.nan)
        return jnp.where(known[:, None], logits, -jnp.inf), value


_PerParticle = Float[Array, "batch particles"]
_PerSignal = Float[Array, "batch signals"]


def _by_signal(
    weights: _PerParticle,
    signal: Int[Array, "batch particles"],
    num_signals: int,
    reward: _PerParticle,
    discount: _PerParticle,
    last: Bool[Array, "batch particles"],
) -> tuple[_PerSignal, _PerSignal, _PerSignal, Bool[Array, "batch signals"]]:
    """Log-weights of the signals, and of the step after each: reward, discount, last.

    The log-weights of a row that breaks the rules are NaN.
    """
    alive = weights > 0
    given = signal[:, :, None] == jnp.arange(num_signals, dtype=jnp.int32)[None, None]
    given = given & alive[:, :, None]
    # A sum over a comparison, not a scatter: the same on every device, whatever the order.
    add = lambda x: jnp.sum(jnp.where(given, x[:, :, None], 0.0), axis=1)
    mass = add(weights)
    mean = lambda x: add(weights * x) / jnp.where(mass > 0, mass, 1.0)
    reward, discounts = mean(reward), mean(discount)
    lasts = jnp.any(given & last[:, :, None], axis=1) | (mass <= 0)
    known = (signal >= 0) & (signal < num_signals)
    back = lambda x: jnp.take_along_axis(x, jnp.where(known, signal, 0), axis=1)
    torn = (jnp.abs(back(discounts) - discount) > 1e-3) | (back(lasts) != last)
    broken = jnp.any(alive & (torn | ~known), axis=1)
    logits = jnp.where(broken[:, None], jnp.nan, jnp.log(mass))
    return logits, reward, discounts, lasts

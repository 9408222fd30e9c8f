"""Planning by a cloud of particles: sequential Monte Carlo."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._check import (
    batch_size,
    check_count,
    check_keys,
    check_option,
    check_positive,
    check_range,
    plain_numbers,
)
from ._cloud import alike, draw, first_actions, GaussianNoise, judge, Prospect, resampled
from ._model import AbstractModel, guesses, masked_edge, Proposal, stepped
from ._planner import AbstractPlanner, Plan
from ._root import AbstractRootNoise
from ._sample import folded, numbered, safe_softmax, sample_action, split_rows, varying, where_rows
from ._types import Bools, Floats, Ints, Keys


T = TypeVar("T")


class Particles(eqx.Module):
    """The particles of a batch. Values are for the player to move."""

    state: PyTree[Array]
    action: PyTree[Array]  # that it takes next
    ancestor: Int[Array, "batch particles"]  # the number of the first action that it comes from
    # Its discounted TD errors since it was last resampled, together, for the player at the root.
    gain: Float[Array, "batch particles"]
    # The log of the policy's probability of the first action over that with which it was drawn; 0
    # without noise at the root, and after the first resampling.
    log_ratio: Float[Array, "batch particles"]
    scale: Float[Array, "batch particles"]  # the product of all discounts, signs included
    value: Float[Array, "batch particles"]
    alive: Bool[Array, "batch particles"]  # whether the episode goes on

    def weights(self, temperature: Float[Array, ""]) -> Float[Array, "batch particles"]:
        """`softmax(log_ratio + gain / temperature)` of every row."""
        # The highest is 0, so no temperature overflows it.
        lead = self.gain - jnp.max(self.gain, axis=1, keepdims=True)
        return safe_softmax(self.log_ratio + lead / temperature)


class Moved(eqx.Module):
    """What one step of the model has brought."""

    particles: Particles  # after the step, with the old `action`
    policy: Proposal  # of the states reached; its arrays begin with `[batch, particles]` as well
    delta: Float[Array, "batch particles"]  # discounted TD errors in the root's view; 0 of the dead
    invalid: Bool[Array, "batch particles"]  # whose reward, discount or evaluation was not finite


def move(model: AbstractModel, particles: Particles, key: Key[Array, "batch particles"]) -> Moved:
    """Plays every particle's action. No particle depends on another.

    A particle that is not alive stays as it is. Where something is not finite, or a discount is
    beyond -1 or 1, the step counts for nothing and the particle stops: a wrecked simulation must
    look neither good nor bad.
    """
    shape, old = particles.alive.shape, particles
    number = shape[0] * shape[1]  # -1 would not do for leaves without entries
    flat = lambda tree: jax.tree.map(lambda x: x.reshape(number, *x.shape[2:]), tree)
    fold = lambda tree: on_arrays(lambda x: x.reshape(*shape, *x.shape[1:]), tree)
    step_key, predict_key = split_rows(flat(key), 2)
    before = flat(old.state)
    after, reward, discount, last = stepped(model, before, flat(old.action), step_key)
    seen = judge(model, after, predict_key)
    reward, discount, wrong = masked_edge(reward, discount)
    known = ~(wrong | seen.invalid)
    over = last | (discount == 0) | ~seen.playable
    after, reward, discount, known, over, value = fold(
        (after, reward, discount, known, over, seen.value)
    )
    counts = old.alive & known
    # A truncated state is bootstrapped: its discount is not 0.
    delta = jnp.where(counts, old.scale * (reward + discount * value - old.value), 0.0)
    particles = Particles(
        state=where_rows(counts, after, old.state),
        action=old.action,
        ancestor=old.ancestor,
        gain=old.gain + delta,
        log_ratio=old.log_ratio,
        scale=jnp.where(counts, old.scale * discount, old.scale),
        value=jnp.where(counts, value, old.value),
        alive=counts & ~over,
    )
    return Moved(particles, fold(seen.policy), delta, old.alive & ~known)


def pick(tree: T, index: Int[Array, "batch ..."]) -> T:
    """The particles of these numbers of each row, or one a row, leaf by leaf."""
    return on_arrays(lambda x: jax.vmap(lambda y, i: y[i])(x, index), tree)


def on_arrays(function: Callable[[Array], Array], tree: T) -> T:
    """The tree with `function` of all arrays; a policy may hold other things."""
    return jax.tree.map(lambda x: function(x) if eqx.is_array(x) else x, tree)


def choose_action(
    readout: str, candidates: PyTree[Array], weights: Float[Array, "batch particles"], key: Keys
) -> PyTree[Array]:
    """One action a row, as [`zero_search.ParticleSearch`][] explains them."""
    if readout == "mean":
        return jax.tree.map(lambda x: _mean(x, weights), candidates)
    if readout == "sampled":
        index = sample_action(weights, 1.0, key=key)
    else:
        together = jnp.sum(jnp.where(alike(candidates), weights[:, None], 0.0), axis=2)
        index = jnp.argmax(together, axis=1)
    return pick(candidates, index)


def _mean(x: Array, weights: Float[Array, "batch particles"]) -> Float[Array, "batch ..."]:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f'`ParticleSearch(readout="mean")` got actions of {x.dtype}, which have no mean: use '
            '"sampled" or "argmax".'
        )
    return jnp.einsum("bn...,bn->b...", x, weights.astype(x.dtype))


class _Cloud(eqx.Module):
    """The particles of every row, and what belongs to the row or to its first actions."""

    particles: Particles
    advantages: Float[Array, "batch particles"]  # of the first actions, in their own order
    resampled: Bools
    invalid: Ints


class _Keys(eqx.Module):
    particle: Key[Array, "batch particles"]
    resample: Keys


class ParticleSearch(AbstractPlanner[AbstractModel, None]):
    """Sequential Monte Carlo: rollouts of the policy, of which those that do well are copied.

    From every row of `state`, `num_particles` particles start with actions drawn from the model's
    policy and play `depth` steps, each with actions, chance and a key of its own. A particle weighs
    `exp(gain / temperature)`, where its gain adds up the TD errors `r + d * V(s') - V(s)`
    of its way (Macfarlane et al. 2024, equation 10), each multiplied by the discounts before it:
    that telescopes to what the way was worth above the root's value. Resampling
    replaces light particles by copies of heavy ones and sets all weights equal; copies then draw
    actions of their own. What is left approaches, with many particles, the policy tilted by
    `exp(advantage / temperature)`.

    **Ends.** A final state counts 0, a truncated one its predicted value; in both the particle
    stops, keeps its weight and takes part in later resampling.

    **The plan.** `candidates` are the first actions as drawn, so independent draws from the policy
    (or what the noise makes of it). The `weights` of each add up the particles that come from it:
    after a resampling at the last step they are shares of `1 / num_particles`. `advantages` are
    sums of the same TD errors, the one after `l` steps multiplied by `lambda ** l` besides, up to
    the row's first resampling (appendix D.1): each belongs to its own candidate, and all to the
    policy as it was. `value` is the evaluator's at the root, and `qvalues` is `value + advantages`.
    A row whose root has no legal action is filler: its weights are 0.

    **Hidden worlds.** Every particle starts from a draw of `model.root` of its own, and the
    evaluator is asked about the first one: what the player sees is the same in all of them.

    **Noise.** It changes the first actions only. With `correct` the first weights are multiplied
    by `policy / noisy policy`, so that exploring does not change what the weights converge to;
    the advantages are still those of the actions drawn.

    **Randomness.** Weighing by what happened favours actions that were lucky: where the world is
    random the plan is optimistic (Levine 2018, "Reinforcement learning and control as
    probabilistic inference", section 2.4). No particle sees what will really happen.

    **Players.** Discounts of -1 turn gains into the view of the player at the root, for whom all
    moves are weighed, also the opponent's: there it is optimistic too.

    **Arguments:**

    - `num_particles`, `depth`: rollouts a row and steps of the model in each.
    - `temperature`: in units of the value, above 0. It is an array, so that a learned one takes its
        place without compiling anew: `eqx.tree_at(lambda p: p.temperature, planner, eta)`.
    - `lambda_`: trades the bias of `advantages` for their variance; weights always use all steps.
    - `resample_every`: the particles are resampled after every so many steps (Algorithm 1), which
        costs nothing in between.
    - `resample_below`: besides, the particles of a row are resampled wherever their effective
        sample size has fallen below this share of their number (Kong, Liu and Wong 1994,
        "Sequential imputations and Bayesian missing data problems"). With `None` for both they
        never are.
    - `resampling`: `"multinomial"` draws every particle independently, `"systematic"` with one draw
        for all, which has less variance (Carpenter, Clifford and Fearnhead 1999, "Improved particle
        filter for nonlinear problems").
    - `noise`: an [`zero_search.AbstractRootNoise`][] for discrete actions, a
        [`zero_search.GaussianNoise`][] for continuous ones, or `None`.
    - `correct`: whether the weights are corrected for the noise, as above.
    - `readout`: the action to play: `"sampled"` from the weights, `"argmax"` the candidate with
        the most weight (equal candidates together, the first of equally heavy ones), or `"mean"`
        of all by weight, for continuous actions.

    The plan's `stats` are `[batch, depth]`, of the particles after each step and before they are
    resampled: `ess_fraction` (effective sample size `1 / sum(w ** 2)` over the number of
    particles), `entropy` of the weights in nats, the mean `gain` since the last resampling, `alive`
    (the share of particles that took the step) and `resampled`. A number a row are `invalid`,
    how often the model returned something not finite (that step then counts 0 and the particle
    stops), and `improvement`, the mean advantage by weight.

    Macfarlane, Toledo, Byrne, Duckworth and Laterre 2024, "SPO: Sequential Monte Carlo policy
    optimisation" (arXiv 2402.07963), Algorithm 1; Piché, Thomas, Ibrahim, Bengio and Pal 2019,
    "Probabilistic planning with sequential Monte Carlo methods".
    """

    num_particles: int = 16
    depth: int = 4
    temperature: Float[Array, ""] = eqx.field(
        default=1.0, converter=lambda x: jnp.asarray(x, jnp.float32)
    )
    lambda_: float = 1.0
    resample_every: int | None = 4
    resample_below: float | None = None
    resampling: str = "multinomial"
    noise: AbstractRootNoise | GaussianNoise | None = None
    correct: bool = True
    readout: str = "sampled"

    def __post_init__(self):
        plain_numbers(self)

    def __check_init__(self):
        check_count("ParticleSearch", 1, num_particles=self.num_particles, depth=self.depth)
        check_range("ParticleSearch", 0, 1, lambda_=self.lambda_)
        self._check_temperature()
        every, below = self.resample_every, self.resample_below
        if every is not None:
            check_count("ParticleSearch", 1, resample_every=every)
            if every > self.depth:
                raise ValueError(
                    f"`ParticleSearch(resample_every={every}, depth={self.depth})`: is longer than "
                    "the search is deep; make it the depth or less, or None."
                )
        if below is not None:
            check_range("ParticleSearch", 0, 1, resample_below=below)
        check_option("ParticleSearch", ("multinomial", "systematic"), resampling=self.resampling)
        if not isinstance(self.noise, AbstractRootNoise | GaussianNoise | None):
            raise ValueError(
                f"`ParticleSearch(noise={self.noise!r})`: must be an `AbstractRootNoise` such as "
                "`DirichletNoise(...)`, a `GaussianNoise(...)` or None."
            )
        check_option("ParticleSearch", ("sampled", "argmax", "mean"), readout=self.readout)

    def init(self, model: AbstractModel, state: PyTree[Array]) -> None:
        """Nothing is kept between moves."""
        del model, state

    def plan(
        self, model: AbstractModel, state: PyTree[Array], carry: None, *, key: Keys, obs: Any = None
    ) -> tuple[Plan, None]:
        """Searches from every row of `state`, of an [`zero_search.AbstractPriorModel`][] or an
        [`zero_search.AbstractProposalModel`][].
        """
        del carry
        check_keys(key, batch_size(state))
        self._check_temperature()
        key = varying(key, (model, state, obs))
        root_key, predict_key, noise_key, particle_key, resample_key, action_key = split_rows(
            key, 6
        )
        own = lambda i: folded(root_key, i)
        states = guesses(model, state, obs, self.num_particles, own)
        # What a player sees is the same in all of them, and so is what the evaluator says.
        state = jax.tree.map(lambda x: x[:, 0], states)
        root = judge(model, state, predict_key)
        keys = _Keys(numbered(particle_key, self.num_particles), resample_key)
        cloud = varying(self._start(states, root, noise_key, keys), key)
        candidates, ratio = cloud.particles.action, cloud.particles.log_ratio
        steps = jnp.arange(1, self.depth + 1, dtype=jnp.int32)
        cloud, stats = jax.lax.scan(lambda c, i: self._step(model, keys, c, i), cloud, steps)
        weights = cloud.particles.weights(self.temperature)
        add = lambda a, w: jnp.zeros_like(w).at[a].add(w)
        ancestor = cloud.particles.ancestor
        visits = jax.vmap(add)(ancestor, jnp.ones_like(weights))
        weights = jax.vmap(add)(ancestor, weights)
        weights = jnp.where(root.playable[:, None], weights, 0.0)
        plan = Plan(
            action=choose_action(self.readout, candidates, weights, action_key),
            candidates=candidates,
            weights=weights,
            visits=jnp.where(root.playable[:, None], visits, 0.0),
            qvalues=root.value[:, None] + cloud.advantages,
            advantages=cloud.advantages,
            value=root.value,
            stats={name: jnp.swapaxes(x, 0, 1) for name, x in stats.items()}
            | {
                "invalid": cloud.invalid,
                "improvement": jnp.sum(weights * cloud.advantages, axis=1),
            },
            extra=ratio if self.noise is not None and self.correct else None,
        )
        if not isinstance(cloud.invalid, Tracer):
            plan.check()
        return plan, None

    def advance(self, carry: None, action: PyTree[Array], last: Bool[Array, "..."]) -> None:
        """Nothing is kept between moves."""
        del carry, action, last

    def _start(self, states: PyTree[Array], root: Prospect, noise_key: Keys, keys: _Keys) -> _Cloud:
        """All particles at the root, each with a state and an action of its own."""
        shape = keys.particle.shape
        now = folded(keys.particle, jnp.int32(0))
        action, ratio, invalid = first_actions(self.noise, root, noise_key, now)
        spread = lambda x: jnp.broadcast_to(x[:, None], (*shape, *x.shape[1:]))
        if not self.correct:
            ratio = jnp.where(invalid, ratio, 0.0)
        zeros = jnp.zeros(shape, jnp.float32)
        particles = Particles(
            state=states,
            action=action,
            ancestor=jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32)[None], shape),
            gain=zeros,
            log_ratio=ratio,
            scale=jnp.ones(shape, jnp.float32),
            value=spread(root.value),
            alive=spread(root.playable) & ~invalid,
        )
        wrong = root.invalid.astype(jnp.int32) + jnp.sum(invalid, axis=1, dtype=jnp.int32)
        return _Cloud(particles, zeros, jnp.zeros(shape[:1], jnp.bool_), wrong)

    def _step(
        self, model: AbstractModel, keys: _Keys, cloud: _Cloud, step: Int[Array, ""]
    ) -> tuple[_Cloud, dict[str, Array]]:
        """Moves, weighs, resamples, and only then draws the next actions."""
        now = folded(keys.particle, step)
        step_key, action_key = jax.vmap(jax.vmap(lambda k: tuple(jr.split(k))))(now)
        alive = cloud.particles.alive
        moved = move(model, cloud.particles, step_key)
        particles, policy = moved.particles, moved.policy
        weights = particles.weights(self.temperature)
        ess_fraction = 1 / (weights.shape[1] * jnp.sum(jnp.square(weights), axis=1))
        stats = {
            "ess_fraction": ess_fraction,
            "entropy": -jnp.sum(jax.scipy.special.xlogy(weights, weights), axis=1),
            "gain": jnp.mean(particles.gain, axis=1),
            "alive": jnp.mean(alive.astype(jnp.float32), axis=1),
        }
        decay = jnp.float32(self.lambda_) ** (step - 1).astype(jnp.float32)
        frozen = cloud.resampled[:, None]
        advantages = cloud.advantages + jnp.where(frozen, 0.0, decay * moved.delta)
        going_on, due = self._resample((particles, policy), weights, ess_fraction, keys, step)
        particles, policy = going_on
        action, invalid = draw(policy, action_key, axis=0)
        invalid = invalid & particles.alive
        alive = particles.alive & ~invalid
        particles = dataclasses.replace(particles, action=action, alive=alive)
        wrong = jnp.sum(moved.invalid, axis=1, dtype=jnp.int32)
        wrong = wrong + jnp.sum(invalid, axis=1, dtype=jnp.int32)
        cloud = _Cloud(particles, advantages, cloud.resampled | due, cloud.invalid + wrong)
        return cloud, stats | {"resampled": due}

    def _resample(
        self,
        particles: tuple[Particles, Proposal],
        weights: Float[Array, "batch particles"],
        ess_fraction: Floats,
        keys: _Keys,
        step: Int[Array, ""],
    ) -> tuple[tuple[Particles, Proposal], Bools]:
        """The particles that go on, with their policies, and the rows where they were drawn."""
        if self.resample_every is None and self.resample_below is None:
            return particles, jnp.zeros(weights.shape[:1], jnp.bool_)
        due = jnp.zeros((), jnp.bool_)
        if self.resample_every is not None:
            due = step % self.resample_every == 0
        if self.resample_below is not None:
            # Rounded, that of equal weights may be a little below 1.
            due = due | (ess_fraction < self.resample_below * (1 - 1e-6))
        rows = jnp.broadcast_to(due, ess_fraction.shape)[:, None]
        arrays, rest = eqx.partition(varying(particles, weights), eqx.is_array)

        def drawn(arrays: PyTree[Array]) -> PyTree[Array]:
            index = resampled(weights, self.resampling, folded(keys.resample, step))
            index = jnp.where(rows, index, jnp.arange(weights.shape[1], dtype=jnp.int32)[None])
            return eqx.tree_at(
                lambda x: (x[0].gain, x[0].log_ratio),
                pick(arrays, index),
                replace_fn=lambda x: jnp.where(rows, 0.0, x),
            )

        # One decision for all: most steps need not touch the states at all.
        all_rows = due.ndim == 0
        arrays = jax.lax.cond(due, drawn, lambda x: x, arrays) if all_rows else drawn(arrays)
        return eqx.combine(arrays, rest), rows[:, 0]

    def _check_temperature(self) -> None:
        heat = self.temperature
        if heat.shape != ():
            raise ValueError(
                f"`ParticleSearch(temperature=...)` has shape {heat.shape}: must be a scalar."
            )
        if not isinstance(heat, Tracer):
            check_positive("ParticleSearch", temperature=float(heat))

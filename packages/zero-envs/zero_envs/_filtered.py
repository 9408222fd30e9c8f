"""What a player can know of a hidden state: filters, and environments that keep a belief."""

import abc
import functools as ft
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ._environment import (
    AbstractDiscreteEnvironment,
    AbstractObservedEnvironment,
    check_count,
    check_number,
    Fallible,
    Observation,
    State,
    Transition,
)


Belief = TypeVar("Belief")


class AbstractFilter(eqx.Module, Generic[State, Belief]):
    """What the observations of one episode say of the state of an environment: Bayes' rule.

    A belief is a pytree of arrays, always of the same shapes. `env` is an environment that the
    filter knows.
    """

    @abc.abstractmethod
    def init(self, env: Any, obs: Observation, *, key: PRNGKeyArray) -> Belief:
        """The belief after the first observation."""

    @abc.abstractmethod
    def update(
        self,
        env: Any,
        belief: Belief,
        action: Int[Array, ""],
        obs: Observation,
        last: Bool[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Belief, Float[Array, ""]]:
        """The belief after an action, what was then observed, and whether the episode ended.

        **Returns:** the belief, and the reward that was to be expected of the action before
        anything was observed.
        """

    @abc.abstractmethod
    def sample(self, env: Any, belief: Belief, *, key: PRNGKeyArray) -> State:
        """Draws a state."""

    @abc.abstractmethod
    def features(self, env: Any, belief: Belief, obs: Observation) -> PyTree[Array]:
        """What a network sees of the belief and the last observation."""


class AbstractChanceFilter(AbstractFilter[State, Belief], Generic[State, Belief]):
    """A filter that also knows the probabilities of what will be observed.

    An outcome is the number, from 0, of what is observed after an action, which may also be that
    the episode ends.
    """

    @abc.abstractmethod
    def num_outcomes(self, env: Any) -> int:
        """How many outcomes an action may have; 0 where their odds are not known."""

    @abc.abstractmethod
    def outcome_logits(
        self, env: Any, belief: Belief, action: Int[Array, ""]
    ) -> Float[Array, " outcomes"]:
        """The log-probabilities of the outcomes; `-inf` for impossible ones."""

    @abc.abstractmethod
    def outcome(
        self,
        env: Any,
        belief: Belief,
        action: Int[Array, ""],
        number: Int[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[State, Transition]:
        """A step to some state in which that outcome is observed, by an action that is possible.

        What `env` observes there is what the belief is updated with, and the `discount` and `last`
        of the transition are those of the outcome; its reward is not used. Where the outcome is
        impossible the step may be any. `key` is always the same one.
        """


class Particles(eqx.Module, Generic[State]):
    """States of which each may be the real one.

    **Attributes:**

    - `states`: all leaves begin with `[particles]`.
    - `log_weights`: log-probabilities.
    - `lost`: how often an observation before the end was impossible for all states.
    """

    states: State
    log_weights: Float[Array, "*axes particles"]
    lost: Int[Array, "*axes"]


class ParticleFilter(AbstractFilter[State, Particles[State]], Generic[State]):
    """Weighted samples of the state: sequential importance resampling.

    Every update steps the samples and multiplies their weights by the likelihood of what was
    observed; a sample whose episode ends otherwise than the real one gets the weight 0. Where the
    effective number of samples, `1 / sum(w**2)`, is below `effective * num_particles`, as many are
    drawn anew by weight (systematic resampling). Where an observation is impossible for all of
    them they are drawn from the initial states, weighted by the likelihood of the observation had
    the action left these as they are, and what such a state counts, as its steps, begins anew. If
    it is impossible for these too, they go on as if nothing had been observed. `lost` counts how
    often an observation before the end was impossible; one of a density never is, however unlikely.
    Where nothing moves by chance, samples that were drawn twice stay equal, so more of them are
    needed.

    A network sees the mean and the standard deviation of each number of a state, and the features
    that were observed. A likelihood of NaN makes all weights NaN, so that whoever plans or plays by
    this belief reports values that are not finite.

    **Arguments:**

    - `num_particles`: the samples.
    - `effective`: from 0, which never draws anew, to 1.
    - `proposals`: initial states from which each sample of an initial belief is drawn.

    Gordon, Salmond and Smith 1993, "Novel approach to nonlinear/non-Gaussian Bayesian state
    estimation".
    """

    num_particles: int = eqx.field(default=1000, static=True)
    effective: float = 0.5
    proposals: int = eqx.field(default=8, static=True)

    def __check_init__(self):
        check_count("ParticleFilter", num_particles=self.num_particles, proposals=self.proposals)
        check_number("ParticleFilter", 0, 1, effective=self.effective)

    def init(
        self, env: AbstractObservedEnvironment[State], obs: Observation, *, key: PRNGKeyArray
    ) -> Particles[State]:
        states, log_weights = self._initial(env, jnp.int32(-1), obs, key, self.proposals)
        lost = _impossible(log_weights).astype(jnp.int32)
        return Particles(states, _normal(log_weights), lost)

    def update(
        self,
        env: AbstractObservedEnvironment[State],
        belief: Particles[State],
        action: Int[Array, ""],
        obs: Observation,
        last: Bool[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Particles[State], Float[Array, ""]]:
        step_key, draw_key, new_key = jr.split(key, 3)
        keys = jr.split(step_key, self.num_particles)
        step = lambda state, k: env.step(state, action, key=k)
        states, transition = jax.vmap(step)(belief.states, keys)
        likely = lambda state, after: env.observation_log_prob(obs, state, action, after)
        log_prob = jax.vmap(likely)(belief.states, states).astype(jnp.float32)
        agree = jnp.where(transition.last == last, 0.0, -jnp.inf)
        reward = jnp.sum(jnp.exp(belief.log_weights) * transition.reward)
        # Where nothing fits, what was believed before goes on, as far as its episodes do.
        before = belief.log_weights + agree
        before = jnp.where(_impossible(before), belief.log_weights, before)
        log_weights = belief.log_weights + agree + log_prob
        dead = _impossible(log_weights)
        log_weights = jnp.where(dead, before, log_weights)
        lost = dead & ~last
        fresh, fresh_weights = self._initial(env, action, obs, new_key, 1)
        found = lost & ~_impossible(fresh_weights)
        states = _where(found, fresh, states)
        log_weights = _normal(jnp.where(found, fresh_weights, log_weights))
        states, log_weights = self._resampled(states, log_weights, draw_key)
        return Particles(states, log_weights, belief.lost + lost.astype(jnp.int32)), reward

    def sample(
        self,
        env: AbstractObservedEnvironment[State],
        belief: Particles[State],
        *,
        key: PRNGKeyArray,
    ) -> State:
        (index,) = _systematic(belief.log_weights, key, 1)
        return jax.tree.map(lambda x: x[index], belief.states)

    def features(
        self, env: AbstractObservedEnvironment[State], belief: Particles[State], obs: Observation
    ) -> dict[str, PyTree[Array]]:
        weights = jnp.exp(belief.log_weights)
        flat = lambda x: x.reshape(self.num_particles, -1).astype(jnp.float32)
        numbers = jnp.concatenate([flat(x) for x in jax.tree.leaves(belief.states)], axis=1)
        total = ft.partial(jnp.matmul, weights, precision=jax.lax.Precision.HIGHEST)
        mean = total(numbers)
        deviation = jnp.sqrt(total(jnp.square(numbers - mean[None])))
        return {"mean": mean, "deviation": deviation, "observed": obs.features}

    def _resampled(
        self, states: State, log_weights: Float[Array, " particles"], key: PRNGKeyArray
    ) -> tuple[State, Float[Array, " particles"]]:
        """As many states drawn by weight, of equal weights, where too few carry the weight."""
        few = jnp.sum(jnp.exp(2 * log_weights)) * self.effective * self.num_particles > 1
        drawn = _systematic(log_weights, key, self.num_particles)
        uniform = jnp.full_like(log_weights, -jnp.log(self.num_particles))
        states = _where(few, jax.tree.map(lambda x: x[drawn], states), states)
        return states, jnp.where(few, uniform, log_weights)

    def _initial(
        self,
        env: AbstractObservedEnvironment[State],
        action: Int[Array, ""],
        obs: Observation,
        key: PRNGKeyArray,
        proposals: int,
    ) -> tuple[State, Float[Array, " particles"]]:
        """Initial states that fit an observation, as far as there are any, and their log-weights,
        up to a constant."""
        draw_key, keep_key = jr.split(key)
        number = self.num_particles * proposals
        states = jax.vmap(lambda k: env.init(key=k))(jr.split(draw_key, number))
        weigh = lambda state: env.observation_log_prob(obs, state, action, state)
        log_weights = jax.vmap(weigh)(states).astype(jnp.float32)
        chosen = _systematic(_normal(log_weights), keep_key, self.num_particles)
        # Those drawn by weight are equally likely, unless all weights are -inf or one is NaN.
        most = jnp.max(log_weights)
        equal = jnp.full(self.num_particles, jnp.where(most > -jnp.inf, 0.0, most))
        return jax.tree.map(lambda x: x[chosen], states), equal


class FilteredState(eqx.Module, Generic[State, Belief]):
    """A state, what the player knows of it, and what was last observed."""

    state: State
    belief: Belief
    obs: Observation


class BeliefAfterstate(eqx.Module, Generic[State, Belief]):
    """A belief and an action, before anything is observed.

    **Attributes:**

    - `before`: the state before the action.
    - `action`: its number.
    """

    before: FilteredState[State, Belief]
    action: Int[Array, "*axes"]


class Filtered(AbstractDiscreteEnvironment[FilteredState[State, Belief]], Generic[State, Belief]):
    """An environment in which the player keeps a belief about what is hidden.

    Observations are what the filter makes of the belief, so networks see the belief, and planners
    plan over it: over this environment a [`zero_train.EnvironmentModel`][] is the belief's own
    Markov decision process, in which `imagine` is the step, or where the filter knows the odds of
    what will be observed, `afterstate`, `outcome_logits` and `resolve` are, as those of an
    [`zero_envs.AbstractChanceEnvironment`][]. Of an episode that is over the belief means nothing.

    **Arguments:**

    - `env`: an environment that hides something.
    - `filter`: how the belief follows from the observations: a [`zero_envs.ParticleFilter`][] for
        any [`zero_envs.AbstractObservedEnvironment`][], or a filter of one environment.
    """

    env: AbstractObservedEnvironment[State]
    filter: AbstractFilter[Any, Any] = ParticleFilter()
    num_actions: int = eqx.field(init=False)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=True)

    def __post_init__(self):
        self.num_actions = getattr(self.env, "num_actions", 0)

    def __check_init__(self):
        if not isinstance(self.env, AbstractObservedEnvironment):
            hides = getattr(self.env, "hidden", None)
            why = "hides nothing" if hides is False else "does not say how likely observations are"
            raise ValueError(
                f"Filtered(env={type(self.env).__name__}): it {why}; give an "
                "AbstractObservedEnvironment, which hides its state and has `observation_log_prob`."
            )
        if not isinstance(self.filter, AbstractFilter):
            raise ValueError(
                f"Filtered(filter={self.filter!r}): it must be an AbstractFilter, such as "
                "ParticleFilter()."
            )
        if isinstance(self.env, Fallible):
            raise ValueError(
                f"Filtered(env={type(self.env).__name__}): it has `failed`, which no belief keeps; "
                "let such a step end the episode instead."
            )
        players = getattr(self.env, "num_players", 1)
        if players != 1:
            raise ValueError(
                f"Filtered(env={type(self.env).__name__}): it has {players} players, of whom each "
                "would have a belief of their own; give an environment of one player."
            )

    @property
    def random(self) -> bool:
        """A belief does not know what will be observed."""
        return True

    @property
    def num_outcomes(self) -> int:
        """How many observations may follow an action; 0 where their odds are not known."""
        if not isinstance(self.filter, AbstractChanceFilter):
            return 0
        return self.filter.num_outcomes(self.env)

    def init(self, *, key: PRNGKeyArray) -> FilteredState[State, Belief]:
        state_key, belief_key = jr.split(key)
        state = self.env.init(key=state_key)
        obs = self.env.observe(state)
        return FilteredState(state, self.filter.init(self.env, obs, key=belief_key), obs)

    def step(
        self, state: FilteredState[State, Belief], action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[FilteredState[State, Belief], Transition]:
        """Steps the environment, whose reward this is, and updates the belief."""
        return self._step(state, action, key)[:2]

    def observe(self, state: FilteredState[State, Belief]) -> Observation:
        """What the filter makes of the belief, and the actions that were last seen to be legal."""
        features = self.filter.features(self.env, state.belief, state.obs)
        return Observation(features, state.obs.legal)

    def resample(
        self, state: FilteredState[State, Belief], *, key: PRNGKeyArray
    ) -> FilteredState[State, Belief]:
        """Draws what is hidden from the belief."""
        hidden = self.filter.sample(self.env, state.belief, key=key)
        return FilteredState(hidden, state.belief, state.obs)

    def imagine(
        self, state: FilteredState[State, Belief], action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[FilteredState[State, Belief], Transition]:
        """A step as the player foresees it: what is hidden is drawn from the belief, and the reward
        is the one to be expected. The next belief follows from what is observed then, and what is
        hidden in the next state is forgotten."""
        draw_key, step_key = jr.split(key)
        drawn = self.resample(state, key=draw_key)
        after, transition, expected = self._step(drawn, action, step_key)
        return self.forget(after), eqx.tree_at(lambda t: t.reward, transition, expected)

    def forget(self, state: FilteredState[State, Belief]) -> FilteredState[State, Belief]:
        """With zeros for what is hidden, so that equal beliefs are equal states."""
        return eqx.tree_at(lambda s: s.state, state, jax.tree.map(jnp.zeros_like, state.state))

    def afterstate(
        self, state: FilteredState[State, Belief], action: Int[Array, ""]
    ) -> BeliefAfterstate[State, Belief]:
        """What is foreseen of an action before anything is observed."""
        return BeliefAfterstate(state, action)

    def outcome_logits(
        self, afterstate: BeliefAfterstate[State, Belief]
    ) -> Float[Array, " outcomes"]:
        """The log-probabilities of what will be observed."""
        assert isinstance(self.filter, AbstractChanceFilter)  # `num_outcomes` is 0 otherwise
        return self.filter.outcome_logits(self.env, afterstate.before.belief, afterstate.action)

    def resolve(
        self, afterstate: BeliefAfterstate[State, Belief], outcome: Int[Array, ""]
    ) -> tuple[FilteredState[State, Belief], Transition]:
        """What follows where that is observed. The reward is the one to be expected, and what is
        hidden in the next state is forgotten."""
        assert isinstance(self.filter, AbstractChanceFilter)
        belief, action = afterstate.before.belief, afterstate.action
        # Always the same keys, made here: in a loop JAX would take those from outside for reused.
        step_key, update_key = jr.split(jr.key(0 * outcome))
        after, transition = self.filter.outcome(self.env, belief, action, outcome, key=step_key)
        obs, last = self.env.observe(after), transition.last
        belief, expected = self.filter.update(self.env, belief, action, obs, last, key=update_key)
        state = self.forget(FilteredState(after, belief, obs))
        return state, eqx.tree_at(lambda t: t.reward, transition, expected)

    def _step(self, state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> Any:
        step_key, belief_key = jr.split(key)
        after, transition = self.env.step(state.state, action, key=step_key)
        obs, last = self.env.observe(after), transition.last
        belief, expected = self.filter.update(
            self.env, state.belief, action, obs, last, key=belief_key
        )
        return FilteredState(after, belief, obs), transition, expected


def _impossible(log_weights: Float[Array, " particles"]) -> Bool[Array, ""]:
    return jnp.max(log_weights) == -jnp.inf


def _normal(log_weights: Float[Array, " particles"]) -> Float[Array, " particles"]:
    """Log-probabilities; equal ones where none is above `-inf`."""
    return jax.nn.log_softmax(jnp.where(_impossible(log_weights), 0.0, log_weights))


def _systematic(
    log_weights: Float[Array, " states"], key: PRNGKeyArray, number: int
) -> Int[Array, " particles"]:
    """Draws numbers of states by weight, with one random number for all."""
    total = jnp.cumsum(jnp.exp(log_weights))
    places = jnp.arange(number, dtype=jnp.float32) + jr.uniform(key, (), jnp.float32)
    drawn = jnp.searchsorted(total, places / number * total[-1], side="right")
    # Rounding can make the last place the whole, beyond which there are only weights of 0.
    return jnp.minimum(drawn, jnp.searchsorted(total, total[-1])).astype(jnp.int32)


def _where(condition: Bool[Array, ""], new: State, old: State) -> State:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)

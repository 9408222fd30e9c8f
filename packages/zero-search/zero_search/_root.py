"""How the root of a search is treated, apart from the nodes inside the tree: by noise on its prior,
by which action comes next, and by what is made of it in the end."""

import abc
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ._check import check_count, check_kinds, check_positive, check_range, check_result
from ._forest import take
from ._planner import Plan
from ._rules import AbstractQTransform, CompletedByMixedValue, highest, transformed
from ._sample import safe_softmax, sample_action, Temperature
from ._types import Floats, Ints, Keys, Mask, Number, PerAction, RootStatistics


class AbstractRootNoise(eqx.Module):
    """Changes the root's prior before a search. Illegal actions must stay `-inf`."""

    @abc.abstractmethod
    def __call__(self, logits: PerAction, *, key: Keys) -> PerAction:
        """Noisy logits."""


class DirichletNoise(AbstractRootNoise):
    """Mixes Dirichlet noise into the prior probabilities: `(1 - fraction) p + fraction noise`.

    Only legal actions take part. With `alpha=None` every legal action gets the concentration
    `total / number of legal actions`, so that games with few and with many moves are disturbed
    alike; a number fixes the concentration itself.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play" (fraction 0.25, alpha about 10 over the typical number of moves).
    """

    fraction: float = 0.25
    alpha: float | None = None
    total: float = 10.0

    def __check_init__(self):
        check_range("DirichletNoise", 0, 1, fraction=self.fraction)
        check_positive("DirichletNoise", total=self.total)
        if self.alpha is not None:
            check_positive("DirichletNoise", alpha=self.alpha)

    def __call__(self, logits: PerAction, *, key: Keys) -> PerAction:
        legal = logits > -jnp.inf
        if self.alpha is None:
            count = jnp.sum(legal, axis=1).astype(jnp.float32)
            alpha = self.total / jnp.maximum(count, 1.0)
        else:
            alpha = jnp.full((logits.shape[0],), self.alpha, jnp.float32)
        # Normalised gamma draws, in logs because small ones underflow.
        draw = lambda k, a: jr.loggamma(k, a, (logits.shape[1],), jnp.float32)
        gamma = jnp.where(legal, jax.vmap(draw)(key, alpha), -jnp.inf)
        mixed = (1 - self.fraction) * safe_softmax(logits) + self.fraction * safe_softmax(gamma)
        tiny = jnp.finfo(jnp.float32).tiny
        return jnp.where(legal, jnp.log(jnp.maximum(mixed, tiny)), -jnp.inf)


class AbstractRootRule(eqx.Module):
    """Which action each simulation takes at the root, and what the root's prior is."""

    @abc.abstractmethod
    def prior(self, logits: PerAction, *, key: Keys) -> tuple[PerAction, PerAction]:
        """Returns the root's prior logits, and noise that is kept apart from them.

        The second is the `gumbel` of [`zero_search.RootStatistics`][]; zeros where there is none.
        Illegal actions must stay `-inf` in the first.
        """

    @abc.abstractmethod
    def choose(
        self, simulation: Number, num_simulations: int, root: RootStatistics, inside: Ints
    ) -> Ints:
        """Returns the action that a simulation takes at the root; it must be legal.

        **Arguments:**

        - `simulation`, `num_simulations`: its number, from 0, and how many there are.
        - `root`: what is known when it starts. Its `started` includes the simulations whose leaf is
            not evaluated yet.
        - `inside`: what the selection rule of the nodes inside would take.
        """


class PriorRoot(AbstractRootRule):
    """The root is searched as all nodes are; its prior may be disturbed by noise.

    **Attributes:**

    - `noise`: for exploration in self-play, or `None`. It reaches the root's own prior alone.
    """

    noise: AbstractRootNoise | None = None

    def __check_init__(self):
        if self.noise is not None:
            check_kinds("PriorRoot", AbstractRootNoise, noise=self.noise)

    def prior(self, logits: PerAction, *, key: Keys) -> tuple[PerAction, PerAction]:
        if self.noise is None:
            return logits, jnp.zeros_like(logits)
        noisy, each = self.noise(logits, key=key), "one logit for every action of every row"
        check_result(self.noise, "__call__", noisy, logits.shape, each)
        return noisy, jnp.zeros_like(logits)

    def choose(
        self, simulation: Number, num_simulations: int, root: RootStatistics, inside: Ints
    ) -> Ints:
        return inside


class SequentialHalving(AbstractRootRule):
    """Gumbel MuZero's root, as [`zero_search.TreeSearch.gumbel`][] explains it.

    With visits kept from the move before, the halving shares out the new simulations alone, while
    the Q-values rest on the kept visits too; the Gumbel noise is drawn anew for every move.
    `in_rounds` makes 4 evaluations of 32 for 32 simulations of 16 actions. The survivors are then
    chosen at the start of a phase, as in the paper; one by one, an action that falls behind within
    its phase may lose its turn to another.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel", sections 3 and 4.
    """

    max_num_considered_actions: int = 16
    gumbel_scale: float = 1.0
    qtransform: AbstractQTransform = CompletedByMixedValue()
    in_rounds: bool = False

    def __check_init__(self):
        considered = self.max_num_considered_actions
        check_count("SequentialHalving", 1, max_num_considered_actions=considered)
        check_range("SequentialHalving", 0, gumbel_scale=self.gumbel_scale)
        check_kinds("SequentialHalving", AbstractQTransform, qtransform=self.qtransform)

    def prior(self, logits: PerAction, *, key: Keys) -> tuple[PerAction, PerAction]:
        top = jnp.max(logits, axis=1, keepdims=True)
        logits = logits - jnp.where(top > -jnp.inf, top, 0.0)
        if self.gumbel_scale == 0:  # drawing costs little but takes long to compile
            return logits, jnp.zeros_like(logits)
        draw = lambda k: jr.gumbel(k, (logits.shape[1],), jnp.float32)
        return logits, self.gumbel_scale * jax.vmap(draw)(key)

    def choose(
        self, simulation: Number, num_simulations: int, root: RootStatistics, inside: Ints
    ) -> Ints:
        most = self.max_num_considered_actions
        table = np.asarray([halving(m, num_simulations) for m in range(most + 1)], np.float32)
        # What follows the last simulation is asked for, too, and not taken.
        column = jnp.minimum(simulation, num_simulations - 1)
        row = jnp.minimum(root.num_legal, most)
        due = take(jnp.asarray(table.reshape(-1)), row * num_simulations + column)
        return best_due(root, self.qtransform, root.started == due[:, None])

    def phases(self, num_simulations: int, num_actions: int) -> list[tuple[int, int]]:
        """How many actions are left in each phase, and how often each of them is simulated.

        The last phase may hold some of the survivors only, if the simulations do not suffice for
        all of them.
        """
        considered = min(self.max_num_considered_actions, num_actions)
        due = np.bincount(halving(considered, num_simulations))
        return [(width, len(list(rounds))) for width, rounds in itertools.groupby(due.tolist())]


def best_due(root: RootStatistics, qtransform: AbstractQTransform, due: Mask) -> Ints:
    """The best of `gumbel + logits + transformed Q` among the legal actions that are `due`."""
    return highest(jnp.where(due, root_scores(root, qtransform), -jnp.inf))


def root_scores(root: RootStatistics, qtransform: AbstractQTransform) -> PerAction:
    """`gumbel + logits + transformed Q`; `-inf` of illegal actions alone."""
    scores = root.gumbel + root.logits + transformed(qtransform, root.node)
    # The logits do not change from one simulation to the next, so this is worked out once.
    legal = root.logits > -jnp.inf
    # A legal action stays above `-inf` however small its prior: it may be the only one due.
    return jnp.where(legal, jnp.maximum(-1e9, scores), -jnp.inf)


def halving(num_considered: int, num_simulations: int) -> list[int]:
    """The visit count that is due at each simulation (Danihelka et al., section 3 and figure 1).

    Each of about `log2 m` phases gives every surviving action the same number of visits; then
    half of them survive, never fewer than two.
    """
    if num_considered <= 1:
        return list(range(num_simulations))
    phases = math.ceil(math.log2(num_considered))
    due: list[int] = []
    visits, survivors = 0, num_considered
    while len(due) < num_simulations:
        rounds = max(1, num_simulations // (phases * survivors))
        for _ in range(rounds):
            due += [visits] * survivors
            visits += 1
        survivors = max(2, survivors // 2)
    return due[:num_simulations]


class AbstractReadout(eqx.Module):
    """Turns a root into an action to play, and weights and a value to learn from."""

    @abc.abstractmethod
    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        """Returns the action, the weights and the value of the plan.

        Only actions that are `root.playable` may get a weight. A row without any is filler: its
        weights are 0. The value is for the player to move at the root.
        """


class VisitCounts(AbstractReadout):
    """AlphaZero's readout: the weights are the visits over their sum.

    The action is drawn by `visits ** (1 / temperature)`; temperature 0 takes the most visited, the
    lowest index among equals. The value is the root's.
    """

    temperature: float | Temperature = 0.0

    def __check_init__(self):
        _check_temperature("VisitCounts", self.temperature)

    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        known, heat = root.known & root.playable, self.temperature
        visits = jnp.where(known, root.node.visits, 0.0)
        weights = visits / jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        heat = heat(root.ply) if isinstance(heat, Temperature) else heat
        return sample_action(weights, heat, key=key), weights, root.node.value


class LowerBound(AbstractReadout):
    """Plays the action of the highest lower confidence bound (LCB); the weights are the visits over
    their sum.

    The bound is `Q - width / sqrt(visits)`, and only actions with at least `share` of the most
    visits are compared; the lowest index among equals is taken. The value is the root's. `width` is
    on the scale of returns, and its default is for returns in `[-1, 1]`; with 0 the bound is the
    Q-value. Leela Zero and KataGo choose their moves so, with a multiple of the results' standard
    deviation in place of `width`.
    """

    width: float = 1.0
    share: float = 0.1

    def __check_init__(self):
        check_range("LowerBound", 0, width=self.width)
        check_range("LowerBound", 0, 1, share=self.share)

    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        _, weights, value = VisitCounts()(root, key=key)
        visits = jnp.where(weights > 0, root.node.visits, 0.0)
        most = jnp.max(visits, axis=1, keepdims=True)
        bound = root.node.qvalues - self.width / jnp.sqrt(jnp.maximum(visits, 1.0))
        enough = (visits > 0) & (visits >= self.share * most)
        # A row of filler has no weights, and gets an action as it does from the most visits.
        return highest(jnp.where(enough, bound, -jnp.inf)), weights, value


class ImprovedPolicy(AbstractReadout):
    """Gumbel MuZero's readout: the weights are `softmax(logits + transformed Q)`.

    The action is the best of `gumbel + logits + transformed Q` among those that most simulations
    took. The value is the root's.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel", section 4 and equation 11.
    """

    qtransform: AbstractQTransform = CompletedByMixedValue()

    def __check_init__(self):
        check_kinds("ImprovedPolicy", AbstractQTransform, qtransform=self.qtransform)

    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        del key
        node, started = root.node, jnp.where(root.playable, root.started, -1.0)
        most = jnp.max(started, axis=1, keepdims=True)
        action = best_due(root, self.qtransform, root.playable & (started == most))
        scores = root.logits + transformed(self.qtransform, node)
        weights = safe_softmax(jnp.where(root.playable, scores, -jnp.inf))
        return action, weights, node.value


class SoftmaxQ(AbstractReadout):
    """`softmax(Q / temperature)`; temperature 0 takes the highest Q, the lowest index among equals.

    The action is drawn from the weights, so that what is learned is what is played, and the value
    is that of this policy: `sum(weights * Q)`. The root's own value would count what was tried for
    exploration. An array is a temperature that may change without compiling anew, as over the
    updates of a run.
    """

    temperature: float | Float[Array, ""] | Temperature = 0.0

    def __check_init__(self):
        _check_temperature("SoftmaxQ", self.temperature)

    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        heat, qvalues = self.temperature, root.node.qvalues
        heat = heat(root.ply) if isinstance(heat, Temperature) else heat
        heat = jnp.broadcast_to(jnp.asarray(heat, jnp.float32), root.ply.shape)[:, None]
        lead = jnp.where(root.known & root.playable, qvalues, -jnp.inf)
        top = jnp.max(lead, axis=1, keepdims=True)
        # The highest is 0, so no temperature overflows it.
        lead = lead - jnp.where(top > -jnp.inf, top, 0.0)
        first = jnp.cumsum(lead == 0, axis=1, dtype=jnp.int32) == 1
        cold = jnp.where(first & (lead == 0), 0.0, -jnp.inf)
        weights = safe_softmax(jnp.where(heat > 0, lead / jnp.where(heat > 0, heat, 1.0), cold))
        worth = jnp.sum(jnp.where(weights > 0, weights * qvalues, 0.0), axis=1)
        # A row of filler has no policy.
        value = jnp.where(jnp.any(weights > 0, axis=1), worth, root.node.value)
        return sample_action(weights, 1.0, key=key), weights, value


def read_out(
    readout: AbstractReadout, root: RootStatistics, stats: dict[str, Array], key: Keys
) -> Plan:
    """The plan that `readout` makes of a root, if what it returns has the right shapes."""
    action, weights, value = readout(root, key=key)
    shape = root.logits.shape
    each = "one action for every row"
    check_result(readout, "__call__", action, shape[:1], each, "int")
    check_result(readout, "__call__", weights, shape, "one weight for every action of every row")
    check_result(readout, "__call__", value, shape[:1], "one value for every row")
    qvalues = jnp.where(root.known, root.node.qvalues, value[:, None])
    visits = root.node.visits
    return Plan.over_actions(
        action, weights, visits=visits, qvalues=qvalues, value=value, stats=stats
    )


def _check_temperature(owner: str, heat: float | Float[Array, ""] | Temperature) -> None:
    if isinstance(heat, Array) and heat.shape != ():
        raise ValueError(f"`{owner}(temperature=...)` has shape {heat.shape}: must be a scalar.")
    if not isinstance(heat, Temperature | Array):
        check_range(owner, 0, temperature=heat)

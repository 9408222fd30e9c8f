"""How the root of a search is treated, apart from the nodes inside the tree: by noise on its prior,
and by which action comes next."""

import abc
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int

from ._check import check_count, check_kinds, check_positive, check_range, check_result
from ._forest import take
from ._qtransform import AbstractQTransform, CompletedByMixedValue, transformed
from ._sample import safe_softmax
from ._select import highest
from ._statistics import RootStatistics
from ._types import Ints, Keys, PerAction


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
        self,
        simulation: int | Int[Array, ""],
        num_simulations: int,
        root: RootStatistics,
        started: PerAction,
        inside: Ints,
    ) -> Ints:
        """Returns the action that a simulation takes at the root; it must be legal.

        **Arguments:**

        - `simulation`, `num_simulations`: its number, from 0, and how many there are.
        - `root`: what is known when it starts.
        - `started`: how many simulations of this search have taken each action, those included
            whose leaf is not evaluated yet.
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
        self,
        simulation: int | Int[Array, ""],
        num_simulations: int,
        root: RootStatistics,
        started: PerAction,
        inside: Ints,
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
        self,
        simulation: int | Int[Array, ""],
        num_simulations: int,
        root: RootStatistics,
        started: PerAction,
        inside: Ints,
    ) -> Ints:
        most = self.max_num_considered_actions
        table = np.asarray([halving(m, num_simulations) for m in range(most + 1)], np.float32)
        # What follows the last simulation is asked for, too, and not taken.
        column = jnp.minimum(simulation, num_simulations - 1)
        row = jnp.minimum(root.num_legal, most)
        due = take(jnp.asarray(table.reshape(-1)), row * num_simulations + column)
        return best_due(root, self.qtransform, started == due[:, None])

    def phases(self, num_simulations: int, num_actions: int) -> list[tuple[int, int]]:
        """How many actions are left in each phase, and how often each of them is simulated.

        The last phase may hold some of the survivors only, if the simulations do not suffice for
        all of them.
        """
        considered = min(self.max_num_considered_actions, num_actions)
        due = np.bincount(halving(considered, num_simulations))
        return [(width, len(list(rounds))) for width, rounds in itertools.groupby(due.tolist())]


def best_due(
    root: RootStatistics, qtransform: AbstractQTransform, due: Bool[Array, "batch actions"]
) -> Ints:
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

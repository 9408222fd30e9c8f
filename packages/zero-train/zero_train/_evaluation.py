"""Evaluation of one actor over a fixed number of episodes."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Real

from zero_envs import AbstractEnvironment, AbstractWorlds, Fallible, Hosted, Observation, Transition

from ._agent import AbstractActor
from ._checks import check_count, check_kind, check_positive, check_range, reals, within
from ._dispatch import dispatched, plain
from ._faults import check_faults, faults
from ._mesh import global_rows, on_every_device, replicated, row_keys, select_rows


class Tally(eqx.Module):
    """Running totals of a batch of episodes.

    **Attributes:**

    - `sign`: +1 where the side from whose view `returns` is kept moves next, -1 elsewhere.
    - `returns`, `lengths`: the signed sum of rewards, and moves made.
    - `over`: frozen from here on.
    - `terminated`: over with a discount of 0, and not by truncation or the step limit.
    - `kept`, `passed`: a player moved twice in a row; the move passed to the other side.
    - `fault`: the first thing that was wrong, see `_faults.py`.
    """

    sign: Float[Array, " rows"]
    returns: Float[Array, " rows"]
    lengths: Int[Array, " rows"]
    over: Bool[Array, " rows"]
    terminated: Bool[Array, " rows"]
    kept: Bool[Array, " rows"]
    passed: Bool[Array, " rows"]
    fault: Int[Array, " rows"]

    def add(
        self,
        moved: Bool[Array, " rows"],
        transition: Transition,
        fault: Int[Array, " rows"],
        max_steps: int,
    ) -> "Tally":
        """Counts one transition in the rows that moved."""
        reward, discount, last = transition.reward, transition.discount, transition.last
        lengths = self.lengths + moved.astype(jnp.int32)
        return Tally(
            sign=jnp.where(moved & (discount < 0), -self.sign, self.sign),
            # `where` and not a product: a frozen row's filler may be anything.
            returns=self.returns + jnp.where(moved, self.sign * reward, 0.0),
            lengths=lengths,
            over=self.over | (moved & (last | (lengths >= max_steps))),
            terminated=self.terminated | (moved & last & (discount == 0)),
            kept=self.kept | (moved & (discount > 0)),
            passed=self.passed | (moved & (discount < 0)),
            fault=jnp.where(moved & (self.fault == 0), fault, self.fault),
        )


def start_tally(sign: Float[Array, " rows"]) -> Tally:
    """The totals before the first move."""
    none = jnp.zeros(sign.shape, bool)
    zeros = jnp.zeros(sign.shape, jnp.int32)
    return Tally(sign, jnp.zeros_like(sign), zeros, none, none, none, none, zeros)


def check_parts(
    call: str, env: AbstractEnvironment, mesh: Mesh | None = None, /, **actors: AbstractActor
) -> None:
    """Raises for what is no environment, actor or mesh."""
    check_kind(call, AbstractEnvironment, "an environment of zero_envs", env=env)
    called = "an actor, such as a `zero_train.PlanningActor` of a planner"
    check_kind(call, AbstractActor, called, **actors)
    check_kind(call, Mesh | None, "a mesh, such as `zero_train.data_mesh()`", mesh=mesh)


def check_untraced(env: AbstractEnvironment, given: PyTree) -> None:
    """Raises where JAX traces, so that a simulator on the host cannot be stepped."""
    # What is not given may be traced too, but all that is made here would be.
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((given, jnp.zeros(())))):
        raise ValueError(
            f"{cast(Hosted, env).name}: its simulators run on the host, so `init`, `step` and "
            "`evaluate` can be neither compiled nor mapped; call them outside of jax.jit and "
            "jax.vmap."
        )


class Decision(eqx.Module):
    """What an actor does in a batch of environments, and what it saw: see
    [`zero_train.Experience`][] and [`zero_train.AbstractActor`][]."""

    obs: Observation
    action: PyTree[Array]
    record: PyTree[Array]
    carry: PyTree[Array]


def decide(
    env: AbstractEnvironment,
    actor: AbstractActor,
    state: PyTree[Array],
    carry: PyTree[Array],
    keys: Key[Array, " rows"],
) -> Decision:
    """What comes before the step of the environments."""
    obs = jax.vmap(env.observe)(state)
    acts = actor.act(state, obs, carry, key=keys)
    return Decision(obs, *acted(actor, acts, carry, keys.shape[0]))


def acted(actor: AbstractActor, result: Any, carry: PyTree[Array], rows: int) -> Any:
    """Returns what an actor's `act` returned for so many rows, or raises a `ValueError`."""
    name = f"`{type(actor).__name__}.act`"
    if not isinstance(result, tuple | list) or len(result) != 3:
        raise ValueError(
            f"{name} returned {type(result).__name__}; give three: `action, record, carry`."
        )
    action = jax.tree.leaves(result[0])
    if not action or any(jnp.shape(x)[:1] != (rows,) for x in action):
        found = ", ".join(str(list(jnp.shape(x))) for x in action) or "nothing"
        raise ValueError(f"{name} returned actions of shape {found}; give one for {rows} rows.")
    check_same(actor, "act", carry, result[2])
    return result


def check_same(actor: AbstractActor, method: str, carry: PyTree, new: PyTree) -> None:
    """Raises a `ValueError` where a method of an actor turned its carry into another kind."""
    kind = lambda x: jax.tree.map(lambda y: (jnp.shape(y), jnp.result_type(y)), x)
    if jax.tree.structure(carry) != jax.tree.structure(new) or kind(carry) != kind(new):
        raise ValueError(
            f"`{type(actor).__name__}.{method}` turned a carry of {kind(carry)} into one of "
            f"{kind(new)}; keep its structure, shapes and dtypes."
        )


def check_rows(actor: AbstractActor, carry: PyTree[Array], rows: int) -> PyTree[Array]:
    """Returns the carry if every leaf can be frozen row by row, else raises a `ValueError`."""
    for leaf in jax.tree.leaves(carry):
        if leaf.shape[:1] != (rows,):
            raise ValueError(
                f"the carry of {type(actor).__name__} has a leaf of shape {leaf.shape} for {rows} "
                "rows; every leaf needs a leading [batch] axis, so that rows can wait"
            )
    return carry


@dataclasses.dataclass(frozen=True)
class EvaluationSummary:
    """An [`zero_train.Evaluation`][] as plain numbers.

    **Attributes:**

    - `episodes`: how many were played and count.
    - `mean`: mean return, unfinished episodes included with what they had collected.
    - `standard_error`: of that mean (`nan` for one episode).
    - `mean_length`: mean number of steps.
    - `truncated`: episodes cut off by the environment or by `max_steps`.
    - `failed`: episodes that do not count, because the simulation broke down.
    - `solved`: share of the episodes whose return reached `solved_at`; `None` without one.
    - `solved_low`, `solved_high`: Wilson's 95 % confidence interval of it, see
        [`zero_train.score_interval`][].
    """

    episodes: int
    mean: float
    standard_error: float
    mean_length: float
    truncated: int
    failed: int = 0
    solved: float | None = None
    solved_low: float | None = None
    solved_high: float | None = None


class Evaluation(eqx.Module):
    """The episodes of [`zero_train.evaluate`][], every one counted once, or not at all where it
    failed.

    **Attributes:**

    - `returns`: undiscounted, from the view of whoever moved first (with one player: the return).
    - `lengths`: steps taken.
    - `terminated`: the episode came to its own end; otherwise it was truncated.
    - `failed`: the simulation broke down, as only that of a [`zero_envs.Fallible`][] environment
        does.
    - `fault`: 0, or what was wrong with a move: 1 for an action that was NaN or out of range, 2
        for a reward that was not finite or a discount not between -1 and 1. The return of such an
        episode is NaN, and `summary` and `metrics` raise.
    """

    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    terminated: Bool[Array, " episodes"]
    failed: Bool[Array, " episodes"]
    fault: Int[Array, " episodes"]

    def summary(self, *, solved_at: float | None = None) -> EvaluationSummary:
        """Waits for the device and gives plain numbers, of the episodes that did not fail.

        `solved_at` is the return from which on an episode counts as solved. Every episode is asked
        by itself, an unfinished one with what it had collected.
        """
        metrics = self.metrics(solved_at=solved_at)
        returns = metrics["return"].astype(np.float64)
        failed = np.asarray(self.failed)
        if not returns.size:
            raise ValueError(
                f"the simulation broke down in all of {failed.size} episodes, so there is nothing "
                "to tell of; look at the actions, or at the environment's time step."
            )
        spread = returns.std(ddof=1) if returns.size > 1 else math.nan
        summary = EvaluationSummary(
            episodes=returns.size,
            mean=float(returns.mean()),
            standard_error=float(spread / math.sqrt(returns.size)),
            mean_length=float(metrics["length"].mean()),
            truncated=int((~np.asarray(self.terminated) & ~failed).sum()),
            failed=int(failed.sum()),
        )
        if solved_at is None:
            return summary
        solved = metrics["solved"]
        low, high = score_interval(solved[:, None])
        return dataclasses.replace(
            summary, solved=float(solved.mean()), solved_low=low, solved_high=high
        )

    def metrics(
        self, *, solved_at: float | None = None
    ) -> dict[str, Real[np.ndarray, " episodes"]]:
        """Every episode's `"return"`, `"length"` and, given `solved_at`, `"solved"` (1 or 0), those
        that failed left out, on the host, as [`zero_app.Results`][] takes them."""
        check_faults("Evaluation", self.fault, "episodes")
        counts = ~np.asarray(self.failed)
        returns, lengths = np.asarray(self.returns)[counts], np.asarray(self.lengths)[counts]
        metrics: dict[str, np.ndarray] = {"return": returns, "length": lengths}
        if solved_at is not None:
            if not within(solved_at, lambda x: ~np.isnan(x)) or np.ndim(solved_at):
                raise ValueError(
                    f"solved_at={solved_at!r} was given; give the return that solves the task"
                )
            metrics["solved"] = (returns >= float(solved_at)).astype(np.float64)
        return metrics


def evaluate(
    env: AbstractEnvironment,
    actor: AbstractActor,
    *,
    num_episodes: int,
    max_steps: int,
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> Evaluation:
    """Plays a fixed number of independent episodes, each to its end.

    All run side by side in one loop that stops when the last one does. A finished episode is
    frozen and not restarted, so long episodes count as much as short ones. In a game the actor
    plays all sides.

    Whether actions are greedy or sampled is the actor's to say, by its `temperature` for instance;
    `agent.actor(state, explore=False)` is an agent at full strength.

    **Arguments:**

    - `max_steps`: an episode that has not ended by then is cut off and counted as truncated.
    - `key`: episode `i` depends on it and on `i` only, with every actor that draws row by row.
    - `mesh`: splits the episodes over its devices, each of which is done when its own are. The
        same episodes, to rounding in the actor's networks. Where they do not divide, some devices
        play one more, which does not count. Of several processes all must call this, and each gets
        all episodes.

    A [`zero_envs.Hosted`][] environment is stepped on the host, in simulators that are closed at
    the end. The mesh is ignored then, and an episode depends on `num_episodes` too.
    """
    check_parts("evaluate", env, mesh, actor=actor)
    env, actor, num_episodes, max_steps = plain((env, actor, num_episodes, max_steps))
    if isinstance(env, Hosted):
        result = _play_on_host(env, actor, num_episodes, max_steps, key)
    else:
        env, actor, key = replicated(mesh, (env, actor, key))
        result = _evaluate(env, actor, num_episodes, max_steps, key, mesh)
    check_faults("evaluate", result.fault, "episodes")
    return result


@eqx.filter_jit
def _evaluate(
    env: AbstractEnvironment,
    actor: AbstractActor,
    num_episodes: int,
    max_steps: int,
    key: PRNGKeyArray,
    mesh: Mesh | None,
) -> Evaluation:
    check_count("evaluate", num_episodes=num_episodes, max_steps=max_steps)

    def play(
        env: AbstractEnvironment, actor: AbstractActor, rows: Int[Array, " rows"], key: PRNGKeyArray
    ) -> Evaluation:
        ikey, akey, ekey = jr.split(key, 3)
        parts = env, actor, max_steps

        def body(loop: tuple) -> tuple:
            time, state, carry, count = loop
            ekeys = row_keys(jr.fold_in(ekey, time), rows)
            action, seen = _decided(parts, (state, carry, akey, time, rows))
            after, moved = jax.vmap(env.step)(state, action, key=ekeys)
            state = select_rows(~count.over, after, state)
            return time + 1, state, *_counted(parts, (carry, count, action, seen, moved))

        state = jax.vmap(env.init)(key=row_keys(ikey, rows))
        loop = jnp.zeros((), jnp.int32), state, *_begun(actor, state)
        _, state, _, count = jax.lax.while_loop(lambda loop: jnp.any(~loop[-1].over), body, loop)
        fallible = isinstance(env, Fallible)
        failed = jax.vmap(env.failed)(state) if fallible else jnp.zeros(rows.shape, jnp.bool_)
        return _evaluation(count, failed)

    return split(mesh, play, num_episodes, env, actor, key=key)


def split(
    mesh: Mesh | None, play: Callable[..., Any], num: int, *parts: Any, key: PRNGKeyArray
) -> PyTree:
    """`play(*parts, rows, key)` of `num` rows, on all devices of the mesh if there is one; every
    process of several gets all of it."""
    if mesh is None:
        return play(*parts, jnp.arange(num, dtype=jnp.int32), key)
    arrays, static = eqx.partition(parts, eqx.is_array)
    share = -(-num // mesh.size)

    def local(arrays: PyTree[Array], key: PRNGKeyArray) -> PyTree[Array]:
        # The last rows may be none of the `num`; they are played and left out.
        return play(*eqx.combine(arrays, static), global_rows(mesh, share), key)

    result = on_every_device(mesh, local, (P(), P()))(arrays, key)
    result = jax.lax.with_sharding_constraint(result, NamedSharding(mesh, P()))
    return jax.tree.map(lambda x: x[:num], result)


def _play_on_host(
    env: AbstractEnvironment,
    actor: AbstractActor,
    num_episodes: int,
    max_steps: int,
    key: PRNGKeyArray,
) -> Evaluation:
    """Plays in simulators of its own, on the host between two compiled programs."""
    check_count("evaluate", num_episodes=num_episodes, max_steps=max_steps)
    check_untraced(env, (actor, key))
    ikey, akey = jr.split(key)
    worlds = opened(env, num_episodes, ikey)
    parts, over, time = (env, actor, max_steps), np.zeros(num_episodes, np.bool_), 0
    decide, tally = _decided_on_host.bound(parts), _counted_on_host.bound(parts)
    rows = np.arange(num_episodes, dtype=np.int32)
    try:
        state = jax.tree.map(np.array, worlds.reset())
        carry, count = _begun_on_host(actor, state)
        while not over.all():
            action, seen = decide((state, carry, akey, np.int32(time), rows))
            move = jax.tree.map(np.array, worlds.step(np.asarray(action)))
            carry, count = tally((carry, count, action, seen, move.transition()))
            state, time = move.state, time + 1
            over |= move.last | (time >= max_steps)
    finally:
        worlds.close()
    return _evaluation(count, jnp.zeros(num_episodes, jnp.bool_))


def opened(env: AbstractEnvironment, num_worlds: int, key: PRNGKeyArray) -> AbstractWorlds:
    """New simulators of a [`zero_envs.Hosted`][] environment."""
    if isinstance(env, Fallible):
        raise ValueError(
            f"{type(env).__name__} is stepped on the host, where `failed` is never asked: leave it "
            "out, and end such episodes in the `step` of its simulators."
        )
    return cast(Hosted, env).open(num_worlds, key=key)


def _begun(actor: AbstractActor, state: PyTree[Array]) -> tuple[PyTree[Array], Tally]:
    """The carry and the totals before the first move."""
    rows = jax.tree.leaves(state)[0].shape[0]
    return check_rows(actor, actor.init(state), rows), start_tally(jnp.ones(rows, jnp.float32))


def _decided(parts: tuple, given: tuple) -> tuple[PyTree[Array], PyTree[Array]]:
    """The actions of a time, and the carry after them."""
    (env, actor, _), (state, carry, key, time, rows) = parts, given
    decision = decide(env, actor, state, carry, row_keys(jr.fold_in(key, time), rows))
    return decision.action, decision.carry


def _counted(parts: tuple, given: tuple) -> tuple[PyTree[Array], Tally]:
    """The carry and the totals after a move, of which those of finished episodes stay."""
    (env, actor, max_steps), (carry, count, action, seen, transition) = parts, given
    heard, moved = actor.advance(seen, action, transition), ~count.over
    check_same(actor, "advance", carry, heard)
    count = count.add(moved, transition, faults(env, action, transition), max_steps)
    return select_rows(moved, heard, carry), count


_begun_on_host, _decided_on_host, _counted_on_host = map(dispatched, (_begun, _decided, _counted))


def _evaluation(count: Tally, failed: Bool[Array, " episodes"]) -> Evaluation:
    returns = jnp.where(count.fault > 0, jnp.nan, count.returns)
    return Evaluation(returns, count.lengths, count.terminated, failed, count.fault)


def score_interval(
    points: Float[np.ndarray, "clusters games"], *, z: float = 1.959964
) -> tuple[float, float]:
    """Confidence interval of a mean score, for games that come in clusters.

    Wilson's score interval (Wilson, 1927), which stays within `[0, 1]` and is not empty at 0 or
    100 %, with the number of games divided by the design effect of the clusters (Kish, 1965; this
    combination: Korn & Graubard, 1998): how much the scatter of the clusters' means exceeds that
    of independent wins and losses. Two games from one opening are not independent if the opening
    or the actors settle both. The design effect is taken as 1 where it is less (draws,
    openings that favour one seat), so the interval is never narrower than Wilson's own.

    **Arguments:**

    - `points`: 1 for a win, 1/2 for a draw, 0 for a loss; one row a cluster (a pair of games).
    - `z`: normal quantile; the default gives 95 %.
    """
    points = reals("points", points)
    if points.ndim != 2 or not points.size:
        raise ValueError(
            f"score_interval was given points of shape {list(points.shape)}; give at least one "
            "game, one row a cluster"
        )
    if not np.all((points >= 0) & (points <= 1)):
        raise ValueError(
            f"score_interval was given points from {points.min():g} to {points.max():g}; each must "
            "be from 0 for a loss to 1 for a win"
        )
    number = reals("z", z)[()]
    check_positive("score_interval", z=number)
    check_range("score_interval", 0, 100, z=number)
    z = float(number)
    clusters, games = points.shape[0], points.size
    mean = float(points.mean())
    binomial = mean * (1 - mean) / games
    effect = 1.0
    # Clusters of one game tell nothing of each other: exactly Wilson's interval.
    if 1 < clusters < games and binomial > 0:
        effect = max(1.0, float(points.mean(axis=1).var(ddof=1)) / clusters / binomial)
    count = games / effect
    shrink = 1 + z**2 / count
    middle = (mean + z**2 / (2 * count)) / shrink
    half = z / shrink * math.sqrt(mean * (1 - mean) / count + z**2 / (4 * count**2))
    # Where all points are equal, rounding may put the mean outside.
    return max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))

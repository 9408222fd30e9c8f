"""Two actors against each other: both seats, the same openings, nobody idle."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Real, UInt32

from zero_envs import AbstractEnvironment

from ._agent import AbstractActor
from ._checks import check_count
from ._collect import opened
from ._dispatch import plain
from ._evaluation import (
    acted,
    check_parts,
    check_rows,
    check_same,
    score_interval,
    split,
    start_tally,
    Tally,
)
from ._faults import ALONE, check_faults, faults
from ._mesh import replicated, row_keys, select_rows


#: Uniformly random moves at the start of a match, so that players without randomness play many
#: games and not the same two again and again.
OPENING_PLIES = 2
#: How often an opening that ends the game is drawn anew before it is cut short instead.
_OPENING_ATTEMPTS = 16


@dataclasses.dataclass(frozen=True)
class MatchSummary:
    """A [`zero_train.MatchResult`][] as plain numbers, from the first actor's view.

    **Attributes:**

    - `games`, `wins`, `draws`, `losses`: of the games that count, as [`zero_train.MatchResult`][]
        says; an unfinished game is a draw.
    - `unfinished`: games cut off by `max_steps` or truncated by the environment.
    - `score`: `(wins + draws / 2) / games`.
    - `score_low`, `score_high`: 95 % confidence interval of the score, see
        [`zero_train.score_interval`][].
    - `mean_length`: mean number of moves after the opening.
    - `played`: all games, those that do not count too.
    - `distinct`: how many of them differ.
    """

    games: int
    wins: int
    draws: int
    losses: int
    unfinished: int
    score: float
    score_low: float
    score_high: float
    mean_length: float
    played: int
    distinct: int


class MatchResult(eqx.Module):
    """Every game of a [`zero_train.match`][], from the first actor's view.

    Games `i` and `i + games / 2` start from the same position; the first actor moves first in the
    former, the second actor in the latter.

    Two games are the same if their players had the same seats and, from the opening on, the same
    observations, moves and rewards. Where neither the actors nor the environment draw anything, a
    game follows from its opening and says nothing new when it is played again, so the same games
    count once. Where games from one opening differ, play is random; then each game is a draw of its
    own and all count, because the score is their expectation.

    **Attributes:**

    - `outcomes`: the sign of the return: 1, 0 or -1; 0 for an unfinished game.
    - `returns`: undiscounted rewards from the opening on.
    - `lengths`: moves made after the opening.
    - `terminated`: the game came to its own end.
    - `fault`: 0, or what was wrong: the numbers of an [`zero_train.Evaluation`][], and 3 for a game
        without an opponent. Outcome and return are NaN then, and `summary` raises.
    - `repeats`: an earlier game was the same.
    - `counts`: the game is part of the score: every one that does not repeat another, and where
        play is random the others too.
    """

    outcomes: Float[Array, " games"]
    returns: Float[Array, " games"]
    lengths: Int[Array, " games"]
    terminated: Bool[Array, " games"]
    fault: Int[Array, " games"]
    repeats: Bool[Array, " games"]
    counts: Bool[Array, " games"]

    def summary(self) -> MatchSummary:
        """Waits for the device and gives plain numbers. Raises where a game has a `fault`."""
        metrics, counts = self.metrics(), np.asarray(self.counts)
        points = metrics["score"]
        # Of the games of an opening both count or neither, so the halves are still pairs.
        low, high = score_interval(points.reshape(2, -1).T)
        return MatchSummary(
            games=points.size,
            wins=int((points == 1).sum()),
            draws=int((points == 0.5).sum()),
            losses=int((points == 0).sum()),
            unfinished=int((~np.asarray(self.terminated)[counts]).sum()),
            score=float(points.mean()),
            score_low=low,
            score_high=high,
            mean_length=float(metrics["length"].mean()),
            played=counts.size,
            distinct=int((~np.asarray(self.repeats)).sum()),
        )

    def metrics(self) -> dict[str, Real[np.ndarray, " counted"]]:
        """Every game's `"score"` (1, 1/2 or 0), `"length"`, `"opening"` (its number, which two
        games share) and `"seat"` (0 where the first actor moved first, else 1), those that do not
        count left out, on the host, as [`zero_app.Results`][] takes them. Raises where a game has
        a `fault`."""
        check_faults("MatchResult", self.fault, "games")
        counts = np.asarray(self.counts)
        seat, opening = np.divmod(np.arange(counts.size), counts.size // 2)
        score = (np.asarray(self.outcomes, np.float64) + 1) / 2
        every = {
            "score": score,
            "length": np.asarray(self.lengths),
            "opening": opening,
            "seat": seat,
        }
        return {name: values[counts] for name, values in every.items()}


class _Games(eqx.Module):
    """All games of a match. The tally's sign is +1 where the first actor is to move; `digest` is
    of all that has happened in a game."""

    state: PyTree[Array]
    carries: tuple[PyTree[Array], PyTree[Array]]
    count: Tally
    digest: UInt32[Array, "games 2"]


def match(
    env: AbstractEnvironment,
    first: AbstractActor,
    second: AbstractActor,
    *,
    num_games: int,
    max_steps: int,
    key: PRNGKeyArray,
    opening_plies: int = OPENING_PLIES,
    mesh: Mesh | None = None,
) -> MatchResult:
    """Plays two actors against each other in a two-player game.

    Every opening is played twice, with the seats exchanged. The two halves run in lockstep: while
    the first actor moves in one half, the second moves in the other, so no move is computed for
    nothing as long as the players alternate. Whose move it is follows the sign of the discount;
    where somebody moves twice, the row waits one turn, unchanged. Both actors hear of every move
    after the opening.

    **Arguments:**

    - `env`: a two-player zero-sum environment.
    - `first`, `second`: the actors. Pass networks as pytrees of arrays, and a second match of
        other parameters does not compile again.
    - `num_games`: an even number.
    - `max_steps`: moves after which a game is cut off and counted as a draw.
    - `key`: a game's opening and its environment's randomness depend on the key and
        its pair, its actors' randomness on the key and the game's index.
    - `opening_plies`: each pair starts after so many uniformly random legal moves, 0 for none. An
        opening that ends the game is drawn anew; where that keeps happening it is cut short. Two
        players without randomness play no more different games than there are openings from
        both seats: give more where `summary.distinct` is too small.
    - `mesh`: splits the pairs over its devices, as that of [`zero_train.evaluate`][] does.

    **Returns:** a [`zero_train.MatchResult`][], in which equal games count once;
    `result.summary()` has the score. It is refused that somebody moved again but in no game the
    move ever passed to the other side. Under `jax.jit` the outcomes of such games are NaN instead,
    as those of games with a wrong move.
    """
    check_parts("match", env, mesh, first=first, second=second)
    env, first, second, num_games, max_steps, opening_plies = plain(
        (env, first, second, num_games, max_steps, opening_plies)
    )
    env, first, second, key = replicated(mesh, (env, first, second, key))
    result = play_games(env, first, second, num_games, max_steps, key, opening_plies, mesh)
    check_faults("match", result.fault, "games")
    return result


@eqx.filter_jit
def play_games(
    env: AbstractEnvironment,
    first: AbstractActor,
    second: AbstractActor,
    num_games: int,
    max_steps: int,
    key: PRNGKeyArray,
    opening_plies: int,
    mesh: Mesh | None,
) -> MatchResult:
    """[`zero_train.match`][] without the checks of what it was given and of what was played."""
    check_count("match", num_games=num_games, max_steps=max_steps)
    if num_games % 2:
        raise ValueError(
            f"match(num_games={num_games}): every opening is played from both seats, so the "
            f"number of games must be even; try {num_games + 1}"
        )
    check_count("match", 0, opening_plies=opening_plies)
    pairs = num_games // 2

    def play(
        env: AbstractEnvironment,
        first: AbstractActor,
        second: AbstractActor,
        rows: Int[Array, " pairs"],
        key: PRNGKeyArray,
    ) -> tuple[tuple, tuple]:
        """The totals, and the digests of the openings and of all, of the games in which the first
        actor moves first, and of those in which the second does."""
        okey, akey, ekey = jr.split(key, 3)
        half = rows.shape[0]
        opening = _openings(env, rows, opening_plies, key=okey)
        state = jax.tree.map(lambda x: jnp.concatenate([x, x]), opening)
        carries = tuple(check_rows(actor, actor.init(state), 2 * half) for actor in (first, second))
        sign = jnp.where(jnp.arange(2 * half) < half, jnp.float32(1), jnp.float32(-1))
        obs = jax.vmap(env.observe)(state)
        begun = _digest(jnp.zeros((2 * half, 2), jnp.uint32), (sign, obs))
        games = _Games(state, carries, start_tally(sign), begun)
        both = jnp.concatenate([rows, rows]), jnp.concatenate([rows, rows + pairs])

        def body(loop: tuple[Array, _Games]) -> tuple[Array, _Games]:
            turn, games = loop
            return turn + 1, _turn(env, first, second, games, turn, max_steps, both, (akey, ekey))

        loop = (jnp.zeros((), jnp.int32), games)
        _, games = jax.lax.while_loop(lambda loop: jnp.any(~loop[1].count.over), body, loop)
        played = games.count, begun, games.digest
        return jax.tree.map(lambda x: x[:half], played), jax.tree.map(lambda x: x[half:], played)

    halves = split(mesh, play, pairs, env, first, second, key=key)
    count, opening, digest = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), *halves)
    repeats, known = _repeats(digest), _repeats(opening)
    alone = jnp.any(count.kept) & ~jnp.any(count.passed)
    fault = jnp.where(alone & (count.fault == 0), ALONE, count.fault)
    returns = jnp.where(fault > 0, jnp.nan, count.returns)
    outcomes = jnp.where(count.terminated | (fault > 0), jnp.sign(returns), 0.0)
    counts = ~known | jnp.any(known & ~repeats)
    return MatchResult(outcomes, returns, count.lengths, count.terminated, fault, repeats, counts)


def _turn(
    env: AbstractEnvironment,
    first: AbstractActor,
    second: AbstractActor,
    games: _Games,
    turn: Int[Array, ""],
    max_steps: int,
    numbers: tuple[Int[Array, " games"], Int[Array, " games"]],
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
) -> _Games:
    """One actor moves in one half of the games while the other moves in the other half."""
    count = games.count
    half = count.over.shape[0] // 2
    rows = jnp.arange(2 * half, dtype=jnp.int32)
    (pair, game), (akey, ekey) = numbers, keys
    # By the pair and its own ply: both games of a pair meet the same dice.
    ekeys = jax.vmap(jr.fold_in)(row_keys(ekey, pair), count.lengths)

    even = turn % 2 == 0
    obs = jax.vmap(env.observe)(games.state)

    def act(actor: AbstractActor, carry: PyTree, lower: Bool[Array, ""]) -> tuple[PyTree, PyTree]:
        begin = jnp.where(lower, 0, half)

        take = lambda x: jax.lax.dynamic_slice_in_dim(x, begin, half)
        put = lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, begin, 0)
        args = jax.tree.map(take, (games.state, obs, carry))
        akeys = row_keys(jr.fold_in(akey, turn), take(game))
        action, _, part = acted(actor, actor.act(*args, key=akeys), args[2], half)
        return action, jax.tree.map(put, carry, part)

    action1, carry1 = act(first, games.carries[0], even)
    action2, carry2 = act(second, games.carries[1], ~even)
    action = jax.tree.map(
        lambda x, y: jnp.where(even, jnp.concatenate([x, y]), jnp.concatenate([y, x])),
        action1,
        action2,
    )
    state, transition = jax.vmap(env.step)(games.state, action, key=ekeys)
    carries = first.advance(carry1, action, transition), second.advance(carry2, action, transition)
    first_acts = (rows < half) == even
    moved = ~count.over & (first_acts == (count.sign > 0))
    told = obs, action, transition.reward, transition.discount
    for actor, before, after in zip((first, second), games.carries, carries, strict=True):
        check_same(actor, "advance", before, after)
    new, old = (state, carries, _digest(games.digest, told)), (games.state, games.carries)
    state, carries, digest = select_rows(moved, new, (*old, games.digest))
    count = count.add(moved, transition, faults(env, action, transition), max_steps)
    return _Games(state, carries, count, digest)


def _digest(before: UInt32[Array, "games 2"], told: PyTree[Array]) -> UInt32[Array, "games 2"]:
    """64 bits of each row of arrays and of what came before, which differ where those do."""
    digest = before
    for leaf in jax.tree.leaves(told):
        words = _words(leaf)
        place = jnp.arange(words.shape[1], dtype=jnp.uint32)[None]
        mixed = _mix(words ^ _mix(place + 1))
        # Sums of two different functions of every word and its place.
        both = jnp.stack([mixed, _mix(mixed + place)], axis=2)
        sums = jnp.sum(both, axis=1, dtype=jnp.uint32)
        digest = _mix(digest * jnp.uint32(0x9E3779B1) + sums)
    return digest


def _words(leaf: Array) -> UInt32[Array, "games words"]:
    """The bits of every row."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jr.key_data(leaf)
    if leaf.dtype == jnp.bool_:
        leaf = leaf.astype(jnp.uint8)
    width = min(32, 8 * leaf.dtype.itemsize)
    bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{width}"))
    return bits.astype(jnp.uint32).reshape(leaf.shape[0], -1)


def _mix(x: UInt32[Array, "*axes"]) -> UInt32[Array, "*axes"]:
    """A permutation of the numbers of 32 bits that spreads every bit over all of them (the last
    steps of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _repeats(digests: UInt32[Array, "games 2"]) -> Bool[Array, " games"]:
    """Whether an earlier game has the same digest."""
    number = jnp.arange(digests.shape[0], dtype=jnp.int32)
    *words, order = jax.lax.sort((digests[:, 0], digests[:, 1], number), num_keys=3)
    equal = (words[0][1:] == words[0][:-1]) & (words[1][1:] == words[1][:-1])
    return jnp.zeros(number.shape, bool).at[order[1:]].set(equal)


def _openings(
    env: AbstractEnvironment, rows: Int[Array, " pairs"], plies: int, *, key: PRNGKeyArray
) -> PyTree[Array]:
    """One position a pair, none of them final."""
    pairs = rows.shape[0]
    state = jax.vmap(env.init)(key=row_keys(key, rows))
    if plies == 0:
        return state
    lengths = jnp.full(pairs, plies, jnp.int32)

    def attempt(loop: tuple) -> tuple:
        tries, state, ended = loop
        keys = row_keys(jr.fold_in(key, tries), rows)
        fresh, failed = opened(env, keys, lengths, plies)
        return tries + 1, select_rows(ended, fresh, state), ended & failed

    def retry(loop: tuple) -> Bool[Array, ""]:
        tries, _, ended = loop
        return jnp.any(ended) & (tries < _OPENING_ATTEMPTS)

    loop = (jnp.zeros((), jnp.int32), state, jnp.ones(pairs, bool))
    return jax.lax.while_loop(retry, attempt, loop)[1]

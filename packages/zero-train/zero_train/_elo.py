"""Elo ratings with error bars from a table of results."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Real

from ._checks import check_count, check_kind, check_range, reals, within


_SCALE = 400 / math.log(10)
_MAX_NEWTON_STEPS = 200


@dataclasses.dataclass(frozen=True)
class EloRatings:
    """Ratings in Elo points relative to the anchor, which has 0.

    **Attributes:**

    - `ratings`: the maximum of the regularised likelihood.
    - `covariance`: inverse Fisher information with the anchor and other known ratings held fixed
        (their rows and columns are 0). The variance of a difference is
        `c[i, i] + c[j, j] - 2 c[i, j]`.
    """

    ratings: Float[np.ndarray, " actors"]
    covariance: Float[np.ndarray, "actors actors"]

    @property
    def standard_errors(self) -> Float[np.ndarray, " actors"]:
        """The standard error of each rating relative to the anchor."""
        return np.sqrt(np.diag(self.covariance))


def fit_elo(
    scores: Real[np.ndarray, "actors actors"],
    games: Real[np.ndarray, "actors actors"],
    *,
    anchor: int = 0,
    prior: float = 0.5,
    known: Mapping[int, float] | None = None,
) -> EloRatings:
    """Fits Bradley-Terry ratings to a table of results by maximum likelihood.

    Player `i` is expected to score `1 / (1 + 10^((R_j - R_i) / 400))` against `j` (Bradley &
    Terry, 1952; a draw counts as half a win). The log-likelihood is concave; Newton's method with
    step halving finds its maximum in double precision, the same for the same table.

    Every pair that has met is given `prior` virtual draws more, which keeps ratings finite when
    one side has won every game (Davidson & Solomon, 1973), and does not depend on who is the
    anchor or in which order actors are listed. The result is pulled a little towards equality:
    75 % of 100 games makes 189.7 points instead of 190.8.

    Standard errors take games as independent wins and losses; draws and paired openings that
    favour one seat make the true ones smaller.

    **Arguments:**

    - `scores`: `scores[i, j]` is what `i` scored against `j`, so `scores + scores.T == games`.
    - `games`: how many games `i` and `j` have played; symmetric, zero on the diagonal.
    - `anchor`: the actor whose rating is 0.
    - `prior`: virtual draws a pair; 0 for plain maximum likelihood. No finite rating exists of
        actors that are not connected by games or, without a prior, by both wins and losses.
    - `known`: the ratings of other actors than the anchor, which are held as they are. What the
        others are rated then is relative to all of these, whose errors are not part of theirs.
    """
    scores, games = reals("scores", scores), reals("games", games)
    _check(scores, games, anchor, prior)
    known = {anchor: 0.0, **({} if known is None else known)}
    numbers = all(isinstance(i, int | np.integer) and 0 <= i < len(games) for i in known)
    if not (numbers and all(within(x, np.isfinite) for x in known.values()) and known[anchor] == 0):
        raise ValueError(
            f"fit_elo(known={known}): give finite ratings by the numbers of actors, 0 to "
            f"{len(games) - 1}, and none but 0 to the anchor, {anchor}"
        )
    met = games > 0
    scores, games = scores + met * (prior / 2), games + met * prior
    _check_connected(scores, anchor, [*known])

    free = ~np.isin(np.arange(len(games)), [*known])
    theta = np.zeros(len(games))
    theta[[*known]] = np.array([*known.values()]) / _SCALE
    # The others begin at the mean of the known ones that they met: far from it there is no slope.
    theta[free] = (games @ theta / np.maximum(games @ ~free, 1))[free]
    for _ in range(_MAX_NEWTON_STEPS):
        gradient, information = _derivatives(theta, scores, games)
        step = np.zeros_like(theta)
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        # Where the likelihood is nearly flat, a whole step goes to where it is flatter still.
        size = 4.0 / max(4.0, np.max(np.abs(step)))
        before = _log_likelihood(theta, scores)
        while size > 1e-12 and _log_likelihood(theta + size * step, scores) < before:
            size /= 2
        theta = theta + size * step
        if np.max(np.abs(size * step)) < 1e-12:
            break
    _, information = _derivatives(theta, scores, games)
    covariance = np.zeros_like(games)
    covariance[np.ix_(free, free)] = np.linalg.inv(information[np.ix_(free, free)])
    return EloRatings(_SCALE * theta, _SCALE**2 * covariance)


def _log_likelihood(theta: np.ndarray, scores: np.ndarray) -> float:
    return float(-np.sum(scores * np.logaddexp(0.0, theta[None, :] - theta[:, None])))


def _derivatives(
    theta: np.ndarray, scores: np.ndarray, games: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the log-likelihood, and the Fisher information (minus its Hessian)."""
    expected = np.exp(-np.logaddexp(0.0, theta[None, :] - theta[:, None]))
    gradient = np.sum(scores - games * expected, axis=1)
    weight = games * expected * expected.T
    return gradient, np.diag(weight.sum(axis=1)) - weight


def _check(scores: np.ndarray, games: np.ndarray, anchor: int, prior: float) -> None:
    actors = games.shape[0] if games.ndim else 0
    if not scores.shape == games.shape == (actors, actors):
        raise ValueError(
            f"fit_elo was given scores {list(scores.shape)} and games {list(games.shape)}; give "
            "two tables of actors by actors"
        )
    check_count("fit_elo", 0, anchor=anchor)
    if not 0 <= anchor < actors:
        raise ValueError(f"fit_elo(anchor={anchor}): must be below the number of actors, {actors}")
    check_range("fit_elo", 0, prior=prior)
    if not (np.isfinite(games).all() and np.isfinite(scores).all()):
        raise ValueError("fit_elo: scores and games must be finite numbers")
    if (scores < 0).any() or np.diag(games).any() or np.diag(scores).any():
        raise ValueError(
            "fit_elo: scores must not be negative and nobody can have played against themselves"
        )
    if not (np.allclose(scores + scores.T, games) and (games == games.T).all()):
        raise ValueError(
            "fit_elo: a pair's scores do not add up to its games; scores[i, j] + scores[j, i] must "
            "be games[i, j] = games[j, i], a draw giving both 1/2"
        )


def _check_connected(scores: np.ndarray, anchor: int, known: list[int]) -> None:
    """A finite maximum exists iff points flow from everybody to everybody (Ford, 1957), where those
    with known ratings are as one."""
    reach = (scores > 0) | np.eye(len(scores), dtype=bool)
    reach[np.ix_(known, known)] = True
    for _ in range(max(1, len(scores).bit_length())):
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    cut = np.flatnonzero(~(reach[anchor] & reach[:, anchor]))
    if cut.size:
        raise ValueError(
            f"fit_elo: actors {cut.tolist()} cannot be rated relative to actor {anchor}: no "
            "chain of games links them or, with prior=0, nobody on one side ever scored; play "
            "those games or give a prior"
        )


@dataclasses.dataclass(frozen=True)
class EloLadder:
    """A pool of actors and their scores against each other.

    Immutable and made of plain values: `json.dumps(dataclasses.asdict(ladder))` stores it, and
    `EloLadder(anchor, tuple(map(tuple, results)), prior, known)` restores it.

    **Attributes:**

    - `anchor`: name of the actor rated 0, such as a random one: it never changes, so ratings of
        different days can be compared.
    - `results`: `(name, name, score of the former, games)`, in the order they came.
    - `prior`: see [`zero_train.fit_elo`][].
    - `known`: by name the ratings of other actors that are held as they are, see
        [`zero_train.fit_elo`][].
    """

    anchor: str
    results: tuple[tuple[str, str, float, int], ...] = ()
    prior: float = 0.5
    known: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_kind("EloLadder", str, "the name of an actor", anchor=self.anchor)

    @property
    def names(self) -> tuple[str, ...]:
        """The anchor, then everybody else in order of appearance."""
        both = (name for result in self.results for name in result[:2])
        return tuple(dict.fromkeys((self.anchor, *both)))

    def add_result(self, name: str, opponent: str, score: float, games: int) -> "EloLadder":
        """The ladder after `games` more games, of which `name` scored `score` points. Of a match
        give the `games` of its [`zero_train.MatchSummary`][], in which equal ones count once."""
        check_kind("add_result", str, "the name of an actor", name=name, opponent=opponent)
        if name == opponent:
            raise ValueError(f"add_result({name!r}, {opponent!r}): nobody plays against themselves")
        check_count("add_result", games=games)
        check_range("add_result", -math.inf, score=score)
        if not 0 <= score <= games:
            raise ValueError(
                f"add_result(score={score}, games={games}): the score must be "
                "between 0 and the number of games (points, not a percentage)"
            )
        result = (name, opponent, float(score), int(games))
        return dataclasses.replace(self, results=(*self.results, result))

    def table(self) -> tuple[Float[np.ndarray, "actors actors"], ...]:
        """`(scores, games)` in the order of `names`, as [`zero_train.fit_elo`][] takes them."""
        index = {name: i for i, name in enumerate(self.names)}
        scores, games = np.zeros((2, len(index), len(index)))
        for name, opponent, score, count in self.results:
            i, j = index[name], index[opponent]
            scores[i, j] += score
            scores[j, i] += count - score
            games[i, j] += count
            games[j, i] += count
        return scores, games

    def ratings(self) -> dict[str, tuple[float, float]]:
        """Every actor's `(rating, standard error)`; the anchor has `(0, 0)`, and the error of a
        known rating is 0."""
        known = {i: self.known[name] for i, name in enumerate(self.names) if name in self.known}
        fit = fit_elo(*self.table(), prior=self.prior, known=known)
        values = zip(fit.ratings.tolist(), fit.standard_errors.tolist(), strict=True)
        return dict(zip(self.names, values, strict=True))

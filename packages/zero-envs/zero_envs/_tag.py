"""Tag and LaserTag: finding an opponent who flees."""

import functools as ft
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractObservedEnvironment,
    check_cells,
    check_count,
    check_state,
    checked_action,
    Observation,
    Transition,
)
from ._filtered import AbstractChanceFilter


_TAG = 4
#: North, south, east and west, staying, and the diagonals, which only lasers see along.
_WAYS = ((0, 1), (0, -1), (1, 0), (-1, 0), (0, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
#: A base of ten by two cells and a tower of three by three.
_T_SHAPE = tuple((x, y) for y in range(5) for x in range(10) if y < 2 or 5 <= x <= 7)
#: What a laser says where the opponent is in the same cell, and before the first action.
_MET, _NOTHING = -1, -2
#: Of the lasers' noise, in cells.
_DEVIATION = 2.5


class TagState(eqx.Module):
    """The state of [`zero_envs.Tag`][].

    **Attributes:**

    - `agent`, `opponent`: the numbers of their cells.
    - `readings`: what the eight lasers last measured, if there are any.
    - `tagged`: whether the opponent was tagged.
    - `steps`: the number of steps so far.
    """

    agent: Int[Array, "*axes"]
    opponent: Int[Array, "*axes"]
    readings: Int[Array, "*axes lasers"]
    tagged: Bool[Array, "*axes"]
    steps: Int[Array, "*axes"]


class Tag(AbstractObservedEnvironment[TagState]):
    """Tags an opponent who flees (Pineau, Gordon and Thrun 2003).

    Both start in any cell. Actions 0 to 3 move the agent north, south, east and west, or nowhere
    where there is no cell, for a reward of -1. Action 4 tags: 10 where the opponent is in the same
    cell, which ends the episode, and else -10. Then the opponent moves, seen from where the agent
    was: with probability 0.4 along each axis away from it (0.2 each way where level), else it
    stays, as it does where there is no cell. It is truncated after `max_steps` steps. The papers
    use gamma 0.95.

    The agent sees its own cell, and the opponent in the same cell only: the features are x, y, and
    1 where they meet. With `lasers` (LaserTag, Ye, Somani, Hsu and Lee 2017) it sees neither cell.
    Eight lasers measure how far the next obstacle or opponent is, 1 for the next cell and the
    square root of 2 for a diagonal one, less the absolute value of normal noise of deviation 2.5,
    rounded down and at least 0, as in DESPOT's program. The features are these readings north,
    south, east, west, north-east, south-east, north-west and south-west, all of them -1 where the
    two meet, and -2 before the first action.

    **Arguments:**

    - `cells`: where one can be, x and y, by default the 29 cells of Tag.
    - `lasers`: whether the agent sees by lasers.
    """

    cells: tuple[tuple[int, int], ...] = _T_SHAPE
    lasers: bool = False
    max_steps: int = 100
    num_actions: int = eqx.field(init=False, default=5)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=True)

    def __check_init__(self):
        check_cells("Tag", 100, cells=self.cells)
        check_count("Tag", max_steps=self.max_steps)

    @classmethod
    def laser(cls, seed: int = 0, *, max_steps: int = 100) -> "Tag":
        """LaserTag: 7 rows of 11 cells, of which NumPy's `default_rng(seed)` draws 8 obstacles.
        These may part the cells, as in DESPOT's program."""
        check_count("Tag.laser", 0, seed=seed)
        every = [(x, y) for y in range(7) for x in range(11)]
        obstacles = np.random.default_rng(seed).choice(len(every), 8, replace=False)
        free = tuple(cell for i, cell in enumerate(every) if i not in obstacles)
        return cls(free, lasers=True, max_steps=max_steps)

    def init(self, *, key: PRNGKeyArray) -> TagState:
        """Agent and opponent in any cells."""
        agent, opponent = jnp.unstack(jr.randint(key, (2,), 0, len(self.cells), jnp.int32))
        readings = jnp.full(8 * self.lasers, _NOTHING, jnp.int32)
        return TagState(agent, opponent, readings, jnp.bool_(False), jnp.int32(0))

    def step(
        self, state: TagState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[TagState, Transition]:
        """Moves or tags; then the opponent flees."""
        action = checked_action(self, action)
        check_state(self, state.agent, 0)
        floor, over = _floor(self.cells), self._over(state)
        flee_key, read_key = jr.split(key)
        met = state.agent == state.opponent
        tagged = met & (action == _TAG)
        flight = jnp.log(jnp.asarray(floor.flight)[state.agent, state.opponent])
        onward = jnp.asarray(floor.onward)
        fled = onward[state.opponent, jr.categorical(flee_key, flight).astype(jnp.int32)]
        agent = jnp.where(over, state.agent, onward[state.agent, action])
        opponent = jnp.where(over | tagged, state.opponent, fled)
        readings = state.readings
        if self.lasers:
            read = jr.categorical(read_key, _reading_odds(floor, agent, opponent))
            read = jnp.where(agent == opponent, _MET, read.astype(jnp.int32))
            readings = jnp.where(over, readings, read)
        steps = state.steps + jnp.where(over, 0, 1)
        reward = jnp.where(tagged, 10.0, jnp.where(action == _TAG, -10.0, -1.0))
        return TagState(agent, opponent, readings, state.tagged | tagged, steps), (
            absorbing_transition(over, reward, terminated=tagged, truncated=steps >= self.max_steps)
        )

    def observe(self, state: TagState) -> Observation:
        """The own cell and whether the opponent is there, or what the lasers measured."""
        check_state(self, state.agent, 0)
        met = (state.agent == state.opponent).astype(jnp.int32)
        place = jnp.asarray(self.cells, jnp.int32)[state.agent]
        seen = state.readings if self.lasers else jnp.append(place, met)
        return Observation(seen.astype(jnp.float32), jnp.ones(self.num_actions, jnp.bool_))

    def observation_log_prob(
        self,
        observation: Observation,
        state: TagState,
        action: Int[Array, ""],
        next_state: TagState,
    ) -> Float[Array, ""]:
        """Of seeing the next cells, or of all readings."""
        del state
        if not self.lasers:
            same = observation.features == self.observe(next_state).features
            return jnp.where(jnp.all(same), 0.0, -jnp.inf).astype(jnp.float32)
        readings = observation.features.astype(jnp.int32)
        agent, opponent = next_state.agent, next_state.opponent
        mark = jnp.where(action < 0, _NOTHING, jnp.where(agent == opponent, _MET, 0))
        odds = _reading_odds(_floor(self.cells), agent, opponent)
        each = jnp.take_along_axis(odds, jnp.maximum(readings, 0)[:, None], axis=1)
        log_prob = jnp.where(mark < 0, 0.0, jnp.sum(each))
        return jnp.where(jnp.all(jnp.minimum(readings, 0) == mark), log_prob, -jnp.inf)

    def _over(self, state: TagState) -> Bool[Array, ""]:
        return state.tagged | (state.steps >= self.max_steps)


class TagBelief(eqx.Module):
    """What is known of Tag.

    **Attributes:**

    - `odds`: the probability of each cell of the opponent: by the cell of the agent with lasers,
        and else, where it knows its own, in a single row.
    - `known`: a state of which the opponent's cell means nothing, nor the agent's with lasers, the
        rest as it is.
    """

    odds: Float[Array, "*axes rows cells"]
    known: TagState


class TagFilter(AbstractChanceFilter[TagState, TagBelief]):
    """The exact belief of [`zero_envs.Tag`][]: Bayes' rule over the cells, with lasers over pairs.

    A network sees the probability of each cell of the agent (`[cells]`) and of its opponent
    (`[cells]`), and that the two are in the same one (`[1]`).
    """

    def init(self, env: Tag, obs: Observation, *, key: PRNGKeyArray) -> TagBelief:
        known = env.init(key=key)
        if not env.lasers:
            seen = obs.features[None, :2].astype(jnp.int32)
            here = jnp.all(jnp.asarray(env.cells, jnp.int32) == seen, axis=1)
            known = _at(known, jnp.argmax(here).astype(jnp.int32), known.opponent)
        number = len(env.cells)
        odds = jnp.full((number if env.lasers else 1, number), 1.0, jnp.float32)
        return TagBelief(_weighed(env, odds, known, jnp.int32(-1), obs), known)

    def update(
        self,
        env: Tag,
        belief: TagBelief,
        action: Int[Array, ""],
        obs: Observation,
        last: Bool[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[TagBelief, Float[Array, ""]]:
        del key
        known = belief.known
        over, tags = env._over(known), action == _TAG
        steps = known.steps + jnp.where(over, 0, 1)
        moved, caught, agent = _foreseen(env, belief, action)
        # Only an end before the last step says that the opponent was tagged.
        moved = jnp.where(last & (steps < env.max_steps), 0.0, moved)
        readings = obs.features.astype(jnp.int32) if env.lasers else known.readings
        after = TagState(agent, known.opponent, readings, known.tagged | last, steps)
        odds = _weighed(env, moved + jnp.where(last, caught, 0.0), after, action, obs)
        hit = jnp.sum(jnp.where(_meet(env, known), belief.odds, 0.0))
        reward = jnp.where(over, 0.0, jnp.where(tags, 20 * hit - 10, -1.0))
        return TagBelief(jnp.where(over, belief.odds, odds), after), reward

    def sample(self, env: Tag, belief: TagBelief, *, key: PRNGKeyArray) -> TagState:
        pair = jr.choice(key, belief.odds.size, p=belief.odds.reshape(-1)).astype(jnp.int32)
        row, opponent = jnp.divmod(pair, len(env.cells))
        return _at(belief.known, _agents(env, belief.known)[row], opponent)

    def features(
        self, env: Tag, belief: TagBelief, obs: Observation
    ) -> dict[str, Float[Array, " n"]]:
        del obs
        odds, meet = belief.odds, _meet(env, belief.known)
        agent = jnp.sum(jnp.where(meet, jnp.sum(odds, 1)[:, None], 0.0), 0)
        met = jnp.sum(jnp.where(meet, odds, 0.0))[None]
        return {"agent": agent, "opponent": jnp.sum(odds, 0), "met": met}

    def num_outcomes(self, env: Tag) -> int:
        """3 without lasers: the opponent is not seen, is met, or was tagged."""
        return 0 if env.lasers else 3

    def outcome_logits(
        self, env: Tag, belief: TagBelief, action: Int[Array, ""]
    ) -> Float[Array, " 3"]:
        moved, caught, agent = _foreseen(env, belief, action)
        met, tagged = moved[0, agent], jnp.sum(caught)
        return jnp.log(jnp.stack([jnp.maximum(jnp.sum(moved) - met, 0), met, tagged]))

    def outcome(
        self,
        env: Tag,
        belief: TagBelief,
        action: Int[Array, ""],
        number: Int[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[TagState, Transition]:
        agent = belief.known.agent
        elsewhere = lambda cell: (cell + 1) % len(env.cells)
        opponent = jnp.where(number == 2, agent, elsewhere(agent))
        after, transition = env.step(_at(belief.known, agent, opponent), action, key=key)
        opponent = jnp.where(number > 0, after.agent, elsewhere(after.agent))
        return _at(after, after.agent, opponent), transition


def _agents(env: Tag, known: TagState) -> Int[Array, " rows"]:
    """The agent's cell in each row of a belief."""
    return jnp.arange(len(env.cells), dtype=jnp.int32) if env.lasers else known.agent[None]


def _meet(env: Tag, known: TagState) -> Bool[Array, "rows cells"]:
    each = jnp.arange(len(env.cells), dtype=jnp.int32)
    return _agents(env, known)[:, None] == each[None]


def _foreseen(
    env: Tag, belief: TagBelief, action: Int[Array, ""]
) -> tuple[Float[Array, "rows cells"], Float[Array, "rows cells"], Int[Array, ""]]:
    """The next odds where nobody is tagged, the present ones where one is, and the next cell of an
    agent that knows its own."""
    floor, agents = _floor(env.cells), _agents(env, belief.known)
    caught = jnp.where(_meet(env, belief.known) & (action == _TAG), belief.odds, 0.0)
    flights = jnp.asarray(floor.flights)[agents]
    fled = jnp.einsum(
        "ij,ijk->ik", belief.odds - caught, flights, precision=jax.lax.Precision.HIGHEST
    )
    onward = jnp.asarray(floor.onward)[agents, action]
    if not env.lasers:
        return fled, caught, jnp.where(env._over(belief.known), belief.known.agent, onward[0])
    return jnp.zeros_like(fled).at[onward].add(fled), caught, belief.known.agent


def _weighed(
    env: Tag, odds: Array, known: TagState, action: Int[Array, ""], obs: Observation
) -> Float[Array, "rows cells"]:
    """Bayes' rule; NaN where no pair of cells can have been observed."""
    likely = lambda state: env.observation_log_prob(obs, state, action, state)
    each = jnp.arange(len(env.cells), dtype=jnp.int32)
    pairs = jax.vmap(jax.vmap(lambda i, j: likely(_at(known, i, j)), (None, 0)), (0, None))
    log_prob = jnp.where(odds > 0, pairs(_agents(env, known), each), -jnp.inf)
    weights = odds * jnp.exp(log_prob - jnp.max(log_prob))
    return weights / jnp.sum(weights)


def _at(known: TagState, agent: Int[Array, ""], opponent: Int[Array, ""]) -> TagState:
    return eqx.tree_at(lambda s: (s.agent, s.opponent), known, (agent, opponent))


class _Floor(NamedTuple):
    """Tables.

    **Attributes:**

    - `onward`: where the five ways lead from each cell.
    - `flight`: by agent and opponent, the probabilities of the opponent's ways.
    - `flights`: by agent and opponent, the probabilities of the opponent's next cells.
    - `lasers`: by agent, opponent and laser, which row of `readings` is the one of its length.
    - `readings`: the log-probabilities of what is measured.
    """

    onward: np.ndarray
    flight: np.ndarray
    flights: np.ndarray
    lasers: np.ndarray
    readings: np.ndarray


@ft.cache
def _floor(cells: tuple[tuple[int, int], ...]) -> _Floor:
    numbers = {cell: i for i, cell in enumerate(cells)}
    ahead = lambda cell, way, n=1: numbers.get((cell[0] + n * way[0], cell[1] + n * way[1]))
    places, size = np.asarray(cells), len(cells)
    onward = [[ahead(cell, way) for way in _WAYS[:5]] for cell in cells]
    onward = [[i if x is None else x for x in row] for i, row in enumerate(onward)]
    away = np.sign(places[None] - places[:, None]).astype(np.float32)
    east, north = 0.2 + 0.2 * away[..., 0], 0.2 + 0.2 * away[..., 1]
    flight = np.stack([north, 0.4 - north, east, 0.4 - east, np.full_like(east, 0.2)], -1)
    flights = np.zeros((size, size, size), np.float32)
    ranges = np.zeros((size, size, 8))
    for i, cell in enumerate(cells):
        for way in range(5):
            flights[:, i, onward[i][way]] += flight[:, i, way]
        for laser, way in enumerate(_WAYS[:4] + _WAYS[5:]):
            n, ray = 1, math.hypot(*way)
            while (seen := ahead(cell, way, n)) is not None:
                ranges[i, seen, laser] = n * ray
                n += 1
            ranges[i, ranges[i, :, laser] == 0, laser] = n * ray
    lengths, lasers = np.unique(ranges, return_inverse=True)
    # The probability that the noise is so large that no more than 0, 1, ... is measured.
    short = np.maximum(lengths[:, None] - np.arange(1, np.ceil(lengths[-1]) + 1), 0)
    most = np.vectorize(math.erfc)(short / (_DEVIATION * math.sqrt(2)))
    with np.errstate(divide="ignore"):
        readings = np.log(np.diff(most, prepend=0.0)).astype(np.float32)
    lasers = lasers.reshape(ranges.shape).astype(np.int32)
    return _Floor(np.asarray(onward, np.int32), flight, flights, lasers, readings)


def _reading_odds(
    floor: _Floor, agent: Int[Array, ""], opponent: Int[Array, ""]
) -> Float[Array, "8 readings"]:
    """The log-probabilities of what each laser measures."""
    return jnp.asarray(floor.readings)[jnp.asarray(floor.lasers)[agent, opponent]]

"""A grid world with two hunting monsters, whose dice are in the open."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, Int16, Int32, PRNGKeyArray

from ._environment import AbstractChanceEnvironment, Observation, Transition
from ._monsters_draw import draw_svg, draw_text
from ._monsters_features import planes, tokens
from ._monsters_rules import (
    drawn,
    fight,
    GONE,
    HOLDS_BAD,
    HOLDS_GOOD,
    motion,
    moved,
    moves_open,
    NUM_MOVES,
)


class MonstersState(eqx.Module):
    """Where everything is. Final where `over`.

    **Attributes:**

    - `pieces`: the cells of agent, target, distractor, good and bad item. The cells inside the
        walls are counted row by row from 0; who is dead, taken or not in this game is at -1.
    - `held`: 0 nothing, 1 the good item, 2 the bad one.
    - `time`: steps taken.
    """

    pieces: Int16[Array, "*axes 5"]
    held: Int8[Array, "*axes"]
    time: Int32[Array, "*axes"]
    over: Bool[Array, "*axes"]


class MonstersAfterstate(eqx.Module):
    """After the agent's move and its fights, before the monsters move.

    **Attributes:**

    - `hunted`: the cell that the agent left: monsters choose their moves when the agent does.
    - `pieces`, `held`, `time`: as in the state.
    - `over`: the game was over before, so nothing happens.
    """

    hunted: Int16[Array, "*axes"]
    pieces: Int16[Array, "*axes 5"]
    held: Int8[Array, "*axes"]
    time: Int32[Array, "*axes"]
    over: Bool[Array, "*axes"]


class Monsters(AbstractChanceEnvironment[MonstersState]):
    """Take the right item, beat the target, keep clear of the distractor.

    Actions, and moves of monsters: 0 stays, 1 goes up, 2 down, 3 left, 4 right; into a wall is
    illegal and goes nowhere. A turn, after RTFM's `groups_simple` (Zhong et al. 2020, "RTFM:
    generalising to novel environment dynamics via reading"):

    1. The agent moves. In an item's cell it takes the item; one that it held is lost.
    2. It fights who is there: with the good item it beats the target, with the bad one the
        distractor. In every other meeting it dies.
    3. The surviving monsters move, by where the agent was *before* its move: towards it with
        probability `aggression`, if it is in `sight`, and else to a cell next to them or nowhere,
        all alike. Walls stop them, pieces do not. Whom they reach they fight, as in 2.

    The episode ends when one of the three is dead, with reward 1 if the target is dead and the
    agent alive and -1 otherwise. So killing the distractor loses, and so does killing the target
    while the distractor arrives. Steps that end nothing cost `step_penalty`.

    Outcome `5 * i + j`: the target makes move `i` and the distractor move `j`. It is `i` without a
    distractor, and 0 where nothing moves. No two possible outcomes lead to the same state.

    **Arguments:**

    - `size`: the side of the square board, walls included: 6 has 4 x 4 cells to stand on.
    - `moving`: whether monsters move; if not there is one outcome.
    - `distractor`, `bad_item`: whether there is one.
    - `step_penalty`: at least 0, subtracted from the reward of every step that ends nothing.
    - `time_limit`: the step that reaches it ends the episode with reward -1, or, with
        `truncate=True`, truncates it with the reward and the discount of any other step. The
        player does not see how many steps are left.
    - `sight`: how far monsters see, in cells of Euclidean distance.
    - `aggression`: the probability above, in `[0, 1]`.
    - `observation`: `"planes"` is `bool[size, size, 8]`: agent, target, distractor, good item, bad
        item, good item held, bad item held (all over the board), wall. `"tokens"` is a
        [`zero_envs.MonstersTokens`][].
    """

    size: int
    moving: bool
    distractor: bool
    bad_item: bool
    step_penalty: float
    time_limit: int
    truncate: bool
    sight: float
    aggression: float
    observation: str
    num_actions: int
    num_outcomes: int
    hidden: bool

    def __init__(
        self,
        size: int = 6,
        *,
        moving: bool = True,
        distractor: bool = True,
        bad_item: bool = True,
        step_penalty: float = 0.0,
        time_limit: int = 1000,
        truncate: bool = False,
        sight: float = 5.0,
        aggression: float = 0.6,
        observation: str = "planes",
    ):
        self.size = size
        self.moving = moving
        self.distractor = distractor
        self.bad_item = bad_item
        self.step_penalty = step_penalty
        self.time_limit = time_limit
        self.truncate = truncate
        self.sight = sight
        self.aggression = aggression
        self.observation = observation
        self.num_actions = NUM_MOVES
        self.num_outcomes = (NUM_MOVES ** (1 + distractor)) if moving else 1
        self.hidden = False

    def __check_init__(self):
        pieces = 3 + self.distractor + self.bad_item
        cells = max(self.size - 2, 0) ** 2
        if cells < pieces:
            raise ValueError(
                f"Monsters(size={self.size}): {cells} cells within the walls for {pieces} pieces; "
                f"take size={2 + math.isqrt(pieces - 1) + 1} or more."
            )
        if cells > np.iinfo(np.int16).max:
            raise ValueError(f"Monsters(size={self.size}): at most 183, walls included.")
        if not 0.0 <= self.aggression <= 1.0:
            raise ValueError(
                f"Monsters(aggression={self.aggression}): a probability lies between 0 and 1."
            )
        if not self.sight >= 0.0:
            raise ValueError(
                f"Monsters(sight={self.sight}): a distance is at least 0; 0 for blind monsters."
            )
        if not 0.0 <= self.step_penalty < math.inf:
            raise ValueError(
                f"Monsters(step_penalty={self.step_penalty}): it is subtracted from the reward, so "
                "give a finite number of at least 0, for instance 0.02."
            )
        if self.time_limit < 1:
            raise ValueError(
                f"Monsters(time_limit={self.time_limit}): an episode has at least 1 step."
            )
        if self.observation not in ("planes", "tokens"):
            raise ValueError(
                f"Monsters(observation={self.observation!r}): it is 'planes' or 'tokens'."
            )

    def init(self, *, key: PRNGKeyArray) -> MonstersState:
        """Everything in a cell of its own, each such start alike."""
        cells = jr.permutation(key, jnp.arange((self.size - 2) ** 2, dtype=jnp.int16))
        here = np.asarray([True, True, self.distractor, True, self.bad_item])
        # Whoever is not in the game takes no cell from the others.
        pieces = jnp.where(here, cells[np.cumsum(here) - 1], jnp.int16(GONE))
        zero = jnp.zeros((), jnp.int32)
        return MonstersState(pieces, zero.astype(jnp.int8), zero, jnp.zeros((), jnp.bool_))

    def afterstate(self, state: MonstersState, action: Int[Array, ""]) -> MonstersAfterstate:
        """Moves the agent, which takes what lies there and fights who is there."""
        hunted, target, distractor, good, bad = jnp.unstack(state.pieces)
        agent = moved(hunted, action, self.size - 2)
        gone = jnp.int16(GONE)
        takes_good, takes_bad = agent == good, agent == bad
        held = jnp.where(takes_bad, jnp.int8(HOLDS_BAD), state.held)
        held = jnp.where(takes_good, jnp.int8(HOLDS_GOOD), held)
        good, bad = jnp.where(takes_good, gone, good), jnp.where(takes_bad, gone, bad)
        agent, target, distractor = fight(agent, target, distractor, held)
        pieces = jnp.stack([agent, target, distractor, good, bad])
        return MonstersAfterstate(
            hunted=hunted,
            pieces=jnp.where(state.over, state.pieces, pieces),
            held=jnp.where(state.over, state.held, held),
            time=state.time,
            over=state.over,
        )

    def outcome_logits(self, afterstate: MonstersAfterstate) -> Float[Array, " outcomes"]:
        """Monsters move independently of each other."""
        if not self.moving:
            return jnp.zeros(1, jnp.float32)
        logits = [jnp.log(odds) for odds in self._odds(afterstate)]
        if not self.distractor:
            return logits[0]
        return (logits[0][:, None] + logits[1][None]).reshape(self.num_outcomes)

    def resolve(
        self, afterstate: MonstersAfterstate, outcome: Int[Array, ""]
    ) -> tuple[MonstersState, Transition]:
        """Moves the monsters, which fight the agent if they reach it."""
        agent, target, distractor, *items = jnp.unstack(afterstate.pieces)
        if self.moving and self.distractor:
            target = moved(target, outcome // NUM_MOVES, self.size - 2)
            distractor = moved(distractor, outcome % NUM_MOVES, self.size - 2)
        elif self.moving:
            target = moved(target, outcome, self.size - 2)
        agent, target, distractor = fight(agent, target, distractor, afterstate.held)
        pieces = jnp.stack([agent, target, distractor, *items])
        over, time = afterstate.over, afterstate.time + 1
        late = time >= self.time_limit
        killed = (agent == GONE) | (target == GONE) | (self.distractor & (distractor == GONE))
        last = killed | late
        ends = killed if self.truncate else last
        lost = jnp.where(ends, jnp.float32(-1.0), jnp.float32(0.0 - self.step_penalty))
        reward = jnp.where((target == GONE) & (agent != GONE), jnp.float32(1.0), lost)
        state = MonstersState(
            pieces=jnp.where(over, afterstate.pieces, pieces),
            held=afterstate.held,
            time=jnp.where(over, afterstate.time, time),
            over=over | last,
        )
        transition = Transition(
            reward=jnp.where(over, jnp.float32(0.0), reward),
            discount=jnp.where(over | ends, jnp.float32(0.0), jnp.float32(1.0)),
            last=over | last,
        )
        return state, transition

    def step(
        self, state: MonstersState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[MonstersState, Transition]:
        """Moves the agent, then draws where the monsters go."""
        after = self.afterstate(state, action)
        if not self.moving:
            return self.resolve(after, jnp.zeros((), jnp.int32))
        # A number a monster, where drawing from the logits would take one for each outcome.
        odds = self._odds(after)
        moves = [drawn(o, u) for o, u in zip(odds, jr.uniform(key, (len(odds),)), strict=True)]
        outcome = NUM_MOVES * moves[0] + moves[1] if self.distractor else moves[0]
        return self.resolve(after, outcome)

    def observe(self, state: MonstersState) -> Observation:
        """The board and what is held; all that does not lead into a wall, or all at the end."""
        features = planes if self.observation == "planes" else tokens
        legal = moves_open(state.pieces[0], self.size - 2) | state.over
        return Observation(features(state.pieces, state.held, self.size), legal)

    def text(self, state: MonstersState) -> str:
        """The board for a terminal: `@` agent, `!` target, `?` distractor, `y` good, `n` bad."""
        return draw_text(state.pieces, state.held, state.time, state.over, self.size)

    def render(self, state: MonstersState, *, scale: float = 1.0) -> str:
        """The board as an SVG image; an item has the colour of the monster that it beats."""
        return draw_svg(state.pieces, state.held, state.time, state.over, self.size, scale)

    def _odds(self, afterstate: MonstersAfterstate) -> list[Float[Array, " moves"]]:
        """The probabilities of the moves of each monster."""
        monsters = afterstate.pieces[1 : 2 + self.distractor]
        monsters = jnp.where(afterstate.over, jnp.int16(GONE), monsters)
        world = afterstate.hunted, self.size - 2, self.sight, self.aggression
        return [motion(cell, *world) for cell in jnp.unstack(monsters)]

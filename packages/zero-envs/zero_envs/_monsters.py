"""A grid world with two hunting monsters and known chance probabilities."""

import dataclasses
import itertools
import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int8, Int16, Int32, PRNGKeyArray

from ._drawing import add, MARGIN, markup, sheet
from ._environment import (
    absorbing_transition,
    AbstractChanceEnvironment,
    check_count,
    check_number,
    check_state,
    checked_action,
    Observation,
    plain,
    Transition,
)


#: The position of a piece that is dead, taken or not part of the game.
GONE = -1
HOLDS_GOOD, HOLDS_BAD = 1, 2
#: Stay, up, down, left, right: the agent's actions and the monsters' moves.
NUM_MOVES = 5
_DX, _DY = np.asarray([[0, 0, 0, -1, 1], [0, -1, 1, 0, 0]], np.int16)

# Agent, target, distractor, good and bad item. Each item has the colour of the monster that it
# beats: blue or orange, which colour-blind people can distinguish too.
_SYMBOLS = "@!?yn"
_COLOURS = ("#656d76", "#2876be", "#cd5a0a", "#2876be", "#cd5a0a")
_CELL, _RADIUS = 40, 13

#: The words to which the numbers of [`zero_envs.MonstersTokens`][] refer. The monsters are a cold
#: jaguar and a fire panther; the blessed sword beats cold and the gleaming sword beats fire.
MONSTERS_WORDS = ("", "wall", "empty", "you", "cold", "fire", "blessed", "gleaming")
_WALL, _EMPTY = 1, 2
_PIECES = np.arange(3, 8, dtype=np.int8)
_INVENTORY = np.asarray([0, 6, 7], np.int8)


class MonstersState(eqx.Module):
    """The state of a game of `Monsters`.

    **Attributes:**

    - `pieces`: the cells of agent, target, distractor, good item and bad item. The cells inside the
        walls are counted row by row from 0; -1 is for a piece that is dead, taken or not part of
        the game.
    - `held`: 0 for nothing, 1 for the good item, 2 for the bad item.
    - `time`: the number of steps so far.
    - `over`: whether the state is final.
    """

    pieces: Int16[Array, "*axes 5"]
    held: Int8[Array, "*axes"]
    time: Int32[Array, "*axes"]
    over: Bool[Array, "*axes"]


class MonstersAfterstate(eqx.Module):
    """The state after the agent's move and fights, and before the monsters move.

    **Attributes:**

    - `hunted`: the previous cell of the agent, on which the monsters' moves depend.
    - `pieces`, `held`, `time`: as in the state.
    - `over`: whether the game was already over.
    """

    hunted: Int16[Array, "*axes"]
    pieces: Int16[Array, "*axes 5"]
    held: Int8[Array, "*axes"]
    time: Int32[Array, "*axes"]
    over: Bool[Array, "*axes"]


class MonstersTokens(eqx.Module):
    """The board in words, as indices into [`zero_envs.MONSTERS_WORDS`][].

    **Attributes:**

    - `names`: the first word of up to two objects in each cell, including the walls. They are in
        the order agent, target, distractor, good item, bad item; a third object is not shown, as in
        the original. The first word of an empty cell is 2, and a missing second object is 0.
    - `inventory`: the first word of the held item, or 0.
    """

    names: Int8[Array, "*axes size size 2"]
    inventory: Int8[Array, "*axes"]


class Monsters(AbstractChanceEnvironment[MonstersState]):
    """The agent takes the good item, beats the target and avoids the distractor.

    This is `groups_simple` of RTFM (Zhong et al. 2020, "RTFM: generalising to novel environment
    dynamics via reading"). The agent's actions and the monsters' moves are 0 (stay), 1 (up), 2
    (down), 3 (left) and 4 (right). Moving into a wall is illegal and has no effect. In each turn:

    1. The agent moves. If it enters the cell of an item, it takes the item and loses any other.
    2. It fights the monsters in its cell. With the good item it beats the target, with the bad item
        it beats the distractor, and otherwise it dies.
    3. The surviving monsters move. If the agent's cell *before* its move is within `sight`, a
        monster approaches that cell with probability `aggression`. Otherwise its legal moves are
        equally likely. Pieces may share a cell. Monsters that reach the agent fight it, as in 2.

    The episode terminates when the agent or a monster dies. The reward is 1 if the target is dead
    and the agent alive, and -1 otherwise. In particular, it is -1 if the distractor is dead, or if
    the distractor reaches the agent in the turn in which the target dies. The reward of all other
    steps is `-step_penalty`.

    Chance outcome `5 * i + j` means that the target makes move `i` and the distractor move `j`.
    Without a distractor the outcome is `i`, and if the monsters do not move it is 0. Different
    possible outcomes lead to different states.

    **Arguments:**

    - `size`: the side of the square board including the walls: 6 has 4 x 4 free cells.
    - `moving`: whether the monsters move; if not, there is one chance outcome.
    - `distractor`, `bad_item`: whether the game has one.
    - `step_penalty`: the cost of a step, at least 0; see above.
    - `time_limit`: the step that reaches it terminates the episode with reward -1 or, with
        `truncate=True`, truncates it with the reward and discount of any other step. The number of
        remaining steps is not observed.
    - `sight`: how far monsters see, as Euclidean distance in cells.
    - `aggression`: a probability; see above.
    - `observation`: `"planes"` for `bool[size, size, 8]` with the planes agent, target,
        distractor, good item, bad item, good item held, bad item held (constant over the board) and
        wall; `"tokens"` for a [`zero_envs.MonstersTokens`][].
    """

    size: int = 6
    _: dataclasses.KW_ONLY
    moving: bool = True
    distractor: bool = True
    bad_item: bool = True
    step_penalty: float = 0.0
    time_limit: int = 1000
    truncate: bool = False
    sight: float = 5.0
    aggression: float = 0.6
    observation: str = "planes"
    num_actions: int = eqx.field(init=False, default=NUM_MOVES)
    num_outcomes: int = eqx.field(init=False)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=False)

    def __post_init__(self):
        self.size = plain(self.size)
        self.num_outcomes = NUM_MOVES ** (1 + self.distractor) if self.moving else 1

    def __check_init__(self):
        check_count("Monsters", 0, size=self.size)
        check_count("Monsters", time_limit=self.time_limit)
        check_number("Monsters", 0, math.inf, step_penalty=self.step_penalty)
        check_number("Monsters", 0, 1, aggression=self.aggression)
        pieces = 3 + self.distractor + self.bad_item
        cells = max(self.size - 2, 0) ** 2
        if cells < pieces:
            raise ValueError(
                f"Monsters(size={self.size}): {cells} cells within the walls for {pieces} pieces; "
                f"take size={2 + math.isqrt(pieces - 1) + 1} or more."
            )
        if cells > np.iinfo(np.int16).max:
            raise ValueError(f"Monsters(size={self.size}): at most 183, walls included.")
        if not (
            isinstance(self.sight, int | float | np.integer | np.floating) and self.sight >= 0.0
        ):
            raise ValueError(
                f"Monsters(sight={self.sight!r}): a distance is at least 0; 0 for blind monsters."
            )
        if self.observation not in ("planes", "tokens"):
            raise ValueError(
                f"Monsters(observation={self.observation!r}): it is 'planes' or 'tokens'."
            )

    def init(self, *, key: PRNGKeyArray) -> MonstersState:
        """Draws different cells for all pieces, uniformly."""
        cells = jr.permutation(key, jnp.arange((self.size - 2) ** 2, dtype=jnp.int16))
        here = np.asarray([True, True, self.distractor, True, self.bad_item])
        # Pieces that are not part of the game occupy no cell.
        pieces = jnp.where(here, cells[np.cumsum(here) - 1], jnp.int16(GONE))
        zero = jnp.zeros((), jnp.int32)
        return MonstersState(pieces, zero.astype(jnp.int8), zero, jnp.zeros((), jnp.bool_))

    def afterstate(self, state: MonstersState, action: Int[Array, ""]) -> MonstersAfterstate:
        """Moves the agent, which takes an item and fights the monsters in its new cell."""
        action = checked_action(self, action)
        check_state(self, state.pieces, 1)
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
        """The log-probabilities of the outcomes; monsters move independently of each other."""
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
        killed = (agent == GONE) | (target == GONE) | (self.distractor & (distractor == GONE))
        last = killed | (time >= self.time_limit)
        ends = killed if self.truncate else last
        lost = jnp.where(ends, jnp.float32(-1.0), jnp.float32(0.0 - self.step_penalty))
        reward = jnp.where((target == GONE) & (agent != GONE), jnp.float32(1.0), lost)
        state = MonstersState(
            pieces=jnp.where(over, afterstate.pieces, pieces),
            held=afterstate.held,
            time=jnp.where(over, afterstate.time, time),
            over=over | last,
        )
        return state, absorbing_transition(over, reward, terminated=ends, truncated=last)

    def step(
        self, state: MonstersState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[MonstersState, Transition]:
        """Moves the agent, then draws the moves of the monsters."""
        after = self.afterstate(state, action)
        if not self.moving:
            return self.resolve(after, jnp.zeros((), jnp.int32))
        # One random number for each monster; drawing from the logits needs one for each outcome.
        odds = self._odds(after)
        uniform = jr.uniform(key, (len(odds),), jnp.float32)
        moves = [drawn(o, u) for o, u in zip(odds, uniform, strict=True)]
        outcome = NUM_MOVES * moves[0] + moves[1] if self.distractor else moves[0]
        return self.resolve(after, outcome)

    def observe(self, state: MonstersState) -> Observation:
        """Planes of the five pieces, the two held items and the walls, `[size, size, 8]`; or the
        words of every cell. Moves into walls are illegal, except in a final state."""
        check_state(self, state.pieces, 1)
        features = _planes if self.observation == "planes" else _tokens
        legal = moves_open(state.pieces[0], self.size - 2) | state.over
        return Observation(features(state.pieces, state.held, self.size), legal)

    def text(self, state: MonstersState) -> str:
        """A drawing for a terminal: `@` agent, `!` target, `?` distractor, `y` good item, `n` bad
        item, `#` wall, `.` empty cell."""
        rows = [["#"] * self.size for _ in range(self.size)]
        for y, x in np.ndindex(self.size - 2, self.size - 2):
            rows[y + 1][x + 1] = ""
        for i, x, y in self._places(state):
            rows[y][x] += _SYMBOLS[i]
        # All columns are as wide as the fullest cell.
        width = 1 + max(len(cell) for row in rows for cell in row)
        lines = ["".join(f"{cell or '.':<{width}}" for cell in row).rstrip() for row in rows]
        return "\n".join([*lines, _caption(state)])

    def render(self, state: MonstersState, *, scale: float = 1.0) -> str:
        """An SVG image. Agent and monsters are round, items are square and have the colour of the
        monster that they beat. Pieces that share a cell are small."""
        side = self.size * _CELL + 2 * MARGIN
        svg = sheet(side, side + 24, scale, _caption(state))
        for y, x in np.ndindex(self.size, self.size):
            kind = "cell" if 0 < min(x, y) and max(x, y) < self.size - 1 else "wall"
            left, top = MARGIN + x * _CELL, MARGIN + y * _CELL
            add(svg, "rect", kind, x=left, y=top, width=_CELL, height=_CELL)
        crowd: dict[tuple[int, int], list[int]] = {}
        for i, x, y in self._places(state):
            crowd.setdefault((x, y), []).append(i)
        for (x, y), here in crowd.items():
            for k, i in enumerate(here):
                # A single piece is in the middle of the cell, several are in its quarters.
                across, down, part = (k % 2 + 0.5, k // 2 + 0.5, 0.6) if here[1:] else (1, 1, 1)
                left, top = (MARGIN + _CELL * (n + m / 2) for n, m in ((x, across), (y, down)))
                place = f"translate({left:g} {top:g}) scale({part:g})"
                _piece(add(svg, "g", f"piece {_SYMBOLS[i]}", transform=place), i, int(state.held))
        return markup(svg)

    def _places(self, state: MonstersState) -> Iterator[tuple[int, int, int]]:
        """The index, column and row of each piece on the board, including the walls."""
        for i, cell in enumerate(np.asarray(state.pieces).tolist()):
            if cell >= 0:
                yield i, 1 + cell % (self.size - 2), 1 + cell // (self.size - 2)

    def _odds(self, afterstate: MonstersAfterstate) -> list[Float[Array, " moves"]]:
        """The probabilities of each monster's moves."""
        monsters = afterstate.pieces[1 : 2 + self.distractor]
        monsters = jnp.where(afterstate.over, jnp.int16(GONE), monsters)
        world = afterstate.hunted, self.size - 2, self.sight, self.aggression
        return [motion(cell, *world) for cell in jnp.unstack(monsters)]


def _planes(
    pieces: Int16[Array, " 5"], held: Int8[Array, ""], size: int
) -> Bool[Array, "size size 8"]:
    """Planes of the five pieces, the two held items and the walls."""
    board = jnp.pad(_present(pieces, size - 2), ((1, 1), (1, 1), (0, 0)))
    items = jnp.broadcast_to(jnp.stack([held == HOLDS_GOOD, held == HOLDS_BAD]), (size, size, 2))
    return jnp.concatenate([board, items, jnp.asarray(_walls(size))[..., None]], axis=-1)


def _tokens(pieces: Int16[Array, " 5"], held: Int8[Array, ""], size: int) -> MonstersTokens:
    """The first two words of each cell."""
    present = _present(pieces, size - 2)
    place = jnp.cumsum(present, axis=-1, dtype=jnp.int8)
    words = [
        jnp.sum(jnp.where(present & (place == i), _PIECES.reshape(1, 1, 5), jnp.int8(0)), axis=-1)
        for i in (1, 2)
    ]
    first, second = (jnp.pad(x.astype(jnp.int8), 1) for x in words)
    first = jnp.where(first == 0, jnp.int8(_EMPTY), first)
    first = jnp.where(_walls(size), jnp.int8(_WALL), first)
    return MonstersTokens(jnp.stack([first, second], axis=-1), jnp.asarray(_INVENTORY)[held])


def _present(pieces: Int16[Array, " 5"], n: int) -> Bool[Array, "n n 5"]:
    cells = jnp.arange(n * n, dtype=jnp.int16).reshape(n, n, 1)
    return cells == pieces.reshape(1, 1, 5)


def _walls(size: int) -> Bool[np.ndarray, "size size"]:
    return np.pad(np.zeros((size - 2, size - 2), np.bool_), 1, constant_values=True)


def moves_open(cell: Int16[Array, ""], n: int) -> Bool[Array, " moves"]:
    """A mask of the moves that do not lead into a wall."""
    x, y = cell % n, cell // n
    return jnp.stack([jnp.ones_like(x, jnp.bool_), y > 0, y < n - 1, x > 0, x < n - 1])


def moved(cell: Int16[Array, ""], move: Int[Array, ""], n: int) -> Int16[Array, ""]:
    """The cell after a move. A move into a wall, or of a piece that is gone, has no effect."""
    x = jnp.clip(cell % n + jnp.asarray(_DX)[move], 0, n - 1)
    y = jnp.clip(cell // n + jnp.asarray(_DY)[move], 0, n - 1)
    return jnp.where(cell == GONE, cell, x + n * y)


def motion(
    cell: Int16[Array, ""], prey: Int16[Array, ""], n: int, sight: float, aggression: float
) -> Float32[Array, " moves"]:
    """The probabilities of the moves of a monster at `cell`; one that is gone stays.

    If `prey` is in sight, the monster makes a move that brings it nearer with probability
    `aggression`. Otherwise it makes any legal move.
    """
    dx, dy = (d.astype(jnp.int32) for d in (prey % n - cell % n, prey // n - cell // n))
    # Squared integers are compared, because XLA may round a square root differently from Python.
    reach = max(square for square in range(2 * n**2) if math.sqrt(square) <= sight)
    seen = dx**2 + dy**2 <= reach
    nearer = seen & jnp.stack([jnp.zeros_like(seen), dy < 0, dy > 0, dx < 0, dx > 0])
    eager = jnp.where(jnp.any(nearer), jnp.float32(aggression), jnp.float32(0.0))
    moves = eager * _uniform(nearer) + (1.0 - eager) * _uniform(moves_open(cell, n))
    return jnp.where(cell == GONE, (jnp.arange(NUM_MOVES) == 0).astype(jnp.float32), moves)


def drawn(odds: Float[Array, " moves"], share: Float[Array, ""]) -> Int32[Array, ""]:
    """The move at which the cumulative sum of the probabilities exceeds `share` in [0, 1).

    A move of probability 0 is never drawn.
    """
    # The probabilities are added one by one, so that adding 0 changes nothing. `share` is scaled by
    # their sum, which may be rounded to below 1.
    sums = list(itertools.accumulate(jnp.unstack(odds)))
    return jnp.sum(jnp.stack(sums) <= share * sums[-1], dtype=jnp.int32)


def fight(
    agent: Int16[Array, ""],
    target: Int16[Array, ""],
    distractor: Int16[Array, ""],
    held: Int8[Array, ""],
) -> tuple[Int16[Array, ""], Int16[Array, ""], Int16[Array, ""]]:
    """The cells of the three after the fights. The agent fights the target first."""
    gone = jnp.int16(GONE)
    # Two pieces that are gone have equal cells and are considered to meet, but both stay gone.
    meets_target = target == agent
    beats_target = meets_target & (held == HOLDS_GOOD)
    falls = meets_target & ~beats_target
    meets_distractor = (distractor == agent) & ~falls
    beats_distractor = meets_distractor & (held == HOLDS_BAD)
    falls |= meets_distractor & ~beats_distractor
    return (
        jnp.where(falls, gone, agent),
        jnp.where(beats_target, gone, target),
        jnp.where(beats_distractor, gone, distractor),
    )


def _uniform(among: Bool[Array, " moves"]) -> Float[Array, " moves"]:
    """A uniform distribution over the true entries; 0 everywhere if there are none."""
    number = jnp.sum(among, dtype=jnp.int32).astype(jnp.float32)
    return among.astype(jnp.float32) / jnp.maximum(number, 1.0)


def _caption(state: MonstersState) -> str:
    agent, target, *_ = np.asarray(state.pieces).tolist()
    end = ", won" if target < 0 <= agent else ", lost" if agent < 0 else ", over"
    item = ("nothing", "y", "n")[int(state.held)]
    return f"step {int(state.time)}, holds {item}{end if state.over else ''}"


def _piece(group: ET.Element, i: int, held: int) -> None:
    """Draws a piece around the origin."""
    if _SYMBOLS[i] in "yn":
        box = {"x": -_RADIUS, "y": -_RADIUS, "width": 2 * _RADIUS, "height": 2 * _RADIUS}
        add(group, "rect", None, rx=4, fill=_COLOURS[i], **box)
    else:
        shape = add(group, "circle", None, r=_RADIUS, fill=_COLOURS[i])
        if _SYMBOLS[i] == "@" and held:
            shape.attrib.update({"stroke": _COLOURS[2 + held], "stroke-width": "5"})
    add(group, "text", "letter", y=5).text = _SYMBOLS[i]

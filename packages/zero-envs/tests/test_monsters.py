"""The monsters of `groups_simple`: each rule, the odds of motion, starts, views, options."""

import math
import xml.etree.ElementTree as ET
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Monsters, MONSTERS_WORDS, MonstersState
from zero_envs.testing import check_environment


STAY, UP, DOWN, LEFT, RIGHT = range(5)
NOTHING, Y, N = range(3)
# What runs once is not worth optimising.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def pieces(board: str) -> list[int]:
    """The cells of `@!?yn` on a board such as `"@ . / !? y"`."""
    cells = board.replace("/", " ").split()
    return [next((i for i, cell in enumerate(cells) if x in cell), -1) for x in "@!?yn"]


def states(boards: list[str], held: list[int], time: int = 0) -> MonstersState:
    found = np.asarray([pieces(board) for board in boards], np.int16)
    over = np.any(found[:, :3] < 0, axis=1)
    steps = np.full(len(boards), time, np.int32)
    return MonstersState(*map(jnp.asarray, (found, np.asarray(held, np.int8), steps, over)))


class Rule(NamedTuple):
    """A turn: the board, what is held, the moves of agent, target and distractor, what follows."""

    name: str
    board: str
    held: int
    moves: tuple[int, int, int]
    after: str
    holds: int
    reward: float


RULES = [
    Rule("it takes the good item", "@ y . / . . . / ! ? n", NOTHING, (RIGHT, 0, 0),
         ". @ . / . . . / ! ? n", Y, 0),
    Rule("it takes the bad item", "@ . . / n . . / ! ? y", NOTHING, (DOWN, 0, 0),
         ". . . / @ . . / ! ? y", N, 0),
    Rule("a new item replaces the old one", "@ . . / n . . / ! ? .", Y, (DOWN, 0, 0),
         ". . . / @ . . / ! ? .", N, 0),
    Rule("also the good one", ". y @ / . . . / ! ? .", N, (LEFT, 0, 0),
         ". @ . / . . . / ! ? .", Y, 0),
    Rule("walls stop it", "@ . . / . . . / ! ? y", NOTHING, (UP, 0, 0),
         "@ . . / . . . / ! ? y", NOTHING, 0),
    Rule("they stop it on the other side", ". . . / . . . / ! ? @", N, (RIGHT, 0, UP),
         ". . . / . ? . / ! . @", N, 0),
    Rule("empty-handed it dies of the target", "@ ! . / . . . / y ? n", NOTHING, (RIGHT, 0, 0),
         ". ! . / . . . / y ? n", NOTHING, -1),
    Rule("empty-handed it dies of the distractor", "@ ? . / . . . / y ! n", NOTHING, (RIGHT, 0, 0),
         ". ? . / . . . / y ! n", NOTHING, -1),
    Rule("the good item beats the target", "@ ! . / . . . / . ? n", Y, (RIGHT, 0, 0),
         ". @ . / . . . / . ? n", Y, 1),
    Rule("the good item does not beat the distractor", "@ ? . / . . . / . ! n", Y, (RIGHT, 0, 0),
         ". ? . / . . . / . ! n", Y, -1),
    Rule("the bad item does not beat the target", "@ ! . / . . . / . ? .", N, (RIGHT, 0, 0),
         ". ! . / . . . / . ? .", N, -1),
    Rule("the bad item beats the distractor, and loses", "@ ? . / . . . / y ! .", N, (RIGHT, 0, 0),
         ". @ . / . . . / y ! .", N, -1),
    Rule("the target comes and is beaten", "@ . . / ! . . / . ? n", Y, (STAY, UP, 0),
         "@ . . / . . . / . ? n", Y, 1),
    Rule("the target comes and kills", "@ . . / ! . . / y ? n", NOTHING, (STAY, UP, 0),
         "! . . / . . . / y ? n", NOTHING, -1),
    Rule("it kills who holds the bad item", "@ . . / ! . . / y ? .", N, (STAY, UP, 0),
         "! . . / . . . / y ? .", N, -1),
    Rule("the distractor comes and kills", "@ . . / ? . . / . ! n", Y, (STAY, 0, UP),
         "? . . / . . . / . ! n", Y, -1),
    Rule("the distractor comes and is beaten", "@ . . / ? . . / y ! .", N, (STAY, 0, UP),
         "@ . . / . . . / y ! .", N, -1),
    Rule("the distractor avenges the target", "@ ! ? / . . . / . . n", Y, (RIGHT, 0, LEFT),
         ". ? . / . . . / . . n", Y, -1),
    Rule("the beaten target does not move", "@ ! ? / . . . / . . n", Y, (RIGHT, DOWN, DOWN),
         ". @ . / . . ? / . . n", Y, 1),
    Rule("the beaten distractor does not move", "@ ? . / . . . / y ! .", N, (RIGHT, LEFT, RIGHT),
         ". @ . / . . . / !y . .", N, -1),
    Rule("both come: the target dies first", "! @ ? / . . . / . . n", Y, (STAY, RIGHT, LEFT),
         ". ? . / . . . / . . n", Y, -1),
    Rule("both come: the target kills first", "! @ ? / . . . / y . .", N, (STAY, RIGHT, LEFT),
         ". !? . / . . . / y . .", N, -1),
    Rule("both are there: the target dies first", "@ !? . / . . . / . . n", Y, (RIGHT, 0, 0),
         ". ? . / . . . / . . n", Y, -1),
    Rule("both are there: the target kills first", "@ !? . / . . . / y . .", N, (RIGHT, 0, RIGHT),
         ". ! ? / . . . / y . .", N, -1),
    Rule("it takes the item before it fights", "@ !y . / . . . / . ? n", NOTHING, (RIGHT, 0, 0),
         ". @ . / . . . / . ? n", Y, 1),
    Rule("even if that disarms it", "@ !n . / . . . / . ? .", Y, (RIGHT, 0, 0),
         ". ! . / . . . / . ? .", N, -1),
    Rule("they cannot swap places", "@ ! . / . . . / y ? n", NOTHING, (RIGHT, LEFT, 0),
         "! . . / . . . / y ? n", NOTHING, -1),
    Rule("they meet where the agent went", "@ . ! / . . . / . ? n", Y, (RIGHT, LEFT, 0),
         ". @ . / . . . / . ? n", Y, 1),
    Rule("a monster may come where the agent was", "@ . . / ! . . / y ? n", NOTHING, (RIGHT, UP, 0),
         "! @ . / . . . / y ? n", NOTHING, 0),
    Rule("monsters and items share cells", "@ . . / ! . n / . ?y .", NOTHING, (STAY, DOWN, LEFT),
         "@ . . / . . n / !? y .", NOTHING, 0),
    Rule("monsters do not take items", "@ . . / . . . / !y . ?n", NOTHING, (STAY, UP, UP),
         "@ . . / ! . ? / y . n", NOTHING, 0),
    Rule("monsters outlive the agent and move", "@ ! . / . . . / y ? n", NOTHING, (RIGHT, 0, RIGHT),
         ". ! . / . . . / y . ?n", NOTHING, -1),
    Rule("nothing follows the end", ". ! . / . ? . / y . n", NOTHING, (RIGHT, LEFT, UP),
         ". ! . / . ? . / y . n", NOTHING, 0),
]  # fmt: skip


@pytest.fixture(scope="module")
def turns():
    """Every rule at once, with every outcome."""
    env = Monsters(5)
    before = states([rule.board for rule in RULES], [rule.held for rule in RULES])
    moves = jnp.asarray([rule.moves[0] for rule in RULES], jnp.int32)

    def turn(state, move):
        after = env.afterstate(state, move)
        each = jnp.arange(25, dtype=jnp.int32)
        return env.outcome_logits(after), jax.vmap(lambda i: env.resolve(after, i))(each)

    found = jax.jit(jax.vmap(turn), compiler_options=QUICK)(before, moves)
    return jax.tree.map(np.asarray, found)


@pytest.mark.parametrize("i", range(len(RULES)), ids=[rule.name for rule in RULES])
def test_a_turn(turns, i: int):
    rule = RULES[i]
    outcome = 5 * rule.moves[1] + rule.moves[2]
    after, transition = jax.tree.map(lambda x: x[i, outcome], turns[1])
    assert after.pieces.tolist() == pieces(rule.after)
    assert after.held == rule.holds
    over, was_over = (min(pieces(board)[:3]) < 0 for board in (rule.after, rule.board))
    assert (transition.reward, transition.discount) == (rule.reward, 1 - over)
    assert (transition.last, after.over) == (over, over)
    assert after.time == (0 if was_over else 1)


def test_outcomes_lead_to_different_states(turns):
    """Moves of who is gone are not drawn, and none at all after the end."""
    logits, (after, _) = turns
    possible = np.isfinite(logits)
    for row, cells in zip(possible, after.pieces, strict=True):
        assert len(np.unique(cells[row], axis=0)) == row.sum()
    assert possible[-1].tolist() == [True] + [False] * 24
    by_name = {rule.name: row.reshape(5, 5) for rule, row in zip(RULES, possible, strict=True)}
    assert by_name["the beaten target does not move"].sum(axis=1).tolist() == [3, 0, 0, 0, 0]
    assert by_name["the beaten distractor does not move"].sum(axis=0).tolist() == [4, 0, 0, 0, 0]


# Of a move that brings the monster nearer and of any other, by how many of either there are.
ODDS = {
    (1, 3): (0.6 + 0.4 / 3, 0.4 / 3),
    (1, 4): (0.7, 0.1),
    (1, 5): (0.68, 0.08),
    (2, 3): (0.3 + 0.4 / 3, 0.4 / 3),
    (2, 4): (0.4, 0.1),
    (2, 5): (0.38, 0.08),
}


def motion(size: int, **options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells of agent and target, both by the product of all, and the odds of its moves."""
    env = Monsters(size, distractor=False, bad_item=False, **options)
    n = (size - 2) ** 2
    agent, target = np.divmod(np.arange(n * n), n)
    apart = agent != target
    agent, target = agent[apart], target[apart]
    rows = np.full((len(agent), 5), -1, np.int16)
    rows[:, 0], rows[:, 1] = agent, target
    count = len(agent)
    state = MonstersState(
        jnp.asarray(rows),
        jnp.ones(count, jnp.int8),
        jnp.zeros(count, jnp.int32),
        jnp.zeros(count, jnp.bool_),
    )
    logits = jax.jit(
        jax.vmap(lambda s: env.outcome_logits(env.afterstate(s, jnp.int32(STAY)))),
        compiler_options=QUICK,
    )(state)
    return agent, target, np.exp(np.asarray(logits))


def geometry(side: int, agent: int, target: int) -> tuple[list[bool], list[bool]]:
    """Which moves bring the target nearer in Euclidean distance, and which are open."""
    near, open_ = [], []
    x, y = target % side, target // side
    prey = agent % side, agent // side
    for dx, dy in ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0)):
        open_.append(0 <= x + dx < side and 0 <= y + dy < side)
        near.append(math.dist((x + dx, y + dy), prey) < math.dist((x, y), prey))
    return near, open_


def test_odds_of_motion_in_every_class():
    seen = set()
    for agent, target, probs in zip(*motion(6), strict=True):
        near, open_ = geometry(4, agent, target)
        kind = sum(near), sum(open_)
        seen.add(kind)
        expected = np.where(near, *ODDS[kind]) * open_
        np.testing.assert_allclose(probs, expected, atol=1e-6)
    assert seen == ODDS.keys()


@pytest.mark.parametrize("size, sight", [(10, 5.0), (6, math.sqrt(2)), (6, 0.0)])
def test_sight_ends_the_hunt(size: int, sight: float):
    """At 5, as by default, on 10 x 10: pairs of cells 3 and 4 apart are just in sight."""
    side, hunting = size - 2, 0
    rows = motion(size, **({} if sight == 5.0 else {"sight": sight}))
    for agent, target, probs in zip(*rows, strict=True):
        near, open_ = geometry(side, agent, target)
        expected = np.asarray(open_) / sum(open_)
        if math.dist(divmod(int(agent), side), divmod(int(target), side)) <= sight:
            expected, hunting = np.where(near, *ODDS[sum(near), sum(open_)]) * open_, hunting + 1
        np.testing.assert_allclose(probs, expected, atol=1e-6)
    # Of 64 * 63 pairs; beside each other or diagonal on 4 x 4; none.
    assert hunting == {5.0: 2672, math.sqrt(2): 84, 0.0: 0}[sight]


@pytest.mark.parametrize("aggression", [0.0, 1.0])
def test_aggression_is_a_probability(aggression: float):
    for agent, target, probs in zip(*motion(4, aggression=aggression), strict=True):
        near, open_ = geometry(2, agent, target)
        expected = np.asarray(near) / sum(near) if aggression else np.asarray(open_) / sum(open_)
        np.testing.assert_allclose(probs, expected, atol=1e-6)


def start(env: Monsters, number: int) -> np.ndarray:
    keys = jr.split(jr.key(0), number)
    return np.asarray(jax.jit(jax.vmap(lambda key: env.init(key=key)))(keys).pieces)


def test_every_start_is_as_likely():
    """All 24 of the smallest game, and of the default one the places of some pairs."""
    small = start(Monsters(4, distractor=False, bad_item=False), 9600)
    assert (small[:, [2, 4]] == -1).all()
    codes = small[:, 0] * 16 + small[:, 1] * 4 + small[:, 3]
    cells = start(Monsters(), 19200)
    assert (np.diff(np.sort(cells, axis=1), axis=1) > 0).all() and cells.min() == 0
    pairs = [cells[:, i] * 16 + cells[:, j] for i, j in ((0, 1), (2, 4), (3, 1))]
    for drawn, number in ((codes, 24), *((pair, 240) for pair in pairs)):
        counts = np.unique(drawn, return_counts=True)[1]
        assert len(counts) == number
        expected = len(drawn) / number
        statistic = np.sum((counts - expected) ** 2 / expected)
        # Exceeded with probability exp(-20): Laurent and Massart 2000, lemma 1.
        assert statistic < number + 2 * math.sqrt(number * 20) + 40


def test_planes_are_the_drawing():
    boards = ["@ . . / . !? . / y . n", ". ! . / @ ?n . / . . .", ". . . / . !? . / y . n"]
    held = [NOTHING, Y, N]
    env, before = Monsters(5), states(boards, held)
    seen = jax.jit(jax.vmap(env.observe))(before)
    assert seen.features.shape == (3, 5, 5, 8) and seen.features.dtype == jnp.bool_
    for i, board in enumerate(boards):
        rows = [line.split() for line in board.split("/")]
        for k, symbol in enumerate("@!?yn"):
            expected = np.pad([[symbol in cell for cell in row] for row in rows], 1)
            assert np.array_equal(seen.features[i, :, :, k], expected)
        for k, item in ((5, Y), (6, N)):
            assert np.all(np.asarray(seen.features[i, :, :, k]) == (held[i] == item))
        assert np.array_equal(seen.features[i, :, :, 7], ~np.pad(np.ones((3, 3), bool), 1))
    # Walls bound the agent; all is legal, as filler, where the agent is dead.
    assert seen.legal.tolist() == [
        [True, False, True, False, True],
        [True, True, True, False, True],
        [True] * 5,
    ]


def test_tokens_are_the_words():
    boards = ["@ . y / . !?n . / . . .", "!y ?n . / . @ . / . . .", ". . . / !? . . / . . yn"]
    env, before = Monsters(5, observation="tokens"), states(boards, [NOTHING, Y, N])
    seen = jax.jit(jax.vmap(env.observe))(before)
    words = np.asarray(MONSTERS_WORDS, object)
    names = words[np.asarray(seen.features.names)]
    assert names.shape == (3, 5, 5, 2)
    assert words[np.asarray(seen.features.inventory)].tolist() == ["", "blessed", "gleaming"]
    ring = np.pad(np.zeros((3, 3), bool), 1, constant_values=True)
    assert (names[:, ring] == ["wall", ""]).all()
    inside = [
        ["you", "empty", "blessed", "empty", "cold fire", "empty", "empty", "empty", "empty"],
        ["cold blessed", "fire gleaming", "empty", "empty", "you", *["empty"] * 4],
        ["empty"] * 3 + ["cold fire"] + ["empty"] * 4 + ["blessed gleaming"],
    ]
    for i, expected in enumerate(inside):
        assert [" ".join(x).strip() for x in names[i][~ring]] == expected


def test_drawings():
    state = jax.tree.map(lambda x: x[0], states(["@ . y / . !?n . / . . ."], [Y], 7))
    env = Monsters(5)
    assert env.text(state).splitlines() == [
        "#   #   #   #   #",
        "#   @   .   y   #",
        "#   .   !?n .   #",
        "#   .   .   .   #",
        "#   #   #   #   #",
        "step 7, holds y",
    ]
    svg = ET.fromstring(env.render(state, scale=2.0))
    assert svg.attrib["width"] == "440"
    space = "{http://www.w3.org/2000/svg}"
    letters = [x.text or "" for x in svg.iter(f"{space}text") if x.attrib["class"] == "letter"]
    assert sorted(letters) == sorted("@!?yn")
    # None hides another, three in one cell or not.
    assert len({x.attrib["transform"] for x in svg.iter(f"{space}g")}) == 5
    kinds = [x.attrib.get("class") for x in svg.iter(f"{space}rect")]
    assert (kinds.count("wall"), kinds.count("cell")) == (16, 9)
    for board, end in (("@ . . / . . ? / y . n", "won"), (". ! . / . . ? / y . n", "lost")):
        last = jax.tree.map(lambda x: x[0], states([board], [Y]))
        assert env.text(last).endswith(f", {end}") and f", {end}</text>" in env.render(last)


@pytest.mark.parametrize("truncate", [False, True])
def test_the_time_limit(truncate: bool):
    """Step 9 of 9: nothing happens, the target is beaten, the agent dies, it was over before."""
    boards = ["@ . n / . . . / ! ? .", "@ ! . / . . . / . ? n", "@ ? . / . . . / . ! n"]
    boards = [*boards, ". ! . / . ? . / . . n", boards[0]]
    env = Monsters(5, moving=False, time_limit=9, truncate=truncate, step_penalty=0.25)
    before = states(boards, [Y] * 5, 8)
    before = MonstersState(before.pieces, before.held, before.time.at[4].set(7), before.over)

    def step(state, key):
        return env.step(state, jnp.int32(RIGHT), key=key)

    after, transition = jax.jit(jax.vmap(step))(before, jr.split(jr.key(0), 5))
    limit = (-0.25, 1.0) if truncate else (-1.0, 0.0)
    expected = [limit, (1.0, 0.0), (-1.0, 0.0), (0.0, 0.0), (-0.25, 1.0)]
    found = zip(transition.reward.tolist(), transition.discount.tolist(), strict=True)
    assert list(found) == expected
    assert transition.last.tolist() == after.over.tolist() == [True] * 4 + [False]
    assert after.time.tolist() == [9, 9, 9, 8, 8]
    # What was cut off is as final as what ended: no item is taken any more.
    again, stays = jax.jit(jax.vmap(step))(after, jr.split(jr.key(1), 5))
    for old, new in zip(jax.tree.leaves(after), jax.tree.leaves(again), strict=True):
        assert np.array_equal(old[:4], new[:4])
    assert stays.reward[:4].tolist() == stays.discount[:4].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "env, num_outcomes",
    [
        (Monsters(), 25),
        (Monsters(moving=False, bad_item=False, time_limit=9, truncate=True), 1),
        pytest.param(
            Monsters(5, distractor=False, observation="tokens", step_penalty=0.02),
            5,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["default", "stationary", "one monster"],
)
def test_keeps_every_promise(env: Monsters, num_outcomes: int):
    assert env.num_outcomes == num_outcomes
    report = check_environment(env, key=jr.key(0), num_steps=40)
    assert report.terminated > 2 and report.opponent == 0
    assert (report.truncated > 0) == env.truncate
    assert report.state_bytes == 16


@pytest.mark.parametrize(
    "options, named",
    [
        ({"size": 4}, "4 cells within the walls for 5 pieces; take size=5"),
        ({"size": 3, "distractor": False, "bad_item": False}, "1 cells .* 3 pieces; take size=4"),
        ({"size": 0}, "0 cells"),
        ({"size": 184}, "184"),
        ({"aggression": 1.1}, "1.1"),
        ({"aggression": -0.1}, "-0.1"),
        ({"aggression": math.nan}, "nan"),
        ({"sight": -1.0}, "-1.0"),
        ({"sight": math.nan}, "nan"),
        ({"step_penalty": -0.02}, "-0.02"),
        ({"step_penalty": math.inf}, "inf"),
        ({"time_limit": 0}, "time_limit=0"),
        ({"observation": "pixels"}, "'pixels'.*'planes' or 'tokens'"),
    ],
)
def test_says_what_is_wrong(options, named: str):
    with pytest.raises(ValueError, match=named) as caught:
        Monsters(**options)
    assert "\n" not in str(caught.value)

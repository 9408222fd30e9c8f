"""Worlds that hide their state, and what is known of it, against loops written from their rules."""

import functools as ft
import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest
from scipy import stats

import zero_envs
from zero_envs import (
    Filtered,
    LightDark,
    LightFilter,
    ParticleFilter,
    RockFilter,
    RockSample,
    Tag,
    TagFilter,
    Tiger,
    TigerFilter,
)
from zero_envs.testing import check_environment

from .helpers import close, play


ROCKS = RockSample(2, ((0, 0), (1, 1)), (0, 1), max_steps=9)
ROOM = Tag(((0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2)), lasers=True, max_steps=9)
WAYS = ((0, 1), (0, -1), (1, 0), (-1, 0))


def stepped(env: Any, states: Any, actions: Any, key: Any) -> Any:
    """One step and observation of each of a batch of states."""

    def one(state, action, key):
        after, transition = env.step(state, action, key=key)
        return after, transition, env.observe(after)

    keys = jr.split(key, len(actions))
    return jax.device_get(jax.jit(jax.vmap(one))(states, actions, keys))


def repeated(state: Any, number: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *jnp.shape(x))), state)


# ---- RockSample


def rock_step(position, good, action, size, rocks):
    """A step by the rules: the next position and rocks, the reward, and whether it ended."""
    good, (x, y) = list(good), position
    if action < 4:
        x, y = x + WAYS[action][0], y + WAYS[action][1]
        if x == size:
            return (x, y), good, 10.0, True
        return (max(x, 0), min(max(y, 0), size - 1)), good, 0.0, False
    if action == 4 and (x, y) in rocks:
        i = rocks.index((x, y))
        reward = 10.0 if good[i] else -10.0
        good[i] = False
        return (x, y), good, reward, False
    return (x, y), good, 0.0, False


def reads_good(position, good, rock, rocks):
    right = (1 + 2 ** (-math.dist(position, rocks[rock]) / 20)) / 2
    return right if good[rock] else 1 - right


def test_the_published_layouts():
    small, large = RockSample.of(7, 8), RockSample.of(11, 11)
    assert small.start == (0, 3) and large.start == (0, 5)
    assert small.rocks == ((2, 0), (0, 1), (3, 1), (6, 3), (2, 4), (3, 4), (5, 5), (1, 6))
    assert large.rocks[:3] == ((0, 3), (0, 7), (1, 8)) and large.rocks[-2:] == ((9, 3), (9, 9))
    assert len({*large.rocks}) == 11 and large.num_actions == 16
    drawn = RockSample.of(15, 15)
    assert drawn.start == (0, 7) and drawn == RockSample.of(15, 15, seed=0)
    assert drawn != RockSample.of(15, 15, seed=1)


def test_rock_sample_follows_the_rules(getkey):
    """Every action in every cell, with rocks of all kinds."""
    env = RockSample(3, ((0, 0), (2, 1), (1, 2)), (0, 1), max_steps=5)
    cells = [*itertools.product(range(3), range(3), *[(False, True)] * 3, range(8))]
    table = np.asarray(cells)
    states = zero_envs.RockSampleState(
        jnp.asarray(table[:, :2], jnp.int32),
        jnp.asarray(table[:, 2:5], jnp.bool_),
        jnp.zeros(len(table), jnp.int32),
        jnp.asarray(np.arange(len(table)) % 5, jnp.int32),
    )
    actions = jnp.asarray(table[:, 5], jnp.int32)
    after, transition, _ = stepped(env, states, actions, getkey())
    for i, (x, y, *good, action) in enumerate(cells):
        position, rocks, reward, end = rock_step((x, y), good, action, 3, env.rocks)
        assert (*after.position[i],) == position and [*after.good[i]] == rocks
        assert transition.reward[i] == reward and transition.discount[i] == 1 - end
        assert transition.last[i] == (end or i % 5 == 4) and after.steps[i] == i % 5 + 1
    assert (after.reading[table[:, 5] < 5] == 0).all() and (
        after.reading[table[:, 5] > 4] > 0
    ).all()


def test_readings_of_rocks_are_as_likely_as_said(getkey):
    env = RockSample.of(11, 11)
    state = eqx.tree_at(lambda s: s.good, env.init(key=getkey()), jnp.arange(11) % 2 == 0)
    number, log_prob = 4000, jax.jit(env.observation_log_prob)
    for action in (8, 15):
        after, _, obs = stepped(env, repeated(state, number), jnp.full(number, action), getkey())
        each = [eqx.tree_at(lambda s: s.reading, state, jnp.int32(i)) for i in range(3)]
        odds = [log_prob(env.observe(x), state, jnp.int32(action), state) for x in each]
        odds = np.exp(odds)
        good = reads_good(env.start, np.arange(11) % 2 == 0, action - 5, env.rocks)
        np.testing.assert_allclose(odds, [0, 1 - good, good], atol=1e-6)
        close(np.bincount(after.reading, minlength=3), odds)
        assert (obs.features[:, 2:].argmax(1) == after.reading).all()


@pytest.fixture(scope="module")
def rock_games():
    filters = [RockFilter(), ParticleFilter(1000, 1.0), ParticleFilter(1000, 0.0)]
    return play(ROCKS, filters, jr.key(0), 24, 10)


def test_the_belief_in_rocks_is_that_of_all_states(rock_games):
    """Bayes' rule over the four states, also of the reward that is to be expected."""
    _, (seen, both) = rock_games
    (exact, expected), (cloud, guessed), (never, _) = both
    lost = ended = 0
    for game in range(len(seen["action"])):
        position, worlds = ROCKS.start, {good: 0.25 for good in itertools.product((0, 1), (0, 1))}
        for i, action in enumerate(seen["action"][game]):
            parts = {w: rock_step(position, w, action, 2, ROCKS.rocks) for w in worlds}
            reward = sum(p * parts[w][2] for w, p in worlds.items())
            assert expected[game, i] == pytest.approx(reward, abs=1e-4)
            reading, new = seen["features"][game, i, 2:].argmax(), {}
            for w, p in worlds.items():
                if action > 4:
                    good = reads_good(position, w, action - 5, ROCKS.rocks)
                    p *= good if reading == 2 else 1 - good
                after = tuple(int(x) for x in parts[w][1])
                new[after] = new.get(after, 0.0) + p
            position = parts[(0, 0)][0]
            worlds = {w: p / sum(new.values()) for w, p in new.items()}
            chances = [sum(p for w, p in worlds.items() if w[k]) for k in range(2)]
            odds = exact.log_odds[game, i].astype(np.float64)
            np.testing.assert_allclose(1 / (1 + np.exp(-odds)), chances, atol=1e-5)
            assert (*exact.known.position[game, i],) == position
            lost += cloud.lost[game, i] + never.lost[game, i]
            if seen["last"][game, i]:
                ended += 1
                break
            for belief in (cloud, never):
                weights = np.exp(belief.log_weights[game, i])
                np.testing.assert_allclose(
                    weights @ belief.states.good[game, i], chances, atol=0.12
                )
            assert guessed[game, i] == pytest.approx(reward, abs=2)
    assert ended > 10 and lost == 0


# ---- Tag


@ft.cache
def flights(agent, opponent, cells):
    """The next cells of the opponent, by the rules."""
    odds = {opponent: 0.2}
    for axis in (0, 1):
        away = np.sign(opponent[axis] - agent[axis])
        for way in (1, -1):
            chance = 0.2 if away == 0 else 0.4 if away == way else 0.0
            place = list(opponent)
            place[axis] += way
            place = tuple(place) if tuple(place) in cells else opponent
            odds[place] = odds.get(place, 0.0) + chance
    return odds


def moves(agent, action, cells):
    if action == 4:
        return agent
    place = agent[0] + WAYS[action][0], agent[1] + WAYS[action][1]
    return place if place in cells else agent


@ft.cache
def ranges(agent, opponent, cells):
    """The cells to the next obstacle or opponent in eight directions, diagonals longer."""
    found = []
    for way in (*WAYS, (1, 1), (1, -1), (-1, 1), (-1, -1)):
        n = 1
        while (place := (agent[0] + n * way[0], agent[1] + n * way[1])) in cells:
            if place == opponent:
                break
            n += 1
        found.append(n * math.hypot(*way))
    return found


@ft.cache
def reading_odds(distance, most=12):
    """The law of the distance less the size of normal noise, rounded down and at least 0."""
    law = stats.halfnorm(scale=2.5)
    at_least = [1.0, *(law.cdf(max(distance - r, 0)) for r in range(1, most)), 0.0]
    return -np.diff(at_least)


def test_the_map_of_tag():
    cells = Tag().cells
    assert len(cells) == len({*cells}) == 29
    assert sum(y < 2 for _, y in cells) == 20 and {x for x, y in cells if y > 1} == {5, 6, 7}
    assert max(y for _, y in cells) == 4
    laser = Tag.laser(3)
    assert len(laser.cells) == 69 and laser.cells == Tag.laser(3).cells != Tag.laser(4).cells
    assert {*laser.cells} <= {*itertools.product(range(11), range(7))}


def test_tag_follows_the_rules(getkey):
    """Every action in every pair of cells of a room with an obstacle; the flight by its odds."""
    cells, number = ROOM.cells, len(ROOM.cells)
    table = np.asarray([*itertools.product(range(number), range(number), range(5))] * 40)
    agent, opponent, action = (jnp.asarray(x, jnp.int32) for x in table.T)
    states = zero_envs.TagState(
        agent,
        opponent,
        jnp.zeros((len(table), 8), jnp.int32),
        jnp.zeros(len(table), jnp.bool_),
        jnp.asarray(np.arange(len(table)) % 9, jnp.int32),
    )
    after, transition, obs = stepped(ROOM, states, action, getkey())
    counts: dict[Any, Any] = {}
    for n, (i, j, a) in enumerate(table):
        hit = i == j and a == 4
        assert cells[after.agent[n]] == moves(cells[i], a, cells)
        assert transition.reward[n] == ((10 if hit else -10) if a == 4 else -1)
        assert transition.discount[n] == 1 - hit and transition.last[n] == (hit or n % 9 == 8)
        assert (obs.features[n] == after.readings[n]).all()
        assert (obs.features[n] == -1).all() == (after.agent[n] == after.opponent[n])
        if hit:
            assert after.opponent[n] == j and after.tagged[n]
        else:
            counts.setdefault((i, j), np.zeros(number))[after.opponent[n]] += 1
    for (i, j), found in counts.items():
        odds = flights(cells[i], cells[j], cells)
        close(found, [odds.get(cell, 0.0) for cell in cells])


def test_readings_of_lasers_are_as_likely_as_said(getkey):
    """The law of single readings from pairs of which all else is equal, and their frequencies."""
    env = Tag.laser(1)
    number = 3000
    state = env.init(key=getkey())
    after, _, obs = stepped(env, repeated(state, number), jnp.full(number, 0), getkey())
    after, obs = jax.tree.map(lambda x: x[after.agent != after.opponent], (after, obs))
    pairs, each = np.unique(np.stack([after.agent, after.opponent]), axis=1, return_inverse=True)
    log_prob = jax.jit(jax.vmap(env.observation_log_prob, (0, None, None, 0)))
    said = log_prob(obs, state, jnp.int32(0), after)
    wanted = np.zeros(len(said))
    for n, (i, j) in enumerate(pairs.T):
        mine = obs.features[each.reshape(-1) == n].astype(int)
        for laser, distance in enumerate(ranges(env.cells[i], env.cells[j], env.cells)):
            odds = reading_odds(distance)
            wanted[each.reshape(-1) == n] += np.log(odds[mine[:, laser]])
            close(np.bincount(mine[:, laser], minlength=12), odds)
    np.testing.assert_allclose(said, wanted, rtol=1e-3, atol=1e-3)
    nothing = env.observe(env.init(key=getkey()))
    first = jax.jit(env.observation_log_prob)
    assert first(nothing, state, jnp.int32(-1), state) == 0
    assert first(nothing, state, jnp.int32(0), state) == -jnp.inf


@pytest.mark.parametrize("env", [Tag(max_steps=16), ROOM], ids=["tag", "lasertag"])
def test_the_belief_of_tag_is_that_of_all_states(env):
    """Bayes' rule over all pairs of cells, and the particles come near."""
    cells, number = env.cells, len(env.cells)
    filters = [TagFilter(), ParticleFilter(2000)]
    first, (seen, both) = play(env, filters, jr.key(1), 16, env.max_steps)
    (exact, expected), (cloud, guessed) = both
    caught, far = 0, []
    for game in range(len(first)):
        look = lambda i, j, row: _tag_odds(env, cells[i], cells[j], row)
        odds = np.full((number, number), 1.0)
        if not env.lasers:
            odds = np.asarray(
                [[look(i, j, first[game]) for j in range(number)] for i in range(number)]
            )
        odds = odds / odds.sum()
        for t, action in enumerate(seen["action"][game]):
            row, last = seen["features"][game, t], seen["last"][game, t]
            met = np.trace(odds)
            reward = 20 * met - 10 if action == 4 else -1
            assert expected[game, t] == pytest.approx(reward, abs=1e-3)
            assert guessed[game, t] == pytest.approx(reward, abs=2)
            if last:
                caught += t + 1 < env.max_steps
                break
            new = np.zeros_like(odds)
            for i, j in np.argwhere(odds > 0):
                if action == 4 and i == j:
                    continue
                at = cells.index(moves(cells[i], action, cells))
                for place, chance in flights(cells[i], cells[j], cells).items():
                    new[at, cells.index(place)] += odds[i, j] * chance
            for i, j in np.argwhere(new > 0):
                new[i, j] *= look(i, j, row)
            odds = new / new.sum()
            told = exact.odds[game, t]
            own = slice(None) if env.lasers else exact.known.agent[game, t : t + 1]
            np.testing.assert_allclose(told, odds[own], atol=1e-4)
            assert told.sum() == pytest.approx(1, abs=1e-4)
            weights = np.exp(cloud.log_weights[game, t])
            found = np.zeros_like(odds)
            states = cloud.states
            np.add.at(found, (states.agent[game, t], states.opponent[game, t]), weights)
            far.append(np.abs(found - odds).sum())
    assert caught > 0 and np.mean(far) < 0.25


def _tag_odds(env, agent, opponent, row):
    if not env.lasers:
        return float((*row,) == (*agent, agent == opponent))
    if agent == opponent or row[0] == -1:
        return float(agent == opponent and row[0] == -1)
    lengths = ranges(agent, opponent, env.cells)
    return np.prod([reading_odds(d)[int(r)] for d, r in zip(lengths, row, strict=True)])


# ---- Tiger


def test_the_optimum_of_the_tiger():
    """Value iteration over a fine grid of beliefs: the figure of its docstring."""
    gamma, grid = 0.95, np.linspace(0, 1, 20001)
    heard = 0.85 * grid + 0.15 * (1 - grid)
    left = 0.85 * grid / heard
    right = 0.15 * grid / (1 - heard)
    value = np.zeros_like(grid)
    for _ in range(600):
        listen = -1 + gamma * (
            heard * np.interp(left, grid, value) + (1 - heard) * np.interp(right, grid, value)
        )
        anew = gamma * np.interp(0.5, grid, value)
        value = np.maximum(listen, np.maximum(10 - 110 * grid, 110 * grid - 100) + anew)
    best = np.interp(0.5, grid, value)
    assert f"is {best:.2f}" in (Tiger.__doc__ or "")


@pytest.mark.parametrize("effective", [0.0, 0.5, 1.0])
def test_the_belief_in_the_tiger_is_exact_and_particles_come_near(effective):
    """Whether they are never, sometimes or always drawn anew."""
    env = Tiger(max_steps=8)
    filters = [TigerFilter(), ParticleFilter(1000, effective)]
    first, (seen, both) = play(env, filters, jr.key(2), 16, 8)
    (exact, awaited), (belief, expected) = both
    for game in range(len(first)):
        right = 0.5
        for t, action in enumerate(seen["action"][game]):
            reward = -1.0 if action == 0 else 10 - 110 * (right if action == 2 else 1 - right)
            assert awaited[game, t] == pytest.approx(reward, abs=1e-4)
            assert expected[game, t] == pytest.approx(reward, abs=9)
            heard = seen["features"][game, t].argmax()
            law = {0: (0.5, 0.5), 1: (0.15, 0.85), 2: (0.85, 0.15)}[int(heard)]
            before = 0.5 if action else right
            right = before * law[0] / (before * law[0] + (1 - before) * law[1])
            assert jax.nn.sigmoid(exact.log_odds[game, t]) == pytest.approx(right, abs=1e-5)
            weights = np.exp(belief.log_weights[game, t])
            assert weights @ belief.states.tiger[game, t] == pytest.approx(right, abs=0.1)
    assert (belief.lost == 0).all()


def test_an_impossible_observation_makes_the_belief_in_the_tiger_nan(getkey):
    """Of nothing after listening, and of a tiger that is heard after opening a door."""
    env, exact = Tiger(), TigerFilter()
    state = env.init(key=getkey())
    belief = exact.init(env, env.observe(state), key=getkey())
    seen = lambda heard: env.observe(eqx.tree_at(lambda s: s.heard, state, jnp.int32(heard)))
    for action, heard in ((0, 0), (1, 1), (2, 2)):
        told = jnp.int32(action), seen(heard), jnp.bool_(False)
        after, _ = exact.update(env, belief, *told, key=getkey())
        assert jnp.isnan(after.log_odds)
    opened = jnp.int32(1), seen(0), jnp.bool_(False)
    assert exact.update(env, after, *opened, key=getkey())[0].log_odds == 0


# ---- All of them


ENVS: Any = zero_envs


@pytest.mark.parametrize(
    "env", [ROCKS, ROOM, Tag(ROOM.cells, max_steps=9), LightDark(max_steps=4), Tiger(max_steps=9)]
)
def test_worlds_keep_what_environments_promise(env, getkey):
    exact = {RockSample: RockFilter(), Tag: TagFilter(), LightDark: LightFilter(9)}
    exact[Tiger] = TigerFilter()
    for one in (env, Filtered(env, exact[type(env)])):
        report = check_environment(one, key=getkey(), num_steps=12, num_envs=64)
        assert report.truncated > 0 and (report.terminated > 0 or type(env) is Tiger)


@pytest.mark.usefixtures("unhooked")
def test_numbers_of_numpy_are_numbers(getkey):
    assert ENVS.Minesweeper(np.uint8(20), np.uint8(20), 40).num_actions == 400
    light = ENVS.LightDark(slope=np.float64(1), start=(np.float64(2.0), np.float64(3.0)))
    assert [*map(type, jax.tree.leaves(light))] == [*map(type, jax.tree.leaves(LightDark()))]
    same = ENVS.RockSample.of(np.int64(7), np.int64(8)), ENVS.RockSample.of(7, 8)
    assert eqx.tree_equal(*same)
    monsters = ENVS.Monsters(np.int64(6))
    state = monsters.init(key=getkey())
    after, _ = monsters.step(state, jnp.int32(1), key=getkey())
    assert after.pieces.dtype == state.pieces.dtype
    for action in (2**32, np.int64(2**32), np.uint64(2**63), -1, 2**70):
        with pytest.raises(ValueError, match=f"Tiger: the action is {action}; it must be one"):
            ENVS.Tiger().step(ENVS.Tiger().init(key=getkey()), action, key=getkey())


@pytest.fixture
def unchecked():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: ENVS.Filtered(ENVS.CartPole()), "env=CartPole.*it hides nothing"),
        (lambda: ENVS.Filtered(ENVS.Filtered(ENVS.Tiger())), "does not say how likely"),
        (lambda: ENVS.Filtered(ENVS.Tiger(), 3), "filter=3.*must be an AbstractFilter"),
        (lambda: ENVS.ParticleFilter(0), "num_particles=0"),
        (lambda: ENVS.ParticleFilter(effective=2.0), "effective=2.0"),
        (lambda: ENVS.Tiger(0), "max_steps=0"),
        (lambda: ENVS.RockSample(3, ((0, 3),), (0, 0)), r"rocks=\(\(0, 3\),\).*from 0 to 2"),
        (lambda: ENVS.RockSample(3, ((0, 1), (0, 1)), (0, 0)), "rocks=.*different pairs"),
        (lambda: ENVS.RockSample(3, ((0, 1),), (0, 0.5)), r"start=\(\(0, 0.5\),\)"),
        (lambda: ENVS.RockSample.of(2, 5), "num_rocks=5.*only 4 cells"),
        (lambda: ENVS.RockSample.of(2, 2, -1), "seed=-1"),
        (lambda: ENVS.Tag(()), r"cells=\(\)"),
        (lambda: ENVS.Tag.laser(0.5), "seed=0.5"),
        (lambda: ENVS.LightDark((1, 2)), r"moves=\(1, 2\).*must be 0"),
        (lambda: ENVS.LightDark(noise=0.0), "noise=0.0"),
        (lambda: ENVS.LightDark(start=(0.0, -1.0)), "start=-1.0"),
        (lambda: ENVS.LightDark.betazero(7), "light=7.*5 or 10"),
        (lambda: ENVS.LightFilter(1), "num_points=1.*2"),
        (lambda: ENVS.make("tiger", doors=3), r'make\("tiger"\).*doors'),
    ],
)
@pytest.mark.filterwarnings("ignore:Using `field:UserWarning")
def test_bad_arguments_are_refused_in_one_line(call, said, unchecked):
    with pytest.raises(ValueError, match=said) as raised:
        call()
    assert "\n" not in str(raised.value)

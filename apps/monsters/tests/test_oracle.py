"""The exact values of `Monsters`: published figures, Bellman's equation through `step`, paths."""

import collections
import functools as ft
import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Monsters, MonstersState
from zero_monsters.oracle import MonstersEpisode, MonstersOracle


def states(pieces: np.ndarray, held: np.ndarray, over: bool = False) -> MonstersState:
    number = len(pieces)
    put = lambda x, dtype: jax.device_put(x.astype(dtype))
    return MonstersState(
        put(pieces, np.int16),
        put(held, np.int8),
        put(np.zeros(number), np.int32),
        put(np.full(number, over), np.bool_),
    )


@pytest.fixture(scope="module")
def moving(oracle_of) -> MonstersOracle:
    return oracle_of(Monsters())


@pytest.fixture(scope="module")
def stationary(oracle_of) -> MonstersOracle:
    return oracle_of(Monsters(moving=False))


# By exact dynamic programming on the rules of the original engine, to the digits printed.
@pytest.mark.parametrize(
    "world, policy, rollout, episode",
    [
        ("stationary", "optimal", 5.404, (0.9952, 0.9952, 0.0)),
        ("moving", "optimal", 4.589, (0.8950, 0.9474, 0.0524)),
        ("stationary", "random", -1.763, (-0.678, 0.094, 0.772)),
        ("moving", "random", -8.958, (-0.899, 0.0505, 0.9495)),
    ],
)
def test_returns_and_rates(request, world: str, policy: str, rollout: float, episode):
    oracle = request.getfixturevalue(world)
    assert oracle.rollout(32, policy) == pytest.approx(rollout, abs=5e-4)
    found = oracle.episode(32, policy)
    coarse = (world, policy) == ("stationary", "random")
    assert found == pytest.approx(episode, abs=5e-4 if coarse else 1e-4)
    assert found.return_mean == pytest.approx(found.win_rate - found.loss_rate, abs=1e-12)


@pytest.mark.parametrize(
    "world, gamma, value",
    [
        ("stationary", 0.9, 0.6295),
        ("stationary", 0.99, 0.9511),
        ("moving", 0.9, 0.5357),
        ("moving", 0.99, 0.8472),
    ],
)
def test_values_of_a_start(request, world: str, gamma: float, value: float):
    assert request.getfixturevalue(world).start_value(gamma=gamma) == pytest.approx(value, abs=5e-5)


def test_a_move_that_costs_what_a_move_earns_makes_a_stationary_player_nearly_optimal(moving):
    """With the rate at which rewards come as the cost of a move (average-reward optimality), the
    policy that ignores how many moves are left loses 0.03 of 4.589, and 0.19 without a cost."""
    best = moving.rollout(32)
    assert moving.rollout(32, "greedy", gamma=0.9, step_penalty=best / 32) > best - 0.04
    assert moving.rollout(32, "greedy", gamma=0.9) < best - 0.18


def test_values_with_a_step_penalty_are_those_of_the_world_that_has_it(moving, oracle_of):
    state = random_states(np.random.default_rng(0), moving.env, 50)
    costly = oracle_of(Monsters(step_penalty=0.1)).qvalues(state, gamma=0.9)
    np.testing.assert_array_equal(moving.qvalues(state, gamma=0.9, step_penalty=0.1), costly)


def test_a_long_episode(moving: MonstersOracle):
    assert moving.episode(80).return_mean == pytest.approx(0.8950, abs=5e-5)


def test_one_start_in_210_has_no_solution(stationary: MonstersOracle):
    """Looked up one by one, all 524 160 of them, which also gives their mean."""
    starts = np.asarray(list(itertools.permutations(range(16), 5)))
    values = stationary.qvalues(states(starts, np.zeros(len(starts)))).max(axis=1)
    assert np.sum(values == 0) == len(starts) // 210
    assert values.min() == 0
    assert values.mean() == pytest.approx(stationary.start_value(), abs=1e-9)
    assert stationary.episode(32).win_rate == pytest.approx(209 / 210, abs=1e-12)


def random_states(rng: np.random.Generator, env: Monsters, number: int) -> MonstersState:
    """With the agent in a cell of its own."""
    cells = (env.size - 2) ** 2
    pieces = np.asarray([rng.permutation(cells)[:5] for _ in range(number)])
    pieces[:, 2] = (pieces[:, 0] + 1 + rng.integers(cells - 1, size=number)) % cells
    held = rng.integers(3 if env.bad_item else 2, size=number)
    if env.bad_item:
        taken = rng.integers(2, size=number) == 0
        pieces[(held == 1) | (taken & (held == 2)), 3] = -1
        pieces[(held == 2) | (taken & (held == 1)), 4] = -1
    else:
        pieces[held == 1, 3], pieces[:, 4] = -1, -1
    if not env.distractor:
        pieces[:, 2] = -1
    return states(pieces, held)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"moving": False},
        {"size": 5, "sight": 1.5, "aggression": 0.9, "step_penalty": 0.1},
        {"distractor": False, "aggression": 0.0},
        {"bad_item": False, "moving": False, "step_penalty": 0.02},
    ],
    ids=str,
)
def test_bellmans_equation_holds_through_the_environment(oracle_of, options):
    """`Q(s, a) = E[r + gamma max_b Q(s', b)]`, with the environment's outcomes and rewards.

    Only the optimal values satisfy it, so this is a check of both, written apart from each other.
    """
    env, gamma = Monsters(**options), 0.9
    oracle = oracle_of(env)
    before = random_states(np.random.default_rng(0), env, 400)

    def turn(state, action):
        after = env.afterstate(state, action)
        each = jnp.arange(env.num_outcomes, dtype=jnp.int32)
        landed = jax.vmap(lambda i: env.resolve(after, i))(each)
        return env.outcome_logits(after), landed

    @jax.jit
    def turns(before):
        every = jax.vmap(jax.vmap(turn, in_axes=(None, 0)), in_axes=(0, None))
        return every(before, jnp.arange(5, dtype=jnp.int32)), jax.vmap(env.observe)(before).legal

    (logits, (landed, transition)), legal = jax.device_get(turns(before))
    probs = np.exp(np.asarray(logits, np.float64))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:])[probs.ravel() > 0], landed)
    values = np.zeros(probs.shape)
    values[probs > 0] = oracle.qvalues(flat, gamma=gamma).max(axis=1)
    returns = transition.reward + gamma * transition.discount * values
    expected = np.where(legal, (probs * returns).sum(axis=2), -np.inf)
    found = oracle.qvalues(before, gamma=gamma)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.ptp(found[np.isfinite(found)]) > 0.1


def distance(start: int, goal: int, walls: set[int]) -> float:
    """The length of a shortest path on 4 x 4, breadth first."""
    queue, lengths = collections.deque([start]), {start: 0}
    while queue:
        cell = queue.popleft()
        for dx, dy in ((0, -1), (0, 1), (-1, 0), (1, 0)):
            x, y = cell % 4 + dx, cell // 4 + dy
            new = 4 * y + x
            if 0 <= x < 4 and 0 <= y < 4 and new not in lengths and new not in walls:
                lengths[new] = lengths[cell] + 1
                queue.append(new)
    return lengths.get(goal, math.inf)


def test_stationary_values_are_lengths_of_paths(stationary: MonstersOracle):
    """To the good item round the monsters, and round the bad item or over it; then to the target
    round the distractor, and round the bad item if it is still there."""
    starts = np.asarray([np.random.default_rng(i).permutation(16)[:5] for i in range(300)])
    expected = []
    for agent, target, distractor, good, bad in starts.tolist():
        round_ = distance(agent, good, {target, distractor, bad})
        round_ += distance(good, target, {distractor, bad})
        over = distance(agent, bad, {target, distractor})
        over += distance(bad, good, {target, distractor}) + distance(good, target, {distractor})
        length = min(round_, over)
        expected.append(0.99 ** (length - 1) if length < math.inf else 0.0)
    values = stationary.qvalues(states(starts, np.zeros(300))).max(axis=1)
    np.testing.assert_allclose(values, expected, atol=1e-9)


def test_regret(moving: MonstersOracle):
    env = moving.env
    before = random_states(np.random.default_rng(1), env, 200)
    qvalues = moving.qvalues(before)
    best = qvalues.argmax(axis=1)
    assert (moving.regret(before, best) == 0).all()
    legal = np.asarray(jax.jit(jax.vmap(env.observe))(before).legal)
    assert np.array_equal(np.isfinite(qvalues), legal)
    worst = np.where(legal, qvalues, np.inf).argmin(axis=1)
    lost = moving.regret(before, worst)
    assert np.isfinite(lost).all() and lost.max() > 1.0
    over = states(np.asarray(before.pieces), np.asarray(before.held), over=True)
    assert (moving.qvalues(over) == 0).all() and (moving.regret(over, worst) == 0).all()


def test_the_greedy_policy_is_the_one_that_plays_its_values():
    """On 2 x 2 cells, against rollouts of the environment itself."""
    env = Monsters(4, distractor=False, bad_item=False)
    oracle, number, steps = MonstersOracle(env), 4000, 8
    choose = jax.vmap(lambda last, *states: jax.tree.map(ft.partial(jnp.where, last), *states))

    @jax.jit
    def init(seed):
        return jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(seed), number))

    @jax.jit
    def play(state, action, seed):
        keys = jr.split(jr.fold_in(jr.key(0), seed), number)
        step = jax.vmap(lambda state, action, key: env.step(state, action, key=key))
        after, transition = step(state, action, keys)
        return choose(transition.last, init(seed), after), transition.reward

    state, total = init(0), np.zeros(number)
    for turn in range(1, steps + 1):
        action = np.argmax(oracle.qvalues(state, gamma=0.5), axis=1).astype(np.int32)
        state, reward = play(state, action, turn)
        total += np.asarray(reward)
    exact = oracle.rollout(steps, "greedy", gamma=0.5)
    assert total.mean() == pytest.approx(exact, abs=4 * total.std() / number**0.5)
    # It does not know that the end is near.
    assert oracle.rollout(steps, "random") < exact - 1 < oracle.rollout(steps) - 1


def test_without_a_future_only_this_step_counts(moving: MonstersOracle):
    """`gamma=0`: armed and beside the target, 1 for going there unless the distractor comes."""
    pieces = np.asarray([[0, 1, 15, -1, 14], [0, 1, 2, -1, 14]])
    qvalues = moving.qvalues(states(pieces, np.ones(2)), gamma=0.0)
    # The distractor is 2 to the right, in an edge cell: one move nearer, four in all.
    assert qvalues[:, 4] == pytest.approx([1.0, 1.0 - 2 * (0.6 + 0.4 / 4)], abs=1e-12)


def test_says_what_is_wrong(moving: MonstersOracle):
    with pytest.raises(ValueError, match="1091043328 states"):
        MonstersOracle(Monsters(10))
    with pytest.raises(ValueError, match="gamma=1.0"):
        moving.start_value(gamma=1.0)
    for wrong in (-0.5, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"step_penalty={wrong}; it must be finite and at lea"):
            moving.rollout(2, "greedy", step_penalty=wrong)
    with pytest.raises(ValueError, match="policy='best'.*'optimal', 'greedy' or 'random'"):
        moving.rollout(policy="best")
    with pytest.raises(ValueError, match="1000 steps.* 1 to 999"):
        moving.episode(1000)
    with pytest.raises(ValueError, match="no game comes to.*size=6.*bad_item=True"):
        moving.qvalues(states(np.asarray([[0, 1, 2, 3, 4]]), np.ones(1)))
    with pytest.raises(ValueError, match="no game comes to.*size=6"):
        moving.qvalues(states(np.asarray([[16, 1, 2, 3, 4]]), np.zeros(1)))
    assert isinstance(moving.episode(1), MonstersEpisode)

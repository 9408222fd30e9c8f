"""The pgx adapter against pgx itself, published counts, and the conventions of `Transition`."""

import sys
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pgx
import pytest
from jaxtyping import Array

from zero_envs import PgxEnvironment, PgxState
from zero_envs.testing import check_environment

from .helpers import MovingGame


NUM_GAMES = 8
# Long enough for most random games of that id to end.
LENGTHS = {"othello": 70, "backgammon": 400, "2048": 250}
# Games of two players whose returns are -1, 0 and 1.
OF_ONE = ("animal_shogi", "chess", "gardner_chess", "go_9x9", "go_19x19", "hex", "othello", "shogi")
# What runs once is not worth optimising: compiling it so takes a third of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def _legal(env: PgxEnvironment, state: PgxState) -> Array:
    legal = env.observe(state).legal
    assert legal is not None
    return legal


class Games(NamedTuple):
    """Random games, `[games, steps, ...]`, and the same ones replayed by pgx alone."""

    player: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    last: np.ndarray
    raw_player: np.ndarray
    raw_rewards: np.ndarray
    raw_ended: np.ndarray


@pytest.fixture(scope="module", params=list(LENGTHS))
def games(request) -> Games:
    name = request.param
    env = PgxEnvironment(name)
    game = pgx.make(name)
    steps = jnp.arange(LENGTHS[name], dtype=jnp.uint32)

    def ours(seed: Array):
        def body(state: PgxState, step: Array):
            akey, skey = jr.split(jr.fold_in(jr.key(seed), step))
            legal = _legal(env, state)
            logits = jnp.where(legal, jnp.float32(0), jnp.float32(-jnp.inf))
            action = jr.categorical(akey, logits).astype(jnp.int32)
            player = state.position.current_player
            state, t = env.step(state, action, key=skey)
            return state, (player, action, t.reward, t.discount, t.last)

        return jax.lax.scan(body, env.init(key=jr.key(seed)), steps)[1]

    def theirs(seed: Array, actions: Array):
        def body(state: Any, inputs: tuple[Array, Array]):
            step, action = inputs
            skey = jr.key_data(jr.split(jr.fold_in(jr.key(seed), step))[1])
            state = game.step(state, action, skey)
            # pgx keeps the reward of a final state's own step only; stepping on gives zero.
            return state, (state.current_player, state.rewards, state.terminated)

        start = game.init(jr.key_data(jr.key(seed)))
        start = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), start)
        return jax.lax.scan(body, start, (steps, actions))[1]

    seeds = jnp.arange(NUM_GAMES, dtype=jnp.uint32)
    player, action, reward, discount, last = jax.jit(jax.vmap(ours), compiler_options=QUICK)(seeds)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        raw = jax.jit(jax.vmap(theirs), compiler_options=QUICK)(seeds, action)
    return Games(*map(np.asarray, (player, action, reward, discount, last, *raw)))


def test_the_signed_return_is_what_pgx_pays_the_mover(games: Games):
    """G[t] = r[t] + d[t] G[t+1] must be the rest of the rewards pgx gives to the mover of t."""
    ended = games.raw_ended[:, -1]
    assert ended.sum() >= 3
    for g in np.flatnonzero(ended):
        mine = 0.0
        for t in reversed(range(games.player.shape[1])):
            mine = games.reward[g, t] + games.discount[g, t] * mine
            assert mine == games.raw_rewards[g, t:, games.player[g, t]].sum()


def test_the_discount_says_who_moves_next(games: Games):
    """-1 exactly where pgx changed the player, +1 where it did not, 0 at and after the end."""
    same = games.raw_player == games.player
    expected = np.where(games.raw_ended, 0.0, np.where(same, 1.0, -1.0))
    np.testing.assert_array_equal(games.discount, expected)
    np.testing.assert_array_equal(games.last, games.raw_ended)


@pytest.mark.parametrize("games", ["othello"], indirect=True)
def test_a_pass_hands_the_move_over(games: Games):
    """The game must contain passes, and each must flip the sign unless it ends the game."""
    passes = (games.action == 64) & ~games.last
    assert passes.any()
    assert (games.discount[passes] == -1).all()


@pytest.mark.parametrize("games", ["backgammon"], indirect=True)
def test_one_player_may_move_twice(games: Games):
    """A backgammon turn has several moves, so both signs occur. A third of the games pays 3."""
    assert {-1.0, 1.0} <= set(games.discount[~games.last].tolist())
    assert np.abs(games.reward.sum(axis=1)).max() == PgxEnvironment("backgammon").max_return == 3


@pytest.mark.parametrize("games", ["2048"], indirect=True)
def test_a_single_player_always_moves_again(games: Games):
    """No opponent: never -1."""
    assert (games.discount[~games.last] == 1).all()
    assert games.reward.sum() > 0


@pytest.mark.parametrize(
    "name, steps",
    [
        pytest.param("backgammon", 600, marks=pytest.mark.slow),
        ("kuhn_poker", 4),
        ("leduc_holdem", 12),
        ("connect_four", 43),
        *(pytest.param(name, 400, marks=pytest.mark.slow) for name in OF_ONE),
    ],
)
def test_the_largest_return_is_reached_and_not_exceeded(name: str, steps: int):
    """By some of 64 random games, or by an illegal move in games too long for that."""
    env = PgxEnvironment(name)

    def play(key: Array):
        def body(state: PgxState, step: Array):
            akey, skey = jr.split(jr.fold_in(key, step))
            legal = _legal(env, state)
            # In the last steps an illegal one.
            legal = jnp.where(step < steps - 4, legal, ~legal | legal.all())
            logits = jnp.where(legal, jnp.float32(0), jnp.float32(-jnp.inf))
            state, t = env.step(state, jr.categorical(akey, logits).astype(jnp.int32), key=skey)
            return state, t.reward

        numbers = jnp.arange(steps, dtype=jnp.uint32)
        return jax.lax.scan(body, env.init(key=key), numbers)[1].sum()

    returns = jax.jit(jax.vmap(play), compiler_options=QUICK)(jr.split(jr.key(0), 64))
    assert float(jnp.abs(returns).max()) == env.max_return


def test_othello_perft():
    """The published number of move sequences of each length (Othello perft, depths 1 to 5)."""
    env = PgxEnvironment("othello")
    width = 256

    @eqx.filter_jit
    def expand(states: PgxState, rows: Array, actions: Array) -> tuple[PgxState, Array]:
        def one(row: Array, action: Array) -> tuple[PgxState, Array]:
            state = jax.tree.map(lambda x: x[row], states)
            state = env.step(state, action, key=jr.key(0))[0]
            return state, _legal(env, state)

        return jax.vmap(one)(rows, actions)

    start = jax.jit(lambda: env.init(key=jr.key(0)))()
    states = jax.tree.map(lambda x: np.broadcast_to(x, (width, *x.shape)), jax.device_get(start))
    legal = np.asarray(env.observe(start).legal)[None]
    counts = [int(legal.sum())]
    for _ in range(4):
        rows, actions = np.nonzero(legal)
        pad = (0, width - len(rows))
        states, legal = expand(
            states, jnp.asarray(np.pad(rows, pad)), jnp.asarray(np.pad(actions, pad))
        )
        legal = np.asarray(legal)[: len(rows)]
        counts.append(int(legal.sum()))
    assert counts == [4, 12, 56, 244, 1396]


@pytest.fixture(scope="module")
def othello() -> tuple[PgxEnvironment, PgxState]:
    env = PgxEnvironment("othello")
    return env, env.init(key=jr.key(0))


def test_a_state_is_small_and_holds_nothing_derived(othello):
    """344 bytes would mean that the rewards are back, 472 that the observation is."""
    env, state = othello
    assert state.position.observation is None and state.position.rewards is None
    assert sum(x.nbytes for x in jax.tree.leaves(state)) == 336
    shapes = {x.shape for x in jax.tree.leaves(state)}
    assert env.observe(state).features.shape not in shapes


def test_step_does_not_compute_the_observation(othello):
    """The same program with and without pgx's observe, once dead code is gone."""
    env, state = othello

    def instructions(env: PgxEnvironment) -> int:
        program = jax.jit(lambda s: env.step(s, jnp.int32(19), key=jr.key(0))).lower(state)
        text = program.compile().as_text()
        assert text
        # Not all lines: tables of source files and stack frames come before the program.
        return text.count(" = ")

    assert instructions(env) == instructions(_without_observe(env))


def _without_observe(env: PgxEnvironment) -> PgxEnvironment:
    class Blind(type(env.game)):
        def _observe(self, state, player_id):
            del state, player_id
            return jnp.zeros((8, 8, 2), jnp.bool_)

    return PgxEnvironment(Blind())


def test_step_is_traced_once_and_the_same_id_shares_it(othello):
    """Weak types or a fresh pgx object for each environment would trace again."""
    traces = 0

    @eqx.filter_jit
    def step(env, state, action):
        nonlocal traces
        traces += 1
        return env.step(state, action, key=jr.key(0))[0]

    env, state = othello
    state = step(env, state, jnp.int32(19))
    step(PgxEnvironment("othello"), state, jnp.int32(18))
    assert traces == 1


def test_an_observation_does_not_depend_on_who_began():
    """pgx draws which player moves first; the mover must see the same board either way."""
    env = PgxEnvironment("tic_tac_toe")
    see = jax.jit(jax.vmap(env.observe))
    move = jax.jit(jax.vmap(lambda s, a: env.step(s, a, key=jr.key(0)), in_axes=(0, None)))
    states = jax.jit(jax.vmap(lambda key: env.init(key=key)))(jr.split(jr.key(0), 16))
    assert len(set(np.asarray(states.position.current_player).tolist())) == 2
    for action in (4, 0, 8):
        for leaf in jax.tree.leaves(see(states)):
            np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[0], leaf.shape))
        states, _ = move(states, jnp.int32(action))
    # An illegal action: the mover pays, as in pgx, and every action is legal filler from then on.
    states, transition = move(states, jnp.int32(4))
    np.testing.assert_array_equal(transition.reward, -np.ones(16))
    np.testing.assert_array_equal(transition.discount, np.zeros(16))
    assert transition.last.all() and see(states).legal.all()


def test_truncation_keeps_the_sign_and_a_carried_key_stays_out():
    """A game of one's own: truncated after 5 steps, with a PRNG key in pgx's state."""
    for typed in (False, True):
        env = PgxEnvironment(MovingGame(typed), hidden=False)
        step = jax.jit(lambda s, key, env=env: env.step(s, jnp.int32(0), key=key))
        state = env.init(key=jr.key(0))
        assert state.position._rng_key is None
        for i in range(5):
            state, transition = step(state, jr.key(i))
            assert (transition.discount, transition.last) == (-1, i == 4)
        _, transition = step(state, jr.key(9))
        assert (transition.reward, transition.discount, transition.last) == (0, 0, True)


def test_a_carried_key_is_replaced_by_the_keys_of_the_steps():
    """The dice must follow the step's key, and nothing else."""
    env = PgxEnvironment(MovingGame(typed=False), hidden=False)
    state = env.init(key=jr.key(0))
    step = jax.jit(lambda seed: env.step(state, jnp.int32(0), key=jr.key(seed))[0].position._die)
    dice = [int(step(seed)) for seed in range(20)]
    assert dice == [int(step(seed)) for seed in range(20)] and len(set(dice)) > 3
    report = check_environment(env, key=jr.key(0), num_steps=8)
    assert report.truncated == 8


def test_other_kinds_of_keys_work():
    """Raw keys are for JAX's default generator only."""
    env = PgxEnvironment("2048")
    board = jax.jit(lambda: env.init(key=jr.key(0, impl="rbg")).position._board)()
    assert (board > 0).sum() == 2


def test_rendering(othello):
    """An SVG with pgx's own state behind it."""
    env, state = othello
    assert env.render(state).startswith("<svg")
    raw = env.raw(state)
    np.testing.assert_array_equal(raw.observation, env.observe(state).features)
    assert raw.rewards.shape == (2,)


def test_card_games_are_hidden():
    """A game pgx does not know would otherwise be planned over with its cards open."""
    assert all(PgxEnvironment(name).hidden for name in ("kuhn_poker", "leduc_holdem"))
    assert not PgxEnvironment("othello").hidden
    game = MovingGame(typed=False)
    assert [PgxEnvironment(game, hidden=hidden).hidden for hidden in (False, True)] == [False, True]
    with pytest.raises(ValueError, match='"moving".*pass hidden=True or hidden=False') as raised:
        PgxEnvironment(game)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("sparrow_mahjong", "3 players"),
        ("bridge_bidding", "data file"),
        ("checkers", r"no such environment\..* Allowed: 2048,"),
    ],
)
def test_bad_games(game: str, message: str):
    """One clear line each."""
    with pytest.raises(ValueError, match=message) as raised:
        PgxEnvironment(game)
    assert "\n" not in str(raised.value)


def test_pgx_missing(monkeypatch):
    """Names what to install."""
    monkeypatch.setitem(sys.modules, "pgx", None)
    with pytest.raises(ImportError, match="install zero-envs with its extra `pgx`"):
        PgxEnvironment("hearts")

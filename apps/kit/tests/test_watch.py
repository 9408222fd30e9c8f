"""An episode move by move, and its pictures."""

import io
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from zero_app import Episode, is_plain, moments, screen
from zero_envs import AbstractDiscreteEnvironment, AbstractWorlds, HostStep, Observation
from zero_envs.testing import Corridor, Nim
from zero_search import Plan, TreeSearch
from zero_train import EnvironmentModel, PlanningActor, RandomActor


def _even(obs):
    return jnp.zeros(obs.legal.shape), jnp.zeros(())


def test_an_actor_that_plans_shows_its_whole_plan():
    """With its search Nim of 7 is won by the first player, which hears of the other's moves."""
    env = Nim(7)
    actor = PlanningActor(TreeSearch.alphazero(200), EnvironmentModel(env, _even))
    episode, returned, sign = Episode(env, actor, key=jr.key(0)), 0.0, 1.0
    for move in range(7):
        action, plan = episode.act(key=jr.fold_in(jr.key(1), move))
        assert isinstance(plan, Plan) and int(plan.visits.sum()) >= 199
        assert episode.obs.legal is not None and bool(episode.obs.legal[0, action[0]])
        if sign < 0:
            action = jnp.zeros_like(action)
        transition = episode.step(action, key=jr.key(2))
        returned += sign * float(transition.reward[0])
        sign *= float(transition.discount[0])
        if bool(transition.last[0]):
            break
    assert sign == 0 and returned == 1


def test_keys_decide_what_a_random_actor_plays():
    def played(seed: int) -> list[int]:
        episode = Episode(Nim(20), RandomActor(), key=jr.key(0))
        actions = []
        for move in range(4):
            action, _ = episode.act(key=jr.fold_in(jr.key(seed), move))
            episode.step(action, key=jr.key(0))
            actions.append(int(action[0]))
        return actions

    assert played(1) == played(1)
    assert len({tuple(played(seed)) for seed in range(4)}) > 1


class _Worlds(AbstractWorlds):
    """A simulator that counts in the array that it showed."""

    def __init__(self):
        self.seen, self.closed = np.zeros((1, 2), np.float32), 0

    def reset(self):
        return self.seen

    def step(self, action):
        self.seen += 1
        ones = np.ones(1, np.float32)
        return HostStep(self.seen, ones, ones, np.zeros(1, np.bool_))

    def close(self):
        self.closed += 1


class _Counting(AbstractDiscreteEnvironment):
    worlds: _Worlds = eqx.field(static=True)
    num_actions: int = 1
    num_players: int = 1
    hidden: bool = False
    name: str = "counting"

    def init(self, *, key):
        raise ValueError

    def step(self, state, action, *, key):
        raise ValueError

    def observe(self, state):
        return Observation(state, jnp.ones(1, jnp.bool_))

    def open(self, num_worlds, *, key):
        return self.worlds


@pytest.mark.parametrize("shown", [1, 2, 9])
def test_the_simulator_of_an_episode_is_closed(shown):
    """Also where somebody looks at its first moments alone; and they stay as they were."""
    worlds = _Worlds()
    seen = moments(_Counting(worlds=worlds), RandomActor(), start=jr.key(0), key=jr.key(1), most=3)
    found = list(itertools.islice(seen, shown))
    assert [int(now.state[0]) for now in found] == list(range(4))[:shown]
    del seen
    assert worlds.closed == 1


def test_the_simulator_of_an_episode_that_cannot_begin_is_closed(monkeypatch):
    worlds = _Worlds()
    monkeypatch.setattr(worlds, "reset", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Episode(_Counting(worlds=worlds), RandomActor(), key=jr.key(0))
    assert worlds.closed == 1


@pytest.mark.parametrize("most, ending", [(50, "terminated"), (1, "truncated")])
def test_moments_are_the_decisions_of_an_episode_and_its_end(most, ending):
    """Each follows from the one before by the action that was taken in it."""
    env = Corridor(3)
    keys = {"start": jr.key(0), "key": jr.key(1)}
    *decisions, end = moments(env, RandomActor(), **keys, most=most)
    assert [now.step for now in decisions] == list(range(end.step)) and end.step <= most
    assert {now.end for now in decisions} == {None} and end.end == ending
    assert end.action == decisions[-1].action and end.plan is None
    gained = 0.0
    for now, then in zip(decisions, [*decisions[1:], end], strict=True):
        before, action = jax.device_put((now.state, now.action))
        state, transition = env.step(before, action, key=jr.key(2))
        gained += float(transition.reward)
        assert (then.reward, then.gained) == (float(transition.reward), pytest.approx(gained))
        assert jax.tree.all(jax.tree.map(lambda a, b: bool(a == b), state, then.state))
    assert len(decisions) == len([*moments(env, RandomActor(), **keys, most=most)]) - 1


@pytest.mark.parametrize(
    "settings, slept, plain",
    [
        ({"force_terminal": False}, [], True),
        ({"force_terminal": True, "color_system": None}, [1, 2], True),
        ({"force_terminal": True, "color_system": "truecolor", "no_color": True}, [1, 2], True),
        ({"force_terminal": True, "color_system": "truecolor", "no_color": False}, [1, 2], False),
    ],
)
def test_only_a_terminal_waits(settings, slept, plain, monkeypatch):
    """And replaces a picture by the next one; elsewhere all are printed, or written by the app."""
    monkeypatch.setenv("TERM", "xterm")
    waited, written, out = [], [], io.StringIO()
    monkeypatch.setattr("time.sleep", waited.append)
    console = Console(file=out, highlight=False, **settings)
    assert is_plain(console) == plain
    for write in (None, written.append):
        with screen(console, "scene {}".format, float, write) as show:
            for number in (1, 2):
                show(number)
    assert waited == 2 * slept
    assert written == ([] if slept else [1, 2])
    assert out.getvalue().count("scene 1") == (2 if slept else 1)

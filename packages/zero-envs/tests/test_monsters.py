"""The monsters of `groups_simple`: rules, odds and exact values."""

import jax.random as jr
import pytest

from zero_envs import Monsters
from zero_envs.testing import check_environment


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"observation": "tokens", "distractor": False, "step_penalty": 0.02},
        {"moving": False, "bad_item": False, "time_limit": 9, "truncate": True, "size": 4},
    ],
    ids=["moving", "single monster", "stationary"],
)
def test_keeps_every_promise(options):
    env = Monsters(**options)
    check_environment(env, key=jr.key(0), num_steps=40)

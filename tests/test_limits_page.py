"""The page of limits: what it says is not there is still not there."""

import re

import zero_train
from zero_cli._agents import agents_of, OWN_APPS
from zero_cli._apps import APPS
from zero_envs import known_environments

from . import workspace


TEXT = (workspace.ROOT / "docs" / "limits.md").read_text(encoding="utf-8")


def item(start: str) -> set[str]:
    """What stands in backticks in the item that begins so."""
    (said,) = re.findall(rf"^- \*\*{start}(.*?)(?=^- |^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`]+)`", said))


def test_the_environments_that_nobody_plays():
    known = known_environments()
    idle = {name for name, facts in known.items() if not agents_of(name, facts)} - {*OWN_APPS}
    assert idle == {name for name in item("Planning in a world with a hidden state") if "/" in name}
    short = {name.partition("/")[2] for name in known}
    refused = item("Three or more players")
    assert len(refused) == 5 and not refused & short


def test_the_agents_that_there_are():
    agents = {
        name
        for name in dir(zero_train)
        if isinstance(value := getattr(zero_train, name), type)
        and issubclass(value, zero_train.AbstractAgent)
        and not name.startswith("Abstract")
    }
    assert agents == item("Five agents")


def test_the_players_that_come_with_the_apps():
    named = set()
    for app in APPS.values():
        assert app.players is not None
        for path in app.players.rglob("*.safetensors"):
            player = path.relative_to(app.players).with_suffix("").as_posix()
            named.add(app.name if player == "pretrained" else player)
    assert named == item("Six players") and len(named) == 6

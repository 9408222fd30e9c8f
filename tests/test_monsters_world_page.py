"""The page on the monster world: its program runs and prints what the page says."""

import re

import jax
import pytest

from zero_envs import Monsters
from zero_monsters.oracle import MonstersOracle

from . import workspace


TEXT = (workspace.ROOT / "docs" / "monsters-world.md").read_text(encoding="utf-8")


def test_the_page_prints_what_it_says():
    names, printed, said = workspace.run_page("monsters-world")
    assert len(said) == 5 and printed == said
    start = names.env.init(key=jax.random.key(10))
    for line in names.env.text(start).splitlines():
        assert f"\n{line}" in TEXT


@pytest.mark.slow
def test_its_table_is_what_the_oracle_finds():
    columns = []
    for moving in (False, True):
        oracle = MonstersOracle(Monsters(moving=moving))
        rows = []
        for policy in ("optimal", "random"):
            mean, won, lost = oracle.episode(32, policy)
            rows += [[oracle.rollout(32, policy)], [won, lost, mean]]
        rows[2:2] = [[oracle.start_value(gamma=gamma)] for gamma in (0.9, 0.99)]
        columns.append([", ".join(f"{x:.6f}" if x else "0" for x in row) for row in rows])
    table = re.findall(r"^\| [abv].*?\| (.*) \| (.*) \|$", TEXT, flags=re.MULTILINE)
    assert table == list(zip(*columns, strict=True))

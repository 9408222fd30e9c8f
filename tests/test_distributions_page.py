"""The page on distributions, values and statistics prints what it says."""

from . import workspace


def test_the_page_prints_what_it_says():
    _, printed, said = workspace.run_page("distributions")
    assert len(said) == 6 and printed == said

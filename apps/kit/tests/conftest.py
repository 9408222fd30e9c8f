"""What several files of these tests share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def no_charts() -> Iterator[None]:
    """Charts have tests of their own, and would be a quarter of what each run costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zero_app._run._chart.draw", lambda series, **_: None)
        yield

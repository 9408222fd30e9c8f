"""What several files of these tests share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest


@pytest.fixture(scope="module")
def no_charts(without_charts: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Charts have tests of their own, and would be a quarter of what each run costs."""
    with without_charts():
        yield

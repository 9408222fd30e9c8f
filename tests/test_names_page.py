"""The page of all public names: docs/_names.py writes it, with a sentence for each."""

import importlib.util
from typing import Any

from . import workspace


def _writer() -> Any:
    spec = importlib.util.spec_from_file_location("names", workspace.ROOT / "docs" / "_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    writer = _writer()
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(), "run: python docs/_names.py"


def test_every_name_has_a_sentence():
    writer = _writer()
    for module in writer.MODULES:
        for name, value in writer.public(module).items():
            said = writer.about(value)
            assert 5 < len(said) < 200 and "Attributes" not in said, f"{module}.{name}: {said}"

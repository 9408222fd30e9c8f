"""The page of all public names: docs/_names.py writes it, with a sentence for each."""

import importlib.util
import pkgutil
import re
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


def test_what_packages_say_of_themselves_names_what_they_have():
    for module in ("zero_envs", "zero_search", "zero_memory", "zero_nets", "zero_train"):
        said = importlib.import_module(module).__doc__ or ""
        names = re.findall(r"`([A-Za-z_][\w.]*)[`(]", said)
        assert names
        for name in names:
            pkgutil.resolve_name(name if "." in name else f"{module}:{name}")


def test_every_name_has_a_sentence():
    writer = _writer()
    for module in writer.MODULES:
        for name, text in writer.public(module).items():
            said = writer.about(text)
            assert 5 < len(said) < 200 and "Attributes" not in said, f"{module}.{name}: {said}"

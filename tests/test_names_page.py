"""The page of all public names: docs/_names.py writes it, with a sentence for each."""

import importlib.util
import pkgutil
import re
from typing import Any

from . import workspace


def _writer(file: str = "_names.py") -> Any:
    spec = importlib.util.spec_from_file_location(file, workspace.ROOT / "docs" / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    writer = _writer()
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(), "run: python docs/_names.py"


def test_every_name_that_is_exported_is_on_the_page():
    """Also types and constants, of which a comment says what they are."""
    writer, pages = _writer(), _writer("_pages.py")
    for module in writer.MODULES:
        inner = {name.removeprefix(f"{module}.") for name in writer.MODULES}
        exported = {*pages.public_names(module)} - inner
        if module == "zero_search.mctx":  # most of its names are mctx's own
            assert writer.public(module).keys() <= exported
        else:
            assert writer.public(module).keys() == exported, module


def test_what_packages_say_of_themselves_names_what_they_have():
    packages = ("zero_envs", "zero_search", "zero_memory", "zero_nets", "zero_train")
    for module in (*packages, "zero_app"):
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

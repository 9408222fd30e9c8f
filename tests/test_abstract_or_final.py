"""Every class is an interface or final: reading one class is enough to know what it does."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator

import equinox as eqx

from . import workspace


OURS = tuple(workspace.import_name(member) for member in workspace.MEMBERS)


def is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] in OURS


def classes() -> Iterator[type]:
    """Every class defined in the workspace, in every module."""
    for name in OURS:
        package = importlib.import_module(name)
        modules = [package]
        for info in pkgutil.walk_packages(package.__path__, f"{name}."):
            modules.append(importlib.import_module(info.name))
        for module in modules:
            for cls in vars(module).values():
                if inspect.isclass(cls) and cls.__module__ == module.__name__:
                    yield cls


def abstract_members(cls: type) -> set[str]:
    kinds = ("__abstractmethods__", "__abstractvars__", "__abstractclassvars__")
    return {name for kind in kinds for name in getattr(cls, kind, ())}


def is_interface(cls: type) -> bool:
    return cls.__name__.lstrip("_").startswith("Abstract") or getattr(cls, "_is_protocol", False)


def concrete_methods(cls: type) -> set[str]:
    """The methods and properties in the class's own body that have a body themselves."""
    return {
        name
        for name, value in vars(cls).items()
        if (not name.startswith("__") or name == "__call__")
        and name not in abstract_members(cls)
        and (inspect.isroutine(value) or isinstance(value, property | classmethod | staticmethod))
    }


def own_state(cls: type) -> list[str]:
    """The fields that a class declares otherwise than as `AbstractVar`, and its `__init__`."""
    fields = {field.name for field in dataclasses.fields(cls)} & set(inspect.get_annotations(cls))
    init = vars(cls).get("__init__")
    # The one that `dataclasses` generates has no file.
    written = init is not None and inspect.unwrap(init).__code__.co_filename != "<string>"
    return sorted(fields) + ["__init__"] * written


def violations(found: Iterable[type], own=is_ours) -> list[str]:
    lines = []
    for cls in found:
        if issubclass(cls, eqx.Module) and is_interface(cls) != bool(abstract_members(cls)):
            lines.append(f"{cls.__qualname__}: named Abstract if and only if it is abstract")
        if issubclass(cls, eqx.Module) and is_interface(cls):
            for name in own_state(cls):
                lines.append(
                    f"{cls.__qualname__}.{name}: fields and __init__ belong to final classes"
                )
        for base in filter(own, cls.__mro__[1:]):
            if not is_interface(base):
                lines.append(f"{cls.__qualname__}: subclasses the final {base.__qualname__}")
            for name in concrete_methods(base) & set(vars(cls)):
                lines.append(f"{cls.__qualname__}.{name}: overrides {base.__qualname__}.{name}")
    return lines


def test_every_class_is_abstract_or_final():
    found = list(classes())
    assert len(found) >= 15
    assert violations(found) == []


class AbstractGood(eqx.Module):
    size: eqx.AbstractVar[int]

    def area(self) -> int:
        return self.size**2


class Good(AbstractGood):
    size: int


class AbstractField(eqx.Module):
    size: eqx.AbstractVar[int]
    width: int


class AbstractInit(eqx.Module):
    size: eqx.AbstractVar[int]

    def __init__(self):
        pass


class Unnamed(eqx.Module):
    size: eqx.AbstractVar[int]


class AbstractNothing(eqx.Module):
    size: int


class Subclass(Good):
    pass


class Override(AbstractGood):
    size: int

    def area(self) -> int:
        return 0


def test_each_violation_is_seen():
    def own(cls: type) -> bool:
        return cls.__module__ == __name__

    assert violations([AbstractGood, Good], own) == []
    assert "Unnamed: named" in violations([Unnamed], own)[0]
    assert "AbstractNothing: named" in violations([AbstractNothing], own)[0]
    assert violations([AbstractField], own)[0].startswith("AbstractField.width: fields")
    assert violations([AbstractInit], own)[0].startswith("AbstractInit.__init__: fields")
    assert "Subclass: subclasses the final Good" in violations([Subclass], own)
    assert "Override.area: overrides AbstractGood.area" in violations([Override], own)

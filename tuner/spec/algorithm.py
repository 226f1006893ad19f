"""The common base of every ``search:`` and ``scheduler:`` block, ours and third parties'."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, SupportsIndex

from pydantic import (
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    model_serializer,
)

from tuner.errors import InputError
from tuner.spec.model import Model
from tuner.spec.user_imports import import_attribute

CUSTOM = "custom"
"""The ``kind`` of a class that the experiment names by ``class_path``."""


class AlgorithmSpec(Model):
    """The options of an algorithm. Each field is a key of its block in the experiment file."""

    group: ClassVar[str]
    """The entry point group in which installed packages offer such classes."""

    kind: str = CUSTOM
    """Name of the algorithm. A class that an entry point offers declares it: ``kind: Literal["name"] = "name"``."""

    @property
    def compares_ranks(self) -> bool:
        """Whether nothing but the order of values matters to it. If so, it can be used with ``outcome_constraints``:
        results that break one count as worse than all others, by a number of about 1e29."""
        return False

    _class_path: str = PrivateAttr("")
    """As the experiment file names the class, where it does."""
    _roots: tuple[Path, ...] = PrivateAttr(())
    """The place in which that is looked up."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Finds a class of the user's by its ``class_path`` again: a trial's process may not have imported it."""
        if not self._class_path:
            return super().__reduce_ex__(protocol)
        return _restored, (self._class_path, self._roots, self.__getstate__())

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """The fields, behind what tells their class: ``kind`` also where it was not set, and ``class_path``."""
        fields: dict[str, Any] = handler(self)
        told = {name: value for name, value in identity_of(self).items() if name not in (info.exclude or ())}
        return told | {name: value for name, value in fields.items() if name != "kind"}


def _restored(class_path: str, roots: tuple[Path, ...], state: dict[Any, Any]) -> AlgorithmSpec:
    """A specification that was pickled. Raises InputError if its class cannot be imported."""
    cls = import_attribute(class_path, roots)
    spec: AlgorithmSpec = cls.__new__(cls)
    spec.__setstate__(state)
    return spec


def is_built_in(spec: AlgorithmSpec) -> bool:
    """Whether the class belongs to tuner itself."""
    return type(spec).__module__.startswith("tuner.")


def offered(group: str, kind: str) -> list[EntryPoint]:
    """The entry points of that name, of all installed packages."""
    return list(entry_points(group=group, name=kind))


def identity_of(spec: AlgorithmSpec) -> dict[str, str]:
    """The keys that name the class of ``spec`` in an experiment file: ``kind``, or ``kind`` and ``class_path``."""
    if not spec._class_path and (is_built_in(spec) or _is_offered(spec)):
        return {"kind": spec.kind}
    return {"kind": CUSTOM, "class_path": spec._class_path or f"{type(spec).__module__}:{type(spec).__qualname__}"}


def _is_offered(spec: AlgorithmSpec) -> bool:
    return spec.kind != CUSTOM and any(point.load() is type(spec) for point in offered(spec.group, spec.kind))


def spec_as_mapping(spec: AlgorithmSpec) -> dict[str, Any]:
    """The block of an experiment file that stands for ``spec``: what was set, and nothing that is a default.

    Args:
        spec: A search or a scheduler: a built-in one, one from an installed package, or your own.

    Returns:
        Plain values. A class of your own is named by ``class_path``.

    Raises:
        InputError: If another process could not import the class: it is defined in a notebook or in the script that
            runs, or inside a function.

    Example:
        >>> from tuner.schedulers import Asha
        >>> spec_as_mapping(Asha(max_t=27))
        {'kind': 'asha', 'max_t': 27}
    """
    cls, told = type(spec), identity_of(spec)
    if told["kind"] == CUSTOM and not spec._class_path:
        if cls.__module__ == "__main__":
            raise InputError(
                f"{cls.__qualname__} is defined in the notebook or script that runs, where a resumed search cannot "
                f"import it: move the class to a file, such as {cls.__name__.lower()}.py, and import it from there"
            )
        if "." in cls.__qualname__:
            raise InputError(
                f"{cls.__qualname__} is defined inside a function or another class, where a resumed search cannot "
                f"import it: move the class to the top level of {cls.__module__}"
            )
    found: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return found


def without_identity(written: Mapping[str, Any]) -> dict[str, Any]:
    """The options alone."""
    return {name: value for name, value in written.items() if name not in ("kind", "class_path")}


def as_built(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """A third party's specification as it is, as its class validated it; anything else as one of the built-in ones."""
    return value if isinstance(value, AlgorithmSpec) and not is_built_in(value) else handler(value)

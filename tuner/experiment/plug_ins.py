"""Searches, schedulers and trackers of third parties, by their ``class_path``; the former also by an entry point."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from tuner.errors import InputError, Problem, did_you_mean
from tuner.experiment.tracking import CustomTracking
from tuner.experiment.validation_errors import validation_problems
from tuner.schedulers import AnyScheduler
from tuner.schedulers.base import SchedulerSpec
from tuner.searchers import AnySearch
from tuner.searchers.base import SearchSpec
from tuner.spec.algorithm import CUSTOM, AlgorithmSpec, spec_as_mapping, without_identity
from tuner.spec.document import Document, describe_type, dotted
from tuner.spec.user_imports import import_attribute, innermost, no_exit

Roots = tuple[Path, ...]

_CLASS_PATH = re.compile(r".+:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Family:
    """The searches, or the schedulers."""

    block: str
    base: type[AlgorithmSpec]
    union: Any

    @cached_property
    def built_in(self) -> dict[str, type[AlgorithmSpec]]:
        """The classes of tuner itself, by kind."""
        return {cls.model_fields["kind"].default: cls for cls in get_args(get_args(self.union)[0])}

    def installed(self) -> dict[str, EntryPoint]:
        """What installed packages offer, by kind. Raises InputError if a name is taken."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.base.group):
            taken = f"the {self.block} {point.name!r} of {_owner(point)}, an entry point in {self.base.group},"
            if point.name in self.built_in or point.name == CUSTOM:
                raise InputError(f"{taken} has the name of a built-in one: uninstall the package, or rename it there")
            if point.name in found and found[point.name].value != point.value:
                other = _owner(found[point.name])
                raise InputError(f"{taken} is offered by {other} too: uninstall one of the two packages")
            found[point.name] = point
        return found

    def offered(self, point: EntryPoint) -> type[AlgorithmSpec]:
        """The class of an entry point. Raises InputError if it cannot be imported or is not such a class."""
        name = f"{point.value}, the {self.block} {point.name!r} of {_owner(point)},"
        try:
            with no_exit():
                loaded = point.load()
        except Exception as error:  # noqa: BLE001 - a third party's module may raise anything: it is shown, not hidden
            raise InputError(f"{name} cannot be imported: {innermost(error)}") from None
        cls = self._checked(loaded, name)
        if (declared := cls.model_fields["kind"].default) != point.name:
            raise InputError(
                f'{name} has the kind {declared!r}: the class must declare kind: Literal["{point.name}"] = '
                f'"{point.name}", as its entry point is called'
            )
        return cls

    def at(self, class_path: str, roots: Roots) -> type[AlgorithmSpec]:
        """The class of ``kind: custom``. Raises InputError if it cannot be imported or is not such a class."""
        return self._checked(import_attribute(class_path, roots), class_path)

    def _checked(self, loaded: Any, name: str) -> type[AlgorithmSpec]:
        base = f"tuner.{self.base.group.partition('.')[2]}.{self.base.__name__}"
        if not isinstance(loaded, type) or not issubclass(loaded, self.base):
            raise InputError(f"{name} is not a subclass of {base}")
        if inspect.isabstract(loaded):
            missing = ", ".join(sorted(loaded.__abstractmethods__))
            raise InputError(f"{name} does not define {missing}: a subclass of {base} must")
        return loaded

    def class_of(self, written: Mapping[str, Any], roots: Roots) -> type[AlgorithmSpec] | None:
        """The class of a block; None if its kind is not known. Raises InputError if it is not such a class."""
        named = written.get("kind")
        if named == CUSTOM:
            return self.at(str(written.get("class_path")), roots)
        if named in self.built_in or not isinstance(named, str):
            return self.built_in.get(str(named))
        point = self.installed().get(named)
        return None if point is None else self.offered(point)

    def options_of(self, written: Mapping[str, Any], roots: Roots) -> set[str]:
        """The keys of a block of this kind; none where the kind is not known."""
        own = {"class_path"} if written.get("kind") == CUSTOM else set()
        try:
            found = self.class_of(written, roots)
        except InputError:  # it is reported where the block is read
            return own
        return own | set(found.model_fields if found else ())


SEARCHES = Family("search", SearchSpec, AnySearch)
SCHEDULERS = Family("scheduler", SchedulerSpec, AnyScheduler)


def _owner(point: EntryPoint) -> str:
    return f"the installed package {point.dist.name}" if point.dist else "an installed package"


def read_plug_in(family: Family, document: Document, roots: Roots, problems: list[Problem]) -> AlgorithmSpec | None:
    """The block of ``family`` where it names a third party's class; None if it does not, or has ``problems``."""
    block = family.block
    written = document.value.get(block)

    def problem(key: str, message: str) -> None:
        path = (block, key)
        problems.append(Problem(document.place(path), dotted(path), message))

    if isinstance(written, AlgorithmSpec):
        try:
            written = document.value[block] = spec_as_mapping(written)
        except InputError as error:
            problems.append(Problem(document.place((block,)), block, str(error)))
            return None
    if not isinstance(written, dict) or not isinstance(named := written.get("kind"), str) or named in family.built_in:
        return None
    key = "class_path" if named == CUSTOM else "kind"
    class_path = written.get("class_path", "")
    if named == CUSTOM and not (isinstance(class_path, str) and _CLASS_PATH.fullmatch(class_path)):
        given = "required, but missing; write" if "class_path" not in written else f"{describe_type(class_path)} is not"
        problem(key, f"{given} module:Class or path/to/file.py:Class")
        return None
    try:
        found = family.class_of(written, roots)
        if found is None:
            known = [*family.built_in, CUSTOM, *family.installed()]
            problem(key, f"{named!r} is unknown; {did_you_mean(named, known)}")
            return None
    except InputError as error:
        problem(key, str(error))
        return None
    options = without_identity(written) if named == CUSTOM else written
    try:
        with no_exit():
            spec = found.model_validate(options)
            _ask(spec)
    except ValidationError as error:
        problems.extend(validation_problems(document, error, found, (block,)))
        return None
    except Exception as error:  # noqa: BLE001 - a third party's class may raise anything: it is shown, not hidden
        problem(key, f"{found.__qualname__} cannot be used: {innermost(error)}")
        return None
    if named == CUSTOM:
        spec._class_path, spec._roots = class_path, roots
    return spec


BACKEND_METHODS = ("check", "open", "send", "close")
"""Of `tuner.TrackingBackend`, whose package is above this one."""


def tracking_class(custom: CustomTracking, roots: Roots) -> type[Any]:
    """The class of a tracker. Raises InputError if it cannot be imported, lacks a method, or has other arguments."""
    found = import_attribute(custom.class_path, roots)
    if not isinstance(found, type):
        raise InputError(f"{custom.class_path} is not a class: derive one from tuner.TrackingBackend")
    abstract = getattr(found, "__abstractmethods__", ())
    missing = [name for name in BACKEND_METHODS if name in abstract or not callable(getattr(found, name, None))]
    if missing:
        raise InputError(
            f"{custom.class_path} does not define {', '.join(missing)}: derive it from tuner.TrackingBackend, and "
            f"define open, send and close"
        )
    try:
        inspect.signature(found).bind(**custom.options)
    except (TypeError, ValueError) as error:
        names = ", ".join(custom.options) or "no options"
        raise InputError(f"{custom.class_path} cannot be made with {names}: {error}") from None
    return found


def _ask(spec: AlgorithmSpec) -> None:
    """Asks everything that is asked without a space, so that a class that raises is refused."""
    for base in type(spec).__mro__:
        for name, member in vars(base).items():
            if isinstance(member, property) and not name.startswith("_") and base.__module__ != "pydantic.main":
                getattr(spec, name)
    if isinstance(spec, SchedulerSpec):
        rungs = spec.rungs()
        reach = spec.expected_at_rungs(1)
        if len(reach) != len(rungs):
            raise ValueError(f"rungs gives {len(rungs)} rungs, and expected_at_rungs {len(reach)} numbers")

"""What a variable of a module holds, in a form that can be compared with what it held before."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import sys
import types
import uuid
import weakref
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

_PLAIN = (type(None), bool, int, str, bytes, complex, range, type(Ellipsis), type(NotImplemented))
"""Types whose values never change, and are equal if they look equal."""
_SHOWN = (
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone, decimal.Decimal),
    *(pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath),
    *(fractions.Fraction, uuid.UUID),
)
"""As these, and their ``repr`` tells them apart."""
_BOUND = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
"""Callables that may be bound to an object with a state."""
_DESCRIPTORS = (
    *(types.GetSetDescriptorType, types.MemberDescriptorType, functools.cached_property),
    type(vars(collections.namedtuple("AnyTuple", "field"))["field"]),  # its type has no public name
)
_FIXED = {
    *("_abc", "abc", "builtins", "dataclasses", "logging", "operator", "re", "types", "typing", "typing_extensions"),
    *("zoneinfo", "pydantic_core._pydantic_core"),
}
"""Modules of types whose objects hold nothing that a trial would find changed."""
_LARGEST_ARRAY = 64 * 2**20
"""Bytes of an array that are read for each trial, about 20 ms."""


class Unsure(Exception):
    """Something at module level may hold a state that cannot be compared; its text says what."""


class Reader:
    """Makes something comparable of a variable; raises `Unsure` where that is not possible."""

    def __init__(self, own: set[str], name: str, most: int, filled: bool) -> None:
        self._own = own
        """Names of the user's modules: their functions and classes can hold a state."""
        self._name, self._most, self._filled = name, most, filled
        self.seen: dict[int, tuple[int, Any]] = {}
        """By id: number in the order of reading, and the object, so that no other one gets this id."""

    def read(self, value: Any) -> Any:
        value = _unhooked(value)
        kind = type(value)
        if kind in _PLAIN:
            return kind.__name__, value
        if kind is float:
            return "float", value.hex()
        if id(value) in self.seen:
            return "seen", self.seen[id(value)][0]
        if len(self.seen) > self._most:
            raise Unsure(f"{self._name} holds too many objects to compare")
        self.seen[id(value)] = len(self.seen), value
        return id(kind), self._contents(value)

    def _contents(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, ModuleType):
            return id(value)
        attributes = _own_attributes(value)
        if "_torchdynamo_orig_callable" in attributes:  # what torch.compile knows of it changes with each call
            return id(value), self.read(attributes["_torchdynamo_orig_callable"])
        if kind.__module__.startswith(("torch._dynamo", "torch._inductor", "torch.jit")):
            return id(value)
        if kind is types.FunctionType:
            return self._function(value) if value.__module__ in self._own else id(value)
        if issubclass(kind, type):
            return self._class(value) if value.__module__ in self._own else id(value)
        if kind is functools._lru_cache_wrapper:
            return self._cache(value)
        if kind in (staticmethod, classmethod):
            return self.read(value.__func__)
        if kind in _BOUND:
            owner = getattr(value, "__self__", None)
            if owner is None or isinstance(owner, (ModuleType, type)):
                return id(value) if kind is not types.MethodType else self.read(value.__func__)
            return self.read(owner), value.__name__
        if issubclass(kind, property):
            return [self.read(one) for one in (value.fget, value.fset, value.fdel)]
        if kind is functools.partial:
            return [self.read(one) for one in (value.func, value.args, value.keywords)]
        if kind is np.ndarray:
            return self._array(value)
        if issubclass(kind, np.generic):
            return value.tobytes()
        if issubclass(kind, (enum.Enum, weakref.ReferenceType, np.ufunc, np.dtype, np.finfo, np.iinfo)):
            return id(value)
        if kind in _SHOWN:
            return repr(value)
        if issubclass(kind, (str, int, float, complex, bytes, bytearray)):
            plain = next(one for one in (str, int, float, complex, bytes, bytearray) if issubclass(kind, one))
            return plain.__repr__(value), self._attributes(value)
        if issubclass(kind, (dict, types.MappingProxyType)):
            items = dict.items(value) if issubclass(kind, dict) else value.items()
            return [(self.read(key), self.read(one)) for key, one in list(items)], self._attributes(value)
        if issubclass(kind, (list, tuple, collections.deque)):
            sequence: Any = next(one for one in (list, tuple, collections.deque) if issubclass(kind, one))
            return [self.read(one) for one in sequence.__iter__(value)], self._attributes(value)
        if issubclass(kind, (set, frozenset)):
            return sorted(repr(self.read(one)) for one in value), self._attributes(value)
        if kind is types.SimpleNamespace:
            return self._attributes(value)
        if kind.__module__.partition(".")[0] == "torch" and (known := self._of_torch(value)) is not None:
            return known
        if hasattr(kind, "__next__") or kind.__module__ == "_thread":
            return self._lock(value)
        if kind.__module__ in _FIXED or kind in _DESCRIPTORS or kind.__name__ == "_ArrayFunctionDispatcher":
            return id(value)
        slots = len(list(_slots(kind)))
        if (
            "__module__" not in vars(kind)
            or kind.__basicsize__ > object.__basicsize__ + 8 * (slots + 2)  # room for __dict__ and __weakref__
            or not str(getattr(sys.modules.get(kind.__module__), "__file__", "")).endswith(".py")
        ):  # it is not written in Python: there is more to it than its attributes
            raise self._unsure(value)
        return self._attributes(value)

    def _unsure(self, value: Any) -> Unsure:
        return Unsure(f"{self._name} may hold a state ({type(value).__module__}.{type(value).__qualname__})")

    def _cache(self, value: Any) -> Any:
        if value.__module__ not in self._own and value.__module__ != "builtins":  # a library's
            return id(value)
        if self._filled and value.cache_info().currsize:
            raise self._unsure(value)
        value.cache_clear()
        return id(value), self.read(value.__wrapped__)

    def _lock(self, value: Any) -> Any:
        if not hasattr(type(value), "locked"):
            raise self._unsure(value)
        return id(value), value.locked()

    def _function(self, value: types.FunctionType) -> Any:
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return id(value), id(value.__code__), self.read([value.__defaults__, value.__kwdefaults__, vars(value), cells])

    def _class(self, value: type) -> Any:
        is_enum = issubclass(value, enum.Enum)  # it learns the combinations of its members by and by
        parts = {
            k: one
            for k, one in vars(value).items()
            if (callable(one) or not _of_python(k)) and not (is_enum and k.endswith("_map_"))
        }
        return id(value), {name: self.read(one) for name, one in parts.items()}

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        if value.dtype.hasobject or value.nbytes > _LARGEST_ARRAY:
            raise Unsure(f"{self._name} is too large to compare ({value.nbytes / 2**20:.0f} MiB of {value.dtype})")
        return value.shape, str(value.dtype), zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data)

    def _of_torch(self, value: Any) -> Any:
        """A tensor counts its changes; None for an object that is neither a tensor nor a constant of torch."""
        torch: Any = sys.modules["torch"]
        if isinstance(value, torch.Tensor):
            if value.is_inference():
                raise self._unsure(value)
            state = id(value), value._version, value.requires_grad, None if value.grad is None else id(value.grad)
            if value.device.type != "cpu" or value.layout != torch.strided:
                return state
            # a change through `.data` is not counted
            return state, self._array(value.detach().reshape(-1).view(torch.uint8).numpy())
        constants = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)
        return str(value) if isinstance(value, constants) else None

    def _attributes(self, value: Any) -> Any:
        own = dict(_own_attributes(value))
        for name in _slots(type(value)):
            with contextlib.suppress(AttributeError):
                own[name] = object.__getattribute__(value, name)
        return {name: self.read(one) for name, one in own.items()}


def _unhooked(value: Any) -> Any:
    """A function itself, if it is the ``step`` of an optimizer: torch wraps it when the first object is made."""
    if type(value) is types.FunctionType and vars(value).get("hooked") is True:
        return vars(value).get("__wrapped__", value)
    return value


def _own_attributes(value: Any) -> dict[str, Any]:
    """Its ``__dict__``, whatever ``__getattr__`` it has."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_python(name: str) -> bool:
    """Whether it is an attribute that Python and its libraries give to classes, some of them late."""
    return name == "_abc_impl" or name.startswith("__")


def _slots(kind: type) -> Iterator[str]:
    for one in kind.__mro__:
        slots = vars(one).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            if name not in ("__dict__", "__weakref__"):
                yield f"_{one.__name__.lstrip('_')}{name}" if private else name


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is cell.cell_contents
    except ValueError:
        return False

"""The user's modules in a process that runs trial after trial: forgotten between trials, or as right after import.

They are forgotten, and imported anew, unless the trials keep something (`tuner.training.keep`): code that is compiled
belongs to the functions of one import. Then they stay, if their files are the same and no trial changed what they hold.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import functools
import os
import pathlib
import sys
import types
import uuid
import weakref
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tuner import examples
from tuner.execution.library_state import library_in_use
from tuner.execution.process_globals import ProcessGlobals, torch_switches

_PLAIN = (type(None), bool, int, str, bytes, complex, range, type(Ellipsis), type(NotImplemented))
"""Types whose values never change, and are equal if they look equal."""
_SHOWN = (
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone, decimal.Decimal),
    *(
        fractions.Fraction,
        pathlib.PosixPath,
        pathlib.WindowsPath,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        uuid.UUID,
    ),
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
_MOST_OBJECTS = 200_000
"""Objects that are read in all, some 0.5 s."""
_OF_THE_INTERPRETER = {
    *("__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__path__", "__spec__", "__warningregistry__")
}
_LARGEST_ARRAY = 64 * 2**20
"""Bytes of an array that are read for each trial, about 20 ms."""
_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that a ``class`` statement made, and some compiled ones."""


def user_modules(roots: Sequence[Path]) -> dict[str, ModuleType]:
    """The user's modules, those under ``roots`` outside of any installation, by name.

    A shipped trainable is one of them, also if tuner is installed.
    """
    folders = tuple(str(root.resolve()) + os.sep for root in roots)
    shipped = str(examples.FOLDER.resolve() / "trainables") + os.sep
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or _folder_of(module)
        if name.partition(".")[0] in ("tuner", "__main__") or file.endswith(".so"):
            continue
        if file.startswith(shipped) or (file.startswith(folders) and "site-packages" not in file):
            found[name] = module
    return found


def forget(modules: dict[str, ModuleType]) -> None:
    """Removes them, so that they are imported anew; a package that stays forgets its part too."""
    for name, module in modules.items():
        del sys.modules[name]
        package, _, part = name.rpartition(".")
        if package in sys.modules and vars(sys.modules[package]).get(part) is module:
            delattr(sys.modules[package], part)


def _folder_of(module: ModuleType) -> str:
    """Of a package without ``__init__.py``; "" if the module is none."""
    spec = getattr(module, "__spec__", None)
    folders = getattr(spec, "submodule_search_locations", None)
    return next(iter(folders), "") + os.sep if folders else ""


class Unsure(Exception):
    """Something at module level may hold a state that cannot be compared; its text says what."""


def uses(modules: dict[str, ModuleType], function: Any) -> bool:
    """Whether ``function`` is a variable of one of them."""
    return any(value is function for module in modules.values() for value in list(vars(module).values()))


class Imported:
    """What the import of the user's modules left behind: the modules, and all that belongs to the process."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._modules = user_modules(roots)
        self._files = {name: _stamp(module) for name, module in self._modules.items()}
        self.globals = ProcessGlobals()
        self.torch: dict[str, Any] | None = None
        """Its switches; None if it was not imported."""
        self._unsure = ""
        self._held: dict[str, Any] = {}
        self._alive: list[Any] = []
        """What was read, so that no other object gets its id."""
        try:
            self.torch = torch_switches() if "torch" in sys.modules else None
        except RuntimeError as error:
            self._unsure = f"torch's switches cannot be read ({str(error).partition(',')[0]})"
        try:
            self._held = self._read(self._alive, filled=True)
        except Unsure as error:
            self._unsure = str(error)
        if library := library_in_use():
            self._unsure = f"the import of your modules starts {library}"

    def changed(self) -> str:
        """Why the modules cannot stay, in words; "" if all of them are as after the import."""
        if self._unsure:
            return self._unsure
        if not Path(self.globals.directory).is_dir():
            return f"the working directory {self.globals.directory} is gone"
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module or _stamp(module) != self._files[name]:
                return f"{name} is no longer what was imported"
        late = [name for name in user_modules(self._roots) if name not in self._modules]
        if late:  # what it was like after its import is not known, and what is kept may be of its classes
            return f"a trial imported {late[0]}: import it at the top of its module"
        for module in self._modules.values():
            vars(module).pop("__warningregistry__", None)  # warnings that were given once
        try:
            now = self._read([], filled=False)
        except Unsure as error:
            return str(error)
        found = sorted(name for name in self._held | now if self._held.get(name) != now.get(name))
        return f"a trial changed {found[0]}" if found else ""

    def _read(self, alive: list[Any], filled: bool) -> dict[str, Any]:
        """What each variable of each module holds, as bytes that can be compared, by ``module.name``.

        ``filled``: caches that hold something are a state; else they are emptied.
        """
        own = {module.__name__ for module in self._modules.values()}
        held, left = {}, _MOST_OBJECTS
        for module_name, module in self._modules.items():
            for variable, value in list(vars(module).items()):
                name = f"{module_name}.{variable}"
                if variable in _OF_THE_INTERPRETER or (_of_dynamo(name) and name not in self._held):
                    continue
                reader = _Reader(own, name, left, filled)
                try:
                    held[name] = repr(reader.read(value))
                except Unsure:
                    raise
                except Exception as error:  # noqa: BLE001 - an object of the user's may raise anything when it is read
                    raise Unsure(f"{name} cannot be read ({type(error).__name__})") from None
                left -= len(reader.seen)
                alive.append(reader.seen)
        return held


def _stamp(module: ModuleType) -> tuple[int, int] | None:
    """Of its file: time of change and size."""
    try:
        stat = Path(getattr(module, "__file__", None) or "").stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _of_dynamo(name: str) -> bool:
    """Whether torch.compile may have put it into a module, whose functions' code reads it (``__compiled_fn_1``)."""
    return "torch._dynamo" in sys.modules and name.rpartition(".")[2].startswith("__")


class _Reader:
    """Makes something comparable of a variable; raises `Unsure` where that is not possible."""

    def __init__(self, own: set[str], name: str, most: int, filled: bool) -> None:
        self._own = own
        """Names of the user's modules: their functions and classes can hold a state."""
        self._name, self._most, self._filled = name, most, filled
        self.seen: dict[int, tuple[int, Any]] = {}
        """By id: number in the order of reading, and the object, so that no other one gets this id."""

    def read(self, value: Any) -> Any:
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
            not kind.__flags__ & _HEAP_TYPE
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

"""The user's modules in a process that runs trial after trial: forgotten between trials, or as right after import.

They are forgotten, and imported anew, unless the trials keep something (`tuner.training.keep`): code that is compiled
belongs to the functions of one import. Then they stay, if their files are the same and no trial changed what they hold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner import examples
from tuner.execution.library_state import library_in_use
from tuner.execution.process_globals import ProcessGlobals, torch_switches
from tuner.execution.variable_state import Reader, Unsure

_MOST_OBJECTS = 200_000
"""Objects that are read in all, some 0.5 s."""
_OF_THE_INTERPRETER = {
    *("__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__path__", "__spec__", "__warningregistry__")
}


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
    """Removes them, so that they are imported anew."""
    for name in modules:
        del sys.modules[name]


def _folder_of(module: ModuleType) -> str:
    """Of a package without ``__init__.py``; "" if the module is none."""
    spec = getattr(module, "__spec__", None)
    folders = getattr(spec, "submodule_search_locations", None)
    return next(iter(folders), "") + os.sep if folders else ""


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
                reader = Reader(own, name, left, filled)
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

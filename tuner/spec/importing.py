"""Imports what a user names as ``module:attribute`` or ``path/to/file.py:attribute``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.errors import InputError, did_you_mean


@contextlib.contextmanager
def user_code(roots: tuple[Path, ...]) -> Iterator[None]:
    """Within, the user's code may run: it finds its modules in ``roots``, as a script does, and prints to stderr."""
    added = [str(root) for root in roots if str(root) not in sys.path]
    sys.path[:0] = added
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        for folder in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


def import_attribute(reference: str, roots: tuple[Path, ...], expected: type | None = None) -> Any:
    """The attribute that ``reference`` names.

    Raises InputError when the module, the file or the attribute does not exist, when the user's code raises at import
    (shown as what it is, with the line), or when the attribute is not an ``expected``.
    """
    module_name, _, attribute = reference.rpartition(":")
    with user_code(roots):
        module = import_module(module_name, roots)
        try:
            value = getattr(module, attribute)
        except AttributeError:
            names = [name for name in vars(module) if not name.startswith("_")]
            hint = did_you_mean(attribute, names).rpartition("; ")[2] if names else ""
            hint = f"; {hint}" if hint.startswith("did you") else ""
            raise InputError(f"{module.__file__ or module_name} has no {attribute!r}{hint}") from None
    if expected is not None and not isinstance(value, expected):
        raise InputError(f"{reference} is a {type(value).__name__}, not a {expected.__name__}")
    return value


def import_module(name: str, roots: tuple[Path, ...]) -> ModuleType:
    """Imports a module by dotted name or by file; ``roots`` must be on ``sys.path``."""
    try:
        if name.endswith(".py"):
            return _import_file(name, roots)
        importlib.invalidate_caches()
        return importlib.import_module(name)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            message = f"no module {error.name!r}; looked in {', '.join(map(str, roots))} and in the installed packages"
            raise InputError(message) from None
        raise InputError(f"{name} cannot be imported: {_innermost(error)}") from None
    except SyntaxError as error:
        raise InputError(
            f"{name} cannot be imported: SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's module may raise anything at import: it is shown, not hidden
        raise InputError(f"{name} cannot be imported: {_innermost(error)}") from None


def _import_file(name: str, roots: tuple[Path, ...]) -> ModuleType:
    found = (root / name for root in roots if os.path.isfile(root / name))  # noqa: PTH113 - Path.is_file raises on long names
    file = next(found, None)
    if file is None:
        raise InputError(f"no file {name!r}; looked in {', '.join(map(str, roots))}")
    file = file.resolve()
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    module_name = file.stem
    loaded = sys.modules.get(module_name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(file):
            return loaded
        module_name = f"user_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _innermost(error: BaseException) -> str:
    """``Type: message (file, line n)`` with the last line of the user's code that was running."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename and f.filename != __file__
    ]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"

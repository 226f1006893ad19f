"""Imports what a user names as ``module:attribute`` or ``path/to/file.py:attribute``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner import examples
from tuner.errors import InputError, did_you_mean, shortened
from tuner.storage.pickled import Pickled, is_pickled

_LONGEST = 500
"""Characters of a message of the user's code that ours repeats."""


class UserExit(Exception):
    """The user's code wanted to end this process, which is not its own."""


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """Within, the user's code may run: what would end this process without a word arrives as `UserExit`."""
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserExit(f"{type(error).__name__}: {text_of(error)}") from error


@contextlib.contextmanager
def user_code(roots: tuple[Path, ...]) -> Iterator[None]:
    """`no_exit`, where the user's code finds its modules in ``roots``, as a script does, and prints to stderr."""
    front, back = search_path(roots)
    added = [folder for folder in front + back if folder not in sys.path]
    sys.path[:] = [*(f for f in front if f in added), *sys.path, *(f for f in back if f in added)]
    try:
        with contextlib.redirect_stdout(sys.stderr), no_exit():
            yield
    finally:
        for folder in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


def search_path(roots: Sequence[Path]) -> tuple[list[str], list[str]]:
    """The folders of ``roots`` in which Python looks before the installed packages, as for a script, and after them.

    The parent of the experiment's folder comes after them: a file there must not stand for a package. The examples
    come last, so that every experiment may name a shipped trainable.
    """
    folders = [str(root) for root in roots]
    parents = int(len(roots) > 1 and roots[-1] == roots[-2].parent)
    last = [str(examples.FOLDER)] if examples.FOLDER not in roots else []
    return folders[: len(folders) - parents], [*folders[len(folders) - parents :], *last]


def import_attribute(
    reference: str, roots: tuple[Path, ...], expected: type | None = None, pickles: Sequence[Pickled] = ()
) -> Any:
    """The attribute, or the one of ``pickles``, that ``reference`` names.

    Raises InputError if the module, the file or the attribute does not exist, or if the attribute is not an
    ``expected``. If the user's code raises at import, the InputError shows that error, with its line.
    """
    module_name, _, attribute = reference.rpartition(":")
    if is_pickled(reference):
        return _open(module_name, roots, pickles)
    with user_code(roots):
        module = import_module(module_name, roots)
        try:
            with no_exit():
                value = getattr(module, attribute)
        except AttributeError:
            names = [name for name in vars(module) if not name.startswith("_")]
            hint = did_you_mean(attribute, names).rpartition("; ")[2] if names else ""
            hint = f"; {hint}" if hint.startswith("did you") else ""
            where = getattr(module, "__file__", None) or module_name
            raise InputError(f"{where} has no {attribute!r}{hint}") from None
        except Exception as error:  # noqa: BLE001 - the module's own __getattr__ may raise anything: it is shown
            raise InputError(f"{module_name} does not give its {attribute!r}: {innermost(error)}") from None
    if expected is not None and not issubclass(type(value), expected):  # a value may lie to isinstance, or raise
        raise InputError(f"{reference} is a {type(value).__name__}, not a {expected.__name__}")
    return value


def _open(file: str, roots: tuple[Path, ...], pickles: Sequence[Pickled]) -> Any:
    pickled = next((pickled for pickled in pickles if pickled.file == file), None)
    if pickled is None:
        raise InputError(f"no file {file!r}; looked in {', '.join(map(str, roots))}")
    with user_code(roots):
        return pickled.open()


def import_module(name: str, roots: tuple[Path, ...]) -> ModuleType:
    """Imports a module by dotted name or by file; ``roots`` must be on ``sys.path``."""
    try:
        with no_exit():
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
        raise InputError(f"{name} cannot be imported: {innermost(error)}{_remedy(error.name)}") from None
    except SyntaxError as error:
        raise InputError(
            f"{name} cannot be imported: SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
        ) from None
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything at import: it is shown, not hidden
        raise InputError(f"{name} cannot be imported: {innermost(error)}") from None


def _remedy(module: str | None) -> str:
    """How to install a missing module, if an extra of tuner brings it."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    from tuner.installed import how_to_install, requirements

    package = canonicalize_name((module or "").partition(".")[0])
    for requirement in map(Requirement, requirements()):
        extra = canonicalize_name(requirement.name)  # as the extras of the frameworks are called
        if extra == package and requirement.marker is not None and requirement.marker.evaluate({"extra": extra}):
            return f"; {how_to_install(extra)}"
    return ""


def find_file(name: str, roots: tuple[Path, ...]) -> Path:
    """The file ``name`` in the first of ``roots`` that has it. Raises InputError if none has."""
    found = (root / name for root in (*roots, examples.FOLDER) if os.path.isfile(root / name))  # noqa: PTH113 - Path.is_file raises on long names
    file = next(found, None)
    if file is None:
        raise InputError(f"no file {name!r}; looked in {', '.join(map(str, roots))}")
    return file.resolve()


def _import_file(name: str, roots: tuple[Path, ...]) -> ModuleType:
    file = find_file(name, roots)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    for module_name in (file.stem, f"user_{file.stem}"):
        loaded = sys.modules.get(module_name)
        if loaded is None:
            break
        if getattr(loaded, "__file__", None) == str(file):
            return loaded
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


_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def innermost(error: BaseException) -> str:
    """``Type: message (file, line n)`` with the last line of the user's code that was running.

    An installed package, and this one, count only if there is nothing else: some (wandb) put a function of theirs
    around `sys.exit`, and `tuner.training` says what its caller did wrong.
    """
    raised = error.__cause__ if isinstance(error, UserExit) and error.__cause__ else error
    stack, ours = traceback.extract_tb(raised.__traceback__), (__file__, contextlib.__file__)
    frames = [f for f in stack if "importlib" not in f.filename and f.filename not in ours]
    frames = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith(_PACKAGE)] or frames
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    name = "" if isinstance(error, UserExit) else f"{type(error).__name__}: "
    return f"{name}{text_of(error)}{where}"


def signature_of(function: Any, reference: str) -> inspect.Signature:
    """Its signature. Raises InputError if it has none that can be read."""
    try:
        with no_exit():
            return inspect.signature(function)
    except Exception as error:  # noqa: BLE001 - an object of the user's may raise anything when it is looked at
        raise InputError(
            f"the arguments of {reference} cannot be read: {type(error).__name__}: {text_of(error)}"
        ) from None


def text_of(error: BaseException) -> str:
    """Its message, shortened, which is the user's code too."""
    try:
        return shortened(str(error), _LONGEST)
    except Exception:  # noqa: BLE001 - a broken __str__ has no text
        return "(its text cannot be read)"

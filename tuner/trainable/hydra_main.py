"""The function that a Hydra configuration belongs to, found in the text of the user's files: nothing is imported."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import InputError

_MOST_FILES = 2000
"""Python files that are looked into."""

_NOT_CODE = {"__pycache__", "node_modules", "site-packages", "outputs", "multirun", "runs"}
"""Names of folders that are not looked into, and those that begin with a dot."""

_SHOWN = 5
"""Functions that a message names."""

COMPATIBLE = "1.1"
"""The ``version_base`` of Hydra if ``hydra.main`` gets none."""


@dataclass(frozen=True)
class Main:
    """A function with the decorator ``hydra.main``."""

    file: Path
    name: str
    folder: Path | None
    """Of its configurations; None if the decorator does not spell it out, or names none."""
    config_name: str
    """Of its primary configuration, without a suffix; empty if the decorator does not spell it out, or names none."""
    version_base: str | None
    """None: the installed version of Hydra."""

    @property
    def config(self) -> Path | None:
        """The file of its primary configuration."""
        return self.folder / f"{self.config_name}.yaml" if self.folder and self.config_name else None


def main_of(config: Path, folder: Path, reference: str) -> Main | None:
    """The function in the Python files below ``folder`` that reads ``config``; None if there is none.

    A function whose decorator names another configuration in the same folder counts if none names this one: it reads it
    with ``--config-name``. ``reference``: what the user wrote. Raises InputError if there are several.
    """
    mains = [main for file in _python_files(folder, reference) for main in mains_in(file)]
    exact = [main for main in mains if main.config == config]
    found = exact or [main for main in mains if main.folder == config.parent]
    if len(found) > 1:
        names = [f"{os.path.relpath(main.file, folder)}:{main.name}" for main in found]
        shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
        raise InputError(
            f"{reference}: {len(found)} functions with @hydra.main read it: {shown}; name one of them, as in "
            f"{reference}:{names[0]}"
        )
    return found[0] if found else None


def not_found(config: Path, folder: Path, reference: str) -> InputError:
    """Neither a function that reads ``config`` nor a ``_target_``."""
    near = os.path.relpath(config.parent, folder)
    return InputError(
        f"{reference} belongs to no function: no Python file below {folder} has one with "
        f"@hydra.main(config_path={near!r}, config_name={config.stem!r}), and the configuration has no _target_ at its "
        f"top; name the function of one argument, as in {reference}:train.py:main"
    )


def mains_in(file: Path) -> Sequence[Main]:
    """The functions of ``file`` with the decorator; none if it is not Python."""
    try:
        source = file.read_bytes()
        if b"hydra" not in source:  # most files: to parse them takes 50 times as long
            return ()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return ()
    names = _names(tree)
    return [
        _main(file, node, decorator)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in names
    ]


def _python_files(folder: Path, reference: str) -> Iterator[Path]:
    count = 0
    for here, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _NOT_CODE and not name.startswith("."))
        for name in sorted(name for name in files if name.endswith(".py")):
            count += 1
            if count > _MOST_FILES:
                raise InputError(
                    f"{reference}: its function is looked for in at most {_MOST_FILES:,} Python files, and there "
                    f"are more below {folder}; name it, as in {reference}:train.py:main"
                )
            yield Path(here, name)


def _names(tree: ast.Module) -> set[str]:
    """How the module calls ``hydra.main``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {f"{alias.asname or alias.name}.main" for alias in node.names if alias.name == "hydra"}
        elif isinstance(node, ast.ImportFrom) and node.module == "hydra" and not node.level:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "main"}
    return names


def _main(file: Path, node: ast.FunctionDef, decorator: ast.Call) -> Main:
    positions = ("config_path", "config_name", "version_base")
    given = dict(zip(positions, decorator.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg}
    base = _text(given["version_base"]) if "version_base" in given else COMPATIBLE
    path = _text(given["config_path"]) if "config_path" in given else ("." if base == COMPATIBLE else None)
    folder = None if path is None or "://" in path else Path(os.path.normpath(file.parent / path))
    name = _text(given.get("config_name")) or ""
    return Main(file, node.name, folder, name.removesuffix(".yaml"), base)


def _text(node: ast.expr | None) -> str | None:
    """The text of a literal; None for None, and for an expression that is not a literal."""
    return str(node.value) if isinstance(node, ast.Constant) and node.value is not None else None

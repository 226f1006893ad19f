"""A shipped trainable as the ``train.py`` of a project: its imports, its commands, its log."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

PACKAGE = "trainables"


def helpers(source: str) -> set[str]:
    """The modules of `PACKAGE` that a trainable, or another helper, imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module, names=names) if module == PACKAGE:
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module)) if module.startswith(f"{PACKAGE}."):
                found.add(module.split(".")[1])
            case ast.Import(names=names):
                found |= {alias.name.split(".")[1] for alias in names if alias.name.startswith(f"{PACKAGE}.")}
    return found


def moved(text: str, trainable: str) -> str:
    """Python or YAML in which the names and paths of the examples are those of a project.

    ``trainable``: the module that becomes ``train.py``.
    """
    text = re.sub(r"^# yaml-language-server:.*\n", "", text, flags=re.M)
    text = re.sub(rf"\b{PACKAGE}\.{trainable}:", "train.py:", text)
    text = re.sub(r"\bexperiments/\w+\.yaml\b", "search.yaml", text)
    text = re.sub(r"\bsearch_spaces/\w+\.yaml\b", "search_space.yaml", text)

    def name(found: re.Match[str]) -> str:
        return "train" if found[1] == trainable else found[1]

    text = re.sub(rf"^( *)from {PACKAGE} import (\([^)]*\)|[^(\n]+)$", _as_imports, text, flags=re.M)
    return re.sub(rf"\b{PACKAGE}[./](\w+)", name, text)


def _as_imports(found: re.Match[str]) -> str:
    """``from trainables import a, b as c`` as ``import a`` and ``import b as c``."""
    parts = (part.strip() for part in found[2].strip("()").split(","))
    return "\n".join(f"{found[1]}import {part}" for part in parts if part)


def with_log(source: str) -> str:
    """A trainable that also writes its configuration, and each report of a variable, to the log of the trial.

    One that has a log already is returned as it is.
    """
    tree, lines = ast.parse(source), source.splitlines()
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if "getLogger" in taken | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}:
        return source
    log = next(name for name in ("log", "logger", "trial_log") if name not in taken)
    for place, text in sorted(_log_lines(tree, log), reverse=True):
        lines[place:place] = text.splitlines()
    return "\n".join(lines) + "\n"


def _log_lines(tree: ast.Module, log: str) -> Iterator[tuple[int, str]]:
    """Lines to add, each with the number of lines before it. They bind no name ``logging``: a library may have one."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    before = [node for node in imports if _root(node) in sys.stdlib_module_names and _comes_first(node)]
    yield (
        before[-1].end_lineno or 0 if before else imports[0].lineno - 1,
        "from logging import INFO, basicConfig, getLogger",
    )
    yield imports[-1].end_lineno or 0, f"\n{log} = getLogger(__name__)"
    for node in tree.body:
        match node:
            case ast.FunctionDef(name="train", args=ast.arguments(args=[ast.arg(arg=config), *_]), body=[first, *_]):
                is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                place = (first.end_lineno or 0) if is_docstring else first.lineno - 1
                yield place, f'{_SET_UP}\n    {log}.info("%s", {config})'
    for call in ast.walk(tree):
        match call:
            case ast.Expr(value=ast.Call(func=function, args=[ast.Name(id=metrics), *_])):
                if ast.unparse(function) in ("tune.report", "tuner.report"):
                    yield call.lineno - 1, f'{" " * call.col_offset}{log}.info("%s", {metrics})'


_SET_UP = '    basicConfig(level=INFO, format="%(asctime)s %(message)s")  # to the output.log of the trial'


def _root(node: ast.Import | ast.ImportFrom) -> str:
    """The package that is imported."""
    name = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
    return name.partition(".")[0]


def _comes_first(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether it stands before ``from logging import``, where imports are sorted as isort does."""
    return isinstance(node, ast.Import) or _root(node) < "logging"

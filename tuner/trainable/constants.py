"""The constants of a script that a trial can set: module-level assignments such as ``LEARNING_RATE = 0.1``."""

from __future__ import annotations

import ast
import functools
import math
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Scalar = bool | int | float | str

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")

_EXPECTED = {bool: "true or false", int: "an integer", float: "a finite number", str: "a text"}


@dataclass(frozen=True)
class Constant:
    """A constant of a script, with the value that the script gives it."""

    name: str
    value: Scalar
    line: int

    def complaint(self, script: str, value: Any) -> str:
        """Why the constant cannot be ``value``; empty if it can. None leaves the script's own value."""
        if value is None or (type(value) is type(self.value) and (type(value) is not float or math.isfinite(value))):
            return ""
        if type(self.value) is float and type(value) is int:
            return ""
        written = f"{script} has {self.name} = {self.value!r} (line {self.line})"
        remedy = f"; write {self.name} = {self.value}.0 there for other numbers" if self._is_rounded(value) else ""
        return f"must be {_EXPECTED[type(self.value)]}, not {value!r}: {written}{remedy}"

    def _is_rounded(self, value: Any) -> bool:
        return type(self.value) is int and type(value) is float


@functools.lru_cache(16)
def constants(source: str) -> Mapping[str, Constant]:
    """The constants of a script with the text ``source`` by name, in their order.

    Such a constant has a name in capitals, a literal number, text or boolean, and one assignment in the whole script,
    which no branch, loop or block surrounds. So the value that a trial sets is the one that the script reads.
    """
    tree = ast.parse(source)
    written = list(_names_written(tree))
    found = (_constant(statement) for statement in tree.body)
    return types.MappingProxyType({one.name: one for one in found if one and written.count(one.name) == 1})


def compiled(source: str, file: Path, values: Mapping[str, Any]) -> types.CodeType:
    """The code of a script in which the constants have ``values``; all else, and each line number, is the script's."""
    tree = ast.parse(source, str(file))
    for statement in tree.body:
        constant = _constant(statement)
        if constant is not None and values.get(constant.name) is not None:
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            assert statement.value is not None
            value = values[constant.name]
            value = float(value) if type(constant.value) is float else value
            statement.value = ast.copy_location(ast.Constant(value), statement.value)
    return compile(tree, str(file), "exec", dont_inherit=True)


def _constant(statement: ast.stmt) -> Constant | None:
    """The constant that a statement of a module defines; None if it defines none."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=node) | ast.AnnAssign(target=ast.Name(id=name), value=node):
            if node is None or not _NAME.fullmatch(name):
                return None
        case _:
            return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return Constant(name, value, statement.lineno) if type(value) in _EXPECTED else None


def _names_written(tree: ast.Module) -> Iterator[str]:
    """The names that the script assigns, deletes, imports or defines anywhere, each as often as it does so."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.Global(names=names):
                yield from names

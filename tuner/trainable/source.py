"""The source of the user's own functions, classes and modules, as syntax trees."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Uncertain(Exception):
    """The source does not show what the code does."""


@dataclass
class OwnCode:
    """Code below ``roots``, outside of installed libraries."""

    roots: tuple[Path, ...]
    _trees: dict[object, ast.AST] = field(default_factory=dict)

    def holds(self, thing: Any) -> bool:
        """Whether a function or class is the user's own."""
        if str(getattr(thing, "__module__", "")).partition(".")[0] == "tuner":
            return False
        try:
            file = Path(inspect.getfile(thing)).resolve()
        except (OSError, TypeError):
            return False
        return "site-packages" not in file.parts and any(file.is_relative_to(root.resolve()) for root in self.roots)

    def tree(self, thing: Any) -> ast.AST:
        """The source of a function, class or module. Raises Uncertain if there is none."""
        if thing not in self._trees:
            try:
                self._trees[thing] = ast.parse(textwrap.dedent(inspect.getsource(thing)))
            except (OSError, TypeError, SyntaxError):
                raise Uncertain from None
        return self._trees[thing]

    def modules(self) -> Iterator[types.ModuleType]:
        """The user's modules. Raises Uncertain if one of them imports another one that is not there yet."""
        roots = tuple(f"{root.resolve()}{os.sep}" for root in self.roots)
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            is_own = file.endswith(".py") and file.startswith(roots) and "site-packages" not in file
            if not is_own or name.partition(".")[0] == "tuner" or not isinstance(module, types.ModuleType):
                continue
            for node in ast.walk(self.tree(module)):
                imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                imported += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                if any(one not in sys.modules for one in imported):
                    raise Uncertain
            yield module


def inside_partials(thing: Any) -> Any:
    """The function behind ``thing``, if it is a ``functools.partial``; else ``thing``."""
    while issubclass(type(thing), functools.partial):
        thing = thing.func
    return thing


def function_of(thing: Any) -> Any:
    """The function that a call of ``thing`` runs: of an object, ``__call__`` of its class."""
    inner = inside_partials(thing)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def is_plain(base: type) -> bool:
    """Whether a base class knows nothing of attributes that the user gives an object."""
    return base is object or (base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module")


def parents_in(body: ast.AST) -> dict[ast.AST, ast.AST]:
    """Each node below ``body``, in order, with the node that holds it."""
    return {child: node for node in ast.walk(body) for child in ast.iter_child_nodes(node)}


def name_of(node: ast.AST) -> str:
    """Of a variable or an attribute; empty for any other node."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_assigned(body: ast.FunctionDef, name: str) -> bool:
    """Whether ``name`` is a variable of the function."""
    for node in ast.walk(body):
        match node:
            case ast.Name(id=stored, ctx=ast.Store()) | ast.arg(arg=stored) | ast.ClassDef(name=stored):
                found = stored
            case ast.alias(name=imported, asname=other):
                found = other or imported.partition(".")[0]
            case _:
                continue
        if found == name:
            return True
    return False

"""The arguments that a script declares, read from its text: the script does not run."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
from collections.abc import Iterator
from typing import Any, NoReturn

from tuner.trainable.source import name_of

_ELSEWHERE = {"parse_known_args", "parse_known_intermixed_args", "add_subparsers", "exec", "eval", "set_defaults"}
"""Names with which a parser may take more arguments, or other ones, than its calls of ``add_argument`` show."""

_OF_PARSER = {"description", "prog", "usage", "epilog", "formatter_class", "allow_abbrev"}
"""Options of ``ArgumentParser`` that change no argument."""

_TYPES = {"int": int, "float": float, "str": str, "bool": bool}
_TEXTS = {"help", "metavar", "default", "version"}
_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.Match, ast.AsyncFor)


class Rejected(Exception):
    """What the parser says of arguments that it does not take."""


class Declared(argparse.ArgumentParser):
    """A parser with a script's arguments, none of them required."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        self.required: list[str] = []
        """The names of the required arguments."""

    def error(self, message: str) -> NoReturn:
        raise Rejected(message)


class _Unknown(Exception):
    """The arguments cannot be known without running the script."""


@functools.lru_cache(16)
def declared(source: str) -> Declared | None:
    """The arguments that a script with the text ``source`` declares; None if they cannot be known without running it.

    They are known if the script makes one ``ArgumentParser``, hands it to no foreign code, and spells the names.
    """
    tree = ast.parse(source)
    try:
        _check_parser(tree)
        parser = Declared()
        conditional = {id(node) for branch in _branches(tree) for node in ast.walk(branch)}
        for call in _calls(tree):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                _add(parser, call, required=id(call) not in conditional)
    except (_Unknown, TypeError, ValueError, argparse.ArgumentError):
        return None
    return parser


def _check_parser(tree: ast.Module) -> None:
    """Raises _Unknown unless the script makes one parser, of which it alone knows."""
    makers = [call for call in _calls(tree) if name_of(call.func).endswith("Parser")]
    if len(makers) != 1 or name_of(makers[0].func) != "ArgumentParser" or makers[0].args:
        raise _Unknown
    if not {keyword.arg for keyword in makers[0].keywords} <= _OF_PARSER:
        raise _Unknown
    if {name_of(node) for node in ast.walk(tree)} & _ELSEWHERE:
        raise _Unknown
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and node.value is makers[0]]
    names = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for call in _calls(tree):
        handed = {name_of(argument) for argument in [*call.args, *(keyword.value for keyword in call.keywords)]}
        if handed & names and not (isinstance(call.func, ast.Name) and call.func.id in own):
            raise _Unknown


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _branches(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements below which a call may not happen."""
    for node in ast.walk(tree):
        is_main = isinstance(node, ast.If) and any(name_of(inner) == "__name__" for inner in ast.walk(node.test))
        if isinstance(node, _BRANCHES) and not is_main:
            yield node


def _add(parser: Declared, call: ast.Call, required: bool) -> None:
    """Adds the argument of ``call``. Raises _Unknown if it is not spelled out."""
    names = [_literal(argument) for argument in call.args]
    options = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg not in _TEXTS}
    if None in options or not all(isinstance(name, str) for name in names):
        raise _Unknown
    known: dict[str, Any] = {k: _literal(options[k]) for k in ("nargs", "dest", "const") if k in options}
    if "action" in options:
        known["action"] = _action(options["action"])
    if kind := _TYPES.get(name_of(options["type"])) if "type" in options else None:
        known["type"] = kind
    if "choices" in options and (kind or "type" not in options):  # of another type they cannot be told
        with contextlib.suppress(_Unknown, TypeError):
            known["choices"] = list(_literal(options["choices"]))
    is_required = "required" in options and _literal(options["required"]) is True
    if names and not names[0].startswith("-"):
        is_required = known.get("nargs") in (None, "+") and "action" not in known
        if isinstance(known.get("nargs"), int):
            raise _Unknown
        known["nargs"] = {None: "?", "+": "*"}.get(known.get("nargs"), known.get("nargs"))
    action = parser.add_argument(*names, **known)
    if is_required and required:
        parser.required.append(action.dest)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise _Unknown from None


def _action(node: ast.expr) -> Any:
    if name_of(node) == "BooleanOptionalAction":
        return argparse.BooleanOptionalAction
    return _literal(node)

"""The hyperparameters in the text of a script: arguments of argparse, fields of a dataclass, constants in capitals."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.trainable.constants import constants
from tuner.trainable.source import name_of

UNKNOWN = object()
"""A default that the text does not spell out."""

_FLAGS = {"store_true": False, "store_false": True}
_NOT_VALUES = {"help", "version", "count", "append", "append_const", "store_const", "extend"}
_TYPES = {"int": int, "float": float, "str": str, "bool": bool}
_DATACLASSES = {"dataclass", "pydantic_dataclass"}
_SCALARS = (bool, int, float, str)


@dataclass(frozen=True)
class Hyperparameter:
    """One setting of a script, as its text declares it."""

    name: str
    kind: type | None
    """bool, int, float or str; None: another type, or none is known."""
    default: Any
    """`UNKNOWN` if the text does not spell it out."""
    line: int
    choices: tuple[Any, ...] = ()
    """The values that it takes, if the text lists them."""
    required: bool = False
    can_be_false: bool = True
    """Whether a trial can pass the value False."""
    note: str = ""
    """Why a trial cannot set it; empty if it can."""
    help: str = ""


@dataclass(frozen=True)
class DataclassFound:
    """A dataclass or pydantic model of settings."""

    name: str
    line: int
    fields: tuple[Hyperparameter, ...]


def of_argparse(source: str) -> list[Hyperparameter]:
    """The arguments of each call of ``add_argument``; one whose name is not spelled out is left out."""
    tree, known = ast.parse(source), {name: one.value for name, one in constants(source).items()}
    found: dict[str, Hyperparameter] = {}
    for call in _calls(tree, "add_argument"):
        if (one := _argument(call, known)) is not None:
            found.setdefault(one.name, one)
    return list(found.values())


def _argument(call: ast.Call, known: Mapping[str, Any]) -> Hyperparameter | None:
    names = [_value(node, known) for node in call.args]
    options = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if not names or not all(isinstance(name, str) for name in names):
        return None
    action = "boolean" if _is_boolean_action(options.get("action")) else _given(options, "action", known, "store")
    if action in _NOT_VALUES or "nargs" in options:
        return None
    longest = next((name for name in names if name.startswith("--")), names[0])
    name = str(_given(options, "dest", known, longest.lstrip("-"))).replace("-", "_").replace(".", "_")
    help_text = _given(options, "help", known, "")
    default = _given(options, "default", known, _FLAGS.get(str(action)))
    if action in _FLAGS or action == "boolean":
        return Hyperparameter(name, bool, default, call.lineno, help=str(help_text))
    choices = _listed(options.get("choices"), known)
    kind = _TYPES.get(name_of(options["type"])) if "type" in options else _kind_of(default, choices) or str
    is_text = "type" not in options and any(type(value) is not str for value in (*choices, _as_text(default)))
    note = "add_argument has no type, so that the script gets a text" if is_text else ""
    required = _given(options, "required", known, False) is True or not names[0].startswith("-")
    return Hyperparameter(name, kind, default, call.lineno, choices, required, note=note, help=str(help_text))


def _as_text(default: Any) -> Any:
    return "" if default is None or default is UNKNOWN else default


def _is_boolean_action(node: ast.expr | None) -> bool:
    return node is not None and name_of(node) == "BooleanOptionalAction"


def _given(options: Mapping[str, ast.expr], name: str, known: Mapping[str, Any], otherwise: Any) -> Any:
    return _value(options[name], known) if name in options else otherwise


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal, or a constant of the script; else `UNKNOWN`."""
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return UNKNOWN


def _listed(node: ast.expr | None, known: Mapping[str, Any]) -> tuple[Any, ...]:
    value = _value(node, known) if node is not None else ()
    is_list = isinstance(value, list | tuple) and all(isinstance(item, _SCALARS) for item in value)
    return tuple(value) if is_list else ()


def _kind_of(default: Any, choices: tuple[Any, ...] = ()) -> type | None:
    samples = [default, *choices]
    return next((type(sample) for sample in samples if isinstance(sample, _SCALARS)), None)


def dataclasses_in(tree: ast.Module) -> list[DataclassFound]:
    """The dataclasses and pydantic models at the top level of a script, with the fields that have a default or type."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and (_is_dataclass(node) or _is_model(node)):
            fields = [_field(one) for one in node.body if isinstance(one, ast.AnnAssign)]
            found.append(DataclassFound(node.name, node.lineno, tuple(one for one in fields if one)))
    return found


def _is_dataclass(node: ast.ClassDef) -> bool:
    decorators = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(name_of(one) in _DATACLASSES for one in decorators)


def _is_model(node: ast.ClassDef) -> bool:
    return any(name_of(base) in ("BaseModel", "BaseSettings") for base in node.bases)


def _field(node: ast.AnnAssign) -> Hyperparameter | None:
    if not isinstance(node.target, ast.Name) or name_of(_base(node.annotation)) == "ClassVar":
        return None
    kind, choices = _annotated(node.annotation)
    default = UNKNOWN if node.value is None else _default(node.value)
    is_required = node.value is None
    return Hyperparameter(node.target.id, kind, default, node.lineno, choices, is_required)


def _default(node: ast.expr) -> Any:
    """Of a field: ``0.1``, ``field(default=0.1)``, ``Field(0.1)``."""
    if isinstance(node, ast.Call) and name_of(node.func) in ("field", "Field"):
        given = [k.value for k in node.keywords if k.arg == "default"] + node.args[:1]
        return _value(given[0], {}) if given else UNKNOWN
    return _value(node, {})


def _base(annotation: ast.expr) -> ast.expr:
    return annotation.value if isinstance(annotation, ast.Subscript) else annotation


def _annotated(node: ast.expr) -> tuple[type | None, tuple[Any, ...]]:
    """The scalar type that an annotation allows, and the values of a ``Literal``; None is left out of a union."""
    match node:
        case ast.Constant(value=str(text)):
            try:
                return _annotated(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return None, ()
        case ast.Subscript(value=base, slice=inner) if name_of(base) == "Literal":
            choices = _listed(inner if isinstance(inner, ast.Tuple) else ast.Tuple([inner]), {})
            return _kind_of(None, choices), choices
        case ast.Subscript(value=base, slice=inner) if name_of(base) == "Optional":
            return _annotated(inner)
        case ast.Subscript(value=base, slice=ast.Tuple(elts=[first, *_])) if name_of(base) == "Annotated":
            return _annotated(first)
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _annotated(left)
    return _TYPES.get(name_of(node)), ()


def of_constants(source: str) -> list[Hyperparameter]:
    """The constants that a trial can set."""
    return [Hyperparameter(one.name, type(one.value), one.value, one.line) for one in constants(source).values()]


def calls_named(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """The calls of a function or method of that ``name``, in the order of the text."""
    return iter(sorted(_calls(tree, name), key=lambda call: (call.lineno, call.col_offset)))


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and name_of(node.func) == name)

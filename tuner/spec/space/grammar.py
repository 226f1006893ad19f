"""How YAML writes each domain: the one table that the reader and the JSON Schema share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from tuner.spec.space.domains import Choice, Domain, GridSearch
from tuner.spec.space.prior import Confidence
from tuner.spec.space.ranges import Float, Integer, Normal


@dataclass(frozen=True)
class Form:
    """How YAML writes a domain: the arguments in order, their type, and what the last ones are when absent."""

    make: Callable[..., Domain]
    arguments: tuple[str, ...]
    of: str = "number"
    """``number``, ``integer`` or ``list`` (one list, which holds the values themselves)."""
    defaults: Mapping[str, Any] | None = None

    @property
    def usage(self) -> str:
        """The arguments as messages show them."""
        return "a list of values" if self.of == "list" else f"[{', '.join(self.arguments)}]"


RESERVED = "when"
"""The key of a condition, which therefore names no parameter."""

BELIEF = ("prior", "confidence")
"""The keys of a prior beside a domain."""

DEFAULT = "default"
"""The key of the value that a parameter has where it is not searched."""

ATTRIBUTES = (*BELIEF, DEFAULT)
"""The keys beside a domain but `RESERVED`; in a group they name parameters, but no constants (which may be forgotten
domains)."""

_BOUNDS = ("lower", "upper")
FORMS: Mapping[str, Form] = {
    "uniform": Form(Float, _BOUNDS),
    "quniform": Form(Float, (*_BOUNDS, "q")),
    "loguniform": Form(partial(Float, log=True), _BOUNDS),
    "qloguniform": Form(partial(Float, log=True), (*_BOUNDS, "q")),
    "randn": Form(Normal, ("mean", "sd"), defaults={"mean": 0.0, "sd": 1.0}),
    "qrandn": Form(Normal, ("mean", "sd", "q")),
    "randint": Form(Integer, _BOUNDS, "integer"),
    "qrandint": Form(Integer, (*_BOUNDS, "q"), "integer", {"q": 1}),
    "lograndint": Form(partial(Integer, log=True), _BOUNDS, "integer"),
    "qlograndint": Form(partial(Integer, log=True), (*_BOUNDS, "q"), "integer"),
    "choice": Form(Choice, ("categories",), "list"),
    "grid_search": Form(GridSearch, ("values",), "list"),
}
"""Every domain that YAML knows, by name; argument names and defaults are Ray Tune's."""


def key_problem(key: str) -> str | None:
    """Why ``key`` cannot name a parameter or group in YAML, or None if it can."""
    if not key:
        return "a name must not be empty"
    if key == RESERVED:
        return f"{RESERVED!r} is reserved for conditions"
    for part in ("/", "."):
        if part in key:
            nested = " {".join(f"{name}:" for name in key.split(part)) + " …" + "}" * key.count(part)
            return f"a name must not contain {part!r}, which joins nested names: write it nested, as in {nested}"
    return "a name must not start with '__', which Ray Tune keeps for itself" if key.startswith("__") else None


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a search space: completion and first checks in an editor.

    It knows the grammar of each domain; what needs comparing (bounds, conditions) is left to the reader.
    """
    domains = [_domain_schema(name, form) for name, form in FORMS.items()]
    condition = {
        "description": "Conditions, all of which must hold: an earlier parameter, and its value or a list of values",
        "type": "object",
        "minProperties": 1,
    }
    group = {
        "description": "A group of parameters: a nested mapping in the configuration",
        "type": "object",
        "properties": {"when": {"$ref": "#/$defs/when"}},
        "propertyNames": {"not": {"enum": list(FORMS)}, "pattern": r"^(?!__)[^./]+$"},
        "additionalProperties": {"$ref": "#/$defs/parameter"},
        "minProperties": 1,
    }
    constant = {"description": "A constant", "type": ["string", "number", "boolean", "null", "array"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Search space",
        "allOf": [{"$ref": "#/$defs/group"}, {"not": {"required": ["when"]}}],
        "$defs": {
            "when": condition,
            "group": group,
            "domain": {"anyOf": domains},
            "parameter": {"anyOf": [{"$ref": "#/$defs/domain"}, {"$ref": "#/$defs/group"}, constant]},
        },
    }


def _domain_schema(name: str, form: Form) -> dict[str, Any]:
    optional = len(form.defaults or ())
    if form.of == "list":
        positional: dict[str, Any] = {"type": "array", "minItems": 1}
        named: dict[str, Any] = dict.fromkeys(form.arguments, positional)
    else:
        number = {"type": form.of}
        positional = {
            "type": "array",
            "prefixItems": [number] * len(form.arguments),
            "items": False,
            "minItems": len(form.arguments) - optional,
        }
        named = dict.fromkeys(form.arguments, number)
    by_name = {
        "type": "object",
        "properties": named,
        "required": list(form.arguments[: len(form.arguments) - optional]),
        "additionalProperties": False,
    }
    properties: dict[str, Any] = {name: {"anyOf": [positional, by_name]}, "when": {"$ref": "#/$defs/when"}}
    of_domain = {} if form.of == "list" else {"type": "number"}
    properties[DEFAULT] = {"description": "The value without a search: it runs first", **of_domain}
    if name != "grid_search":
        properties["prior"] = {"description": "The value that you expect to be the best", **of_domain}
        properties["confidence"] = {"enum": list(get_args(Confidence))}
    return {
        "type": "object",
        "description": f"{name}: {form.usage}",
        "properties": properties,
        "required": [name],
        "dependentRequired": {"confidence": ["prior"]},
        "additionalProperties": False,
    }

"""Constraints between parameters: ``model.l1 >= model.l2``, in a small language that can do nothing but compare.

An expression holds dotted names of parameters and of fixed ``params``, numbers, text, ``true``, ``false`` and ``null``,
the arithmetic of Python (``+ - * / // % **``) on numbers, comparisons (chains too), ``and``, ``or``, ``not`` and
parentheses. Python's own parser reads it, and everything else that it understands is refused; nothing is executed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import InputError, did_you_mean
from tuner.spec.configuration import Configuration, flat
from tuner.spec.space.expressions import (
    Arithmetic,
    Comparison,
    Expression,
    Literal,
    Logical,
    Name,
    Path,
    Undefined,
    truth,
)

_LONGEST = 1000
"""Characters of an expression at most."""

_DEEPEST = 50
"""Levels of nesting at most."""

_LANGUAGE = "write parameter names, numbers, text, + - * / // % **, comparisons, and, or, not"

_WORDS = {"true": True, "false": False, "null": None}
"""As YAML writes them."""

_SYMBOLS: Mapping[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


@dataclass(frozen=True)
class Constraint:
    """A condition that every configuration must satisfy; ``text`` is as the user wrote it."""

    text: str
    expression: Expression
    names: tuple[Path, ...]
    """The parameters that it names."""

    @property
    def effort(self) -> int:
        """About how many microseconds it takes to judge it."""
        return 2 + len(self.text) // 4

    def holds(self, configuration: Configuration) -> bool:
        """Whether ``configuration`` satisfies it; true where a parameter that it names is inactive.

        False if it has no value (a division by zero, a number that is too large). Raises InputError if a value
        has a type that an operator does not take, which `unjudged` finds beforehand in samples.
        """
        try:
            return self._judge(configuration)
        except TypeError as error:
            raise InputError(f"the constraint {self.text!r} cannot be judged: {error}") from None

    def _judge(self, configuration: Configuration) -> bool:
        values = self._values(configuration)
        if values is None:
            return True
        try:
            return truth(self.expression, values)
        except Undefined:
            return False

    def _values(self, configuration: Configuration) -> dict[Path, Any] | None:
        """Of the parameters that it names; None if one is inactive."""
        values = {}
        for path in self.names:
            value: Any = configuration
            for key in path:
                if not isinstance(value, Mapping) or key not in value:
                    return None
                value = value[key]
            values[path] = value
        return values

    def _never_judged(self, samples: Sequence[Configuration]) -> TypeError | None:
        """Why a part of it can be judged for none of ``samples``, be it looked at in a few of them only."""
        known = [values for values in map(self._values, samples) if values is not None]
        for condition in self.expression.conditions():
            error = None
            for values in known:
                error = _obstacle(condition, values)
                if error is None:
                    break
            if error is not None:
                return error
        return None

    def __str__(self) -> str:
        return self.text


def read_constraint(text: str, parameters: Iterable[Path], params: Mapping[str, Any]) -> Constraint:
    """The constraint that ``text`` writes; names are looked up in the space's ``parameters``, then in ``params``.

    Raises ValueError, in words for the user, where ``text`` is not in the language or a name is unknown.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"is longer than {_LONGEST} characters: write several constraints")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an unknown escape such as '\d'
            tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression: {error.msg}; {_LANGUAGE}") from None
    except (ValueError, MemoryError, RecursionError) as error:  # a zero byte, deep nesting
        raise ValueError(f"{text!r} is not an expression ({type(error).__name__}); {_LANGUAGE}") from None
    known: dict[str, Expression] = {name: Literal(value, name) for name, value in flat(params)}
    known |= {".".join(path): Name(path) for path in parameters}
    expression = _Parser(text, known).expression(tree, 0)
    if not isinstance(expression, (Comparison, Logical, Name)):
        raise ValueError(f"{text!r} says nothing that can hold or fail: compare it, as in {expression} <= 4096")
    names = tuple(dict.fromkeys(expression.names()))
    if not names:
        raise ValueError(f"{text!r} names no parameter of search_space: it always or never holds")
    return Constraint(text, expression, names)


def _obstacle(condition: Expression, values: Mapping[Path, Any]) -> TypeError | None:
    """Why ``condition`` cannot be judged; None if it can, or is undefined for these values only."""
    try:
        truth(condition, values)
    except TypeError as error:
        return error
    except Undefined:
        return None
    return None


def unjudged(constraints: Sequence[Constraint], samples: Sequence[Configuration]) -> Iterator[tuple[int, str]]:
    """Constraints in which an operator meets a type that it does not take in ``samples``: (index, message)."""
    for index, constraint in enumerate(constraints):
        try:
            for sample in samples:
                constraint._judge(sample)
            if (never := constraint._never_judged(samples)) is not None:
                raise never
        except TypeError as error:
            yield index, f"{constraint.text!r}: {error}"


@dataclass(frozen=True)
class _Parser:
    """From Python's syntax tree to an `Expression`, refusing what the language does not have."""

    text: str
    known: Mapping[str, Expression]

    def expression(self, node: ast.expr, depth: int) -> Expression:
        if depth > _DEEPEST:
            raise ValueError(f"{self.text!r} is nested deeper than {_DEEPEST} levels: write several constraints")
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as constant):
                return Literal(constant, repr(constant))
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                symbol = "-" if isinstance(sign, ast.USub) else "+"
                return Arithmetic(Literal(0, "0"), symbol, self.expression(operand, depth + 1))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Logical("not", (self.expression(operand, depth + 1),))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SYMBOLS:
                symbol = _SYMBOLS[type(op)]
                return Arithmetic(self.expression(left, depth + 1), symbol, self.expression(right, depth + 1))
            case ast.BoolOp(op=op, values=operands):
                symbol = "and" if isinstance(op, ast.And) else "or"
                return Logical(symbol, tuple(self.expression(operand, depth + 1) for operand in operands))
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _SYMBOLS for op in ops):
                chain = tuple(self.expression(operand, depth + 1) for operand in (left, *others))
                return Comparison(chain, tuple(_SYMBOLS[type(op)] for op in ops))
        written = ast.get_source_segment(self.text.strip(), node) or self.text
        raise ValueError(f"{written!r} is not in the language of constraints: {_LANGUAGE}")

    def name(self, node: ast.Name | ast.Attribute) -> Expression:
        parts: list[str] = []
        part: ast.expr = node
        while isinstance(part, ast.Attribute):
            parts.insert(0, part.attr)
            part = part.value
        if not isinstance(part, ast.Name):
            written = ast.get_source_segment(self.text.strip(), node)
            raise ValueError(f"{written!r} is not in the language of constraints: a dot only joins nested names")
        name = ".".join([part.id, *parts])
        if name in self.known:
            return self.known[name]
        if name in _WORDS:
            return Literal(_WORDS[name], name)
        if any(known.startswith(f"{name}.") for known in self.known):
            raise ValueError(f"{name!r} in {self.text!r} is a group of parameters: name one parameter in it")
        known = did_you_mean(name, list(self.known))
        raise ValueError(
            f"{name!r} in {self.text!r} is neither in search_space nor in params; {known}; limits on reported metrics "
            f"belong to outcome_constraints"
        )

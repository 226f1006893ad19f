"""Expressions over the values of a configuration: what a constraint is made of."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.spec.values import brief, is_number, value_key

Path = tuple[str, ...]

_LARGEST_BITS = 1024
"""Whole numbers of more bits than the largest float count as too large."""

_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Undefined(Exception):
    """The expression has no value: a division by zero, a number that is too large."""


class Expression(ABC):
    """A part of a constraint."""

    @abstractmethod
    def value(self, values: Mapping[Path, Any]) -> Any:
        """Its value given the values of all names.

        Raises TypeError if an operator meets a value that it does not take, and `Undefined`.
        """

    def names(self) -> Iterator[Path]:
        """Every parameter that it names."""
        yield from ()

    def conditions(self) -> Iterator[Expression]:
        """The operands of ``and``, ``or`` and ``not`` in it, at any depth."""
        yield from ()


@dataclass(frozen=True)
class Literal(Expression):
    """A number, a text, or a fixed param, which ``written`` names in messages."""

    constant: Any
    written: str

    def value(self, values: Mapping[Path, Any]) -> Any:
        return self.constant

    def __str__(self) -> str:
        return self.written


@dataclass(frozen=True)
class Name(Expression):
    """A parameter of the search space."""

    path: Path

    def value(self, values: Mapping[Path, Any]) -> Any:
        return values[self.path]

    def names(self) -> Iterator[Path]:
        yield self.path

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class Arithmetic(Expression):
    """``left operator right``, for numbers only. A sign is written ``0 - operand``."""

    left: Expression
    symbol: str
    right: Expression

    def value(self, values: Mapping[Path, Any]) -> Any:
        left, right = self.left.value(values), self.right.value(values)
        for operand, given in ((self.left, left), (self.right, right)):
            if not is_number(given):
                raise TypeError(f"{self.symbol} takes numbers, and {operand} can be {brief(given)}")
        try:
            result = _power(left, right) if self.symbol == "**" else _ARITHMETIC[self.symbol](left, right)
        except (ZeroDivisionError, OverflowError):
            raise Undefined from None
        if isinstance(result, complex) or not _is_moderate(result):
            raise Undefined
        return result

    def names(self) -> Iterator[Path]:
        yield from self.left.names()
        yield from self.right.names()

    def __str__(self) -> str:
        return f"{self.left} {self.symbol} {self.right}"


@dataclass(frozen=True)
class Comparison(Expression):
    """A chain such as ``1 <= a < b``: each operand compared with the next one."""

    operands: tuple[Expression, ...]
    symbols: tuple[str, ...]

    def value(self, values: Mapping[Path, Any]) -> bool:
        given = [operand.value(values) for operand in self.operands]
        holds = True
        for i, symbol in enumerate(self.symbols):
            left, right = given[i], given[i + 1]
            if symbol in ("==", "!="):
                holds &= (value_key(left) == value_key(right)) == (symbol == "==")
                continue
            for operand, one in ((self.operands[i], left), (self.operands[i + 1], right)):
                if not is_number(one):
                    raise TypeError(f"{symbol} compares numbers, and {operand} can be {brief(one)}")
            holds &= _ORDER[symbol](left, right)
        return holds

    def names(self) -> Iterator[Path]:
        for operand in self.operands:
            yield from operand.names()

    def __str__(self) -> str:
        tail = (f" {symbol} {operand}" for symbol, operand in zip(self.symbols, self.operands[1:], strict=True))
        return str(self.operands[0]) + "".join(tail)


@dataclass(frozen=True)
class Logical(Expression):
    """``and``, ``or`` or ``not`` between truths."""

    symbol: str
    operands: tuple[Expression, ...]

    def value(self, values: Mapping[Path, Any]) -> bool:
        truths = (truth(operand, values) for operand in self.operands)  # judged only as far as needed
        if self.symbol == "not":
            return not next(truths)
        return all(truths) if self.symbol == "and" else any(truths)

    def names(self) -> Iterator[Path]:
        for operand in self.operands:
            yield from operand.names()

    def conditions(self) -> Iterator[Expression]:
        for operand in self.operands:
            yield operand
            yield from operand.conditions()

    def __str__(self) -> str:
        return f"not {self.operands[0]}" if self.symbol == "not" else f" {self.symbol} ".join(map(str, self.operands))


def truth(expression: Expression, values: Mapping[Path, Any]) -> bool:
    """The value of ``expression``, which must be true or false. Raises what `Expression.value` does."""
    value = expression.value(values)
    if not isinstance(value, bool):
        raise TypeError(f"{expression} must be true or false, and can be {brief(value)}")
    return value


def _is_moderate(number: float) -> bool:
    return number.bit_length() <= _LARGEST_BITS if isinstance(number, int) else math.isfinite(number)


def _power(base: float, exponent: float) -> Any:
    """``base ** exponent``, without computing a whole number that is too large to be of use."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent * base.bit_length() > 2 * _LARGEST_BITS:
        return float(base) ** exponent
    return base**exponent

"""Reads YAML into plain values that know where they were written.

The dialect is YAML 1.2's core schema, stricter where YAML surprises: ``1e-4`` is a number, ``on`` and dates are text,
``true`` is not an integer, a repeated key is an error, and no tag can build a Python object.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tuner.errors import InputError, Place, Problem, did_you_mean, shortened
from tuner.printable import printable

Path = tuple[str | int, ...]

MAX_NODES = 50_000
"""Upper bound on the values of one document, aliases expanded: nested aliases cannot fill the memory, and the parser,
which reads about 30,000 values a second, answers soon."""

MAX_TEXT = 1_000_000
"""Upper bound on the characters of all values together, aliases expanded."""

MAX_DEPTH = 60
"""Upper bound on nesting."""

_INT = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL: dict[str, Any] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf"], math.inf),
    "-.inf": -math.inf,
    **dict.fromkeys([".nan", ".NaN", ".NAN"], math.nan),
}


@dataclass
class Document:
    """A YAML document: its plain value, and the place of each value and key by path."""

    value: Any
    source: str
    places: dict[Path, Place] = field(default_factory=dict)
    quoted: set[Path] = field(default_factory=set)
    """Paths of scalars that were written in quotes."""

    def place(self, path: Path) -> Place:
        """The place of ``path``, or of the nearest value around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(self.source))

    def set_at(self, path: Path, other: Document) -> None:
        """Puts ``other`` at ``path`` (whose parents are created), with the places that ``other`` knows.

        Raises InputError when a parent on the way is not a mapping.
        """
        if not path:
            self.value = other.value
        else:
            parent = self.value
            for depth, key in enumerate(path):
                if not isinstance(parent, dict):
                    raise InputError(
                        [
                            Problem(
                                other.place(()),
                                dotted(path),
                                f"{dotted(path[:depth]) or 'the file'} is {describe_type(parent)}: "
                                "it has no keys to set",
                            )
                        ]
                    )
                if depth == len(path) - 1:
                    parent[key] = other.value
                else:
                    self.places.setdefault(path[: depth + 1], other.place(()))
                    parent = parent.setdefault(key, {})
        for known in [p for p in self.places if p[: len(path)] == path and p != path]:
            del self.places[known]
        self.quoted = {p for p in self.quoted if p[: len(path)] != path}
        if path not in self.places or other.value is not None:
            self.places[path] = other.place(())
        self.places.update({path + p: place for p, place in other.places.items()})
        self.quoted |= {path + p for p in other.quoted}


def dotted(path: Path) -> str:
    """``("scheduler", "rungs", 0)`` as ``scheduler.rungs[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


_SHOWN = 80
"""Characters of a value that a message shows."""


def describe_type(value: Any) -> str:
    """The kind of ``value``, in the words of a YAML user."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {shortened(value, _SHOWN)!r}"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else type(value).__name__


_REMEDIES = {
    "<block end>": "; check the indentation of this line",
    r"'\t'": "; YAML is indented with spaces: replace the tab",
}
"""What to do, by a part of PyYAML's message."""


def read_yaml(text: str, source: str) -> Document:
    """Parses ``text``; ``source`` names it in errors.

    Raises InputError holding every problem of the document: bad syntax, repeated keys, tags, keys that are not text,
    values that `scalar_problem` refuses, more than `MAX_NODES`, `MAX_TEXT` and `MAX_DEPTH` allow.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(source, mark) if mark else Place(source)
        context = f" {error.context}" if error.context else ""
        remedy = next((advice for sign, advice in _REMEDIES.items() if sign in str(error.problem)), "")
        raise InputError([Problem(place, "", f"not valid YAML:{context} {error.problem}".rstrip() + remedy)]) from None
    except yaml.reader.ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(error.character[:1])
        message = f"not valid YAML: unacceptable character #x{code:04x}: {error.reason}"
        raise InputError([Problem(Place(source), "", message)]) from None
    except (ValueError, OverflowError) as error:  # an escape or a version number that PyYAML cannot hold
        raise InputError([Problem(Place(source), "", f"not valid YAML: {error}")]) from None
    except _TooMuch as error:
        raise InputError([Problem(_place(source, error.mark), "", str(error))]) from None
    document = Document(None, source)
    builder = _Builder(document)
    if node is not None:
        document.value = builder.build(node, (), 0)
    if builder.problems:
        raise InputError(builder.problems)
    return document


def parse_value(text: str, source: str) -> Document:
    """Parses the right-hand side of ``--set KEY=VALUE``; every place is ``source`` itself."""
    try:
        document = read_yaml(text, source)
    except InputError as error:
        raise InputError([Problem(Place(source), p.key, p.message) for p in error.problems]) from None
    document.places = {path: Place(source) for path in document.places}
    return document


def _place(source: str, mark: yaml.Mark) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


class _TooMuch(Exception):
    """What the parser stops at, before it has built it."""

    def __init__(self, mark: yaml.Mark, message: str) -> None:
        super().__init__(message)
        self.mark = mark


def plain(value: Any, source: str) -> Any:
    """A deep copy of the containers of a mapping from Python, under the same limits as a file.

    Raises InputError holding every problem of it.
    """
    problems: list[Problem] = []
    budget = Limits()

    def copied(value: Any, path: Path) -> Any:
        excess = budget.exceeded(value, len(path))
        if excess:
            raise InputError([*problems, Problem(Place(source), dotted(path), excess)])
        if isinstance(value, Mapping):
            return {key: copied(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [copied(item, (*path, i)) for i, item in enumerate(value)]
        if problem := scalar_problem(value):
            problems.append(Problem(Place(source), dotted(path), problem))
        return value

    copy = copied(value, ())
    if problems:
        raise InputError(problems)
    return copy


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with limits and without implicit types: every plain scalar arrives as text for `_scalar`."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the base class declares it

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As in the base class, which calls it for every key and value."""
        self._count += 1
        self._depth += 1
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth > MAX_DEPTH + 1:
            raise _TooMuch(mark, f"nested deeper than {MAX_DEPTH} levels")
        if self._count > 2 * MAX_NODES:
            raise _TooMuch(mark, f"more than {MAX_NODES:,} values")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Builder:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.budget = Limits()

    def build(self, node: yaml.Node, path: Path, depth: int) -> Any:
        place = _place(self.document.source, node.start_mark)
        self.document.places.setdefault(path, place)
        if excess := self.budget.exceeded(node.value, depth):
            raise InputError([*self.problems, Problem(place, dotted(path), excess)])
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self.problems.append(Problem(place, dotted(path), f"the tag {tag!r} is not allowed: write plain YAML"))
            return None
        if isinstance(node, yaml.ScalarNode):
            if node.style is not None:
                self.document.quoted.add(path)
            text = _characters(node.value)
            value = text if node.style is not None else _scalar(text)
            if problem := scalar_problem(value, text):
                self.problems.append(Problem(place, dotted(path), problem))
            return value
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, i), depth + 1) for i, child in enumerate(node.value)]
        return dict(self._items(node, path, depth))

    def _items(self, node: yaml.Node, path: Path, depth: int) -> Iterator[tuple[str, Any]]:
        seen: dict[str, Place] = {}
        for key_node, value_node in node.value:
            place = _place(self.document.source, key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(place, dotted(path), "a key must be text, not a list or mapping"))
                continue
            key = _characters(key_node.value)
            if problem := scalar_problem(key):
                self.problems.append(Problem(place, dotted((*path, key)), problem))
            if key in seen:
                message = f"repeated key: it is already set in line {seen[key].line}; keep one of them"
                self.problems.append(Problem(place, dotted((*path, key)), message))
                continue
            seen[key] = self.document.places[(*path, key)] = place
            yield key, self.build(value_node, (*path, key), depth + 1)


@dataclass
class Limits:
    """The limit on one document or mapping, counted during a walk through it."""

    nodes: int = MAX_NODES
    text: int = MAX_TEXT

    def exceeded(self, value: Any, depth: int) -> str:
        """Counts ``value``, which stands ``depth`` levels deep; what there is too much of, or nothing."""
        self.nodes -= 1
        self.text -= len(value) if isinstance(value, str) else 0
        if depth > MAX_DEPTH:
            return f"nested deeper than {MAX_DEPTH} levels"
        if self.nodes < 0:
            return f"more than {MAX_NODES:,} values"
        return f"more than {MAX_TEXT:,} characters in all values together" if self.text < 0 else ""


def scalar_problem(value: Any, written: str = "") -> str:
    """Why ``value``, a text or a number (``written`` so), cannot be recorded; empty if it can."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            half = ord(value[error.start])
            return f"holds U+{half:04X}, which is half a character that no file can hold: write the character itself"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "the number does not fit into 64 bits"
    if isinstance(value, float) and math.isinf(value) and written and written not in _SPECIAL:
        return f"{shortened(written, _SHOWN)} is beyond the largest number; infinity is {'-' * (value < 0)}.inf"
    return ""


def _characters(text: str) -> str:
    """``text`` in which two halves of a character are that character: JSON escapes it as two."""
    if all(c < "\ud800" for c in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _scalar(text: str) -> Any:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def unknown_key(place: Place, path: Path, known: list[str]) -> Problem:
    """The problem of a key that nothing reads."""
    return Problem(place, dotted(path), f"unknown key; {did_you_mean(str(path[-1]), known)}")


def dump_yaml(value: Any, header: list[str]) -> bytes:
    """``value`` as YAML that `read_yaml` reads back the same, below the comment lines of ``header``."""
    comments = "".join(printable(" ".join(line.split())) + "\n" for line in header)
    return (comments + yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)).encode()


class _Dumper(yaml.SafeDumper):
    """Quotes text that would be read as something else, and writes floats so that they stay floats."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_str(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if isinstance(_scalar(text), str) else "'"
    if not text.isprintable():
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_float(dumper: yaml.SafeDumper, number: float) -> yaml.Node:
    text = (
        repr(number) if math.isfinite(number) else ".nan" if math.isnan(number) else ".inf" if number > 0 else "-.inf"
    )
    if "e" in text and "." not in text:  # PyYAML takes 1e-06 for text, and would write a tag
        text = text.replace("e", ".0e")
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(str, _represent_str)
_Dumper.add_representer(float, _represent_float)

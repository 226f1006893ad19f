"""The directive ``json-documents``: a table of the keys of each document that a command prints with ``--json``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tuner.documents import ERROR, schemas

Schema = dict[str, Any]


class JsonDocuments(SphinxDirective):
    """A heading and its tables for each command, so that a new one appears by itself."""

    def run(self) -> list[nodes.Node]:
        """All sections."""
        lines = "\n".join(reference()).splitlines()
        return self.parse_text_to_nodes(StringList(lines, source="json-documents"), allow_section_headings=True)


def reference() -> Iterator[str]:
    """The sections, as reStructuredText."""
    for name, schema in schemas().items():
        title = "Any command that fails" if name == ERROR else f"``{name}``"
        yield f"{title}\n{'-' * len(title)}\n"
        for variant in schema.get("anyOf", [schema]):
            yield from _table(variant, schema.get("$defs", {}))


def _table(schema: Schema, definitions: dict[str, Schema]) -> Iterator[str]:
    """What a document is, and its keys."""
    item = schema.get("items")
    found = _resolved(item or schema, definitions)
    yield f"{'A list; each item: ' if item else ''}{_prose(found['description'])}\n"
    yield ".. list-table::\n   :header-rows: 1\n\n   * - key\n     - type\n     - meaning"
    for key, property_ in _keys(found, definitions, ""):
        meaning = " ".join(_prose(property_.get("description", "")).split())
        yield f"   * - ``{key}``\n     - {_type(property_, definitions)}\n     - {meaning}"
    yield ""


def _keys(schema: Schema, definitions: dict[str, Schema], prefix: str) -> Iterator[tuple[str, Schema]]:
    """Every key with its schema, those of objects in it by their path: ``best.metrics``, ``all[].id``."""
    for name, property_ in schema.get("properties", {}).items():
        yield prefix + name, property_
        inner = property_.get("items", property_)
        mark = "[]." if "items" in property_ else "."
        for variant in inner.get("anyOf", [inner]):
            if "$ref" in variant:
                yield from _keys(_resolved(variant, definitions), definitions, f"{prefix}{name}{mark}")
        values = property_.get("additionalProperties")
        for variant in values.get("anyOf", [values]) if isinstance(values, dict) else ():
            if "$ref" in variant:
                yield from _keys(_resolved(variant, definitions), definitions, f"{prefix}{name}.*.")


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    return definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _type(schema: Schema, definitions: dict[str, Schema]) -> str:
    """In words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(variant, definitions) for variant in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"``{value}``" for value in schema["enum"])
    if "const" in schema:
        return f"``{schema['const']}``"
    if "$ref" in schema:
        return "object"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], definitions)}"
    return str(schema.get("type", "any value"))


def _prose(text: str) -> str:
    """A docstring without the marks that would stand for references."""
    return re.sub(r"(?<!`)`(?!`)", "", text).replace("*", "\\*")


def setup(app: Sphinx) -> dict[str, bool]:
    """Makes the directive known."""
    app.add_directive("json-documents", JsonDocuments)
    return {"parallel_read_safe": True}

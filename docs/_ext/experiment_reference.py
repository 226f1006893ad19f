"""Writes the reference of the experiment file from its JSON Schema: a page for each block and each algorithm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx

from tuner.experiment.schema import experiment_schema
from tuner.spec.space.grammar import FORMS

FOLDER = "reference/experiment-file"

Schema = dict[str, Any]

_TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "`true`, `false`",
    "object": "mapping",
    "array": "list",
}


def write(folder: Path) -> None:
    """All pages, below ``folder``; pages that no schema stands for any more are deleted."""
    schema = experiment_schema()
    pages = dict(_pages(schema))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        file = folder / f"{name}.md"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def _pages(schema: Schema) -> Iterator[tuple[str, str]]:
    definitions, properties = schema["$defs"], schema["properties"]
    algorithms = {block: _variants(properties[block]) for block in ("search", "scheduler")}
    blocks = [name for name in properties if name not in (*algorithms, "search_space") and _block(properties[name])]
    names = ["search-space", "objective", *blocks]
    names += [f"{block}-{kind}" for block, variants in algorithms.items() for kind in variants]
    yield "index", _index(schema, names)
    yield "search-space", _search_space()
    yield "objective", _page("`objective`", definitions["Objective"], definitions, "objective.")
    for name in blocks:
        definition = definitions[_block(properties[name])]
        yield name, _page(f"`{name}`", definition, definitions, f"{name}.")
    for block, variants in algorithms.items():
        for kind, reference in variants.items():
            yield f"{block}-{kind}", _page(f"`{block}: {{kind: {kind}}}`", definitions[reference], definitions, "")


def _variants(schema: Schema) -> dict[str, str]:
    mapping = schema["discriminator"]["mapping"]
    return {kind: reference.rpartition("/")[2] for kind, reference in sorted(mapping.items())}


def _block(schema: Schema) -> str:
    """The definition that a property refers to; empty if it is no block."""
    one_of = [part for part in schema.get("anyOf", ()) if part.get("type") != "null"]  # an optional block
    parts = [schema, *schema.get("allOf", ()), *(one_of if len(one_of) == 1 else ())]
    reference = next((part["$ref"] for part in parts if "$ref" in part), "")
    return str(reference).rpartition("/")[2]


def _index(schema: Schema, names: list[str]) -> str:
    rows = _table(schema, "")
    listed = "\n".join(names)
    return (
        "# The experiment file\n\nOne YAML file is one search. These are its keys; only `trainable`, `search_space` "
        "and `objective` are\nrequired. `tuner schema` prints the JSON Schema from which these pages are made.\n\n"
        f"{rows}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    )


def _page(title: str, definition: Schema, definitions: Schema, prefix: str) -> str:
    parts = [f"# {title}", _prose(definition.get("description", "")), _table(definition, prefix)]
    for name, option in definition.get("properties", {}).items():
        for reference in _references(option):
            nested = definitions[reference]
            if "properties" in nested:
                parts += [f"## `{prefix}{name}`", _prose(nested.get("description", ""))]
                parts.append(_table(nested, f"{prefix}{name}."))
    examples = definition.get("examples", [])
    if examples:
        parts.append("## Examples")
    parts += [
        f"```yaml\n{yaml.safe_dump(example, default_flow_style=None, sort_keys=False)}```" for example in examples
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for key in ("anyOf", "allOf", "oneOf"):
            for part in schema.get(key, ()):
                yield from _references(part)


def _table(definition: Schema, prefix: str) -> str:
    required = definition.get("required", [])
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for name, option in definition.get("properties", {}).items():
        default = "required" if name in required else _default(option)
        meaning = _prose(option.get("description", "")).replace("\n\n", "<br>").replace("\n", " ")
        cells = (f"`{prefix}{name}`", _type(option), default, meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _default(option: Schema) -> str:
    if "default" not in option or option["default"] is None:
        return ""
    default = option["default"]
    return "" if isinstance(default, (dict, list)) else f"`{yaml.safe_dump(default).splitlines()[0]}`"


def _type(option: Schema) -> str:
    """The type and the bounds of an option, in words."""
    if "const" in option:
        return f"`{option['const']}`"
    if "enum" in option:
        return ", ".join(f"`{value}`" for value in option["enum"])
    variants = option.get("anyOf") or option.get("oneOf") or option.get("allOf")
    if variants:
        return " or ".join(dict.fromkeys(filter(None, map(_type, variants))))
    if "$ref" in option:
        return "block"
    kind = {
        "integer": "integer",
        "number": "number",
        "string": "text",
        "boolean": "`true`, `false`",
        "object": "mapping",
    }
    text = kind.get(str(option.get("type", "")), "")
    if option.get("type") == "array":
        text = "list"
    bounds = [
        f"{sign} {option[key]}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if key in option
    ]
    return f"{text} {', '.join(bounds)}".strip()


def _prose(text: str) -> str:
    """A docstring as Markdown: its literals and its references become code."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"`~?tuner\.([\w.]+)`", r"`tuner.\1`", text).strip()


def _search_space() -> str:
    rows = ["| domain | arguments |", "|---|---|"]
    rows += [f"| `{name}` | `{form.usage}` |".replace("\\|", "|") for name, form in FORMS.items()]
    return (
        "# `search_space`\n\n"
        "A mapping from parameter names to domains; the path of a YAML file with such a mapping; or\n"
        "`module:attribute` of a Ray Tune `param_space` dict. Nested mappings make nested dicts. Domains have\n"
        "the names and the argument order of Ray Tune.\n\n" + "\n".join(rows) + "\n\n"
        "Beside a domain:\n\n"
        "- `when: {optimizer: sgd}`: the parameter is active only if the other parameters have these values. An\n"
        "  inactive parameter is absent from the configuration.\n"
        "- `default: VALUE`: the value that the parameter has without a search. A trial with all defaults runs first.\n"
        "- `prior: VALUE` and `confidence: low`, `medium` or `high`: where you believe the best value to be.\n\n"
        "```yaml\n"
        "search_space:\n"
        "  lr: {loguniform: [1e-4, 1e-1], prior: 1e-2, confidence: medium}\n"
        "  optimizer: {choice: [sgd, adam], default: sgd}\n"
        "  momentum: {uniform: [0.8, 0.99], when: {optimizer: sgd}}\n"
        "  model:\n"
        "    layers: {randint: [1, 5]}\n"
        "```\n"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Writes the pages before Sphinx looks for sources."""
    app.connect("builder-inited", lambda application: write(Path(application.srcdir) / FOLDER))
    return {"parallel_read_safe": True}

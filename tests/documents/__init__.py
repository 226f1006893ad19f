"""Whether what a command printed is as its document says."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from pydantic import TypeAdapter

from tuner.documents import DOCUMENTS, schema


def conforms(command: str, printed: str | Any) -> Any:
    """The document that ``command`` printed, after it was held against its model and its published schema.

    The model knows all keys: what it reads has the same ones.
    """
    found = json.loads(printed) if isinstance(printed, str) else printed
    kind = TypeAdapter(DOCUMENTS[command])
    read = kind.dump_python(kind.validate_json(json.dumps(found), strict=True), mode="json")
    assert keys(read) == keys(found)
    jsonschema.Draft202012Validator(schema(command)).validate(found)
    return found


def keys(value: Any) -> Any:
    """``value`` without what its keys hold."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    return [keys(inner) for inner in value] if isinstance(value, list) else None

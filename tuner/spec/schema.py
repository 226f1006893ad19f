"""The JSON Schema of the experiment file, for editors."""

from __future__ import annotations

from typing import Any

from tuner.spec.experiment import ExperimentSpec
from tuner.spec.space import json_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def experiment_schema() -> dict[str, Any]:
    """The schema of a whole experiment file, draft 2020-12."""
    schema = ExperimentSpec.model_json_schema(mode="validation")
    space = json_schema()
    definitions = schema.setdefault("$defs", {})
    definitions.update(space.pop("$defs", {}))
    space.pop("$schema", None)
    definitions["SearchSpace"] = space
    schema["properties"]["search_space"] |= {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/SearchSpace"}]}
    schema["required"] = [name for name in schema["required"] if name != "name"]
    return {"$schema": DIALECT, "title": "tuner experiment", **schema}

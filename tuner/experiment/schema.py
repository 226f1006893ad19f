"""The JSON Schema of the experiment file, for editors."""

from __future__ import annotations

from typing import Any

from tuner.experiment.plug_ins import SCHEDULERS, SEARCHES, Family
from tuner.experiment.spec import ExperimentSpec
from tuner.spec.algorithm import CUSTOM
from tuner.spec.space import json_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def experiment_schema() -> dict[str, Any]:
    """The schema of a whole experiment file, draft 2020-12, with what installed packages offer.

    Raises InputError if one of these cannot be used.
    """
    schema = ExperimentSpec.model_json_schema(mode="validation")
    space = json_schema()
    definitions = schema.setdefault("$defs", {})
    definitions.update(space.pop("$defs", {}))
    space.pop("$schema", None)
    definitions["SearchSpace"] = space
    schema["properties"]["search_space"] |= {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/SearchSpace"}]}
    for family in (SEARCHES, SCHEDULERS):
        definitions.update(_add_plug_ins(schema["properties"][family.block], family))
    schema["required"] = [name for name in schema["required"] if name != "name"]
    for described in (schema, *definitions.values()):
        if "description" in described:  # its example is for Python
            described["description"] = described["description"].partition("\n\nExample:")[0]
    return {"$schema": DIALECT, "title": "tuner experiment", **schema}


def _add_plug_ins(block: dict[str, Any], family: Family) -> dict[str, Any]:
    """Adds to the schema of ``block`` what is not built in; the definitions that it refers to."""
    definitions: dict[str, Any] = {}
    added = {CUSTOM: f"Custom{family.block.title()}"}
    definitions[added[CUSTOM]] = _custom(family)
    for kind, point in family.installed().items():
        cls = family.offered(point)
        schema = cls.model_json_schema(mode="validation")
        definitions |= schema.pop("$defs", {})
        added[kind] = f"Installed{family.block.title()}-{kind}"
        definitions[added[kind]] = schema
    for kind, name in added.items():
        reference = f"#/$defs/{name}"
        block["oneOf"].append({"$ref": reference})
        block["discriminator"]["mapping"][kind] = reference
    return definitions


def _custom(family: Family) -> dict[str, Any]:
    """Its options are those of the class, which is not known here."""
    base = f"tuner.{family.base.group.partition('.')[2]}.{family.base.__name__}"
    return {
        "description": f"Your own subclass of ``{base}``: its options stand beside ``class_path``.",
        "properties": {
            "kind": {
                "const": CUSTOM,
                "description": f"A {family.block} of your own.",
                "title": "Kind",
                "type": "string",
            },
            "class_path": {
                "description": "``module:Class``, or ``path/to/file.py:Class``.",
                "pattern": r"^[^:]+:[A-Za-z_]\w*$",
                "title": "Class Path",
                "type": "string",
            },
        },
        "required": ["kind", "class_path"],
        "examples": [{"kind": CUSTOM, "class_path": f"mymodule:My{family.block.title()}"}],
        "title": f"Custom{family.block.title()}",
        "type": "object",
    }

"""The base of everything a user may write."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class OptionError(ValueError):
    """What a model's own check says of one of its options."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option} {message}")
        self.option, self.message = option, message


class Model(BaseModel):
    """A frozen model: unknown keys are errors, and no value is converted (``true`` is not 1, ``"1"`` is not 1)."""

    # validators are built when they are first used: the process of a trial uses none
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """With the docstring below each option as its description.

        Pydantic can do that too (``use_attribute_docstrings``), but reads the source of each class when it is imported.
        """
        schema = handler(core_schema)
        options = handler.resolve_ref_schema(schema)["properties"]
        for base in cls.__mro__:
            if issubclass(base, Model):
                for option, text in _described(base):
                    options[cls.model_fields[option].alias or option].setdefault("description", text)
        return schema


def _described(cls: type[Model]) -> Iterator[tuple[str, str]]:
    """The options of the class that have a docstring below them; none where its source is not kept."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    for option, below in itertools.pairwise(definition.body):
        match option, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                if name in cls.model_fields:
                    yield name, inspect.cleandoc(text)

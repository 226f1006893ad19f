"""The base of everything a user may write."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class OptionError(ValueError):
    """What a model's own check says of one of its options."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option} {message}")
        self.option, self.message = option, message


class Model(BaseModel):
    """A frozen model: unknown keys are errors, and no value is converted (``true`` is not 1, ``"1"`` is not 1)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, defer_build=True)

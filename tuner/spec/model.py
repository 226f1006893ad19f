"""The base of everything a user may write."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A frozen model: unknown keys are errors, and no value is converted (``true`` is not 1, ``"1"`` is not 1)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

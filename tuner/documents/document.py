"""The base of all documents."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Document(BaseModel):
    """A JSON object that a command prints.

    A later version may add keys: a reader passes over those that it does not know.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


Config = Annotated[dict[str, Any], Field(description="Values by the names of parameters; nested as the space is.")]
"""A configuration."""

Metrics = Annotated[dict[str, Any], Field(description="What the training reported, by metric.")]
"""Metrics of a report."""

Notices = Annotated[list[str], Field(description="What the user should know of, a sentence each.")]
"""Notices of a run."""

"""What programs send to the service."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tuner.experiment.spec import Name

_MOST_PRIORITY = 1000

_MOST_KEYS = 50


def _plain_text(text: str) -> str:
    """``text``. Raises ValueError if no file and no command line could hold it."""
    if "\0" in text or not _encodes(text):
        raise ValueError("is not text in UTF-8, or holds the character NUL")
    return text


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold
        return False
    return True


Text = Annotated[str, AfterValidator(_plain_text)]
Word = Annotated[str, Field(max_length=10_000), AfterValidator(_plain_text)]
Label = Annotated[str, Field(max_length=100), AfterValidator(_plain_text)]


class _Body(BaseModel):
    """The object that a request brings. Each unknown key is a problem of its own, so they cannot be many."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_keys(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > _MOST_KEYS:
            raise ValueError(f"has {len(value):,} keys; it may have {', '.join(sorted(cls.model_fields))}")
        return value


class SubmitRequest(_Body):
    """A search to be queued: ``experiment``, or ``file`` of the code."""

    experiment: Text | dict[str, Any] | None = None
    """An experiment: the text of its YAML file, or the same as a mapping."""
    file: Word | None = None
    """In place of it: a file of the code, by its path, or the name of a shipped experiment."""
    set: list[Word] = Field(default=[], max_length=100)
    """Overrides, as of ``--set``."""
    code: Word | None = None
    """The sha256 of the code, which was sent before with ``PUT /v1/code/{sha256}``; null if none is needed."""
    name: Name | None = None
    """Of the search and of its run folder; null: the experiment's, with the time."""
    request: Label | None = None
    """An id that you make up: a request that is sent again with it is the same search, and is not queued twice."""
    priority: Annotated[int, Field(ge=-_MOST_PRIORITY, le=_MOST_PRIORITY)] = 0
    """Searches with a higher one come first."""
    versions: dict[Label, Label] = Field(default={}, max_length=100)
    """Of Python and of packages where the code was written; the job refuses other versions of Ray and Python."""


class CommandRequest(_Body):
    """A command to a running search, as of ``tuner control``."""

    do: str
    """Its kind, such as ``stop-trial``."""
    arguments: dict[str, Any] = {}
    """Such as ``{"trial": "3"}``."""

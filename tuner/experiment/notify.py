"""The messages that a search sends to people."""

from __future__ import annotations

import re
import urllib.parse
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from tuner.redaction import has_secret, redacted
from tuner.spec.model import Model
from tuner.spec.quantities import Seconds

Occasion = Literal["end", "best", "failures", "stalled", "budget"]
Form = Literal["json", "slack", "discord", "teams", "ntfy"]

_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_SERVICES: dict[str, Form] = {
    "hooks.slack.com": "slack",
    "discord.com": "discord",
    "discordapp.com": "discord",
    "ntfy.sh": "ntfy",
    "webhook.office.com": "teams",
    "logic.azure.com": "teams",
    "api.powerplatform.com": "teams",
}
"""The forms of hosts; a subdomain of one takes the same."""

_ADDRESSES_ARE_SECRET: tuple[Form, ...] = ("slack", "discord", "teams")
"""Whoever knows one can post."""


def form_of(url: str) -> Form:
    """The form that the service at ``url`` takes."""
    host = urllib.parse.urlsplit(url).hostname or ""
    for known, form in _SERVICES.items():
        if host == known or host.endswith(f".{known}"):
            return form
    return "json"


class Notify(Model):
    """Messages to people: the search has ended, has a new best trial, or needs attention.

    Example:
        >>> import tuner
        >>> tuner.Notify(url="$SLACK_WEBHOOK", on=("end", "best")).every
        60.0
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    url: str | None = None
    """Gets each message by one HTTP POST: an address, or ``$NAME`` for the one in that environment variable. Addresses
    of Slack, Discord and Teams are secrets, so they must be in the environment."""
    form: Form | None = None
    """How the body is written: ``slack``, ``discord``, ``teams``, ``ntfy``, or ``json`` with all fields; absent: by the
    host of the address, and ``json`` for any other host."""
    command: Annotated[str, Field(min_length=1)] | None = None
    """A shell command that runs for each message: the fields are JSON on its stdin, the text is ``$TUNER_TEXT``."""
    on: Annotated[tuple[Occasion, ...], Field(strict=False, min_length=1)] = ("end", "failures", "stalled", "budget")
    """When to send one. ``end``: the search has ended, was interrupted, or its process is gone; ``best``: a new best
    trial; ``failures``: trials have failed; ``stalled``: nothing has happened for ``stalled_after``; ``budget``: nine
    tenths of a limit of the budget are used."""
    every: Seconds = 60.0
    """Time between two messages about ``best``, and between two about ``failures``: the next one tells all since."""
    stalled_after: Seconds = 1800.0
    """For how long no trial reports, starts or ends before a search counts as stalled."""

    @field_validator("url")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url is None or _VARIABLE.fullmatch(url):
            return url
        if not re.match(r"https?://[^/\s]+(/\S*)?$", url):
            shown = redacted(url, whole=True)
            raise ValueError(f"{shown!r} is neither an address (https://…) nor a variable of the environment ($NAME)")
        if has_secret(url) or form_of(url) in _ADDRESSES_ARE_SECRET:
            raise ValueError(
                f"the address at {urllib.parse.urlsplit(url).hostname} is a secret, and every file of the run would "
                f"hold it: export it as a variable such as TUNER_WEBHOOK, and write url: $TUNER_WEBHOOK"
            )
        return url

    @field_validator("on")
    @classmethod
    def _once(cls, on: tuple[Occasion, ...]) -> tuple[Occasion, ...]:
        return tuple(dict.fromkeys(on))

    @model_validator(mode="after")
    def _somewhere(self) -> Notify:
        if self.url is None and self.command is None:
            raise ValueError("has neither url nor command: name an address or a command that gets the messages")
        if self.form is not None and self.url is None:
            raise ValueError("has a form, and no url whose messages it is of: leave form out")
        return self

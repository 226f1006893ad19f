"""The state of a queue in its storage: a file for each search, and one for what users had.

A record is written before the queue acts on it. So a killed process finds in the storage all that it had begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from tuner.errors import InputError
from tuner.runs.file_shapes import MAX_CONFIG_BYTES, MAX_TIMESTAMP, Number, checked
from tuner.service.interface import ENDED, SERVICE, Submission, Unit
from tuner.storage.folder import RunFolder, reason
from tuner.storage.untrusted_json import parsed

State = Literal["queued", "starting", "running", "paused", "stopping", "succeeded", "failed", "stopped"]
"""``starting``: its job is being submitted; ``paused``: it has a job, and no place for a trial."""

_SEARCHES, _ACCOUNT = "searches", "account.json"

_ROOM_TO_GROW = 32_768
"""Bytes by which a record may grow: by its state, and by the reason for its end."""


@dataclass(frozen=True)
class Record:
    """A search of a team."""

    submission: Submission
    submitted: float
    """Unix time, in seconds."""
    state: State = "queued"
    reason: str = ""
    """Who stopped or resumed it, or how it ended; empty if neither."""
    attempt: int = 1
    """The number of its job among the jobs of its name."""
    resumes: bool = False
    """Whether its job continues the run that there is."""
    position: int | None = None
    """Its place in the queue, from 1; None if it does not wait."""

    @property
    def name(self) -> str:
        return self.submission.name

    @property
    def user(self) -> str:
        return self.submission.user

    @property
    def request(self) -> str:
        return self.submission.request

    @property
    def priority(self) -> int:
        return self.submission.priority

    @property
    def has_job(self) -> bool:
        """Whether the cluster has, or may have, a job of it that has not ended."""
        return self.state in ("starting", "running", "paused", "stopping")

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class Account:
    """What users had, and should have had."""

    time: float = 0.0
    """Until then; Unix time, in seconds."""
    week: int = 0
    """The number of the week of ``hours``, counted from 1970."""
    hours: Mapping[str, float] = field(default_factory=dict)
    """GPU hours of the week by user."""
    owed: Mapping[str, float] = field(default_factory=dict)
    """GPU seconds by user, as `tuner.service.shares.Shares.owed`."""
    largest: float = 0.0
    """The most GPUs that the cluster has had."""
    unit: Unit | None = None
    """What all of these count; None before the cluster was seen."""


class _Submission(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    user: str
    name: str
    request: str
    file: str | None
    experiment: str | None
    overrides: list[str]
    code: str | None
    priority: int
    per_trial: dict[str, Number]
    trials: int | None
    versions: dict[str, str]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    submission: _Submission
    submitted: float = Field(ge=0, le=MAX_TIMESTAMP)
    state: str
    reason: str
    attempt: int = Field(ge=1, le=10**6)
    resumes: bool


class _Account(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    time: float = Field(ge=0, le=MAX_TIMESTAMP)
    week: int
    hours: dict[str, Number]
    owed: dict[str, Number]
    largest: Number
    unit: Unit | None = None


class Records:
    """The records of one storage.

    Example:
        >>> from tuner.service.interface import Submission
        >>> from tuner.service.records import Record, Records
        >>> from tuner.storage.folder import RunFolder
        >>> records = Records(RunFolder.at("runs"))
        >>> records.keep(Record(Submission("ada", "digits", request="1", file="quickstart"), submitted=0.0))
        >>> [record.state for record in records.read()[0]]
        ['queued']
    """

    def __init__(self, storage: RunFolder) -> None:
        self._folder = storage / SERVICE
        self._searches = self._folder / _SEARCHES

    def create(self) -> None:
        """Makes the folder. Raises InputError if it cannot be written."""
        self._searches.create()

    def check(self, record: Record) -> None:
        """Raises InputError if it is so large that `read` would refuse it, now or in a later state."""
        size, most = len(_bytes(record)), MAX_CONFIG_BYTES - _ROOM_TO_GROW
        if size > most:
            told = f"its record has {size:,} bytes, and may have {most:,}"
            raise InputError(f"{record.name}: {told}: shorten the experiment")

    def keep(self, record: Record) -> None:
        """Writes a record in place of the earlier one of its name. Raises OSError."""
        self._searches.write(f"{record.name}.json", _bytes(record), private=True)

    def read(self) -> tuple[list[Record], list[str]]:
        """All records, the earliest first, and why others cannot be read. Raises OSError if the storage fails."""
        found, unreadable = [], []
        for name in self._searches.files():
            try:
                record = _record(parsed(self._searches.read(name, MAX_CONFIG_BYTES)))
                if name != f"{record.name}.json":
                    raise ValueError(f"it is of a search {record.name!r}")
                found.append(record)
            except (OSError, ValueError) as error:
                why = reason(error) if isinstance(error, OSError) else " ".join(str(error).split())
                unreadable.append(f"{(self._searches / name).location} cannot be read: {why}")
        return sorted(found, key=lambda record: (record.submitted, record.name)), unreadable

    def keep_account(self, account: Account) -> None:
        """Writes the account. Raises OSError."""
        self._folder.write(_ACCOUNT, json.dumps(asdict(account)).encode(), private=True)

    def account(self) -> Account:
        """The account; a new one if there is none. Raises OSError, and ValueError if it is damaged."""
        try:
            told = checked(_Account, parsed(self._folder.read(_ACCOUNT, MAX_CONFIG_BYTES)))
        except FileNotFoundError:
            return Account()
        return Account(told.time, told.week, told.hours, told.owed, told.largest, told.unit)


def _bytes(record: Record) -> bytes:
    return json.dumps(asdict(replace(record, position=None))).encode()


def _record(value: Any) -> Record:
    told = checked(_Record, value)
    if told.state not in get_args(State):
        raise ValueError(f"its state is {told.state!r}")
    given = told.submission.model_dump()
    submission = Submission(**{**given, "overrides": tuple(given["overrides"])})
    state: Any = told.state
    return Record(submission, told.submitted, state, told.reason, told.attempt, told.resumes)

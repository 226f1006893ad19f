"""The record of a job in its storage while it runs: enough to start it again on a cluster that knows nothing of it.

A Ray cluster that loses its head forgets all jobs, and the code that came with them. So until a search ends or is
stopped, ``.jobs/NAME`` beside its run folder holds its command, who submitted it, and its code as it ran.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tuner.errors import EnvironmentFailure
from tuner.runs.file_shapes import MAX_CONFIG_BYTES, checked
from tuner.storage.folder import RunFolder, reason
from tuner.storage.untrusted_json import parsed

JOBS = ".jobs"
"""The folder of records, in the storage."""

CODE_LIST = ".tuner-code"
"""A file that travels with the code and names all others: a job's folder may come to hold data as well."""

SUBMITTER = "TUNER_SUBMITTER"
"""The environment variable that holds, as JSON, a job's `Submitter`."""

_RECORD, _CODE = "job.json", "code.tar.gz"

_WRONG_LINKS = (KeyError, RecursionError, ValueError)
"""Exceptions of `tarfile` at a link to itself or out of the archive, and at an impossible name."""


@dataclass(frozen=True)
class Submitter:
    """Who submitted a job: user and computer, and the versions there."""

    who: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_this_job(cls) -> Submitter:
        """Of the job that this process belongs to."""
        return cls(**json.loads(os.environ.get(SUBMITTER, "{}")))


@dataclass(frozen=True)
class Job:
    """What a cluster gets to know of a search."""

    name: str
    storage: str
    command: str
    """What it runs."""
    submitter: Submitter

    @property
    def environment(self) -> dict[str, str]:
        """Of its process. It is stopped with SIGINT, so that SIGTERM is left for a machine that is shut down."""
        told = json.dumps(asdict(self.submitter), sort_keys=True)
        return {SUBMITTER: told, "RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "30"}

    @property
    def folder(self) -> RunFolder:
        """Of its record."""
        return RunFolder.at(self.storage) / JOBS / self.name

    def is_kept(self) -> bool:
        """Whether its storage has a record of it."""
        return self.folder.exists(_RECORD)

    def keep(self, project: Path) -> None:
        """Writes its record, with the code below ``project``.

        Raises InputError if the storage cannot be written, EnvironmentFailure where it is full.
        """
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in json.loads((project / CODE_LIST).read_text()):
                archive.add(project / name, name)
        self.folder.create()
        try:
            self.folder.write(_CODE, packed.getvalue(), private=True)
            record = json.dumps(asdict(self), indent=2).encode()
            self.folder.write(_RECORD, record, private=True)  # last: what has it, is whole
        except OSError as error:
            raise EnvironmentFailure(f"{self.folder.location} cannot be written: {error}") from None

    def unpack(self, target: Path) -> None:
        """Puts the code of its record below ``target``, as it was sent. Raises EnvironmentFailure."""
        try:
            with tarfile.open(fileobj=io.BytesIO(self.folder.read(_CODE)), mode="r:gz") as archive:
                archive.extractall(target, filter="data")
                list_code(target, archive.getnames())
        except (OSError, EOFError, tarfile.TarError, zlib.error, *_WRONG_LINKS) as error:
            told = " ".join(str(error).split())
            raise EnvironmentFailure(f"{(self.folder / _CODE).location} cannot be read: {told}") from None

    def delete(self) -> None:
        """Deletes its record, if there is one."""
        self.folder.parent.delete(self.name)


def list_code(project: Path, names: list[str]) -> None:
    """Writes into ``project`` which of its files are code that was sent."""
    (project / CODE_LIST).write_text(json.dumps(names))


class _Submitter(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    who: str
    versions: dict[str, str]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    name: str
    command: str
    submitter: _Submitter


def recorded(storage: str) -> list[str]:
    """The jobs that ``storage`` has records of. Raises EnvironmentFailure if it cannot be read."""
    records = RunFolder.at(storage) / JOBS
    try:
        return [name for name in records.folders() if (records / name).exists(_RECORD)]
    except OSError as error:
        raise EnvironmentFailure(f"storage {storage!r}: its jobs cannot be read: {reason(error)}") from None


def stored_jobs(storage: str, name: str) -> Job:
    """The job of a record. Raises EnvironmentFailure if that cannot be read."""
    folder = RunFolder.at(storage) / JOBS / name
    try:
        told = checked(_Record, parsed(folder.read(_RECORD, MAX_CONFIG_BYTES)))
        if told.name != name:
            raise ValueError(f"it is of a job {told.name!r}")
    except (OSError, ValueError) as error:
        raise EnvironmentFailure(
            f"{(folder / _RECORD).location} cannot be read: {' '.join(str(error).split())}"
        ) from None
    return Job(name, storage, told.command, Submitter(told.submitter.who, told.submitter.versions))

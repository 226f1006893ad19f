"""Who shares a cluster: weights, quotas and a reservation, from a YAML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from tuner.errors import EnvironmentFailure, InputError, Problem
from tuner.experiment.validation_errors import validation_problems
from tuner.runs.file_shapes import MAX_CONFIG_BYTES
from tuner.service.interface import SERVICE, USER, Unit
from tuner.service.shares import Member
from tuner.spec.document import Document, describe_type, read_yaml
from tuner.spec.model import Model
from tuner.storage.folder import RunFolder, reason

TEAM = "team.yaml"
"""Its file, in the folder of the service, if no other is named."""

UserName = Annotated[str, Field(pattern=f"^{USER}$")]

_Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class TeamMember(Model):
    """What a user may have of the cluster.

    Example:
        >>> from tuner.service.team import TeamMember
        >>> TeamMember(weight=2.0, gpus_at_once=8).admin
        False
    """

    weight: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    """One with twice the weight gets twice the GPUs while both ask for more."""
    gpus_at_once: _Amount | None = None
    """The most GPUs that trials of this user hold together; absent: no limit. CPUs, if the cluster has no GPU."""
    gpu_hours_a_week: _Amount | None = None
    """GPU hours from Monday, 0:00 UTC, until no trial of this user continues; absent: no limit."""
    priority: Annotated[int, Field(ge=-(10**6), le=10**6)] = 0
    """The highest priority that this user may give to a search."""
    admin: bool = False
    """Whether this user may stop and control the searches of all others."""


class Team(Model):
    """The users of a cluster.

    Example:
        >>> from tuner.service.team import Team
        >>> team = Team(members={"ada": {"weight": 2}, "bob": {"gpus_at_once": 4}}, reserved=1)
        >>> [member.name for member in team.shares(["ada"])]
        ['ada', 'bob']
    """

    members: dict[UserName, TeamMember] = Field(default={})
    """By name. Empty: everybody who has a token, with equal weights and without quotas."""
    reserved: _Amount = 0.0
    """GPUs that searches leave free, for interactive work."""
    largest: _Amount | None = None
    """GPUs of the cluster when it is largest, if machines come and go; absent: the most that it ever had. A search
    whose trial needs more is refused, and one that needs no more waits."""
    autoscales_to: _Amount | None = None
    """GPUs that the cluster has with all machines that its autoscaler may start; absent: as the autoscaler itself tells
    on the head. Searches share so many, and not only those that are there: an autoscaler starts nothing before a trial
    asks for it."""
    unit: Unit | None = None
    """What is shared: GPU or CPU; absent: GPUs, if the cluster ever had one."""

    def shares(self, users: list[str]) -> list[Member]:
        """The members, and those of ``users`` who are not but have searches: among members these get nothing."""
        other = TeamMember(gpus_at_once=0) if self.members else TeamMember()
        told = {name: self.members.get(name, other) for name in (*self.members, *users)}
        return [Member(name, one.weight, one.gpus_at_once, one.gpu_hours_a_week) for name, one in told.items()]


class TeamFile:
    """The file of a team, which people may change while the service runs.

    Example:
        >>> from tuner.service.team import TeamFile
        >>> from tuner.storage.folder import RunFolder
        >>> TeamFile(RunFolder.at("runs")).team.reserved
        0.0
    """

    def __init__(self, storage: RunFolder, file: str | None = None) -> None:
        """Reads the team of a storage.

        Args:
            storage: Of the service.
            file: Another file on this machine; None: ``team.yaml`` in the service's folder, if it is there.

        Raises:
            InputError: The file is missing or wrong; holds all problems with their places.
            EnvironmentFailure: The storage cannot be read.
        """
        self._folder, self._file = storage / SERVICE, file
        self.shown = file or (self._folder / TEAM).location
        """The place of the file, for people."""
        self._content = self._seen = self._read()
        self.team = _parsed(self._content, self.shown)
        self._wrong = ""

    def follow(self, changed: Callable[[Team], None], say: Callable[[str], None]) -> None:
        """Reads the file again. Another text counts when it is the same at two calls: an editor may be writing it.

        Args:
            changed: Gets the team if the file has another text than at the last call, and a right one.
            say: Gets a line for the operator if the text is another one, or the file cannot be read.
        """
        try:
            content, before = self._read(), self._seen
            if content is None and not self._folder.exists():  # nor is the storage there: a disk is not mounted
                return
            self._wrong, self._seen = "", content
            if content == self._content or content != before:
                return
            self._content = content
            self.team = _parsed(content, self.shown)
        except (InputError, EnvironmentFailure, OSError) as error:
            told = reason(error) if isinstance(error, OSError) else str(error)
            if told != self._wrong:
                say(f"NOTICE: {told}; the team stays as it was")
            self._wrong = told
            return
        changed(self.team)
        say(f"NOTICE: {self.shown} was read again")

    def _read(self) -> bytes | None:
        try:
            if self._file is not None:
                return Path(self._file).read_bytes()
            return self._folder.read(TEAM, MAX_CONFIG_BYTES) if self._folder.exists(TEAM) else None
        except OSError as error:
            told = f"{self.shown}: cannot be read: {reason(error)}"
            raise InputError(f"--team {told}") if self._file else EnvironmentFailure(told) from None


def _parsed(content: bytes | None, shown: str) -> Team:
    """The team of a file's text; None: there is no file. Raises InputError."""
    if content is None:
        return Team()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InputError(f"{shown}: is not text in UTF-8") from None
    document = read_yaml(text, shown)
    if not isinstance(document.value, dict):
        told = describe_type(document.value)
        raise InputError([Problem(document.place(()), "", f"a team is a mapping with `members`, not {told}")])
    if problems := _problems(document):
        raise InputError(problems)
    return Team.model_validate(document.value)


def _problems(document: Document) -> list[Problem]:
    """All that is wrong; each member is looked at by itself, so that the keys of a member are proposed."""
    members = document.value.get("members", {})
    problems: list[Problem] = []
    try:
        Team.model_validate(document.value)
    except ValidationError as error:
        told = validation_problems(document, error, Team)
        if not isinstance(members, dict):
            return told
        whole = {f"members.{name}" for name, one in members.items() if isinstance(one, dict)}
        problems += [one for one in told if not any(one.key.startswith(f"{name}.") for name in whole)]
        for name, one in members.items():
            if isinstance(one, dict):
                problems += _problems_of(document, name)
    return problems


def _problems_of(document: Document, name: str) -> list[Problem]:
    try:
        TeamMember.model_validate(document.value["members"][name])
    except ValidationError as error:
        return validation_problems(document, error, TeamMember, ("members", name))
    return []

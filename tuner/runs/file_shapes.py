"""The parts of the files of a run folder that their readers depend on.

Other versions of tuner may have written more, or less: unknown keys pass, and every key may be missing. The others
must have their types, so that no reader needs to ask again.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from tuner.experiment.repeat import Repeat
from tuner.spec.objective import read_objectives
from tuner.spec.outcome_constraints import read_outcome_constraints
from tuner.storage.untrusted_json import parsed

MAX_CONFIG_BYTES = 8 * 2**20
"""Of experiment.yaml and of the JSON files that do not grow with the run."""

MAX_TABLE_BYTES = 2**30
"""Of the files that grow with the run: 10^5 trials with 10^6 reports take less than a tenth of it."""


MAX_STEP = 10**15
"""Upper bound on reports, epochs and numbers of trials."""

MAX_SECONDS, MAX_TIMESTAMP = 1e10, 1e11
"""Upper bounds on running times and on times of day (seconds since 1970): a calendar has no later ones."""


_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")


def is_id(text: str) -> bool:
    """Whether ``text`` can be the id of a trial, which is the name of a folder too."""
    return _ID.fullmatch(text) is not None


def inside(path: str) -> str:
    """``path``, below the run folder. Raises ValueError if it leads out of it."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError(f"the checkpoint {path!r} does not lie in the run folder")
    return path


def _date(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Number = Annotated[float, AllowInfNan(False)]
Amounts = dict[str, Number]
"""Of resources, by name."""
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Step = Annotated[int, Field(ge=0, le=MAX_STEP)]
Mapping = dict[str, Any]
Texts = list[str]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Scheduler(_Shape):
    kind: str
    time_attr: str = ""
    max_t: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None
    reduction_factor: Annotated[float, Field(ge=1.01, le=MAX_STEP, allow_inf_nan=False)] | None = None
    grace_period: Any = None

    @model_validator(mode="after")
    def _has_what_its_options_need(self) -> _Scheduler:
        if self.max_t is not None and not self.time_attr:
            raise ValueError("max_t needs a time_attr")
        if self.grace_period == "auto" and None in (self.max_t, self.reduction_factor):
            raise ValueError("grace_period: auto needs max_t and reduction_factor")
        return self


class _Resources(_Shape):
    workers: Annotated[int, Field(ge=1)] | None = None


class Spec(_Shape):
    """experiment.yaml."""

    objective: Any
    name: str = ""
    trainable: str = ""
    params: Mapping = {}
    search_space: Mapping | str = {}
    search: Mapping = {}
    scheduler: _Scheduler = _Scheduler(kind="")  # may be absent, not null
    budget: Mapping = {}
    resources: _Resources = _Resources()
    tracking: Mapping = {}
    notify: Mapping | None = None
    checkpoints: Mapping = {}
    repeat: Repeat | None = None


class _Node(_Shape):
    __pydantic_extra__: dict[str, Number]
    name: str


class _Git(_Shape):
    commit: str
    diff_sha256: str = ""


class Provenance(_Shape):
    """provenance.json."""

    id: str = ""
    started: Annotated[str, AfterValidator(_date)] = ""
    command: Texts = []
    working_directory: str = ""
    experiment_file: str | None = None
    roots: Annotated[Texts, Field(min_length=1)] = []
    notices: Texts = []
    prepared: Mapping = {}
    seed: int | None = None
    trials: Step | None = None
    trial_resources: Amounts = {}
    can_evaluate: bool | None = None
    slots: Annotated[int, Field(ge=0, le=100_000)] | None = None
    cluster: list[_Node] = []
    user: str = ""
    host: str = ""
    platform: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    git: _Git | None = None
    interrupted: bool | None = None
    interrupted_by: str = ""
    ended_by: str | None = None
    elapsed_s: Seconds | None = None


class _LiveTrial(_Shape):
    state: str
    since: Number


class Live(_Shape):
    """live.json."""

    time: Number = 0.0
    slots: int = 0
    request: Amounts = {}
    workers: Annotated[int, Field(ge=1)] = 1
    nodes: list[Amounts] = []
    available: Amounts = {}
    more: bool = False
    paused: bool = False
    limit: Annotated[int, Field(ge=0)] | None = None
    trials: dict[str, _LiveTrial] = {}


class _Segment(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    after: Step
    config: Mapping
    donor: str | None = None
    donor_step: Step = 0


class _Failure(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    kind: str
    message: str
    step: Step = 0
    micro_batch: int | None = None
    final: bool = False


class _Commanded(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    id: str
    do: str
    by: str
    sent: Annotated[float, Field(ge=0, le=MAX_TIMESTAMP, allow_inf_nan=False)]
    arguments: Mapping
    done: bool
    reason: str = ""
    trials: Texts = []


class _Origin(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    by: str
    parent: str | None = None
    step: Step | None = None
    begins_at: Step = 0


class ByPeople(BaseModel):
    """commands.json."""

    model_config = ConfigDict(strict=True, extra="ignore")
    commands: list[_Commanded]
    origins: dict[str, _Origin]
    """By trial."""


class Recorded(_Shape):
    """best/metrics.json."""

    trial: str
    step: Step


Segments = dict[str, list[_Segment]]
"""lineage.json."""
Failures = dict[str, list[_Failure]]
"""failures.json."""
Shape = TypeVar("Shape")


def checked(shape: type[Shape], value: Any) -> Shape:
    """``value`` as ``shape``. Raises ValueError, in one line."""
    try:
        return TypeAdapter(shape).validate_python(value)
    except ValidationError as error:
        raise ValueError(_told(error)[0]) from None


def spec_of(value: Any) -> Mapping:
    """The experiment of a run, as a file has it. Raises ValueError if readers could not use it."""
    checked(Spec, value)
    read_objectives(value["objective"])
    read_outcome_constraints(value.get("outcome_constraints", []))
    spec: Mapping = value
    return spec


def is_spec(value: Any) -> bool:
    """Whether `spec_of` takes it."""
    try:
        spec_of(value)
    except ValueError:
        return False
    return True


def mapping(shape: type[BaseModel], data: bytes) -> tuple[Mapping, list[str]]:
    """The mapping that a JSON file holds, without the keys that are not as ``shape`` says; and a line for each of them.

    Raises ValueError if it is not a JSON mapping.
    """
    return usable(shape, checked(Mapping, parsed(data)))


def usable(shape: type[BaseModel], value: Mapping) -> tuple[Mapping, list[str]]:
    """``value`` without the keys that are not as ``shape`` says; and a line for each of them."""
    try:
        shape.model_validate(value)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False)}
        return {key: known for key, known in value.items() if key not in wrong}, _told(error)
    return value, []


def _told(error: ValidationError, most: int = 3) -> list[str]:
    """A line for each of the first problems."""
    problems = error.errors(include_url=False)
    lines = [
        f"{'.'.join(map(str, problem['loc'])) or 'the content'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in problems[:most]
    ]
    return [*lines, f"and {len(problems) - most} more"] if len(problems) > most else lines

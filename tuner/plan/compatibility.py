"""Every search algorithm and scheduler, and what goes together: asked of the registries and of the specifications
themselves, never copied from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args, get_origin

from tuner.errors import InputError
from tuner.experiment.plug_ins import SCHEDULERS, SEARCHES, Family
from tuner.experiment.reader import Experiment
from tuner.experiment.spec import ExperimentSpec
from tuner.schedulers.base import SchedulerSpec
from tuner.searchers.auto import Auto
from tuner.searchers.base import SearchSpec
from tuner.spec.algorithm import AlgorithmSpec, is_built_in
from tuner.spec.document import Document
from tuner.spec.document import Path as KeyPath
from tuner.spec.model import Model
from tuner.spec.objective import have_weights
from tuner.spec.space import Space, read_space
from tuner.spec.space.grammar import FORMS
from tuner.spec.user_imports import innermost, no_exit

_ARGUMENTS = {"lower": 1, "upper": 9, "q": 1, "mean": 0, "sd": 1, "categories": [1, 2], "values": [1, 2]}
"""Of the domains that searches are asked about."""


@dataclass(frozen=True)
class Abilities:
    """What a search algorithm can do with a search space and with objectives."""

    objectives: float
    """How many it searches for at once; infinite if it learns nothing from them, or from any number."""
    conditions: bool
    priors: bool
    """Whether it makes use of them, and does not refuse or ignore them."""
    limits: bool
    """Whether it can be used with outcome constraints."""
    refused: tuple[str, ...]
    """Domains that it cannot choose from."""


def searches(installed: bool = False) -> list[SearchSpec]:
    """One specification of every search algorithm, and of every variant of it, with default options.

    ``installed``: also those of installed packages, which are imported. Raises InputError if one cannot be used.
    """
    return [spec for spec in _variants(SEARCHES, installed) if isinstance(spec, SearchSpec)]


def schedulers(installed: bool = False) -> list[SchedulerSpec]:
    """The same of every scheduler."""
    return [spec for spec in _variants(SCHEDULERS, installed) if isinstance(spec, SchedulerSpec)]


def kind(spec: Model) -> str:
    """Its name in the union."""
    return str(type(spec).model_fields["kind"].default)


def variant(spec: Model) -> str:
    """Which of the variants of its kind it is; empty if there are none."""
    return " ".join(str(getattr(spec, name)) for name, _ in _choices(type(spec)))


def label(spec: Model) -> str:
    """``optuna tpe``."""
    return " ".join(dict.fromkeys([kind(spec), *variant(spec).split()]))


def is_plug_in(spec: Model) -> bool:
    """Whether it is only the door for a class that the user names."""
    return any(field.is_required() for field in type(spec).model_fields.values())


def changes_configurations(scheduler: str) -> bool:
    """Whether the scheduler of that kind gives running trials other configurations."""
    return any(kind(spec) == scheduler and spec.changes_configurations for spec in schedulers())


def simulation_problem(scheduler: SchedulerSpec) -> str | None:
    """Why ``scheduler`` cannot be simulated, with those that can; None if it can."""
    reason = scheduler.why_not_simulated()
    if reason is None:
        return None
    able = dict.fromkeys(kind(spec) for spec in schedulers() if spec.why_not_simulated() is None)
    return f"{kind(scheduler)} {reason}: simulate with one of {', '.join(able)}"


def abilities(search: SearchSpec) -> Abilities | None:
    """What ``search`` can do; None for a plug-in, where that depends on the class."""
    if is_plug_in(search):
        return None
    chosen = {"randint": [1, 9]}
    governed = {"when": {"other": 1}}
    return Abilities(
        search.max_objectives,
        conditions=_takes(search, chosen | governed),
        priors=_takes(search, chosen | {"prior": 2}) and not _exhaustive(search, chosen),
        limits=_unconstrained(search) is None,
        refused=tuple(
            name
            for name, form in FORMS.items()
            if not _takes(search, {name: [_ARGUMENTS[argument] for argument in form.arguments]})
        ),
    )


def _takes(search: SearchSpec, domain: dict[str, Any]) -> bool:
    """Whether ``search`` has nothing to say against a parameter of ``domain``."""
    space = _space({"other": {"randint": [1, 9]}, "x": domain})
    return not any(path == ("search_space", "x") for path, _ in space_problems(search, space))


def _exhaustive(search: SearchSpec, domain: dict[str, Any]) -> bool:
    """Whether ``search`` tries all values of ``domain`` whatever is believed of them."""
    space = _space({"x": domain})
    return search.default_trials(space) == space.size


def _space(written: dict[str, Any]) -> Space:
    problems: list[Any] = []
    space = read_space(Document(written, "probe"), (), problems)
    assert space is not None, problems
    return space


def pairing_problems(spec: ExperimentSpec) -> Iterator[tuple[KeyPath, str]]:
    """What its search, scheduler, objectives and space cannot do together: (key, message with the remedy)."""
    search, scheduler, space = spec.search, spec.scheduler, spec.search_space
    for path, message in _asked(search, "validate_options", search.validate_options):
        yield ("search", *path), message
    if search.from_runs and not search.models_earlier_runs:
        able = ", ".join(label(other) for other in _named_searches() if other.models_earlier_runs)
        yield ("search", "from_runs"), f"search {label(search)} learns nothing from earlier runs; use one of: {able}"
    if reason := _incompatibility(scheduler, search.kind):
        yield ("scheduler", "kind"), reason
    if spec.outcome_constraints:
        if reason := _unconstrained(search):
            yield ("outcome_constraints",), reason
        if not scheduler.compares_ranks:
            able = ", ".join(label(other) for other in schedulers() if other.compares_ranks)
            text = f"scheduler {label(scheduler)} compares more than ranks of results; use one of: {able}"
            yield ("outcome_constraints",), text
    for path, message in _asked(scheduler, "validate_space", lambda: scheduler.validate_space(space)):
        yield ("scheduler", *path), message
    count, most = len(spec.objectives), spec.search.max_objectives
    if count > most and not have_weights(spec.objectives):
        able = ", ".join(label(other) for other in _named_searches() if other.max_objectives >= count)
        message = (
            f"names {count}, but search {label(spec.search)} can search for {most:g} at once; "
            f"give each a weight, or use one of: {able}"
        )
        yield ("objective",), message


def with_chosen_search(experiment: Experiment) -> tuple[Experiment, str]:
    """``experiment`` with the search that ``auto`` chooses for it, and the reason; as it is where it names one."""
    spec = experiment.spec
    if not isinstance(spec.search, Auto):
        return experiment, ""
    objectives = 1 if have_weights(spec.objectives) else len(spec.objectives)

    def unsuited(search: SearchSpec) -> str | None:
        reason = _incompatibility(spec.scheduler, search.kind)
        return reason or (_unconstrained(search) if spec.outcome_constraints else None)

    search, why = spec.search.chosen(spec.search_space, objectives, unsuited)
    return replace(experiment, spec=spec.model_copy(update={"search": search})), why


def _named_searches() -> list[SearchSpec]:
    """The search algorithms that an error may name instead of another one."""
    return [search for search in searches() if not is_plug_in(search) and not isinstance(search, Auto)]


def space_problems(search: SearchSpec, space: Space) -> Iterator[tuple[KeyPath, str]]:
    """What ``search`` cannot do with ``space``: (key, message with the remedy)."""
    for path, message in _asked(search, "validate_space", lambda: search.validate_space(space)):
        yield ("search_space", *path), message


def _unconstrained(search: SearchSpec) -> str | None:
    """Why ``search`` cannot be used with outcome constraints; None if it can."""
    if search.compares_ranks or search.models_margins:
        return None
    able = ", ".join(label(other) for other in _named_searches() if other.compares_ranks or other.models_margins)
    return f"search {label(search)} models values, and no limits on them; use one of: {able}"


def _incompatibility(scheduler: SchedulerSpec, search: str) -> str | None:
    """Why ``scheduler`` makes no sense with that kind of search; None if it does."""
    return next(iter(_asked(scheduler, "incompatibility", lambda: [scheduler.incompatibility(search)])))


_Answer = TypeVar("_Answer")


def _asked(spec: AlgorithmSpec, method: str, ask: Callable[[], Iterable[_Answer]]) -> list[_Answer]:
    """The answers. Raises InputError if the method of a third party's class raises."""
    if is_built_in(spec):
        return list(ask())
    try:
        with no_exit():
            return list(ask())
    except Exception as error:  # noqa: BLE001 - a third party's class may raise anything: it is shown, not hidden
        raise InputError(f"{type(spec).__qualname__}.{method} raised {innermost(error)}") from None


def _variants(family: Family, installed: bool) -> Iterator[Model]:
    """Without validation: a plug-in has required options that only a user can give."""
    theirs = [family.offered(point) for point in family.installed().values()] if installed else []
    for member in [*family.built_in.values(), *theirs]:
        choices = list(_choices(member))
        for name, options in choices:
            yield from (member.model_construct(None, **{name: option}) for option in options)
        if not choices:
            yield member.model_construct()


def _choices(spec: type[Model]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The options of ``spec`` that choose between named variants, each with the names."""
    for name, field in spec.model_fields.items():
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) > 1:
            yield name, get_args(field.annotation)

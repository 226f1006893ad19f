"""Every scheduler of the union against one contract, and which searches it goes with."""

from __future__ import annotations

import pickle
import random
import typing
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.schedulers.driver import Driver, Event, by_quality, negated, of
from tuner.schedulers import AnyScheduler
from tuner.schedulers.base import Scheduler, SchedulerSpec, StoppingSpec
from tuner.schedulers.build import build_scheduler
from tuner.schedulers.fifo import Fifo
from tuner.schedulers.hyperband import Brackets
from tuner.schedulers.ray import RayScheduler
from tuner.searchers import AnySearch
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Choice, Float, Parameter, Space

pytestmark = pytest.mark.filterwarnings("error")

ADAPTER: TypeAdapter[Any] = TypeAdapter(AnyScheduler)
SPECS: tuple[type[SchedulerSpec], ...] = typing.get_args(typing.get_args(AnyScheduler)[0])
OURS = tuple(spec for spec in SPECS if spec is not RayScheduler)
SPACE = Space((Parameter(("x",), Float(0.0, 1.0)), Parameter(("y",), Choice(("a", "b", "c")))))
SMALL: dict[str, Any] = {"max_t": 9, "reduction_factor": 3, "perturbation_interval": 2, "brackets": 1}
"""Options for short searches, given to each scheduler that has them."""


def examples() -> typing.Iterator[Any]:
    for spec in OURS:
        options = {name: value for name, value in SMALL.items() if name in spec.model_fields}
        variant = spec.model_fields.get("variant")
        for chosen in typing.get_args(variant.annotation) if variant else ():
            yield pytest.param(spec(**options, variant=chosen), id=f"{spec.model_fields['kind'].default}-{chosen}")  # type: ignore[call-arg]
        if not variant:
            yield pytest.param(spec(**options), id=spec.model_fields["kind"].default)
        if issubclass(spec, StoppingSpec):
            yield pytest.param(spec(**options, audit=0.3), id=f"{spec.model_fields['kind'].default}-audited")


EXAMPLES = list(examples())


def scheduler_of(spec: SchedulerSpec, mode: Mode, trials: int = 40, seed: int = 0) -> Scheduler:
    max_t = None
    if spec.fidelity:  # the driver's steps are of the kind that a checkpoint brings along
        max_t, spec = spec.fidelity[1], spec.model_copy(update={"time_attr": "epoch"})
    return build_scheduler(spec, SearchProblem(SPACE, (mode,), trials, max_t, seed))


def driver_of(spec: SchedulerSpec, mode: Mode = "max", trials: int = 40, slots: int = 4, **options: Any) -> Driver:
    generator = random.Random(trials)
    configurations = [{"x": generator.random(), "y": generator.choice("abc")} for _ in range(trials)]
    curve = by_quality if mode == "max" else negated
    return Driver(scheduler_of(spec, mode, trials), curve, configurations, slots, last=12, **options)


@pytest.mark.parametrize("spec", EXAMPLES)
class TestContract:
    @pytest.mark.parametrize("slots", [1, 3, 8, 100])
    def test_every_trial_starts_and_ends(self, spec: SchedulerSpec, slots: int) -> None:
        driver = driver_of(spec, slots=slots)
        driver.run()
        ended = [event.trial for event in of(driver.events, "stop", "drop", "return", "close")]
        assert sorted(ended) == sorted(driver.trials)
        assert len(driver.trials) == 40
        assert driver.most_running == min(slots, 40)
        assert not driver.paused

    @pytest.mark.parametrize("slots", [1, 3, 8, 100])
    def test_trials_that_fail_or_return_early_or_restart_block_nobody(self, spec: SchedulerSpec, slots: int) -> None:
        fails, returns, restarts = {0: 1, 1: 2, 7: 1, 8: 4, 9: 1}, {2: 1, 5: 4, 12: 0, 13: 3}, {3: 3, 10: 5, 15: 9}
        driver = driver_of(spec, slots=slots, fails=fails, returns=returns, restarts=restarts)
        driver.run()
        ended = [event.trial for event in of(driver.events, "stop", "drop", "return", "close", "fail")]
        assert sorted(ended) == sorted(driver.trials)
        assert len(driver.trials) == 40
        assert {event.trial for event in of(driver.events, "fail")} <= {f"t{i}" for i in fails}
        assert of(driver.events, "fail")

    def test_all_trials_may_fail(self, spec: SchedulerSpec) -> None:
        driver = driver_of(spec, trials=12, fails=dict.fromkeys(range(12), 1))
        driver.run()
        assert len(of(driver.events, "fail")) == 12

    def test_some_trial_is_run_to_the_end(self, spec: SchedulerSpec) -> None:
        driver = driver_of(spec)
        driver.run()
        most = spec.fidelity[1] if spec.fidelity else 12
        assert max(event.step for event in driver.events) == most

    def test_a_trial_pauses_only_where_it_has_not_paused_before(self, spec: SchedulerSpec) -> None:
        driver = driver_of(spec)
        driver.run()
        pauses: dict[str, list[int]] = {}
        for event in of(driver.events, "pause", "exploit"):
            if event.action == "pause":
                pauses.setdefault(event.trial, []).append(event.step)
            else:  # it continues from another's step
                pauses.pop(event.trial, None)
        assert all(steps == sorted(set(steps)) for steps in pauses.values())
        assert bool(of(driver.events, "pause", "exploit")) == (
            spec.pauses or getattr(spec, "variant", "") == "promotion"
        )

    def test_it_says_at_which_reports_it_may_decide(self, spec: SchedulerSpec) -> None:
        driver = driver_of(spec)
        driver.run()
        decided = of(driver.events, "pause", "exploit", "stop")
        assert bool(decided) == (spec.fidelity is not None)
        assert all(spec.decides_at(event.step - 1, event.step) for event in decided)

    @pytest.mark.parametrize("reports", [1, 60])
    def test_goes_on_the_same_after_pickling(self, spec: SchedulerSpec, reports: int) -> None:
        driver = driver_of(spec, fails={4: 2})
        driver.run(reports)
        restored = driver.copy()
        assert restored.run() == driver.run()
        assert len(driver.events) > reports

    def test_the_seed_decides(self, spec: SchedulerSpec) -> None:
        assert driver_of(spec).run() == driver_of(spec).run()

    def test_small_values_are_good_in_mode_min(self, spec: SchedulerSpec) -> None:
        mirrored = [Event(*event[:3], -event.value) for event in driver_of(spec, "min").run()]
        assert mirrored == driver_of(spec, "max").run()

    def test_is_the_specification_that_was_written(self, spec: SchedulerSpec) -> None:
        assert ADAPTER.validate_python(spec.model_dump(mode="json")) == spec
        assert pickle.loads(pickle.dumps(spec)) == spec

    def test_rungs_end_where_a_trial_is_complete(self, spec: SchedulerSpec) -> None:
        rungs = spec.rungs()
        assert list(rungs) == sorted(set(rungs))
        if rungs:
            assert spec.fidelity
            assert rungs[-1] == spec.fidelity[1]
        for trials in (1, 2, 10, 40, 1000):
            reach = spec.expected_at_rungs(trials)
            assert len(reach) == len(rungs)
            assert list(reach) == sorted(reach, reverse=True)
            assert reach[:1] in ((), (trials,))

    def test_two_builds_share_nothing(self, spec: SchedulerSpec) -> None:
        first, second = scheduler_of(spec, "max"), scheduler_of(spec, "max")
        for scheduler in (first, second):
            scheduler.add("a", {"x": 0.5, "y": "a"})
        assert first.report("a", 1, 1.0) == second.report("a", 1, 1.0)

    def test_fits_the_space_and_some_search(self, spec: SchedulerSpec) -> None:
        searches = [s.model_fields["kind"].default for s in typing.get_args(typing.get_args(AnySearch)[0])]
        assert spec.validate_space(SPACE) == []
        assert any(spec.incompatibility(search) is None for search in [*searches, "bohb"])


@pytest.mark.parametrize(
    "options",
    [
        {"variant": "stopping", "grace_period": "auto"},
        {"variant": "stopping", "grace_period": 1, "brackets": 3},
        {"variant": "promotion", "grace_period": "auto"},
        {"variant": "promotion", "grace_period": 2},
    ],
)
def test_asha_decides_at_its_rungs_only(options: dict[str, Any]) -> None:
    spec = ADAPTER.validate_python({"kind": "asha", "max_t": 12, "reduction_factor": 2, **options})
    driver = driver_of(spec)
    driver.run()
    decided = of(driver.events, "pause", "stop")
    assert len({event.step for event in decided}) > 2
    assert all(spec.decides_at(event.step - 1, event.step) for event in decided)


@pytest.mark.parametrize("spec", [p for p in EXAMPLES if not str(p.id).endswith(("fifo", "pbt", "pb2", "audited"))])
def test_the_better_half_gets_more_steps(spec: SchedulerSpec) -> None:
    driver = driver_of(spec, trials=60)
    driver.run()
    reports = of(driver.events, "continue", "pause", "stop")
    middle = sorted(c["x"] for c in driver.configurations)[30]
    better = sum(driver.configurations[int(event.trial[1:])]["x"] >= middle for event in reports)
    assert better > 0.55 * len(reports)


PROMOTING = [param for param in EXAMPLES if param.id in ("asha-promotion", "hyperband", "bohb")]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("spec", PROMOTING)
def test_never_promotes_the_worse_of_two_comparable_trials(spec: SchedulerSpec, slots: int, mode: Mode) -> None:
    """Comparable: paused at the same rung of the same bracket when one of them is resumed."""

    def bracket(trial_id: str) -> int:
        number, opened = int(trial_id[1:]), 0
        while isinstance(spec, Brackets):
            number -= spec.size(spec.s_max - opened % (spec.s_max + 1))
            if number < 0:
                return opened
            opened += 1
        return 0

    driver = driver_of(spec, mode, trials=60, slots=slots, fails={5: 2, 11: 1})
    sign = 1 if mode == "max" else -1
    paused: dict[str, Event] = {}
    resumed = 0
    for event in driver.run():
        if event.action == "pause":
            paused[event.trial] = event
        elif event.action in ("drop", "close"):
            del paused[event.trial]
        elif event.action == "resume":
            one = paused.pop(event.trial)
            resumed += 1
            for other in paused.values():
                if (other.step, bracket(other.trial)) == (one.step, bracket(one.trial)):
                    assert sign * other.value <= sign * one.value
    assert resumed > 5


@pytest.mark.parametrize("spec", SPECS)
def test_what_every_block_refuses(spec: type[SchedulerSpec]) -> None:
    declared = spec.model_config.get("json_schema_extra")
    (example,) = declared["examples"] if isinstance(declared, dict) else ({"kind": spec.model_fields["kind"].default},)
    value = ADAPTER.validate_python(example)
    assert type(value) is spec
    with pytest.raises(ValidationError, match="extra_forbidden"):
        ADAPTER.validate_python({**example, "no_such_option": 1})
    with pytest.raises(ValidationError, match="frozen"):
        value.kind = "other"
    for name, wrong in (("max_t", 0), ("max_t", 2.5), ("max_t", True), ("time_attr", ""), ("time_attr", 3)):
        with pytest.raises(ValidationError):
            ADAPTER.validate_python({**example, name: wrong})


def test_fifo_stops_nothing() -> None:
    assert (Fifo().rungs(), Fifo().fidelity, Fifo().expected_at_rungs(10)) == ((), None, ())
    driver = driver_of(Fifo())
    driver.run()
    assert {event.action for event in driver.events} == {"start", "continue", "return"}


@pytest.mark.parametrize(
    ("scheduler", "search", "remedy"),
    [
        ({"kind": "pbt"}, "optuna", "use search.kind random"),
        ({"kind": "pb2"}, "grid", "use search.kind random"),
        ({"kind": "bohb"}, "random", "scheduler.kind hyperband"),
        ({"kind": "bohb"}, "optuna", "use search.kind bohb"),
        ({"kind": "bohb"}, "bohb", None),
        ({"kind": "pbt"}, "random", None),
        ({"kind": "hyperband"}, "grid", None),
        ({"kind": "asha"}, "bohb", None),
        ({"kind": "median"}, "optuna", None),
        ({"kind": "fifo"}, "grid", None),
    ],
)
def test_pairings_that_make_no_sense_name_one_that_does(scheduler: Any, search: str, remedy: str | None) -> None:
    why = ADAPTER.validate_python(scheduler).incompatibility(search)
    assert (why is None) == (remedy is None)
    if why and remedy:
        assert remedy in why
        assert search in why

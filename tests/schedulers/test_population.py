"""Population-based training and bandits: who replaces whom, with what configuration, and what is kept of it."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from tests.schedulers.driver import Driver, of
from tests.spaces import space
from tuner.schedulers.base import Decision, Exploit, Resume
from tuner.schedulers.population.exploit import Population, PopulationSpec
from tuner.schedulers.population.pb2 import Pb2, PopulationBandit
from tuner.schedulers.population.pbt import Pbt, multiplied
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Domain, Float, Integer, Normal, Space
from tuner.spec.space.constraints import read_constraint

pytestmark = pytest.mark.filterwarnings("error")

BOTH = [pytest.param(Pbt, id="pbt"), pytest.param(Pb2, id="pb2")]


LINE = space("x: {uniform: [0, 1]}")
MIXED = space("""
optimizer: {choice: [sgd, adam, lamb]}
lr: {loguniform: [1e-4, 1e-1]}
momentum: {quniform: [0.8, 0.9, 0.05], when: {optimizer: sgd}}
model: {depth: {randint: [1, 5]}, width: {qlograndint: [16, 256, 16]}, layers: {choice: [[64], [64, 64]]}}
noise: {randn: []}
jump: {qrandn: [0, 2, 0.5]}
adam: {when: {optimizer: adam}, beta: {choice: [0.9, 0.99]}}
fixed: 3
""")


def build(spec: PopulationSpec, over: Space, trials: int, mode: Any = "max", seed: int = 0) -> Population:
    """The driver's steps are of the kind that a checkpoint brings along."""
    spec = spec.model_copy(update={"time_attr": "epoch"})
    built = spec.build(SearchProblem(over, (mode,), trials, spec.max_t, seed))
    assert isinstance(built, Population)
    return built


def samples(over: Space, trials: int, seed: int = 0) -> list[Configuration]:
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(seed))
    return [over.sample(rng) for _ in range(trials)]


def towards(state: float, step: int, configuration: Configuration) -> float:
    """Each step gains the more the nearer x is to an optimum that moves from 0.1 to 0.9 within 40 steps."""
    return state + 1 - 4 * (configuration["x"] - 0.1 - 0.02 * step) ** 2


def lr_and_depth(state: float, step: int, configuration: Configuration) -> float:
    return state + configuration["lr"] * configuration["model"]["depth"] + configuration["noise"] / 10


@pytest.mark.parametrize("kind", BOTH)
class TestPopulation:
    def test_the_worst_goes_on_from_the_best(self, kind: type[PopulationSpec]) -> None:
        scheduler = build(kind(max_t=20, perturbation_interval=5), LINE, 4)
        configurations = dict(zip("abcd", samples(LINE, 4), strict=True))
        values = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
        for name, configuration in configurations.items():
            scheduler.add(name, configuration)
        for name, value in values.items():
            assert scheduler.report(name, 4, value) is Decision.CONTINUE  # between two intervals
        for name, value in values.items():  # nobody is replaced before all were compared
            assert scheduler.report(name, 5, value) is Decision.CONTINUE
        assert scheduler.report("c", 10, 3.0) is Decision.CONTINUE
        assert scheduler.report("d", 10, 4.0) is Decision.CONTINUE
        decision = scheduler.report("a", 10, 1.0)
        assert isinstance(decision, Exploit)
        assert decision.donor == "d"
        (kept,) = scheduler.lineage("a")
        assert (kept.step, kept.trial_id, kept.donor, kept.before) == (10, "a", "d", configurations["d"])
        assert kept.after == decision.configuration
        assert scheduler.lineage("d") == ()
        assert scheduler.report("a", 14, 0.0) is Decision.CONTINUE  # it is compared again at 15
        assert scheduler.report("d", 20, 5.0) is Decision.STOP

    def test_a_trial_at_max_t_is_no_donor(self, kind: type[PopulationSpec]) -> None:
        """Ray removes it only when its last checkpoint is saved, and nothing is left to train from that one."""
        scheduler = build(kind(max_t=15, perturbation_interval=5), LINE, 3)
        values = {"a": 1.0, "b": 2.0, "c": 3.0}
        for name in values:
            scheduler.add(name, {"x": 0.5})
        for name, value in values.items():
            scheduler.report(name, 5, value)
        assert scheduler.report("b", 10, 2.0) is Decision.CONTINUE
        assert scheduler.report("c", 10, 3.0) is Decision.CONTINUE
        assert scheduler.report("c", 15, 3.0) is Decision.STOP
        decision = scheduler.report("a", 10, 1.0)
        assert isinstance(decision, Exploit)
        assert decision.donor == "b"
        scheduler.remove("c")
        assert scheduler.report("b", 15, 2.0) is Decision.STOP

    def test_small_values_are_good_in_mode_min(self, kind: type[PopulationSpec]) -> None:
        scheduler = build(kind(max_t=20, perturbation_interval=5), LINE, 2, "min")
        for name, value in (("a", 1.0), ("b", 2.0)):
            scheduler.add(name, {"x": 0.5})
            assert scheduler.report(name, 1, value) is Decision.CONTINUE
        assert scheduler.report("a", 5, 1.0) is Decision.CONTINUE
        decision = scheduler.report("b", 5, 2.0)
        assert isinstance(decision, Exploit)
        assert decision.donor == "a"

    def test_nobody_is_replaced_by_an_equal(self, kind: type[PopulationSpec]) -> None:
        driver = Driver(build(kind(max_t=20), LINE, 8), lambda *_: 1.0, samples(LINE, 8), slots=8)
        driver.run()
        assert not driver.exploits

    def test_nobody_is_replaced_in_the_burn_in_period(self, kind: type[PopulationSpec]) -> None:
        spec = kind(max_t=40, perturbation_interval=5, burn_in_period=12)
        driver = Driver(build(spec, LINE, 8), towards, samples(LINE, 8), slots=8)
        first = of(driver.run(), "exploit")[0]
        assert first.step >= 15

    @pytest.mark.parametrize("slots", [1, 3, 8])
    def test_donors_are_among_the_best_and_the_replaced_among_the_worst(
        self, kind: type[PopulationSpec], slots: int
    ) -> None:
        """By the latest result of each trial that trains with its present configuration for an interval or more."""
        driver = Driver(build(kind(max_t=41), LINE, 8), towards, samples(LINE, 8), slots)
        latest: dict[str, float] = {}
        events = driver.run()
        donors = iter([exploit.donor for _, exploit in driver.exploits])
        for event in events:
            if event.action == "stop":
                latest.pop(event.trial, None)
            elif event.step and event.step % 5 == 0 and event.action in ("continue", "pause", "exploit"):
                latest[event.trial] = event.value
            if event.action == "exploit":
                ranked = sorted(latest.values())
                quarter = -(-len(ranked) // 4)
                assert event.value <= ranked[quarter - 1]
                assert latest[next(donors)] >= ranked[-quarter]
                del latest[event.trial]
        assert len(driver.exploits) > 5

    @pytest.mark.parametrize("slots", [2, 10])
    def test_configurations_stay_in_the_space(self, kind: type[PopulationSpec], slots: int) -> None:
        configurations = samples(MIXED, 10)
        driver = Driver(build(kind(max_t=60, perturbation_interval=2), MIXED, 10), lr_and_depth, configurations, slots)
        driver.run()
        assert len(driver.exploits) > 30
        values: dict[str, set[str]] = {}
        for _, exploit in driver.exploits:
            assert MIXED.violations(exploit.configuration) == []
            for name, value in exploit.configuration.items():
                values.setdefault(name, set()).add(str(value))
        changed = {name for name, found in values.items() if len(found) > 1}
        assert changed >= {"optimizer", "lr", "model", "noise", "jump"}

    def test_constraints_hold(self, kind: type[PopulationSpec]) -> None:
        over = space("x: {uniform: [0, 1]}\ny: {uniform: [0, 1]}")
        over = replace(over, constraints=(read_constraint("x + y <= 0.6", (p.path for p in over.parameters), {}),))
        driver = Driver(build(kind(max_t=30, perturbation_interval=2), over, 10), towards, samples(over, 10), slots=10)
        driver.run()
        assert len(driver.exploits) > 10
        assert all(over.contains(exploit.configuration) for _, exploit in driver.exploits)

    def test_only_what_may_change_changes(self, kind: type[PopulationSpec]) -> None:
        spec = kind(max_t=60, perturbation_interval=2, mutate=("lr", "model.width"))
        driver = Driver(build(spec, MIXED, 10), lr_and_depth, samples(MIXED, 10), slots=10)
        driver.run()
        assert len(driver.exploits) > 20
        for exploit in (exploit for _, exploit in driver.exploits):
            kept = [{**c, "lr": 0, "model": {**c["model"], "width": 0}} for c in driver.configurations]
            own = {**exploit.configuration, "lr": 0, "model": {**exploit.configuration["model"], "width": 0}}
            assert own in kept
        assert len({exploit.configuration["lr"] for _, exploit in driver.exploits}) > 10

    @pytest.mark.parametrize("slots", [1, 3, 6])
    def test_the_lineage_is_the_schedule_that_was_trained(self, kind: type[PopulationSpec], slots: int) -> None:
        """Training once more with the configurations of the lineage gives the same result."""
        spec = kind(max_t=41, perturbation_interval=4)
        driver = Driver(build(spec, LINE, 6), towards, samples(LINE, 6), slots)
        driver.run()
        scheduler = driver.scheduler
        assert isinstance(scheduler, Population)
        lengths = []
        for trial_id, trial in driver.trials.items():
            lineage = scheduler.lineage(trial_id)
            assert all(one.after == other.before for one, other in itertools.pairwise(lineage))
            state, done = 0.0, 0
            for until, configuration in [*((p.step, p.before) for p in lineage), (trial.step, trial.configuration)]:
                for step in range(done + 1, until + 1):
                    state = towards(state, step, configuration)
                done = until
            assert state == trial.state
            lengths.append(len(lineage))
        assert max(lengths) > 2

    def test_with_few_slots_nobody_falls_behind(self, kind: type[PopulationSpec]) -> None:
        driver = Driver(build(kind(max_t=40), LINE, 6), towards, samples(LINE, 6), slots=2)
        for _ in range(60):
            driver.run(4)
            steps = [trial.step for trial in driver.trials.values()]
            assert max(steps) - min(steps) <= 2 * 5
        assert len(driver.trials) == 6
        assert of(driver.events, "pause")

    def test_with_a_slot_for_everyone_nobody_pauses(self, kind: type[PopulationSpec]) -> None:
        driver = Driver(build(kind(max_t=40), LINE, 6), towards, samples(LINE, 6), slots=6)
        assert not of(driver.run(), "pause")
        assert driver.exploits

    def test_who_is_furthest_behind_goes_on(self, kind: type[PopulationSpec]) -> None:
        scheduler = build(kind(max_t=40), LINE, 3)
        scheduler.add("a", {"x": 0.1})
        assert scheduler.report("a", 5, 1.0) is Decision.PAUSE  # two are to start
        assert scheduler.next_action(more=True) is None
        scheduler.add("b", {"x": 0.2})
        assert scheduler.report("b", 7, 2.0) is Decision.PAUSE
        scheduler.add("c", {"x": 0.3})
        assert scheduler.report("c", 6, 3.0) is Decision.PAUSE
        assert scheduler.next_action(more=False) == Resume("a")
        scheduler.remove("c")
        assert scheduler.next_action(more=False) == Resume("b")
        assert scheduler.next_action(more=False) is None

    def test_a_population_may_stay_smaller_than_planned(self, kind: type[PopulationSpec]) -> None:
        driver = Driver(build(kind(max_t=40), LINE, 100), towards, samples(LINE, 5), slots=2)
        driver.run()
        assert driver.exploits
        assert len(of(driver.events, "stop")) == 5

    def test_another_seed_explores_otherwise(self, kind: type[PopulationSpec]) -> None:
        found = []
        for seed in (1, 1, 2):
            driver = Driver(build(kind(max_t=20), LINE, 8, seed=seed), towards, samples(LINE, 8), slots=8)
            driver.run()
            found.append(driver.exploits)
        assert found[0] == found[1] != found[2]

    def test_better_than_no_changes(self, kind: type[PopulationSpec]) -> None:
        """The optimum moves, so that no fixed configuration follows it; mean of the best of 8 over 10 seeds."""
        best, fixed = [], []
        for seed in range(10):
            configurations = samples(LINE, 8, seed)
            spec = kind(max_t=41, perturbation_interval=4)
            driver = Driver(build(spec, LINE, 8, seed=seed), towards, configurations, slots=8)
            driver.run()
            best.append(max(trial.state for trial in driver.trials.values()))
            states = []
            for configuration in configurations:
                state = 0.0
                for step in range(1, 42):
                    state = towards(state, step, configuration)
                states.append(state)
            fixed.append(max(states))
        assert sum(best) / 10 > sum(fixed) / 10 + 1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"max_t": 5}, "makes 5 the first step at which a trial may change: it must be below max_t 5"),
            ({"max_t": 15, "burn_in_period": 12}, "makes 15 the first step"),
            ({"quantile_fraction": 0.6}, "less than or equal to 0.5"),
            ({"quantile_fraction": 0.0}, "greater than 0"),
            ({"resample_probability": 1.5}, "less than or equal to 1"),
            ({"perturbation_interval": 0}, "greater than or equal to 1"),
            ({"mutate": []}, "at least 1 item"),
            ({"synch": True}, "Extra inputs"),
        ],
    )
    def test_refuses(self, kind: type[PopulationSpec], options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            kind(**options)

    def test_names_must_be_parameters_that_can_change(self, kind: type[PopulationSpec]) -> None:
        assert kind(mutate=("lr", "model.depth")).validate_space(MIXED) == []
        found = kind(mutate=("lr", "model.dept", "fixed", "model")).validate_space(MIXED)
        assert [path for path, _ in found] == [("mutate",)] * 3
        assert "did you mean 'model.depth'?" in found[0][1]
        (nothing,) = kind().validate_space(space("a: 1"))
        assert "no parameter to change" in nothing[1]

    def test_options_and_defaults_of_ray(self, kind: type[PopulationSpec]) -> None:
        """Those of time are in steps here, and not in seconds."""
        from ray.tune.schedulers import PopulationBasedTraining

        parameters = inspect.signature(PopulationBasedTraining.__init__).parameters
        ours = {name: field.default for name, field in kind.model_fields.items() if name in parameters}
        different = {name for name, default in ours.items() if parameters[name].default != default}
        assert different == {"time_attr", "perturbation_interval"}


@pytest.mark.parametrize(
    ("domain", "value", "factor", "expected"),
    [
        (Float(0.0, 1.0), 0.5, 1.2, 0.6),
        (Float(0.0, 1.0), 0.9, 1.2, 1.0),
        (Float(1e-4, 1e-1, log=True), 1.1e-4, 0.8, 1e-4),
        (Float(0.0, 1.0, q=0.1), 0.5, 1.2, 0.6),
        (Float(0.0, 1.0, q=0.1), 0.1, 1.2, 0.2),  # 0.12 would be rounded back
        (Float(0.0, 1.0, q=0.1), 0.1, 0.8, 0.0),
        (Float(0.0, 1.0, q=0.1), 1.0, 1.2, 1.0),
        (Integer(1, 10), 5, 1.2, 6),
        (Integer(1, 10), 1, 1.2, 2),
        (Integer(1, 10), 1, 0.8, 1),
        (Integer(-5, 5), -2, 1.2, -3),
        (Integer(-5, 5), -2, 0.8, -1),
        (Integer(0, 5), 0, 1.2, 1),
        (Integer(16, 256, q=16, log=True), 128, 1.2, 160),
        (Integer(16, 256, q=16, log=True), 16, 1.2, 32),
        (Integer(16, 256, q=16), 256, 1.2, 256),
        (Integer(1, 10), 5, 1.0, 5),
        (Normal(0.0, 1.0), 1.0, 1.2, 1.2),
        (Normal(0.0, 1.0, q=0.5), 1.0, 1.2, 1.0),
    ],
)
def test_a_multiplied_value_stays_in_its_domain(domain: Domain, value: float, factor: float, expected: float) -> None:
    found = multiplied(domain, value, factor)
    assert found == pytest.approx(expected)
    assert type(found) is type(expected)
    assert domain.contains(found)


def test_pbt_multiplies_by_its_factors_and_moves_a_choice_to_its_neighbour() -> None:
    over = space("x: {uniform: [0, 100]}\nc: {choice: [p, q, r, s]}")
    spec = Pbt(max_t=40, perturbation_interval=1, resample_probability=0, perturbation_factors=(0.5, 2))
    scheduler = build(spec, over, 2)
    seen: set[tuple[float, str]] = set()
    for name in ("good", "bad"):
        scheduler.add(name, {"x": 8.0, "c": "q"})
    assert scheduler.report("good", 1, 1.0) is Decision.CONTINUE
    for step in range(2, 39):
        assert scheduler.report("good", step, 1.0) is Decision.CONTINUE
        decision = scheduler.report("bad", step, 0.0)
        if isinstance(decision, Exploit):
            seen.add((decision.configuration["x"], decision.configuration["c"]))
    assert seen == {(4.0, "p"), (4.0, "r"), (16.0, "p"), (16.0, "r")}


@pytest.mark.parametrize("domain", ["uniform: [0, 1]", "uniform: [-1, 1]", "randn: []"])
def test_pbt_leaves_a_continuous_zero(domain: str) -> None:
    """No factor would lead away from it."""
    over = space(f"x: {{{domain}}}")
    scheduler = build(Pbt(max_t=60, perturbation_interval=1, resample_probability=0), over, 4)
    for name in "abcd":
        scheduler.add(name, {"x": 0.0})
    decisions = [scheduler.report(name, 1, value) for name, value in zip("abcd", (3.0, 2.0, 1.0, 0.0), strict=True)]
    assert isinstance(decisions[-1], Exploit)
    assert decisions[-1].configuration["x"] != 0


def test_a_resampled_value_is_drawn_from_the_whole_domain() -> None:
    spec = Pbt(max_t=40, perturbation_interval=1, resample_probability=1)
    driver = Driver(build(spec, LINE, 10), towards, samples(LINE, 10), slots=10)
    driver.run()
    drawn = [exploit.configuration["x"] for _, exploit in driver.exploits]
    assert min(drawn) < 0.2
    assert max(drawn) > 0.8


def test_pb2_learns_where_the_gain_is() -> None:
    """With a fixed optimum at 0.7 its later proposals are near it, while PBT's still are where factors lead."""

    def gain(state: float, step: int, configuration: Configuration) -> float:
        return state + 1 - 4 * (configuration["x"] - 0.7) ** 2

    late = []
    for seed in range(5):
        spec = Pb2(max_t=60, perturbation_interval=3)
        driver = Driver(build(spec, LINE, 6, seed=seed), gain, samples(LINE, 6, seed), slots=6)
        driver.run()
        late += [abs(exploit.configuration["x"] - 0.7) for _, exploit in driver.exploits[-6:]]
    assert sorted(late)[len(late) // 2] < 0.1


@pytest.mark.parametrize("time_attr", ["training_iteration", "epoch"])
@pytest.mark.parametrize("donors", [5, 20], ids=["the donor is behind", "the donor is ahead"])
def test_pb2_measures_a_gain_over_the_steps_that_the_trial_itself_made(time_attr: str, donors: int) -> None:
    """Every step gains 1; after a copy an interval of five of the trial's own steps is recorded, and no shorter one."""
    spec = Pb2(max_t=60, perturbation_interval=5, time_attr=time_attr)
    bandit = spec.build(SearchProblem(LINE, ("max",), 4, spec.max_t, 0))
    assert isinstance(bandit, PopulationBandit)
    for name, step in (("a", donors), ("b", 5), ("c", 5), ("d", 10)):
        bandit.add(name, {"x": 0.5})
        decision = bandit.report(name, step, 0.0 if name == "d" else 100.0 + step)
    assert isinstance(decision, Exploit)
    begin = 10 if time_attr == "training_iteration" else bandit.lineage("d")[0].step
    quality = bandit._latest[decision.donor][1]
    for more in range(1, 6):
        assert not bandit._history
        assert "d" in bandit._pending
        bandit.report("d", begin + more, quality + more)
    ((time, _, gain),) = bandit._history
    assert (time, gain) == pytest.approx((begin / 5, 1))
    assert "d" not in bandit._pending

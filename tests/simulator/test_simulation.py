"""Virtual time: schedules that can be computed by hand, what searches are told, and how they are compared."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import wilcoxon

from tests.benchmarks.priors import regrets, tables
from tests.tables import EPOCHS, by_formula, by_hand, space
from tuner.errors import InputError
from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import Decision, Resume, Scheduler, SchedulerSpec, Stop
from tuner.schedulers.fifo import Fifo
from tuner.schedulers.population.pb2 import Pb2
from tuner.schedulers.population.pbt import Pbt
from tuner.schedulers.ray import RayScheduler
from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.bohb.searcher import Bohb
from tuner.searchers.grid import Grid
from tuner.searchers.optuna.spec import Optuna
from tuner.searchers.random import Random
from tuner.simulator import Costs, Event, Table, Trace, simulate
from tuner.simulator.comparison import Contender, Limits, compare, full_time, normalised_regret
from tuner.simulator.figures import figure, page, png, regrets_since_reports
from tuner.spec.problem import SearchProblem


def hand_table(durations: list[list[float]], values: list[list[float]]) -> Table:
    xs = space({"x": {"choice": list(range(len(values)))}})
    return Table.of(by_hand(durations, values), xs, "score", "epoch")


def formula_table(informative: bool = True, **options: int) -> Table:
    return Table.of(by_formula(informative, **options), space(), "val_accuracy", "epoch")


ASHA = Asha(time_attr="epoch", max_t=EPOCHS, grace_period=1, reduction_factor=3)
PROMOTION = Asha(time_attr="epoch", max_t=EPOCHS, grace_period=1, reduction_factor=3, variant="promotion")


def happened(trace: Trace) -> list[tuple[float, str, int, str]]:
    return [(event.time, event.trial[-1], event.step, event.what) for event in trace.decisions]


def test_fifo_gives_the_schedule_computed_by_hand() -> None:
    table = hand_table([[1, 2], [0.5, 0.5], [1, 1], [2, 2]], [[0.1, 0.4], [0.2, 0.3], [0.5, 0.1], [0.2, 0.6]])
    trace = simulate(Grid(), Fifo(), table, "max", workers=2, trials=4)
    assert happened(trace) == [
        (0, "1", 0, "start"),
        (0, "2", 0, "start"),
        (0.5, "2", 1, "continue"),
        (1, "1", 1, "continue"),
        (1, "2", 2, "complete"),
        (1, "3", 0, "start"),
        (2, "3", 1, "continue"),
        (3, "1", 2, "complete"),
        (3, "4", 0, "start"),
        (3, "3", 2, "complete"),
        (5, "4", 1, "continue"),
        (7, "4", 2, "complete"),
    ]
    assert trace.times.tolist() == [0.5, 1, 2, 7]
    assert trace.incumbents.tolist() == [0.2, 0.3, 0.5, 0.6]
    assert (trace.trials, trace.reports, trace.finished_at) == (4, 8, 7)
    assert [trace.incumbent_at(t) for t in (0.4, 0.5, 6.9, 100)] == [None, 0.2, 0.5, 0.6]


def test_a_worker_spends_the_cost_before_a_trial_trains() -> None:
    table = hand_table([[1] * 3, [2] * 3], [[0.1] * 3, [0.3, 0.4, 0.5]])
    scheduler = Asha(time_attr="epoch", max_t=3, grace_period=1, reduction_factor=2, variant="promotion")
    trace = simulate(Grid(), scheduler, table, "max", workers=1, trials=2, costs=Costs(start=10, resume=100))
    assert happened(trace)[:6] == [
        (0, "1", 0, "start"),
        (11, "1", 1, "pause"),
        (11, "2", 0, "start"),
        (23, "2", 1, "pause"),
        (23, "2", 1, "resume"),
        (125, "2", 2, "pause"),
    ]


def test_a_paused_trial_frees_its_worker_and_goes_on_where_it_was() -> None:
    table = hand_table([[1] * 3, [2] * 3, [3] * 3], [[0.1] * 3, [0.3, 0.4, 0.5], [0.2] * 3])
    scheduler = Asha(time_attr="epoch", max_t=3, grace_period=1, reduction_factor=3, variant="promotion")
    trace = simulate(Grid(), scheduler, table, "max", workers=1, trials=3)
    assert happened(trace) == [
        (0, "1", 0, "start"),
        (1, "1", 1, "pause"),
        (1, "2", 0, "start"),
        (3, "2", 1, "pause"),
        (3, "3", 0, "start"),
        (6, "3", 1, "pause"),
        (6, "2", 1, "resume"),
        (8, "2", 2, "continue"),
        (10, "2", 3, "stop"),
        (10, "1", 1, "stop"),
        (10, "3", 1, "stop"),
    ]
    assert trace.reports == 5


def test_small_values_can_be_good() -> None:
    table = hand_table([[1], [1], [1]], [[0.3], [0.5], [0.1]])
    assert simulate(Grid(), Fifo(), table, "min", workers=1, trials=3).incumbents.tolist() == [0.3, 0.1]


def test_virtual_time_cuts_a_search_short() -> None:
    table = hand_table([[1, 1], [1, 1]], [[0.1, 0.2], [0.3, 0.4]])
    trace = simulate(Grid(), Fifo(), table, "max", workers=1, seconds=3)
    assert (trace.trials, trace.reports, trace.finished_at) == (2, 3, 3)
    ended = simulate(Grid(), Fifo(), table, "max", workers=1, seconds=30)
    assert (ended.reports, ended.finished_at) == (4, 4)


@pytest.mark.parametrize("limits", [{}, {"trials": 1, "workers": 0}])
def test_a_simulation_needs_workers_and_a_limit(limits: dict) -> None:
    with pytest.raises(InputError, match="at least one worker, and a limit"):
        simulate(Grid(), Fifo(), hand_table([[1]], [[1]]), "max", **limits)


@pytest.mark.parametrize("scheduler", [Fifo(), ASHA, PROMOTION], ids=["fifo", "stopping", "promotion"])
@pytest.mark.parametrize("workers", [1, 8, 64])
def test_every_schedule_is_sound(scheduler: Fifo | Asha, workers: int) -> None:
    table = formula_table()
    trace = simulate(Random(), scheduler, table, "max", workers=workers, trials=100)
    times = [event.time for event in trace.decisions]
    assert times == sorted(times)
    busy, most, reached, ended = 0, 0, dict.fromkeys(range(100), 0), []
    for event in trace.decisions:
        trial = int(event.trial) - 1
        if event.what in ("start", "resume"):
            busy += 1
            assert event.step == reached[trial]
        elif event.step > reached[trial]:  # a report, and not the end of a trial that was paused
            assert event.step == reached[trial] + 1
            busy -= event.what != "continue"
        if event.what in ("stop", "complete"):
            ended.append(trial)
        reached[trial] = event.step
        most = max(most, busy)
    assert most == workers
    assert sorted(ended) == list(range(100))
    assert trace.reports == sum(reached.values())
    assert (np.diff(trace.incumbents) > 0).all()
    assert (np.diff(trace.times) >= 0).all()


def test_a_seed_is_a_search() -> None:
    table = formula_table()
    first, again, other = (simulate(Random(), ASHA, table, "max", seed=s, trials=50) for s in (1, 1, 2))
    assert first.decisions == again.decisions
    assert first.decisions != other.decisions


class Told(Searcher):
    """A searcher that notes what it is told."""

    def __init__(self) -> None:
        self.news: list[tuple] = []

    def suggest(self, trial_id: str) -> dict | None:
        self.news.append(("suggest", trial_id))
        return {"x": 1 if trial_id == "00001" else 0}

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        self.news.append(("observe", trial_id, step, value))

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        self.news.append(("end", trial_id, step, values))


class Scripted(Scheduler):
    """A scheduler that decides as it is told to."""

    def __init__(self, decisions: list[Decision], actions: list[Resume | Stop | None]) -> None:
        self.decisions, self.actions, self.removed = decisions, actions, []

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        return self.decisions.pop(0)

    def next_action(self, more: bool) -> Resume | Stop | None:
        return self.actions.pop(0) if self.actions else None

    def remove(self, trial_id: str) -> None:
        self.removed.append(trial_id)


def scripted(
    monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler, trials: int
) -> tuple[list[tuple], Callable[[], Trace]]:
    """What the searcher is told, and a search of two epochs a trial on one worker under ``scheduler``."""
    told = Told()
    monkeypatch.setattr(Grid, "build", lambda self, task: told)
    monkeypatch.setattr(Fifo, "build", lambda self, task: scheduler)
    table = hand_table([[1, 1], [1, 1]], [[0.1, 0.2], [0.3, 0.4]])
    return told.news, lambda: simulate(Grid(), Fifo(), table, "max", workers=1, trials=trials)


def test_the_searcher_hears_of_every_report_and_of_every_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scripted([Decision.PAUSE, Decision.STOP, Decision.CONTINUE], [None, None, Resume("00001")])
    news, search = scripted(monkeypatch, scheduler, trials=2)
    search()
    assert news == [
        ("suggest", "00001"),
        ("observe", "00001", 1, 0.3),
        ("suggest", "00002"),
        ("observe", "00002", 1, 0.1),
        ("end", "00002", 1, (0.1,)),
        ("observe", "00001", 2, 0.4),
        ("end", "00001", 2, (0.4,)),
    ]
    assert scheduler.removed == ["00002", "00001"]


def test_a_paused_trial_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    news, search = scripted(monkeypatch, Scripted([Decision.PAUSE], [None, Stop("00001")]), trials=1)
    assert [event.what for event in search().decisions] == ["start", "pause", "stop"]
    assert news[-1] == ("end", "00001", 1, (0.3,))


def test_a_trial_that_resumes_at_the_end_of_its_curve_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scripted([Decision.CONTINUE, Decision.PAUSE], [None, Resume("00001")])
    _, search = scripted(monkeypatch, scheduler, trials=1)
    assert [event.what for event in search().decisions] == ["start", "continue", "pause", "resume", "complete"]


@pytest.mark.parametrize("scheduler", [Pbt(), Pb2(), RayScheduler(class_path="a:B")], ids=lambda spec: spec.kind)
def test_schedulers_that_a_table_cannot_serve_are_refused(scheduler: SchedulerSpec) -> None:
    with pytest.raises(InputError, match=r"scheduler.kind: .*: simulate with one of asha, bohb, fifo, hyperband, med"):
        simulate(Random(), scheduler, formula_table(), "max", trials=1)


def test_the_task_is_that_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SearchProblem] = []
    monkeypatch.setattr(Random, "build", lambda self, task: seen.append(task) or Told())
    table = hand_table([[1], [1]], [[0.1], [0.2]])
    simulate(Random(), Asha(time_attr="epoch", max_t=9), table, "min", seed=5, trials=3)
    simulate(Random(), Fifo(), table, "max", seed=6, trials=3)
    assert seen == [SearchProblem(table.space, ("min",), 3, 9, 5), SearchProblem(table.space, ("max",), 3, None, 6)]


# --- comparison ---


def compared(*tables: Table, limits: Limits | None = None, workers: tuple[int, ...] = (4,), seeds: int = 5):
    contenders = [Contender("asha", Random(), ASHA, tables), Contender("random", Random(), Fifo(), tables)]
    return compare(contenders, "max", workers, seeds, limits or Limits(full_trials=20))


def test_early_stopping_wins_where_early_ranks_tell_the_last_ones() -> None:
    asha, random = compared(formula_table(), seeds=6).rows()
    assert asha.quarter.mean < random.quarter.mean
    assert asha.whole.mean < random.whole.mean
    assert asha.trials > 2 * random.trials
    assert asha.quarter_rank < random.quarter_rank
    assert asha.whole_rank + random.whole_rank == pytest.approx(3)


def test_early_stopping_loses_where_early_ranks_mislead() -> None:
    asha, random = compared(formula_table(informative=False), seeds=6).rows()
    assert asha.whole.mean > random.whole.mean


def test_regret_is_0_at_the_best_and_1_at_the_median_of_the_last_values() -> None:
    table = hand_table([[1, 1]] * 3, [[0.0, 0.2], [0.9, 0.4], [0.0, 0.6]])
    assert normalised_regret(table, "max", np.array([0.9, 0.4, -0.1, np.nan])).tolist()[:3] == pytest.approx([0, 1, 2])
    assert normalised_regret(table, "min", np.array([0.0, 0.4])).tolist() == pytest.approx([0, 1])
    level = hand_table([[1], [1]], [[0.5], [0.5]])
    assert normalised_regret(level, "max", np.array([0.5])).tolist() == [0]


def test_before_the_first_report_a_search_stands_at_1() -> None:
    table = hand_table([[8], [8]], [[0.2], [0.6]])
    (row,) = compare([Contender("grid", Grid(), Fifo(), (table,))], "max", [1], 1, Limits(seconds=20)).rows()
    assert row.quarter.mean == 1
    assert row.whole.mean == 0
    assert row.whole.standard_error is None


def test_the_time_of_whole_trials() -> None:
    level = hand_table([[2, 3]] * 4, [[0.1, 0.2]] * 4)
    assert full_time(level, trials=10, workers=1) == 50
    assert full_time(level, trials=10, workers=4) == 15
    assert full_time(level, trials=10, workers=64) == 5


def test_with_a_limit_of_trials_alone_time_is_what_they_take() -> None:
    comparison = compared(formula_table(), limits=Limits(trials=30), workers=(1, 4), seeds=2)
    assert {row.trials for row in comparison.rows()} == {30}
    for cell in comparison.cells.values():
        assert all(trace.finished_at <= cell.seconds < math.inf for trace in cell.traces)
    longest = comparison.cell(comparison.contenders[1], 0, 1)
    assert longest.seconds == max(trace.finished_at for trace in longest.traces)


def test_several_tables_count_the_same() -> None:
    one, two = formula_table(), formula_table(seed=1)
    two = Table.of(by_formula(True, seed=1), space(), "val_accuracy", "epoch", "other")
    alone = [next(compared(table, seeds=3).rows()).whole.mean for table in (one, two)]
    assert next(compared(one, two, seeds=3).rows()).whole.mean == pytest.approx(sum(alone) / 2)


def test_a_curve_of_regret_begins_where_all_have_reported_and_never_rises() -> None:
    table = hand_table([[8, 1], [8, 1]], [[0.1, 0.2], [0.5, 0.6]])
    comparison = compare([Contender("grid", Grid(), Fifo(), (table,))], "max", [1], 2, Limits(seconds=20))
    contender, shares = comparison.contenders[0], np.array([0.1, 0.39, 0.4, 0.45, 1.0])
    drawn = regrets_since_reports(comparison, contender, 1, shares)
    assert np.isnan(drawn[:, :2]).all()
    assert drawn[0, 2:].tolist() == pytest.approx([2.5, 2, 0])
    assert comparison.regrets(contender, 1, shares)[0, 0] == 1


@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("workers", [(8,), (1, 4)])
def test_no_text_of_the_figure_is_cut_off(tables: int, workers: tuple[int, ...]) -> None:
    found = [Table.of(by_formula(True), space(), "val_accuracy", "epoch", name) for name in "ab"[:tables]]
    drawn = figure(compared(*found, limits=Limits(trials=10), workers=workers, seeds=2))
    drawn.canvas.draw()
    words = [*drawn.texts, *drawn.legends[0].get_texts()]
    words += [text for axis in drawn.axes for text in (axis.title, axis.xaxis.label, axis.yaxis.label)]
    assert {"asha", "normalised regret (0: the best there is)"} < {text.get_text() for text in words}
    for text in words:
        box = text.get_window_extent()
        assert 0 <= box.x0 <= box.x1 <= drawn.bbox.x1, text
        assert 0 <= box.y0 <= box.y1 <= drawn.bbox.y1, text


@pytest.mark.parametrize("tables", [1, 2])
def test_the_figure_is_a_picture(tables: int) -> None:
    found = [Table.of(by_formula(True), space(), "val_accuracy", "epoch", name) for name in "ab"[:tables]]
    comparison = compared(*found, limits=Limits(trials=10), workers=(1, 4), seeds=2)
    picture = png(comparison)
    assert picture.startswith(b"\x89PNG")
    shown = page(comparison, picture, "<the table>", ["a & b"])
    assert "data:image/png;base64,iVBOR" in shown
    assert "&lt;the table&gt;" in shown
    assert "a &amp; b" in shown


def test_512_workers_and_2000_trials() -> None:
    trace = simulate(Random(), ASHA, formula_table(), "max", workers=512, trials=2000)
    assert trace.trials == 2000
    assert isinstance(trace.decisions[0], Event)


# Priors


def is_lower(regrets: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether chance alone would seldom make them so much lower than ``others`` of the same seeds."""
    return bool(wilcoxon(regrets, others, alternative="less").pvalue < 0.05)


@pytest.mark.parametrize(
    "search",
    [
        pytest.param(Random(), id="random"),
        pytest.param(Optuna(), id="tpe", marks=pytest.mark.pairings),
        pytest.param(Bohb(), id="bohb", marks=pytest.mark.pairings),
    ],
)
def test_a_right_prior_helps_and_a_wrong_one_does_not_ruin_the_search(search: SearchSpec) -> None:
    """At high confidence, at nearly the best and nearly the worst of 1,000 configurations; ASHA, 4 workers.

    A wrong prior gets half of the draws at most, and the rest are the search's own: in the whole time it makes twice as
    many of them as it makes without a prior in a quarter. So its regret must be lower than there.
    """
    plain, right, wrong = tables()
    quarter = regrets(search, ASHA, plain, 12, [0.25])[:, 0]
    assert is_lower(regrets(search, ASHA, right, 12, [0.25])[:, 0], quarter)
    assert is_lower(regrets(search, ASHA, wrong, 12, [1])[:, 0], quarter)

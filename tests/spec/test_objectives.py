"""Several objectives: how they are written, what the front is, and what each view says where none is the best."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.documents import conforms
from tuner.cli import cli
from tuner.cli.run import summary
from tuner.display.plain import PlainProgress
from tuner.errors import InputError
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import Cluster, Node
from tuner.plan.describe import description
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.loading import load_run
from tuner.runs.provenance import resolved_spec
from tuner.runs.results import BEST, EXPERIMENT, PROVENANCE, TRIALS, ResultSet, write_json
from tuner.runs.trial import Report, Trial
from tuner.schedulers.base import Decision
from tuner.searchers.base import Searcher
from tuner.spec.document import dump_yaml
from tuner.spec.objective import (
    Objective,
    compared,
    comparison,
    dominates,
    domination_ranks,
    pareto_front,
    read_objectives,
)
from tuner.storage.folder import RunFolder
from tuner.visualization.html import page
from tuner.visualization.text_tables import headline, overview

TWO = [{"metric": "acc", "mode": "max"}, {"metric": "size", "mode": "min"}]
WEIGHTED = [TWO[0] | {"weight": 2.0}, TWO[1] | {"weight": 0.5}]
BASE: dict[str, Any] = {
    "trainable": "t_objectives.py:train",
    "search_space": {"lr": {"uniform": [0, 1]}},
    "objective": TWO,
    "resources": {"gpu": 0},
}
TRAINABLE = """
import json
def train(config): raise SystemExit("a trial ran")
def evaluate(config, checkpoint, split):
    return {f"{split}_acc": json.loads((checkpoint / "state.json").read_text()) + config["lr"]}
"""


@pytest.fixture(autouse=True)
def folder(user_folder: Path) -> Path:
    (user_folder / "t_objectives.py").write_text(TRAINABLE)
    return user_folder


def plan(**extra: Any) -> Plan:
    cluster = Cluster((Node("a", {"CPU": 4.0, "GPU": 0.0, "memory": 2.0**33}),))
    return make_plan(load_experiment(BASE | extra), cluster)


# --- what a user writes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [TWO, WEIGHTED, TWO[:1], TWO[0]])
def test_objectives_come_back_from_experiment_yaml_as_they_were(written: Any) -> None:
    made = plan(objective=written)
    resolved = resolved_spec(made, {})["objective"]
    assert resolved == (written[0] if len(written) == 1 else written)
    assert load_experiment(BASE | {"objective": resolved}).spec.objectives == made.spec.objectives
    assert made.spec.objective == made.spec.objectives[0]


def test_a_plan_with_several_objectives() -> None:
    made = plan(scheduler={"kind": "asha", "time_attr": "epoch"}, budget={"trials": 8})
    assert made.task.modes == ("max", "min")
    assert made.task.mode == "max"
    assert made.required_metrics == (
        ("acc", "objective[0].metric"),
        ("size", "objective[1].metric"),
        ("epoch", "scheduler.time_attr"),
    )
    lines = description(made)
    place = lines.index(("objective", "max acc, min size"))
    assert lines[place + 1] == ("", "asha compares fronts of all 2")
    median = description(plan(scheduler={"kind": "median", "time_attr": "epoch"}))
    assert median[median.index(lines[place]) + 1] == ("", "schedulers compare acc")
    weighted = description(plan(objective=WEIGHTED, search={"kind": "random"}))
    assert ("", "schedulers compare 2 acc - 0.5 size") in weighted
    # all 8 trials may be on the front, and it keeps its checkpoints: 4 slots * 4 + 8 * 2 + best/
    assert made.checkpoints == 4 * 4 + 8 * 2 + 1


@pytest.mark.parametrize(
    ("search", "works"),
    [
        ({"kind": "random"}, True),
        ({"kind": "optuna", "sampler": "tpe"}, True),
        ({"kind": "optuna", "sampler": "nsga2"}, True),
        ({"kind": "optuna", "sampler": "cmaes"}, False),
    ],
)
def test_a_search_for_one_objective_refuses_several(search: dict[str, Any], works: bool) -> None:
    if works:
        assert len(plan(search=search).task.modes) == 2
        return
    with pytest.raises(InputError, match=r"objective: names 2, .*use one of: .*optuna tpe.*optuna nsga2"):
        plan(search=search)
    assert plan(search=search, objective=TWO[0]).task.modes == ("max",)


@pytest.mark.parametrize("kind", ["bohb", "hyperopt", "cmaes"])
def test_a_search_for_one_number_searches_for_the_weighted_sum(kind: str) -> None:
    search = {"kind": "optuna", "sampler": kind} if kind == "cmaes" else {"kind": kind}
    made = plan(
        search=search,
        objective=WEIGHTED,
        scheduler={"kind": "asha", "variant": "promotion", "grace_period": 1, "max_t": 9},
    )
    assert made.task.modes == ("max",)
    assert ("", "the search and schedulers compare 2 acc - 0.5 size") in description(made)
    from tuner.search.new_state import new_state

    state, told = new_state(made, []), Recorder()
    state.searcher = told
    state.add("a", {})
    state.add("b", {})
    assert state.report("a", 1, {"acc": 3.0, "size": 4.0}, 1.0) is Decision.PAUSE
    state.end("a", failed=False)
    state.end("b", failed=True)
    assert told.news == [("observe", 1, 4.0), ("pause", 1, (4.0,)), ("end", 1, (4.0,)), ("end", 0, None)]


class Recorder(Searcher):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.news: list[tuple[Any, ...]] = []

    def suggest(self, trial_id: str) -> None:
        return None

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        self.news.append(("observe", step, value))

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        self.news.append(("pause", step, values))

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        self.news.append(("end", step, values))


# --- comparing ---------------------------------------------------------------------------------------------------

LEFT, RIGHT = Objective(metric="a", mode="max"), Objective(metric="b", mode="min")


def test_schedulers_compare_the_first_objective_or_the_weighted_sum() -> None:
    assert compared((LEFT, RIGHT), (3.0, 7.0)) == 3.0
    weighted = read_objectives(WEIGHTED)
    assert compared(weighted, (3.0, 7.0)) == 2 * 3.0 - 0.5 * 7.0
    assert comparison(weighted) == "2 acc - 0.5 size"


def test_the_weighted_sum_is_good_in_the_direction_of_the_first_objective() -> None:
    """A scheduler that was told `min` of the first objective gets a sum of which small is good."""
    smallest = read_objectives(WEIGHTED[::-1])
    assert comparison(smallest) == "0.5 size - 2 acc"
    assert compared(smallest, (7.0, 3.0)) == 0.5 * 7.0 - 2 * 3.0
    assert compared(smallest, (6.0, 3.0)) < compared(smallest, (7.0, 3.0))
    assert compared(smallest, (7.0, 4.0)) < compared(smallest, (7.0, 3.0))


points = st.integers(1, 3).flatmap(
    lambda k: st.lists(st.tuples(*[st.integers(0, 5).map(float)] * k), min_size=0, max_size=25)
)


@given(points)
def test_the_front_holds_exactly_what_nothing_dominates(points: list[tuple[float, ...]]) -> None:
    front = pareto_front(points)
    assert sorted(front) == [i for i, p in enumerate(points) if not any(dominates(q, p) for q in points)]
    assert [points[i][0] for i in front] == sorted((points[i][0] for i in front), reverse=True)


@given(points)
def test_ranks_peel_the_fronts_off_one_by_one(points: list[tuple[float, ...]]) -> None:
    ranks = domination_ranks(points)
    for p, rank in zip(points, ranks, strict=True):
        dominating = [r for q, r in zip(points, ranks, strict=True) if dominates(q, p)]
        assert rank == max(dominating, default=-1) + 1


# --- the results -------------------------------------------------------------------------------------------------


def new_run(location: Path, objective: Any = TWO) -> ResultSet:
    spec = {
        "name": "n",
        "trainable": "t_objectives.py:train",
        "params": {"epochs": 3},
        "search_space": {"lr": {"uniform": [0, 1]}},
        "objective": objective,
        "scheduler": {"kind": "fifo"},
    }
    results = ResultSet(RunFolder.at(location), spec, {"trials": 9, "slots": 1, "seed": 0, "roots": [str(Path.cwd())]})
    results.folder.create()
    results.folder.write(EXPERIMENT, dump_yaml(spec, ["# a run"]))
    write_json(results.folder, PROVENANCE, results.provenance)
    return results


def trial(results: ResultSet, *reports: tuple[float, float], checkpoint: bool = True) -> Trial:
    """A trial that reported these (acc, size), the best chosen by the first objective as a recorder does."""
    number = len(results.trials) + 1
    made = results.add(Trial(f"id{number}", number, {"lr": number / 10}, "completed"))
    for step, (acc, size) in enumerate(reports, 1):
        place = f"ray/{made.id}/{step}" if checkpoint else None
        made.reports.append(Report(made.id, step, 1.0 * step, 1e9 + step, {"acc": acc, "size": size}, place))
        if made.best is None or acc > made.best.metrics["acc"]:
            made.best = made.reports[-1]
    return made


@pytest.fixture
def results(tmp_path: Path) -> ResultSet:
    """Front: 3, 1 and 2; then 4 and 5; 6 reported nothing."""
    made = new_run(tmp_path / "runs" / "r")
    trial(made, (0.5, 9), (0.8, 20))
    trial(made, (0.7, 10))
    trial(made, (0.9, 50))
    trial(made, (0.7, 11))
    trial(made, (0.6, 10))
    trial(made)
    return made


def numbers(trials: list[Trial]) -> list[int]:
    return [trial.number for trial in trials]


def test_the_front_and_the_order_of_all(results: ResultSet) -> None:
    results.save()
    for found in (results, load_run(results.folder.location)):
        assert found.has_front
        assert numbers(found.front) == [3, 1, 2]
        assert numbers(found.rank(found.trials)) == [3, 1, 2, 4, 5]
        assert found.best is not None
        assert found.best.number == 3
        assert found.values(found.trials[0].best) == {"acc": 0.8, "size": 20.0}  # type: ignore[arg-type]
        assert list(found.frame().columns)[5:7] == ["acc", "size"]


def test_a_trial_without_checkpoints_is_on_the_front_only_where_none_made_one(results: ResultSet) -> None:
    trial(results, (0.99, 1), checkpoint=False)
    assert numbers(results.front) == [3, 1, 2]
    for number in range(6):
        results.trials[number].best = None
    assert numbers(results.front) == [7]


def test_with_one_objective_the_front_is_the_best(tmp_path: Path) -> None:
    single = new_run(tmp_path / "s", TWO[0])
    assert single.front == []
    trial(single, (0.5, 1))
    trial(single, (0.7, 9), (0.6, 1))
    trial(single, (0.7, 1))
    assert numbers(single.front) == [2]
    assert not single.has_front


def test_the_front_keeps_its_checkpoints_and_the_best_of_the_others_those_that_are_left(results: ResultSet) -> None:
    assert numbers(results.surplus(results.trials, 1)) == [4, 5]
    assert numbers(results.surplus(results.trials, 4)) == [5]
    assert numbers(results.surplus(results.trials, 5)) == []
    results.trials[4].status = "running"
    assert numbers(results.surplus(results.trials, 1)) == [4]


def test_trials_csv_has_a_column_for_each_objective(results: ResultSet) -> None:
    results.save()
    rows = list(csv.DictReader(io.StringIO(results.folder.read(TRIALS).decode())))
    assert [(row["best_acc"], row["best_size"]) for row in rows[:2]] == [("0.8", "20.0"), ("0.7", "10.0")]
    assert (rows[5]["best_acc"], rows[5]["best_size"]) == ("", "")


def test_best_is_not_written_where_there_is_no_single_best(results: ResultSet) -> None:
    results.save_best()
    assert not results.folder.exists(BEST)


# --- what is shown -----------------------------------------------------------------------------------------------


def test_the_headline_shows_the_front(results: ResultSet) -> None:
    lines = headline(results)
    assert lines[:4] == [
        "Pareto front of max acc, min size: 3 trials",
        "  trial #3 (id3), acc 0.9, size 50 at step 1: lr 0.3",
        "  trial #1 (id1), acc 0.8, size 20 at step 2: lr 0.1",
        "  trial #2 (id2), acc 0.7, size 10 at step 1: lr 0.2",
    ]
    assert not any("best" in line for line in lines)
    for i in range(12):
        trial(results, (0.95 + i / 1000, 60 + i))
    assert headline(results)[11] == "  and 5 more"


def test_show_ranks_the_front_first_with_all_objectives(results: ResultSet) -> None:
    table = overview(results, "running: process 7").splitlines()[8:]
    assert table[0].split()[:5] == ["#", "trial", "status", "acc", "size"]
    assert [line.split()[0] for line in table[1:]] == ["3", "1", "2", "4", "5", "6"]
    assert table[1].split()[3:5] == ["0.9", "50"]


def test_the_page_shows_the_front(results: ResultSet) -> None:
    text = page(results)
    front, rest = text.split("<h2>Trials</h2>")
    assert "<h2>Pareto front of max acc, min size</h2>" in front
    assert "Best configuration" not in text
    assert [front.count(f"<td>id{n}</td>") for n in range(1, 7)] == [1, 1, 1, 0, 0, 0]
    assert all(f"<td>id{n}</td>" in rest for n in range(1, 7))
    assert ">acc</button>" in rest
    assert ">best acc</button>" in page(with_a_trial(new_run(Path("single"), TWO[0])))


def with_a_trial(results: ResultSet) -> ResultSet:
    trial(results, (0.5, 1))
    return results


def test_json_lists_the_front_and_no_best(results: ResultSet) -> None:
    found = json.loads(json.dumps(summary(results)))
    assert found["best"] is None
    assert [point["trial"] for point in found["front"]] == ["id3", "id1", "id2"]
    assert found["front"][1]["metrics"] == {"acc": 0.8, "size": 20}
    assert found["objectives"] == TWO
    single = new_run(Path("single"), TWO[0])
    trial(single, (0.5, 1))
    assert summary(single)["best"] == summary(single)["front"][0]


def test_list_counts_the_front(results: ResultSet) -> None:
    results.save()
    (row,) = conforms("list", CliRunner().invoke(cli, ["list", "--json"]).stdout)
    assert (row["best"], row["metric"]) == ("front of 3", "max acc, min size")


def progress_of(results: ResultSet) -> list[str]:
    """What the line view says while the trials of ``results`` report."""
    said: list[str] = []
    screen = SimpleNamespace(say=said.append, take=lambda results: None, release=lambda: None)
    view = PlainProgress(screen)  # type: ignore[arg-type]
    for shown in results.trials:
        shown.best = None
    view.started(results)
    for shown in results.trials:
        for report in shown.reports:
            shown.best = report
            view.reported(shown, report)
    view.finished(results)
    return [line.split("] ", 1)[-1] for line in said[1:]]


def test_progress_names_who_joins_the_front(results: ResultSet) -> None:
    joined = [line.split(" joins the front")[0] for line in progress_of(results) if "joins the front" in line]
    assert joined == ["trial #1 (id1)", "trial #2 (id2)", "trial #3 (id3)"]
    assert "restore a model: python -m tuner best" in progress_of(results)[-1]
    assert " id3" in progress_of(results)[-1]


def test_progress_names_who_takes_the_lead(tmp_path: Path) -> None:
    single = new_run(tmp_path / "s", TWO[0])
    trial(single, (0.5, 1), (0.6, 1))
    trial(single, (0.6, 1), (0.7, 1))
    trial(single, (0.65, 1))
    lines = [line for line in progress_of(single) if "takes the lead" in line]
    assert lines == [
        "trial #1 (id1) takes the lead, acc 0.5 at step 1: lr 0.1",
        "trial #2 (id2) takes the lead, acc 0.7 at step 2: lr 0.2",
    ]


# --- restoring one of the front ----------------------------------------------------------------------------------


def best(*arguments: str) -> tuple[int, str]:
    """Exit status and what is printed of ``tuner best runs/r``."""
    done = CliRunner().invoke(cli, ["best", "runs/r", *arguments])
    error = done.exception
    return (error.exit_status, str(error)) if isinstance(error, InputError) else (done.exit_code, done.stdout)


def test_best_asks_which_trial_of_the_front(results: ResultSet) -> None:
    results.save()
    status, text = best()
    assert status == 2
    assert "choose one of its front of 3 as TRIAL: id3 (acc 0.9  size 50), id1 (acc 0.8  size 20), id2" in text


@pytest.mark.parametrize("name", ["id1", "1"])
def test_best_restores_the_trial_that_is_asked_for(results: ResultSet, name: str) -> None:
    results.save()
    checkpoint = Path("runs/r/ray/id1/2")
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("0.75")
    status, text = best("--trial", name, "--test", "--json")
    assert status == 0, text
    found = conforms("best", text)
    assert found["trial"] == "id1"
    assert found["config"] == {"epochs": 3, "lr": 0.1}
    assert found["recorded"] == {"step": 2, "acc": 0.8, "size": 20}
    assert (found["validation"], found["test"]) == ({"val_acc": 0.85}, {"test_acc": 0.85})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("id9", ["TRIAL: runs/r has no trial 'id9'", "id3, id1, id2, id4", "did you mean"]),
        ("6", ["trial #6 (id6) reported nothing"]),
        ("id7", ["no checkpoint of trial #7 (id7) is kept", "checkpoints.keep_trials", "id3, id1, id2, id4, id5"]),
    ],
)
def test_a_trial_that_cannot_be_restored(results: ResultSet, name: str, words: list[str]) -> None:
    trial(results, (0.1, 99), checkpoint=False)
    results.save()
    status, text = best("--trial", name)
    assert status == 2
    assert all(word in text for word in words), text
    assert "\n" not in text


# --- a value that is none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"acc": 0.5, "size": float("nan")}, "size is nan"),
        ({"acc": float("inf"), "size": 1}, "acc is inf"),
        ({"acc": 0.5, "size": None}, "size is None, not a number"),
        ({"acc": 0.5}, r"objective\[1\].metric: the trainable reports no 'size'"),
    ],
)
def test_every_objective_of_a_report_is_checked(metrics: dict[str, Any], why: str) -> None:
    from tuner.execution.failure_classifier import BadReport
    from tuner.execution.trial_context import TrialContext, checked

    task = TrialContext("m:f", (), Path(), {}, plan().required_metrics, seed=0, cpu=1, request={}, workers=1)
    with pytest.raises(BadReport, match=f"report 2: {why}"):
        checked(task, 2, metrics)
    assert checked(task, 2, {"acc": 0.5, "size": 1}) == {"acc": 0.5, "size": 1}

"""Trials that fail in every way that can be made here: what is tried again, from where, and what is recorded."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.execution.test_run import by_config, experiment
from tests.journals import read_journal
from tuner import load_run, resume, run
from tuner.errors import InputError
from tuner.execution import hang_detector, stacks
from tuner.runs.history import journalled
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.search.snapshot import read_snapshot
from tuner.storage.folder import RunFolder

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("ray_session")]


def search(folder: Path, ways: list[str], failures: dict[str, Any], **keys: Any) -> ResultSet:
    marks = folder / "marks"
    marks.mkdir()
    keys = {"search": {"kind": "grid"}, **keys}
    params = {"marks": str(marks), **keys.pop("params", {})}
    given = experiment(
        "fails",
        {"how": {"choice" if "budget" in keys else "grid_search": ways}},
        failures=failures,
        params=params,
        **keys,
    )
    given["trainable"] = f"{Path(__file__).parent}/failing_toys.py:fails"
    return run(given, storage=folder, name="run", say=lambda text: None)


def kinds(trial: Trial) -> list[tuple[str, int]]:
    return [(failure.kind, failure.step) for failure in trial.failures]


def is_whole(trial: Trial) -> None:
    """It made all its reports, each once, and continued from what it had."""
    assert trial.status == "completed", trial.reason
    assert [report.step for report in trial.reports] == [1, 2, 3, 4, 5, 6]
    assert [report.metrics["score"] for report in trial.reports] == [1, 3, 6, 10, 15, 21]


def test_what_may_go_well_the_next_time_is_tried_again_from_the_checkpoint(tmp_path: Path) -> None:
    ways = ["nothing", "kill", "segfault", "raise", "unpicklable"]
    trials = by_config(search(tmp_path, ways, {}), "how")
    for trial in trials.values():
        is_whole(trial)
    assert kinds(trials["nothing"]) == []
    assert kinds(trials["kill"]) == kinds(trials["segfault"]) == [("process died", 3)]
    assert kinds(trials["raise"]) == kinds(trials["unpicklable"]) == [("exception", 3)]
    assert trials["segfault"].failures[0].message == "its process died: Segmentation fault"
    assert trials["raise"].failures[0].message == "RuntimeError: a broken"
    assert trials["unpicklable"].failures[0].message == "Strange: 1"
    pids = [report.metrics["pid_"] for report in trials["raise"].reports]
    assert len(set(pids[:3])) == len(set(pids[3:])) == 1
    assert pids[2] != pids[3]
    again = by_config(load_run(tmp_path / "run"), "how")
    assert {how: trial.failures for how, trial in again.items()} == {how: t.failures for how, t in trials.items()}
    assert again["kill"].why.startswith("1 failed attempt, the last: its process died")
    events = [e for e in read_journal(RunFolder.at(tmp_path / "run")).events if e["what"] == "failed attempt"]
    assert [(e["step"], e["retried"]) for e in events] == [(3, True)] * 4


def test_what_cannot_go_well_is_not_tried_again_and_the_searcher_hears_of_it_once(tmp_path: Path) -> None:
    ways = ["always raise", "always raise something new", "always kill", "nan"]
    results = search(tmp_path, ["nothing", *ways], {})
    trials = by_config(results, "how")
    assert [trials[how].status for how in ways] == ["failed"] * 4
    assert {how: [kind for kind, _ in kinds(trials[how])] for how in ways} == {
        "always raise": ["exception"] * 2,  # the same words after the same report: it is the code
        "always raise something new": ["exception"] * 3,
        "always kill": ["process died"] * 3,
        "nan": ["NaN"],
    }
    for how in ways:
        assert [report.step for report in trials[how].reports] == [1, 2, 3]
        assert trials[how].reason == trials[how].failures[-1].message
    assert trials["nan"].reason == "report 4: score is nan"
    events = read_journal(RunFolder.at(tmp_path / "run")).events
    ends = [event["trial"] for event in events if event["what"] == "ended"]
    assert len(ends) == len(set(ends)) == 5
    assert events[-1]["held"] > sum(trial.seconds for trial in trials.values())  # attempts that failed, and starts
    rows = list(csv.DictReader((tmp_path / "run/trials.csv").read_text().splitlines()))
    assert sorted(row["failures"] for row in rows) == ["0", "1", "2", "3", "3"]
    assert "micro_batch" not in rows[0]


def test_a_trial_that_hangs_is_killed_with_its_stack_in_its_log_and_tried_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_detector, "LEAST_S", 10.0)
    monkeypatch.setattr(stacks, "STACK_HERE_S", 5.0)
    results = search(tmp_path, ["hang", "hang in C", "always hang"], {})
    trials = by_config(results, "how")
    for how in ("hang", "hang in C"):
        is_whole(trials[how])
        assert kinds(trials[how]) == [("hung", 3)]
        assert "failures.hang_after auto is 10.0s" in trials[how].failures[0].message
        log = (tmp_path / "run/ray" / trials[how].id / "output.log").read_text()
        assert "most recent call first" in log
        assert "in fail\n" in log
    assert trials["always hang"].status == "failed"
    assert kinds(trials["always hang"]) == [("hung", 3)] * 2


@pytest.mark.parametrize("declared", [True, False])
def test_out_of_memory_halves_the_micro_batch_where_there_is_one(tmp_path: Path, declared: bool) -> None:
    params = {"batch_size": 64, "fits": 16} | ({"micro_batch": None} if declared else {})
    results = search(tmp_path, ["GPU memory"], {}, params=params)
    (trial,) = results.trials
    if declared:
        is_whole(trial)
        assert [(f.kind, f.step, f.micro_batch) for f in trial.failures] == [
            ("GPU memory", 3, 32),
            ("GPU memory", 3, 16),
        ]
        assert [report.metrics["micro"] for report in trial.reports] == [None] * 3 + [16] * 3
        assert trial.micro_batch == load_run(tmp_path / "run").trials[0].micro_batch == 16
        assert "micro_batch" in (tmp_path / "run/trials.csv").read_text().splitlines()[0].split(",")
    else:
        assert trial.status == "failed"
        assert kinds(trial) == [("GPU memory", 3)] * 2  # the same again, after the same report
        assert trial.micro_batch is None


def test_a_trial_that_would_need_too_much_starts_with_a_micro_batch_that_fits(tmp_path: Path) -> None:
    given = experiment(
        "needs_memory",
        {"width": {"uniform": [1.0, 4.0]}},
        file="failing_toys.py",
        params={"batch_size": 32, "micro_batch": None},
        search={"kind": "random", "seed": 1},
        budget={"trials": 16},
        resources={"cpu": 1, "gpu": 0, "max_concurrent_trials": 1},
    )
    results = run(given, storage=tmp_path, name="run", say=lambda text: None)
    assert results.count("completed") == 16
    needed = [trial for trial in results.trials if trial.config["width"] * 32 * 8 > 400]
    assert len(needed) >= 10
    assert sum(bool(trial.failures) for trial in needed[-8:]) <= 1
    assert all(trial.reports[0].metrics["micro"] == trial.micro_batch in (4, 8, 16) for trial in needed)
    assert sum("start with a smaller micro_batch" in notice for notice in results.notices) == 1
    reduced = {trial.id: trial.micro_batch for trial in results.trials if trial.micro_batch}
    for known in (load_run(tmp_path / "run"), journalled(results.folder, {})[0].results):
        assert {trial.id: trial.micro_batch for trial in known.trials if trial.micro_batch} == reduced


def test_a_metric_that_becomes_nan_may_stop_the_trial_with_what_it_had(tmp_path: Path) -> None:
    results = search(
        tmp_path, ["nan"], {"on_nan": "stop"}, search={"kind": "optuna", "sampler": "tpe"}, budget={"trials": 1}
    )
    (trial,) = results.trials
    assert (trial.status, trial.steps) == ("stopped", 3)
    assert trial.reason == "report 4: score is nan (failures.on_nan: stop)"
    found, _ = read_snapshot(RunFolder.at(tmp_path / "run"))
    assert found is not None
    (told,) = found.state.searcher._study.trials  # type: ignore[attr-defined]
    assert (told.state.name, told.value) == ("COMPLETE", 6.0)


def test_too_many_failures_end_the_search(tmp_path: Path) -> None:
    rules = {"retries": 0, "stop_after": 2}
    ways = ["always raise", "always raise something new", *(f"nothing {i}" for i in range(30))]
    results = search(tmp_path, ways, rules, resources={"gpu": 0, "max_concurrent_trials": 1})
    assert (results.count("failed"), len(results.trials)) == (2, 2)


def test_first_trials_that_all_fail_alike_end_the_search_which_continues_when_mended(tmp_path: Path) -> None:
    given = experiment("fails", {"x": {"uniform": [0, 1]}}, params={"marks": str(tmp_path)}, budget={"trials": 12})
    given["trainable"] = f"{Path(__file__).parent}/failing_toys.py:broken"
    given["search"] = {"kind": "random", "seed": 0}
    with pytest.raises(
        InputError, match=r"the first \d trials failed before any report: ValueError: x 0\.\d+ is no good"
    ):
        run(given, storage=tmp_path, name="run", say=lambda text: None)
    ended = load_run(tmp_path / "run").count("failed")
    assert 4 <= ended <= 6
    (tmp_path / "mended").touch()
    results = resume(tmp_path / "run", say=lambda text: None)
    assert (results.count("failed"), results.count("completed")) == (ended, 12 - ended)

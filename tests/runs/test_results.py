"""The run folder: what is written is read back the same, and the best is the best."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import EnvironmentFailure, InputError
from tuner.execution.metrics import flat_metrics
from tuner.runs.history import EventApplier
from tuner.runs.loading import find_run, load_run
from tuner.runs.results import BEST, EXPERIMENT, PROVENANCE, REPORTS, TRIALS, ResultSet, new_run_name, write_json
from tuner.runs.tables import read_reports
from tuner.runs.trial import Report, Trial
from tuner.spec.document import dump_yaml
from tuner.storage.folder import RunFolder
from tuner.visualization.text_tables import overview

SPEC: dict[str, Any] = {
    "name": "n",
    "trainable": "t:train",
    "params": {"epochs": 3, "net": {"depth": 2}},
    "search_space": {"lr": {"uniform": [0, 1]}},
    "objective": {"metric": "acc", "mode": "max"},
    "scheduler": {"kind": "fifo"},
}


def new_run(location: Path | str, mode: str = "max") -> ResultSet:
    spec = copy.deepcopy(SPEC)
    spec["objective"]["mode"] = mode
    folder = RunFolder.at(location)
    folder.create()
    folder.write(EXPERIMENT, dump_yaml(spec, ["# a run"]))
    write_json(folder, PROVENANCE, {"started": "2026-01-01", "notices": ["other data"]})
    return ResultSet(folder, spec, {"notices": ["other data"]})


def report(trial: Trial, value: float, checkpoint: bool = True, **metrics: Any) -> Report:
    step = len(trial.reports) + 1
    made = Report(
        trial.id,
        step,
        step * 0.5,
        1e9 + step,
        {"acc": value} | metrics,
        f"ray/{trial.id}/{step}" if checkpoint else None,
    )
    trial.reports.append(made)
    return made


def trial(results: ResultSet, *values: float, config: dict[str, Any] | None = None, checkpoint: bool = True) -> Trial:
    """A trial with these reports, its best chosen among them as a recorder does."""
    number = len(results.trials) + 1
    made = results.add(Trial(f"id{number}", number, config or {}, "completed"))
    for value in values:
        new = report(made, value, checkpoint)
        if made.best is None or results.better(results.value(new), results.value(made.best)):
            made.best = new
    return made


def exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list) else (type(value), repr(value))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


# --- round trip --------------------------------------------------------------------------------------------------

names = st.sampled_from(["lr", "opt", "n 1", "caf\u00e9", "x-y", "A", "rung", "id"])
texts = st.text(max_size=6) | st.sampled_from(
    [
        "1",
        "1e-4",
        "true",
        "null",
        "NaN",
        "Infinity",
        '"',
        "[1]",
        "{}",
        "",
        " ",
        "a,b",
        "a\nb",
        "a\r\nb",
        "'",
        "-0",
        "\u2028",
    ]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=4) | st.just({})
configs = st.dictionaries(names, values | st.dictionaries(names, values, min_size=1, max_size=3), max_size=4)


@given(st.lists(configs, min_size=1, max_size=3), st.sampled_from(["stopped", "failed", "pending", "completed"]), texts)
@settings(max_examples=80, deadline=None)
def test_configurations_are_read_back_the_same(
    scratch: Path, configurations: list[dict[str, Any]], status: Any, reason: str
) -> None:
    results = new_run(scratch / "round")
    for config in configurations:
        made = trial(results, 0.5, config=config)
        made.status, made.reason, made.rung = status, reason, 3
    results.save()
    again = load_run(scratch / "round")
    assert [exact(t.config) for t in again.trials] == [exact(c) for c in configurations]
    assert {(t.status, t.reason, t.rung) for t in again.trials} == {(status, reason, 3)}


@pytest.mark.parametrize(
    "config",
    [
        {"a": {"b": {"c": 1}}, "d": 1},
        {"a": "1"},
        {"a": ""},
        {"a": None},
        {"a": [1, "1", None, [True]]},
        {"a": {}},
        {"a": [{"b": 1}]},
        {"a": 10**30},
        {"a": 1e300},
        {"a": -0.0},
        {"a": math.inf},
        {"a": "\u00e4\U0001f600"},
        {"a": "\r"},
        {"a": "x\r\ny"},
        {"a": 1},
        {"a": 1.0},
        {"a": True},
    ],
)
def test_a_configuration_is_read_back_the_same(tmp_path: Path, config: dict[str, Any]) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.5, config=config)
    trial(results, 0.6, config={"other": 1})
    results.save()
    assert exact(load_run(tmp_path / "r").trials[0].config) == exact(config)


def test_nan_in_a_configuration(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.5, config={"a": math.nan})
    results.save()
    assert math.isnan(load_run(tmp_path / "r").trials[0].config["a"])


def test_reports_are_read_back_the_same(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    first = trial(results, 0.1, 0.3, 0.2, config={"lr": 0.1})
    report(first, 0.25, False, loss=2, note="x", flag=True)
    second = trial(results, -1.5, config={"lr": 0.2})
    waiting = results.add(Trial("id3", 3, {"lr": 0.3}))
    results.save()
    again = load_run(tmp_path / "r")
    assert [t.id for t in again.trials] == ["id1", "id2", "id3"]
    for before, after in zip((first, second, waiting), again.trials, strict=True):
        assert before.best == after.best
        assert before.reports == after.reports
        assert (before.steps, before.seconds, before.label) == (after.steps, after.seconds, after.label)
    assert again.best is again.trials[0]
    assert again.spec == results.spec
    assert again.notices == ["other data"]
    assert again.name == "r"
    assert again.full_config(again.trials[0]) == {"epochs": 3, "net": {"depth": 2}, "lr": 0.1}
    assert (again.count("completed"), again.count("pending"), again.count("failed")) == (2, 1, 0)
    pd.testing.assert_frame_equal(again.frame(), results.frame())


def test_no_thread_of_arrow_holds_what_was_read(tmp_path: Path) -> None:
    """It would ask Python to free it, which ends the process by SIGABRT if Python is on its way out."""
    freed_by: set[int] = set()

    class Content(bytes):
        def __del__(self) -> None:
            freed_by.add(threading.get_ident())

    results = new_run(tmp_path)
    trial(results, 0.1, 0.2)
    results.save()
    content = (tmp_path / REPORTS).read_bytes()
    for _ in range(200):
        results.trials[0].reports.clear()
        read_reports(results, Content(content))
    assert freed_by == {threading.get_ident()}


def test_integers_stay_integers_where_another_report_has_none(tmp_path: Path) -> None:
    """A metric that not every report holds, and an objective that is an int here and a float there."""
    results = new_run(tmp_path / "r")
    only = trial(results, 1, 0.5)
    report(only, 2, True, count=7)
    report(only, 3, True, count=8)
    results.save()
    (again,) = load_run(tmp_path / "r").trials
    assert [r.metrics.get("count") for r in again.reports] == [None, None, 7, 8]
    assert [type(r.metrics["count"]) for r in again.reports[2:]] == [int, int]


def test_metrics_of_different_kinds_under_one_name(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    only = trial(results)
    report(only, 1.0, True, note="x", flag=True)
    report(only, 2.0, True, note=3, flag=None)
    report(only, 2.0, True, note=None, extra=10**25)
    results.save()
    notes = [r.metrics.get("note") for r in load_run(tmp_path / "r").trials[0].reports]
    assert [str(note) for note in notes[:2]] == ["x", "3"]
    assert notes[2] is None


def test_a_run_without_trials(tmp_path: Path) -> None:
    new_run(tmp_path / "r").save()
    again = load_run(tmp_path / "r")
    assert again.trials == []
    assert again.best is None
    assert list(again.frame().columns) == list(new_run(tmp_path / "s").frame().columns)


def test_trials_csv_for_other_programs(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.1, 0.3, config={"lr": 0.1, "net": {"width": 8}})
    results.add(Trial("id2", 2, {"lr": 0.2, "opt": "sgd"}, "failed", "ValueError: a, b"))
    results.save()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r" / TRIALS).read_text())))
    assert list(rows[0]) == [
        *["id", "number", "status", "reason", "rung", "config.lr", "config.net.width", "config.opt"],
        *["best_acc", "best_step", "steps", "seconds", "host", "checkpoint", "log"],
    ]
    assert (rows[0]["best_acc"], rows[0]["checkpoint"], rows[0]["seconds"]) == ("0.3", "ray/id1/2", "1.0")
    assert (rows[1]["reason"], rows[1]["config.opt"], rows[1]["best_acc"]) == ("ValueError: a, b", "sgd", "")


def test_the_host_of_a_trial_is_the_one_where_it_ran_last(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.1)
    for host in ("left", "right"):
        EventApplier(results).apply({"what": "started", "trial": "id1", "host": host})
    results.save()
    assert load_run(tmp_path / "r").trials[0].host == "right"


def test_a_run_of_the_time_before_hosts_were_known_is_read(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.1)
    EventApplier(results).apply({"what": "started", "trial": "id1"})
    results.save()
    table = tmp_path / "r" / TRIALS
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    old = io.StringIO()
    writer = csv.DictWriter(old, [name for name in rows[0] if name != "host"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    table.write_text(old.getvalue())
    again = load_run(tmp_path / "r")
    assert again.trials[0].host == ""
    assert again.trials[0].best == results.trials[0].best


def test_hosts_are_shown_where_there_are_several(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.1).host = trial(results, 0.2).host = "left"
    assert "host" not in overview(results, "finished").split()
    results.trials[1].host = "right"
    assert {"host", "left", "right"} <= set(overview(results, "finished").split())


def test_flat_metrics() -> None:
    result = {"acc": 1, "val": {"a": 2, "b": {"c": 3}}, "training_iteration": 4, "config": {"x": 1}, "pid": 3, "e": {}}
    assert flat_metrics(result) == {"acc": 1, "val/a": 2, "val/b/c": 3}


def test_numpy_numbers_are_numbers(tmp_path: Path) -> None:
    found = flat_metrics({"a": np.float32(0.5), "b": {"n": np.int64(3)}, "c": np.float64(0.1), "d": np.bool_(True)})
    assert found == {"a": 0.5, "b/n": 3, "c": 0.1, "d": True}
    assert [type(value) for value in found.values()] == [float, int, float, bool]


# --- the best ----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6) | st.integers(-3, 3), max_size=4), max_size=5),
    st.sampled_from(["min", "max"]),
)
@settings(max_examples=60, deadline=None)
def test_the_best_is_the_best_ever_reported(scratch: Path, reported: list[list[float]], mode: str) -> None:
    results = new_run(scratch / "best", mode)
    for reports in reported:
        trial(results, *reports)
    everything = [value for reports in reported for value in reports]
    for found in (results, _reloaded(results)):
        if not everything:
            assert found.best is None
            continue
        wanted = max(everything) if mode == "max" else min(everything)
        assert found.best is not None
        assert found.best.best is not None
        assert found.value(found.best.best) == wanted
        assert found.best.number == next(i for i, r in enumerate(reported, 1) if wanted in r)
        ranked = [found.value(t.best) for t in found.rank(found.trials) if t.best]
        assert ranked == sorted(ranked, reverse=mode == "max")
        assert len(ranked) == sum(bool(reports) for reports in reported)


def _reloaded(results: ResultSet) -> ResultSet:
    results.save()
    return load_run(results.folder.path)


@pytest.mark.parametrize(("mode", "number"), [("max", 2), ("min", 1)])
def test_a_trial_with_a_checkpoint_comes_before_one_without(tmp_path: Path, mode: str, number: int) -> None:
    results = new_run(tmp_path / "r", mode)
    trial(results, -2.0, -1.0)
    trial(results, 0.5, -1.5)
    trial(results, 9.0, -9.0, checkpoint=False)
    for found in (results, _reloaded(results)):
        assert found.best is not None
        assert found.best.number == number
        assert found.rank(found.trials)[0].number == 3


def test_without_any_checkpoint_the_best_value_counts(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r", "min")
    trial(results, 0.5, checkpoint=False)
    trial(results, 0.4, 0.6, checkpoint=False)
    for found in (results, _reloaded(results)):
        assert found.best is not None
        assert found.best.number == 2


def test_of_equals_the_earlier(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    for _ in range(3):
        trial(results, 0.5, 0.5)
    assert results.best is not None
    assert results.best.number == 1
    assert results.best.best is not None
    assert results.best.best.step == 1


# --- best/ -------------------------------------------------------------------------------------------------------


def with_checkpoint(location: Path | str, value: float = 0.5) -> ResultSet:
    results = new_run(location)
    made = trial(results, value, config={"lr": 0.1, "net": {"width": 8}})
    target = Path(results.folder.path) / f"ray/{made.id}/1"
    (target / "deep").mkdir(parents=True, exist_ok=True)
    (target / "model.pt").write_bytes(b"weights %r" % value)
    (target / "deep" / "x").write_bytes(b"")
    return results


def test_the_layout_of_best(tmp_path: Path) -> None:
    results = with_checkpoint(tmp_path / "r")
    results.save_best()
    best = tmp_path / "r" / BEST
    assert sorted(str(p.relative_to(best)) for p in best.rglob("*") if p.is_file()) == [
        "checkpoint/deep/x",
        "checkpoint/model.pt",
        "config.json",
        "metrics.json",
    ]
    assert json.loads((best / "config.json").read_text()) == {"epochs": 3, "net": {"depth": 2, "width": 8}, "lr": 0.1}
    assert json.loads((best / "metrics.json").read_text()) == {"trial": "id1", "step": 1, "acc": 0.5}
    assert (best / "checkpoint" / "model.pt").read_bytes() == b"weights 0.5"


def test_best_is_replaced_as_a_whole(tmp_path: Path) -> None:
    results = with_checkpoint(tmp_path / "r")
    results.save_best()
    (tmp_path / "r" / BEST / "checkpoint" / "old").write_text("")
    trial(results, 0.9, checkpoint=False)
    better = trial(results, 0.8)
    (tmp_path / "r" / "ray" / better.id / "1").mkdir(parents=True)
    (tmp_path / "r" / f".{BEST}.new").mkdir()
    (tmp_path / "r" / f".{BEST}.new" / "left over").write_text("")
    results.save_best()
    best = tmp_path / "r" / BEST
    assert json.loads((best / "metrics.json").read_text())["trial"] == "id3"
    assert sorted(p.name for p in best.iterdir()) == ["checkpoint", "config.json", "metrics.json"]
    assert list((best / "checkpoint").iterdir()) == []
    assert not (tmp_path / "r" / f".{BEST}.new").exists()


def test_nothing_is_saved_without_a_result(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    results.save_best()
    assert not (tmp_path / "r" / BEST).exists()


def test_a_copy_that_fails_leaves_the_old_best(tmp_path: Path) -> None:
    results = with_checkpoint(tmp_path / "r")
    results.save_best()
    better = trial(results, 0.9)
    assert better.best is not None  # its checkpoint is gone from the disk
    with pytest.raises((OSError, EnvironmentFailure)):
        results.save_best()
    assert json.loads((tmp_path / "r" / BEST / "metrics.json").read_text())["acc"] == 0.5


# --- writing -----------------------------------------------------------------------------------------------------


def full(*_: Any) -> None:
    raise OSError("disk full")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.at(tmp_path)
    folder.write("a.txt", b"old")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="disk full"):
            folder.write("a.txt", b"new")
    assert folder.read("a.txt") == b"old"
    folder.write("a.txt", b"newer")
    assert folder.read("a.txt") == b"newer"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_save_that_fails_leaves_the_old_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = new_run(tmp_path / "r")
    trial(results, 0.5)
    results.save()
    trial(results, 0.6)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="disk full"):
            results.save()
    assert len(load_run(tmp_path / "r").trials) == 1


def test_a_kill_between_the_two_files_leaves_a_run_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """trials.csv and results.parquet are two files: whichever is newer, the run is still a run."""
    results = new_run(tmp_path / "r")
    first = trial(results, 0.5)
    results.save()
    second = trial(results, 0.6)
    first.best = report(first, 0.7)
    write = RunFolder.write

    def killed(folder: RunFolder, name: str, data: bytes) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(name)
        write(folder, name, data)

    written: list[str] = []
    monkeypatch.setattr(RunFolder, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        results.save()
    monkeypatch.undo()
    again = load_run(tmp_path / "r")
    assert again.trials[0].id == first.id
    assert again.best is not None
    assert again.best.id in (first.id, second.id)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: .*choose another with --storage"):
        RunFolder.at(tmp_path / "file" / "sub").create()
    with pytest.raises(InputError, match="storage 'nope://x' cannot be used"):
        RunFolder.at("nope://x")


# --- finding and reading -----------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("digits-1", "digits-2", "other"):
        results = new_run(tmp_path / "runs" / name)
        trial(results, 0.5)
        results.save()
    (tmp_path / "runs" / "no-run").mkdir()
    return tmp_path / "runs"


def test_runs_are_found_by_name_and_by_path(runs: Path) -> None:
    for run in (
        "digits-1",
        "digits-1/",
        "runs/digits-1",
        "./runs/digits-1",
        runs / "digits-1",
        f"file://{runs}/digits-1",
    ):
        assert load_run(run, "runs").name == "digits-1"
        assert load_run(run, f"file://{runs}").name == "digits-1"
    assert load_run("other", str(runs)).best is not None


@pytest.mark.parametrize(
    ("run", "storage", "words"),
    [
        ("digits-3", "runs", ["no run 'digits-3' (looked at digits-3, runs/digits-3)", "did you mean 'digits-"]),
        ("no-run", "runs", ["no run 'no-run'", "digits-1, digits-2, other"]),
        ("runs/digits-3", "runs", ["no run 'runs/digits-3' (looked at runs/digits-3)", "digits-1"]),
        ("x", "nowhere", ["no run 'x'", "there are no runs in nowhere"]),
        ("", "runs", ["no run ''"]),
    ],
)
def test_a_run_that_is_not_there(runs: Path, run: str, storage: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        find_run(run, storage)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_the_nearest_name_of_many_runs(runs: Path) -> None:
    for i in range(12):
        shutil.copytree(runs / "other", runs / f"zz-{i:02}")
    with pytest.raises(InputError, match="did you mean 'digits-1'"):
        find_run("digit-1", "runs")


@pytest.mark.parametrize("file", [PROVENANCE, TRIALS, REPORTS])
def test_a_missing_file_is_named(runs: Path, file: str) -> None:
    (runs / "other" / file).unlink()
    with pytest.raises(EnvironmentFailure, match=f"runs/other: {file} is missing"):
        load_run("other", "runs")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (EXPERIMENT, b"a: [1"),
        (EXPERIMENT, b"\xff\xfe"),
        (EXPERIMENT, b""),
        (EXPERIMENT, b"- 1"),
        (EXPERIMENT, b"objective: 3"),
        (PROVENANCE, b""),
        (PROVENANCE, b"{"),
        (PROVENANCE, b"[]"),
        (PROVENANCE, b"\xff"),
        (TRIALS, b""),
        (TRIALS, b"\xff\xfe\x00"),
        (TRIALS, b"id,number\na,b\n"),
        (TRIALS, b"id,number,status,reason,rung,best_step\nid1,x,completed,,,\n"),
        (TRIALS, b"id,number,status,reason,rung,best_step\nid1,1,completed,,,77\n"),
        (TRIALS, b"id,number,status,reason,rung,best_step\nid1,1\n"),
        (TRIALS, b"id,number,status,reason,rung,best_step\nid1,1,completed,,,1,9,9,9\n"),
        (REPORTS, b""),
        (REPORTS, b"PAR1 not a parquet file"),
    ],
)
def test_a_damaged_file_is_named(runs: Path, file: str, content: bytes) -> None:
    (runs / "other" / file).write_bytes(content)
    with pytest.raises(EnvironmentFailure, match=f"runs/other: {file} ") as caught:
        load_run("other", "runs")
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_parquet_file_of_something_else_is_named(runs: Path) -> None:
    pd.DataFrame({"x": [1]}).to_parquet(runs / "other" / REPORTS)
    with pytest.raises(EnvironmentFailure, match=f"runs/other: {REPORTS} cannot be read"):
        load_run("other", "runs")


def test_a_uri_is_a_folder_like_a_path(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/store/r"
    results = with_checkpoint(uri)
    results.save()
    results.save_best()
    assert (tmp_path / "store" / "r" / BEST / "checkpoint" / "model.pt").exists()
    assert results.folder.is_local
    assert results.folder.location == uri
    again = load_run("r", f"file://{tmp_path}/store")
    assert again.best is not None
    assert again.folder.location == uri
    assert again.name == "r"


def test_a_path_with_a_home_and_odd_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    results = with_checkpoint("~/a b/\u00e4 %20#?")
    results.save()
    results.save_best()
    assert (tmp_path / "a b" / "\u00e4 %20#?" / BEST / "config.json").exists()
    assert load_run("~/a b/\u00e4 %20#?").best is not None


def test_run_names_carry_the_time() -> None:
    name, *date = new_run_name("a-b").rsplit("-", 2)
    assert name == "a-b"
    assert [len(part) for part in date] == [8, 6]

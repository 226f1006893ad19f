"""The page of a run: what it says, what it shows, and that it shows something of every run."""

from __future__ import annotations

import copy
import json
import math
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.benchmarks.made_up_run import SPEC, made_up_run
from tuner.cli import cli
from tuner.errors import TunerError
from tuner.runs.consumption import Consumption
from tuner.runs.failure import Failure
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_latest
from tuner.runs.results import EXPERIMENT, PROVENANCE, REPORT, REPORTS, TRIALS, ResultSet, write_json
from tuner.runs.trial import Report, Segment, Trial
from tuner.spec.document import dump_yaml
from tuner.spec.objective import Objective
from tuner.storage.folder import RunFolder
from tuner.storage.lock import locked
from tuner.visualization.axes import axes_of
from tuner.visualization.html import page, write_report
from tuner.visualization.importance import LEAST_TRIALS, importance
from tuner.visualization.parameters import MOST_DOTS, dotted
from tuner.visualization.style import view
from tuner.visualization.summary import ranked, state, summarize

SECTIONS = ["summary", "configuration", "incumbent", "curves", "importance", "parallel", "slices", "contour"]
SECTIONS += ["timeline", "trials", "failures", "provenance", "again"]


def new_run(folder: Path, **changes: Any) -> ResultSet:
    spec = copy.deepcopy(SPEC) | changes
    made = ResultSet(RunFolder.at(folder), spec, {"slots": 2, "seed": 0, "interrupted": False, "elapsed_s": 9.0})
    made.folder.create()
    return made


def add(results: ResultSet, *values: float, status: Any = "completed", **config: Any) -> Trial:
    """A trial with these values, its best chosen as a recorder chooses it."""
    number = len(results.trials) + 1
    trial = results.add(Trial(f"id{number}", number, {"lr": 0.01 * number, "optimizer": "adamw"} | config, status))
    for step, value in enumerate(values, 1):
        metrics = {o.metric: value for o in results.objectives} | {"epoch": step}
        report = Report(trial.id, step, 2.0 * step, 1e9 + 10 * number + 2 * step, metrics, f"ray/{trial.id}/{step}")
        trial.reports.append(report)
        if math.isfinite(value) and (trial.best is None or results.better(value, results.value(trial.best))):
            trial.best = report
    return trial


def figures(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text)
    assert found
    drawn: dict[str, Any] = json.loads(found[1])
    return drawn


def without_library(text: str) -> str:
    """The page without Plotly, which is not ours to judge."""
    return "".join(part for part in re.split(r"(<script>.*?</script>)", text, flags=re.S) if "plotly.js v" not in part)


def section(text: str, name: str) -> str:
    found = re.search(rf'<section data-part="{name}">.*?</section>', text, re.S)
    assert found, name
    return found[0]


def test_what_trials_consumed_is_in_the_summary_and_in_the_table_of_trials(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    told = [Consumption(1.0, 2.0), Consumption(1.0, 3.5, 0.5, 1.5, 1.75, 80.0), None]
    for i, consumed in enumerate(told):
        made = add(results, 0.5 + 0.1 * i)
        made.reports[0] = replace(made.reports[0], consumption=consumed)
    text = page(results)
    summary = section(text, "summary")
    assert "host memory: at most 3.5 GiB, trial #2 (id2)" in summary
    assert "GPU memory: at most 1.5 GiB, trial #2 (id2); with torch&#x27;s cache at most 1.75 GiB" in summary
    assert "GPU use: 80% of trial time" in summary
    head, *rows = re.findall(r"<tr>.*?</tr>", section(text, "trials"), re.S)
    titles = re.findall(r"<button>(.*?)</button>", head)
    where = titles.index("peak_host_gib")
    assert titles[where - 1 : where + 3] == ["seconds", "peak_host_gib", "peak_gpu_gib", "gpu_use"]
    cells = [re.findall(r"<td.*?>(.*?)</td>", row)[where : where + 3] for row in rows]
    assert cells == [["", "", ""], ["3.5", "1.5", "80"], ["2", "", ""]]


def test_the_page_tells_what_time_was_no_training(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    for i, consumed in enumerate((Consumption(data_s=0.3, checkpoint_s=0.02), Consumption(checkpoint_s=0.0), None)):
        made = add(results, 0.5 + 0.1 * i)
        made.reports[0] = replace(made.reports[0], seconds=1.0, consumption=consumed)
    summary = section(page(results), "summary")
    assert "time: 30% of trial time waited for data: more num_workers of the DataLoader" in summary
    assert "time: 1% of trial time went into writing checkpoints<" in summary.replace("\n", "<")


def test_what_was_not_measured_is_not_in_the_page(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    made = add(results, 0.5)
    assert "GiB" not in section(page(results), "summary")
    made.reports[0] = replace(made.reports[0], consumption=Consumption(1.0, 2.0))
    text = page(results)
    assert "host memory: at most 2 GiB" in section(text, "summary")
    assert "GPU" not in section(text, "summary")
    assert "gpu_use" not in section(text, "trials")


@pytest.fixture(scope="module")
def asha(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """40 trials with 9 reports, journaled, with two failed attempts and one failed trial."""
    results = made_up_run(tmp_path_factory.mktemp("runs") / "asha", 40, 9)
    results.trials[3].failures = [Failure("hung", "silent for 60s", 4)]
    results.trials[4].failures = [Failure("exception", "ValueError: <b>no</b>", 2, final=True)]
    results.trials[4].status, results.trials[4].reason = "failed", "ValueError: <b>no</b>"
    results.provenance["notices"] = ["other data <than> asked for"]
    return results


@pytest.fixture(scope="module")
def text(asha: ResultSet) -> str:
    return page(asha)


# --- a run as it should be ---------------------------------------------------------------------------------------


def test_every_part_is_there_and_every_figure_has_data(text: str) -> None:
    assert re.findall(r'<section data-part="(\w+)">', text) == SECTIONS
    drawn = figures(text)
    slices = {f"slices-{i}" for i in range(1, 9)}
    assert drawn.keys() == {"incumbent", "curves", "importance", "parallel", "contour", "timeline"} | slices
    for name, figure in drawn.items():
        assert all(trace.get("x") and trace.get("y") for trace in figure["data"]), name
        for axis in ("xaxis", "yaxis"):
            assert figure["layout"][axis].get("title") or name == "parallel" or (name, axis) == ("importance", "yaxis")


def test_learning_curves_are_few_traces(text: str) -> None:
    names = [trace["name"] for trace in figures(text)["curves"]["data"]]
    rungs = ["stopped at rung 1 (14)", "stopped at rung 3 (13)", "stopped at rung 9 (12)"]
    assert [name for name in names if "rung" in name]
    assert len(names) == 6
    assert {name.rsplit(" (", 1)[0] for name in names if "rung" in name} == {r.rsplit(" (", 1)[0] for r in rungs}
    assert names[-1].startswith("the best, #")


def test_nothing_is_loaded_from_anywhere_and_no_text_becomes_a_tag(text: str) -> None:
    assert "default-src 'none'" in text
    own = without_library(text)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", own)
    assert "<b>no</b>" not in own
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in section(text, "failures")
    assert '<p class="notice">other data &lt;than&gt; asked for</p>' in text
    assert text.count("plotly.js v") == 1
    assert len(text) < 10e6


def test_the_failures_say_what_followed(text: str) -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", section(text, "failures"))[1:]
    assert ["tried again: " in rows[0], "given up" in rows[1]] == [True, True]
    assert "output.log" in rows[0]


def test_what_early_stopping_saved_is_told_in_epochs_and_time(text: str) -> None:
    assert "360 of 1032 epochs run: 65% saved by stopping early, about 34m43s of trial time" in section(text, "summary")


def test_the_timeline_tells_how_idle_the_workers_were(text: str) -> None:
    assert re.search(r"8 workers ran trials for \d\d% of the time\. The longest", section(text, "timeline"))
    lanes = {lane for trace in figures(text)["timeline"]["data"] for lane in trace["y"]}
    assert lanes == set(range(1, 9))


def test_the_commands_that_repeat_it_are_there(asha: ResultSet, text: str) -> None:
    again = section(text, "again")
    assert f"python -m tuner run {asha.folder.location}/experiment.yaml" in again
    assert asha.best is not None
    assert f"python -m tuner replay {asha.folder.location} {asha.best.number}" in again


def test_of_very_many_trials_the_best_and_an_even_choice_are_dots() -> None:
    assert dotted(MOST_DOTS) == list(range(MOST_DOTS))
    many = dotted(10 * MOST_DOTS)
    assert many[: MOST_DOTS // 3] == list(range(MOST_DOTS // 3))
    assert 0.9 * MOST_DOTS < len(many) <= MOST_DOTS
    assert many[-1] >= 10 * MOST_DOTS - 20


def test_importance_finds_what_matters(asha: ResultSet) -> None:
    found = importance(asha, ranked(asha))
    assert found is not None
    assert next(iter(found.shares)) == "lr"
    assert "momentum" in found.shares  # there for one optimizer only
    assert sum(share.value for share in found.shares.values()) == pytest.approx(1)
    assert all(share.low <= share.value <= share.high for share in found.shares.values())
    assert found.shares["lr"].low > 0.05  # of 40 trials
    assert not found.shares["lr"].is_chance
    assert importance(asha, ranked(asha)[: LEAST_TRIALS - 1]) is None


def test_importance_of_trials_in_an_order_at_random_is_chance(asha: ResultSet) -> None:
    trials = ranked(asha)
    chance = []
    for seed in range(5):
        found = importance(asha, random.Random(seed).sample(trials, len(trials)))
        assert found is not None
        chance += [share.is_chance for share in found.shares.values()]
    assert sum(chance) >= 0.8 * len(chance)  # 95 % on average


@pytest.mark.processes
def test_importance_loads_no_scikit_learn_and_who_wants_it_later_has_it() -> None:
    text = """
import sys, tempfile, pathlib, optuna
from tests.benchmarks.made_up_run import made_up_run
from tuner.visualization.importance import importance
from tuner.visualization.summary import ranked
with tempfile.TemporaryDirectory() as folder:
    results = made_up_run(pathlib.Path(folder) / "asha", 40, 9)
assert importance(results, ranked(results)) is not None
assert "sklearn" not in sys.modules
optuna.importance.FanovaImportanceEvaluator()
assert "sklearn" in sys.modules
assert importance(results, ranked(results)) is not None
"""
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importance_of_very_many_trials_is_that_of_an_even_choice(
    asha: ResultSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.visualization.importance._MOST", 30)
    found = importance(asha, ranked(asha))
    assert found is not None
    assert 20 <= found.trials <= 30
    assert next(iter(found.shares)) == "lr"


def test_axes_are_those_of_the_search_space(asha: ResultSet) -> None:
    axes = {axis.name: axis for axis in axes_of(asha, asha.trials)}
    assert list(axes) == list(SPEC["search_space"])
    assert (axes["lr"].log, axes["lr"].low, axes["lr"].high) == (True, 1e-4, 1.0)
    assert (axes["width"].log, axes["dropout"].log) == (True, False)
    assert axes["batch_size"].categories == ("64", "128", "256")
    sgd = [trial.config["optimizer"] == "sgd" for trial in asha.trials]
    assert [position is not None for position in axes["momentum"].positions] == sgd
    assert axes["lr"].at(axes["lr"].unit(0.02)) == pytest.approx(0.02)


# --- every other run ---------------------------------------------------------------------------------------------


def test_a_run_without_trials(tmp_path: Path) -> None:
    text = page(new_run(tmp_path / "r"))
    assert figures(text) == {}
    assert "No result yet" in section(text, "summary")
    assert "No trial has started" in section(text, "trials")


def test_a_run_with_one_trial(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    add(results, 0.1, 0.5)
    text = page(results)
    assert figures(text).keys() == {"incumbent", "curves", "timeline"}
    assert "the only trial with a result" in text
    assert "no two trials with a result differ" in section(text, "slices")


def test_a_run_whose_trials_all_failed(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    for _ in range(3):
        failed = add(results, status="failed")
        failed.reason = "OSError: no such file"
    text = page(results)
    assert "No result: all 3 trials failed" in text
    assert section(text, "failures").count("OSError: no such file") == 3


def test_values_that_are_no_numbers_are_gaps(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r", objective={"metric": "loss", "mode": "min"})
    add(results, 1.0, math.nan, 0.5)
    add(results, math.inf, 0.7)
    add(results, math.nan)
    text = page(results)
    assert "Trial #1 (id1) is the best of 3, with loss 0.5" in text
    assert [axis["y"] for axis in figures(text)["incumbent"]["data"]][1] == [1.0, 0.5, 0.5]


def test_a_population_whose_trials_change_their_configuration(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r", scheduler={"kind": "pbt", "time_attr": "epoch", "max_t": 4})
    add(results, 0.1, 0.2, 0.3)
    taken = add(results, 0.1, 0.1, 0.4)
    taken.segments = [Segment(0, {"lr": 0.5}), Segment(2, {"lr": 0.1}, "id1", 2)]
    text = page(results)
    assert "best/schedule.json tells how" in text
    assert "confirm" not in section(text, "summary")


def test_several_objectives_show_the_front(tmp_path: Path) -> None:
    two = [{"metric": "acc", "mode": "max"}, {"metric": "size", "mode": "min"}]
    results = new_run(tmp_path / "r", objective=two)
    for acc, size in ((0.9, 5.0), (0.8, 2.0), (0.7, 9.0)):
        trial = add(results, 0.0)
        trial.reports[0].metrics.update(acc=acc, size=size)
    text = page(results)
    assert "2 of 3 trials are on the Pareto front of max acc, min size" in section(text, "summary")
    drawn = figures(text)
    assert "incumbent" not in drawn
    assert [(trace["name"], len(trace["x"])) for trace in drawn["front"]["data"]] == [
        ("other trials", 1),
        ("Pareto front", 2),
    ]


def test_a_space_from_python_has_the_axes_that_its_values_tell(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r", search_space="my_train:param_space")
    for i in range(4):
        add(results, 0.1 * i, lr=10.0**-i, optimizer=["sgd", "adam"][i % 2], same=1, net={"depth": i})
    axes = {axis.name: axis for axis in axes_of(results, results.trials)}
    assert [(axis.name, axis.log, axis.categories) for axis in axes.values()] == [
        ("lr", True, ()),
        ("optimizer", False, ("sgd", "adam")),
        ("net.depth", False, ()),
    ]
    assert {"parallel", "slices-1", "slices-3"} <= figures(page(results)).keys()


def test_values_of_any_kind_are_shown(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r", search_space="my_train:param_space")
    kinds: list[Any] = [np.int64(3), 10**400, [1, {"a": 2}], None, object, True, math.inf, "</script>", np.float32(0.5)]
    for i, value in enumerate(kinds):
        add(results, 0.1 * i, odd=value, size=np.int64(i), names={"<b>": value})
    text = page(results)
    assert {axis.name for axis in axes_of(results, results.trials)} >= {"odd", "size"}
    assert text.count("</script>") == 3


def test_an_exploded_loss_does_not_flatten_the_others() -> None:
    loss = Objective(metric="loss", mode="min")
    extent, hidden = view([0.1 * i for i in range(1, 12)] + [1e6, math.nan], loss)
    assert extent is not None
    assert extent[1] < 2
    assert hidden == 1
    assert view([0.1 * i for i in range(12)], loss) == (None, 0)


# --- the verdict -------------------------------------------------------------------------------------------------


def said(results: ResultSet) -> str:
    return " ".join(summarize(results))


def test_a_lead_within_what_the_values_move_is_a_tie(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    add(results, 0.5, 0.8, 0.85, 0.9, 0.86, 0.91)
    add(results, 0.5, 0.8, 0.85, 0.88, 0.86, 0.9)
    add(results, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2)
    assert "It leads by 0.01: the runner-up, trial #2 (id2), has 0.9." in said(results)
    assert "Not sure: trial #2 is no further behind" in said(results)
    assert "best at its last report" in said(results)
    assert f"python -m tuner confirm {tmp_path}/r --top 3 --seeds 5" in said(results)


def test_a_lead_beyond_that_is_told_in_multiples(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    add(results, 0.5, 0.9, 0.91, 0.9)
    add(results, 0.5, 0.6, 0.61, 0.6)
    assert "That is 30.0 times as much as their values still moved" in said(results)
    assert "best at its last report" not in said(results)


def test_the_same_value_is_a_tie_and_short_curves_tell_nothing(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    add(results, 0.9)
    add(results, 0.9)
    assert "That is a tie: #2 reached the very same value." in said(results)
    other = new_run(tmp_path / "s")
    add(other, 0.9)
    add(other, 0.8)
    assert "too short" in said(other)


def test_the_state_is_that_of_the_run(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    assert state(results, 90) == "The search came to its end after 1m30s."
    results.provenance["ended_by"] = "budget.trials"
    assert state(results, 90) == "The search came to its end after 1m30s (budget.trials)."
    results.provenance["interrupted"] = True
    assert "interrupted after 1m30s; to continue: python -m tuner resume" in state(results, 90)
    del results.provenance["interrupted"]
    assert "did not come to its end" in state(results, 90)
    with locked(results.folder):
        assert "still runs" in state(results, 90)


# --- the command, and damaged run folders ------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> ResultSet:
    """A whole run folder with a journal."""
    results = made_up_run(tmp_path / "run", 6, 4)
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
    write_json(results.folder, PROVENANCE, results.provenance)
    results.save()
    write_report(results)
    journal = JournalWriter(results.folder)
    journal.append("left", interrupted=False)
    journal.close()
    return results


def report(folder: Path, *arguments: str) -> tuple[str, str]:
    """(what it wrote, its stderr)."""
    done = CliRunner().invoke(cli, ["report", str(folder), *arguments])
    assert done.exit_code == 0, done.output
    return (folder / REPORT).read_text(), done.stderr


def test_the_page_of_a_whole_run_says_of_nothing_that_it_is_missing(saved: ResultSet) -> None:
    text, err = report(saved.folder.local_path)
    assert "NOTICE" not in err
    assert '<p class="notice">' not in text


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"PAR1"])
@pytest.mark.parametrize("file", [EXPERIMENT, PROVENANCE, TRIALS, REPORTS])
def test_with_a_journal_nothing_is_lost_with_a_file(saved: ResultSet, file: str, content: bytes | None) -> None:
    folder = saved.folder.local_path
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    text, err = report(folder)
    assert f"NOTICE: {folder}: {file} " in err
    assert f"{file} " in text.split("<section")[0]
    known = load_latest(saved.folder, partial=True)
    assert [len(trial.reports) for trial in known.trials] == [4] * 6
    assert "came to its end" in section(text, "summary")


@pytest.mark.parametrize("file", [PROVENANCE, REPORTS])
def test_without_a_journal_the_other_files_tell_what_they_can(saved: ResultSet, file: str) -> None:
    folder = saved.folder.local_path
    (folder / "journal.jsonl").unlink()
    (folder / file).unlink()
    text, err = report(folder)
    assert f"NOTICE: {folder}: {file} is missing" in err
    assert saved.best is not None
    assert f"Trial {saved.best.label} is the best of 6" in text
    assert {"parallel", "curves"} <= figures(text).keys()
    assert ("saved by stopping early" in text) == (file != REPORTS)
    rows = json.loads(CliRunner().invoke(cli, ["compare", str(folder), "--json"]).stdout)["runs"]
    assert (rows[0]["seconds"] is None) == (rows[0]["epochs"] is None) == (file == REPORTS)


def test_a_journal_that_is_damaged_in_the_middle_is_said(saved: ResultSet) -> None:
    folder = saved.folder.local_path
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"reported"' in line)
    (folder / "journal.jsonl").write_bytes(b"".join([*lines[:at], b"x" + lines[at], *lines[at + 1 :]]))
    (folder / REPORTS).unlink()
    text, err = report(folder)
    assert f"the journal: 1 damaged line; event {at + 1} is lost" in err
    assert sum(len(trial.reports) for trial in load_latest(saved.folder, partial=True).trials) == 6 * 4 - 1
    assert figures(text)["curves"]["data"]


def test_where_nothing_says_what_the_run_was_there_is_no_page(saved: ResultSet) -> None:
    folder = saved.folder.local_path
    (folder / "journal.jsonl").unlink()
    (folder / EXPERIMENT).write_text("a: [1")
    done = CliRunner().invoke(cli, ["report", str(folder)])
    assert isinstance(done.exception, TunerError)
    assert done.exception.exit_status == 4
    assert str(done.exception).startswith(f"{folder}: {EXPERIMENT} cannot be read")


@pytest.mark.parametrize(("target", "status", "words"), [("no/x.html", 4, "No such file"), (".", 2, "is a folder")])
def test_a_place_that_cannot_be_written_is_one_line(saved: ResultSet, target: str, status: int, words: str) -> None:
    where = saved.folder.local_path / target
    done = CliRunner().invoke(cli, ["report", saved.folder.location, "-o", str(where)])
    assert isinstance(done.exception, TunerError)
    assert done.exception.exit_status == status
    assert words in str(done.exception)
    assert "\n" not in str(done.exception)


def test_json_is_one_document(saved: ResultSet, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["report", saved.folder.location, "-o", str(tmp_path / "p.html"), "--json"])
    told = json.loads(done.stdout)
    assert told["page"] == f"{tmp_path}/p.html"
    assert told["verdict"][0].startswith("Trial #")
    assert (tmp_path / "p.html").stat().st_size > 1e6

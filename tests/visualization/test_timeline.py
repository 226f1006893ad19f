"""A search on the clock, and several of them side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.visualization.test_report import add, figures, new_run
from tuner.cli import cli
from tuner.errors import InputError
from tuner.runs.history import EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.results import EXPERIMENT, PROVENANCE, ResultSet, write_json
from tuner.spec.document import dump_yaml
from tuner.visualization.run_comparison import columns, footnotes, page, race
from tuner.visualization.timeline import Timeline, chronicle


def journaled(folder: Path, *events: tuple[Any, ...], **changes: Any) -> ResultSet:
    """A run with these events: (second, what, trial), or (second, "reported", trial, epoch, value)."""
    results = new_run(folder, **changes)
    journal, history = JournalWriter(results.folder), EventApplier(results)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    for now, what, trial, *more in events:
        if trial is not None and results.get(trial) is None:
            journal.append("suggested", trial=trial, config={"lr": 0.1}, elapsed=now)
            history.suggested(trial, {"lr": 0.1})
        fields: dict[str, Any] = {"trial": trial}
        if what == "reported":
            epoch, value = more
            metrics = {"epoch": epoch, results.metric: value}
            fields |= {"step": epoch, "seconds": float(epoch), "timestamp": 1e9 + now, "metrics": metrics}
            fields |= {"checkpoint": None, "decision": "continue"}
        if what == "ended":
            fields |= {"status": "completed", "reason": "", "rung": None}
        journal.append(what, **fields, elapsed=now)
        history.apply({"what": what, **fields})
    journal.close()
    return results


def told(folder: Path, *events: tuple[Any, ...]) -> Timeline:
    return chronicle(journaled(folder, *events))


def stretches(found: Timeline) -> list[tuple[str, float, float, int]]:
    return [(s.trial, s.begin, s.end, s.lane) for s in found.stretches]


def test_trials_that_run_at_once_have_lanes_of_their_own(tmp_path: Path) -> None:
    found = told(
        tmp_path / "r",
        *[(0.0, "started", "a"), (1.0, "started", "b"), (2.0, "reported", "a", 1, 0.5), (3.0, "ended", "a")],
        *[(4.0, "started", "c"), (5.0, "paused", "b"), (6.0, "started", "b"), (7.0, "reported", "b", 1, 0.6)],
        *[(8.0, "ended", "b"), (9.0, "ended", "c")],
    )
    assert stretches(found) == [("a", 0, 3, 0), ("b", 1, 5, 1), ("c", 4, 9, 0), ("b", 6, 8, 1)]
    assert [(m.trial, m.seconds, m.epochs) for m in found.incumbents] == [("a", 2, 1), ("b", 7, 2)]
    assert (found.elapsed, found.epochs, found.lanes) == (9, 2, 2)


def test_what_ran_when_the_driver_was_killed_ends_with_its_last_report(tmp_path: Path) -> None:
    found = told(
        tmp_path / "r",
        *[(0.0, "started", "a"), (2.0, "reported", "a", 1, 0.5), (3.0, "started", "b")],
        *[(3.5, "started", "a"), (5.0, "reported", "a", 2, 0.6), (6.0, "ended", "a")],
    )
    assert stretches(found)[0] == ("a", 0, 2, 0)
    assert stretches(found)[2] == ("a", 3.5, 6, 1)


def test_epochs_that_a_trial_repeats_count_once(tmp_path: Path) -> None:
    again = [(1.0, "reported", "a", 1, 0.1), (2.0, "reported", "a", 2, 0.2), (3.0, "reported", "a", 2, 0.2)]
    assert told(tmp_path / "r", (0.0, "started", "a"), *again).epochs == 2


def test_a_running_trial_runs_until_now(tmp_path: Path) -> None:
    found = told(tmp_path / "r", (0.0, "started", "a"), (1.0, "reported", "a", 1, 0.1), (4.0, "started", "b"))
    assert stretches(found) == [("a", 0, 4, 0), ("b", 4, 4, 0)]


def test_without_a_journal_the_reports_tell_the_time(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    add(results, 0.1, 0.2)  # at seconds 12 and 14 of the day, after 2 and 4 of its own
    add(results, 0.3)
    found = chronicle(results)
    assert stretches(found) == [("id1", 0, 4, 0), ("id2", 10, 12, 0)]
    assert [m.seconds for m in found.incumbents] == [2, 4, 12]


# --- compare -----------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> list[ResultSet]:
    fast = [(0.0, "started", "a"), (2.0, "reported", "a", 1, 0.6), (4.0, "reported", "a", 2, 0.9), (5.0, "ended", "a")]
    slow = [(0.0, "started", "a"), (50.0, "reported", "a", 1, 0.5), (2000.0, "reported", "a", 2, 0.7)]
    made = [journaled(tmp_path / name, *events) for name, events in (("fast", fast), ("slow", slow))]
    for results in made:
        results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
        write_json(results.folder, PROVENANCE, results.provenance)
        results.save()
    return made


def test_all_reach_the_default_target(runs: list[ResultSet]) -> None:
    found = race(runs)
    assert found.target == 0.7
    fast, slow = found.rows()
    assert (fast.best, fast.seconds_to_best, fast.seconds_to_target, fast.epochs_to_target) == (0.9, 4, 4, 2)
    assert (slow.best, slow.seconds_to_best, slow.seconds_to_target, slow.seconds) == (0.7, 2000, 2000, 2000)
    assert columns(found)[1] == {
        "run": "slow",
        "best val_accuracy": 0.7,
        "s to best": 2000,
        "s to 0.7": 2000,
        "epoch to 0.7": 2,
        "seconds": 2000,
        "epoch": 2,
        "trials": 1,
        "failed": 0,
    }


def test_a_target_that_is_not_reached_is_a_dash(runs: list[ResultSet]) -> None:
    assert [row["s to 0.8"] for row in columns(race(runs, 0.8))] == [4, "-"]


def test_small_values_can_be_the_good_ones(tmp_path: Path) -> None:
    loss = {"metric": "loss", "mode": "min"}
    events = [(0.0, "started", "a"), (1.0, "reported", "a", 1, 0.5), (2.0, "reported", "a", 2, 0.3)]
    worse = [(0.0, "started", "a"), (1.0, "reported", "a", 1, 0.4)]
    found = race(
        [journaled(tmp_path / "a", *events, objective=loss), journaled(tmp_path / "b", *worse, objective=loss)]
    )
    assert found.target == 0.4
    assert [row.seconds_to_target for row in found.rows()] == [2, 1]


def test_a_run_without_results_has_dashes(tmp_path: Path, runs: list[ResultSet]) -> None:
    found = race([*runs, new_run(tmp_path / "empty")])
    assert found.target == 0.7
    assert columns(found)[2] | {"run": ""} == {
        "run": "",
        "best val_accuracy": None,
        **dict.fromkeys(["s to best", "s to 0.7", "epoch to 0.7"], "-"),
        **dict.fromkeys(["seconds", "epoch", "trials", "failed"], 0),
    }
    assert race([new_run(tmp_path / "other")]).target is None


def test_different_objectives_are_not_compared(tmp_path: Path, runs: list[ResultSet]) -> None:
    other = new_run(tmp_path / "other", objective={"metric": "loss", "mode": "min"})
    with pytest.raises(InputError, match=r"fast has max val_accuracy; .*other has min loss"):
        race([*runs, other])


def test_what_is_counted_is_said(tmp_path: Path, runs: list[ResultSet]) -> None:
    other = journaled(tmp_path / "fifo", (1.0, "reported", "a", 1, 0.8), scheduler={"kind": "fifo"})
    assert race(runs).unit == "epoch"
    assert race([other]).unit == "reports"
    assert race([*runs, other]).unit == "epochs"
    assert "epochs: fast counts epoch, slow counts epoch, fifo counts training_iteration" in footnotes(
        race([*runs, other])
    )


def test_the_page_has_both_axes(runs: list[ResultSet]) -> None:
    drawn = figures(page(race(runs)))
    titles = [drawn[f"incumbents-{i}"]["layout"]["xaxis"]["title"]["text"] for i in (1, 2)]
    assert titles == ["time of the search (minutes)", "epoch spent over all trials"]
    assert [trace["name"] for trace in drawn["incumbents-1"]["data"]] == ["fast", "slow"]


def test_the_command_prints_a_table_and_writes_the_page(runs: list[ResultSet], tmp_path: Path) -> None:
    folders = [results.folder.location for results in runs]
    done = CliRunner().invoke(cli, ["compare", *folders, "-o", str(tmp_path / "c.html")])
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["run", "fast", "slow"]
    assert figures((tmp_path / "c.html").read_text())
    done = CliRunner().invoke(cli, ["compare", *folders, "--target", "0.55", "--json"])
    rows = json.loads(done.stdout)
    assert (rows["target"], rows["unit"], rows["runs"][0]["seconds_to_target"]) == (0.55, "epoch", 2.0)

"""What people commanded is told with a run: by ``show``, and on its page; a clone's epochs count from its beginning."""

from __future__ import annotations

from pathlib import Path

from tests.runs.test_results import new_run, trial
from tuner.runs.commands import Commanded
from tuner.runs.loading import load_run
from tuner.runs.trial import Origin, Report, Segment, Trial
from tuner.visualization.by_people import command_rows
from tuner.visualization.html import page
from tuner.visualization.text_tables import overview, saved

STOPPED = Commanded("1", "stop-trial", "ada@laptop", 1e9, {"trial": "1"}, True, "", ("t1",))
REFUSED = Commanded("2", "add", "<b>bob</b>", 1e9, {"config": {"lr": 9}}, False, "lr: 9 is outside of it")
CLONED = Commanded(
    "3", "clone", "ada", 1e9, {"trial": "1", "changes": {"lr": 0.1}, "checkpoint": True}, True, "", ("c",)
)


def test_who_commanded_what_and_what_came_of_it(tmp_path: Path) -> None:
    results = new_run(tmp_path / "q")
    known = trial(results, 0.5)
    results.commands += [STOPPED, REFUSED, CLONED]
    rows = [row[1:] for row in command_rows(results)]
    assert rows == [
        ["ada@laptop", "stop-trial 1", f"done: trial {known.label if known.id == 't1' else 't1'}"],
        ["<b>bob</b>", "add config.lr=9", "refused: lr: 9 is outside of it"],
        ["ada", "clone 1 changes.lr=0.1 checkpoint=true", "done: trial c"],
    ]
    results.save()
    again = load_run(tmp_path / "q")
    assert again.commands == results.commands
    shown, html = overview(again, "finished"), page(again)
    assert "refused: lr: 9 is outside of it" in shown
    assert "&lt;b&gt;bob&lt;/b&gt;" in html
    assert "<b>bob</b>" not in html


def test_a_run_that_nobody_commanded_has_no_such_table(tmp_path: Path) -> None:
    results = new_run(tmp_path / "q")
    trial(results, 0.5)
    results.save()
    assert "what came of it" not in overview(load_run(tmp_path / "q"), "finished") + page(load_run(tmp_path / "q"))
    assert not (tmp_path / "q/commands.json").exists()


def test_a_search_is_paused_from_the_last_pause_to_the_next_continue(tmp_path: Path) -> None:
    results, told = new_run(tmp_path / "q"), []
    for do, done in (("pause", True), ("stop-trial", True), ("continue", False), ("continue", True), ("pause", False)):
        results.commands.append(Commanded("1", do, "ada", 0.0, {}, done))
        told.append(results.is_paused)
    assert told == [True, True, True, False, False]


def test_what_its_parent_trained_is_not_counted_for_a_clone(tmp_path: Path) -> None:
    results = new_run(tmp_path / "q")
    results.spec["scheduler"] = {"kind": "asha", "time_attr": "epoch", "max_t": 10, "reduction_factor": 3}
    metric = results.metric
    for trial_id, first, last, origin in (("a", 1, 10, None), ("c", 7, 8, Origin("ada", "a", 6, 6))):
        reports = [
            Report(trial_id, i, float(i), 0.0, {metric: 0.5, "epoch": e})
            for i, e in enumerate(range(first, last + 1), 1)
        ]
        segments = [Segment(0, {}, origin.parent, origin.step or 0)] if origin else []
        status = "stopped" if origin else "completed"
        results.add(Trial(trial_id, 1, {}, status, reports=reports, segments=segments, origin=origin))
    found = saved(results)
    assert found is not None
    assert (found.spent, found.full) == (10 + 2, 10 + 4)

"""Searches whose loop is the user's: the searchers, schedulers, budget and journal of every search, without Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.journals import read_journal
from tuner.actions.ask_tell import AskTell
from tuner.actions.control import sender
from tuner.errors import InputError
from tuner.runs.results import how_to_continue
from tuner.storage.folder import RunFolder

ROOT = Path(__file__).parents[2]
SPACE = {"x": {"uniform": [0, 1]}}


def search(**keys: Any) -> tuner.Search:
    keys = {"objective": tuner.minimize("loss"), "budget": tuner.Budget(trials=9), "name": "mine"} | keys
    return tuner.Search(None, SPACE, **keys)


def loss(config: dict[str, Any], epoch: int) -> float:
    return float((config["x"] - 0.3) ** 2 + 1 / epoch)


def drive(loop: AskTell, workers: int = 3, until: int | None = None) -> Iterator[str]:
    """Runs the trials of ``loop`` by turns, each until it is stopped, paused or has made 9 epochs; yields answers."""
    running: dict[str, Any] = {}
    steps: dict[str, int] = {}
    count = 0
    while True:
        while len(running) < workers and (trial := loop.ask()) is not None:
            running[trial.id] = trial
            assert trial.step == steps.get(trial.id, trial.step)
            steps[trial.id] = trial.step
        if not running:
            return
        for trial_id, trial in list(running.items()):
            steps[trial_id] += 1
            answer = loop.tell(trial, {"loss": loss(trial.config, steps[trial_id]), "epoch": steps[trial_id]})
            yield answer
            if answer == "continue" and steps[trial_id] == 9:
                loop.finish(trial)
            if answer != "continue" or steps[trial_id] == 9:
                del running[trial_id]
            count += 1
            if count == until:
                return


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"searcher": tuner.searchers.Optuna(seed=1)},
        {
            "searcher": tuner.searchers.Bohb(seed=1),
            "scheduler": tuner.schedulers.Asha(max_t=9, grace_period=1, reduction_factor=3),
        },
        {"scheduler": tuner.schedulers.Asha(max_t=9, grace_period=1, variant="promotion", reduction_factor=3)},
        {"searcher": tuner.searchers.Bohb(seed=1), "scheduler": tuner.schedulers.HyperBand(max_t=9)},
    ],
)
def test_a_loop_of_the_users_gives_a_run_like_any(keys: dict[str, Any], tmp_path: Path) -> None:
    with search(**keys).begin(name="q", storage=tmp_path) as loop:
        answers = list(drive(loop))
    run = tuner.load(tmp_path / "q")
    assert run.state == "finished"
    assert len(run.trials) == 9
    assert all(trial.has_ended for trial in run.trials)
    assert sum(trial.steps for trial in run.trials) == len(answers)
    best = run.best_trial
    assert best is not None
    assert run.best_value == pytest.approx(loss(best.config, best.best.step))
    if "scheduler" in keys:
        assert {"continue", "stop"} <= set(answers)
        assert {"completed", "stopped"} == {trial.status for trial in run.trials}
    if "promotion" in str(keys):
        assert "pause" in answers
    assert (tmp_path / "q/report.html").exists()
    assert len(run.reports_dataframe()) == len(answers)


def outcome(run: tuner.Run) -> list[Any]:
    return [(t.config, t.status, t.rung, [r.metrics for r in t.reports]) for t in run.trials]


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
@pytest.mark.parametrize("left", ["closed", "killed"])
@pytest.mark.parametrize("audit", [0.0, 0.5])
def test_a_search_that_was_left_continues_as_if_it_had_not_been(
    variant: Any, left: str, audit: float, tmp_path: Path
) -> None:
    keys = {
        "searcher": tuner.searchers.Bohb(seed=1),
        "scheduler": tuner.schedulers.Asha(
            max_t=9, time_attr="epoch", variant=variant, reduction_factor=3, audit=audit
        ),
    }
    with search(**keys).begin(name="whole", storage=tmp_path) as loop:
        list(drive(loop, workers=1))
    loop = search(**keys).begin(name="left", storage=tmp_path)
    list(drive(loop, workers=1, until=14))
    if left == "closed":
        loop.close()
        assert tuner.load(tmp_path / "left").state == "interrupted"
    else:
        loop._held.close()  # the kernel does it for a process that is killed
    again = tuner.load(tmp_path / "left").reopen()
    list(drive(again, workers=1))
    again.close()
    found, known = tuner.load(tmp_path / "left"), tuner.load(tmp_path / "whole")
    assert outcome(found) == outcome(known)
    assert found.state == "finished"
    with pytest.raises(InputError, match="nothing to reopen: the search came to its end"):
        found.reopen()


KILLED = """
import os, signal, tuner
search = tuner.Search(None, {"x": {"uniform": [0, 1]}}, objective=tuner.minimize("loss"), budget=tuner.Budget(trials=9))
loop = search.begin(name="q", storage="runs")
for number in range(4):
    trial = loop.ask()
    loop.tell(trial, {"loss": trial.config["x"]})
    if number < 3:
        loop.finish(trial)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_told_before_a_kill_is_known(user_folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == -signal.SIGKILL
    with tuner.load("runs/q").reopen() as loop:
        trial = loop.ask()
        assert trial is not None
        assert (trial.number, trial.step) == (4, 1)
        loop.finish(trial)
        rest = 0
        while (trial := loop.ask()) is not None:
            loop.tell(trial, {"loss": 1.0})
            loop.finish(trial)
            rest += 1
    assert rest == 5
    assert {trial.status for trial in tuner.load("runs/q").trials} == {"completed"}


@pytest.mark.parametrize(
    "checkpoint", ["", "checkpoints/1", "../x", "/tmp/x", "ray/other/1", "ray/{id}", "ray/{id}/../x"]
)
def test_a_checkpoint_elsewhere_is_refused(tmp_path: Path, checkpoint: str) -> None:
    """The journal would not be read with it: what was told would be lost."""
    loop = search().begin(name="a", storage=tmp_path)
    trial = loop.ask()
    assert trial is not None
    with pytest.raises(InputError, match=rf"it must lie in ray/{trial.id} of the run folder: give ray/{trial.id}/"):
        loop.tell(trial, {"loss": 1.0}, checkpoint=checkpoint.format(id=trial.id))
    loop.tell(trial, {"loss": 2.0}, checkpoint=f"ray/{trial.id}/first")
    loop._held.close()  # as if it were killed
    assert [one.checkpoint for one in tuner.load(tmp_path / "a").results.trials[0].reports] == [f"ray/{trial.id}/first"]


def test_a_worker_that_comes_anew_leaves_open_trials_to_theirs(tmp_path: Path) -> None:
    """Each step is a process of its own, as the commands ask and tell are."""
    folder = tmp_path / "q"
    with search(budget=tuner.Budget(trials=2)).begin(name="q", storage=tmp_path) as loop:
        first = loop.ask()
    with tuner.load(folder).reopen() as loop:
        second = loop.ask(new=True)
        assert loop.ask(new=True) is None
        assert first is not None
        assert second is not None
        assert f"tuner ask {folder}" in how_to_continue(loop.results)
        assert sorted(loop.open_ids) == sorted([first.id, second.id])
    with tuner.load(folder).reopen() as loop:
        assert loop.tell(second, {"loss": 0.5}) == "continue"
        loop.finish(second)
        with pytest.raises(InputError, match=f"'zzz' does not run; running: {first.id}"):
            loop.tell("zzz", {"loss": 0.5})
    with tuner.load(folder).reopen() as loop:
        again = loop.ask()
        assert again is not None
        assert again.id == first.id
        loop.fail(first.id, "lost")
    assert tuner.load(folder).state == "finished"
    assert [trial.status for trial in tuner.load(folder).trials] == ["failed", "completed"]


def test_a_proposed_configuration_is_a_trial_on_top_of_the_budget(tmp_path: Path) -> None:
    keys = {"searcher": tuner.searchers.Bohb(seed=1), "budget": tuner.Budget(trials=3)}
    with search(**keys).begin(name="alone", storage=tmp_path) as loop:
        list(drive(loop, workers=1))
    with search(**keys).begin(name="q", storage=tmp_path) as loop:
        with pytest.raises(InputError, match=r"propose: x: 2 is outside"):
            loop.propose({"x": 2})
        with pytest.raises(InputError, match=r"propose: x: is missing"):
            loop.propose({})
        first = loop.propose({"x": 0.25}, by="a model")
        assert (first.number, first.config) == (1, {"x": 0.25})
        loop.tell(first, {"loss": 0.0, "epoch": 1})
    loop = tuner.load(tmp_path / "q").reopen()
    loop.finish(first)
    loop.propose({"x": 0.75})
    loop._held.close()  # as if it were killed
    with tuner.load(tmp_path / "q").reopen() as loop:
        list(drive(loop, workers=1))
    run = tuner.load(tmp_path / "q")
    assert (run.state, len(run.trials), run.results.provenance["trials"]) == ("finished", 5, 5)
    told = [event.get("origin") for event in read_journal(run.results.folder).events if event["what"] == "suggested"]
    assert [origin and origin["by"] for origin in told] == ["a model", sender(), None, None, None]
    assert run.best_value == 0.0
    assert run.trials[2].config == tuner.load(tmp_path / "alone").trials[0].config


def test_no_proposal_comes_after_the_end(tmp_path: Path) -> None:
    with search(budget=tuner.Budget(trials=9, target=0.5)).begin(storage=tmp_path) as loop:
        trial = loop.propose({"x": 0.5})
        loop.tell(trial, {"loss": 0.1})
        loop.finish(trial)
        with pytest.raises(InputError, match=r"propose: the search has ended: budget.target 0.5"):
            loop.propose({"x": 0.5})


def test_the_budget_ends_the_search(tmp_path: Path) -> None:
    with search(budget=tuner.Budget(trials=100, target=0.2)).begin(storage=tmp_path) as loop:
        while (trial := loop.ask()) is not None:
            loop.tell(trial, {"loss": trial.config["x"]})
            loop.finish(trial)
        assert 0 < len(loop.results.trials) < 100
        assert loop.results.best_value is not None
        assert loop.results.best_value <= 0.2


def test_the_shorthand_of_a_search(user_folder: Path) -> None:
    made = search(budget=tuner.Budget(trials=2))
    with pytest.raises(InputError, match="call ask"):
        made.tell("x", {})
    first = made.ask()
    second = made.ask()
    assert first is not None
    assert second is not None
    assert made.ask() is None
    assert made.tell(second, {"loss": 0.5}) == "continue"
    made.finish(second)
    made.fail(first, "a broken\nmachine")
    run = made.close()
    assert [(trial.status, trial.reason) for trial in run.trials] == [("failed", "a broken machine"), ("completed", "")]
    assert [path.name.startswith("mine-") for path in (user_folder / "runs").iterdir()] == [True]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({}, "loss is not among the metrics"),
        ({"loss": float("nan")}, "loss is nan"),
        ({"loss": "x"}, "loss is 'x'"),
    ],
)
def test_a_wrong_report_changes_nothing(metrics: dict[str, Any], message: str, tmp_path: Path) -> None:
    with search().begin(name="q", storage=tmp_path) as loop:
        trial = loop.ask()
        assert trial is not None
        before = len(read_journal(RunFolder.at(tmp_path / "q")).events)
        with pytest.raises(InputError, match=message):
            loop.tell(trial, metrics)
        with pytest.raises(InputError, match="reported nothing: call fail instead"):
            loop.finish(trial)
        assert len(read_journal(RunFolder.at(tmp_path / "q")).events) == before
        with pytest.raises(InputError, match="'zzz' does not run; running: "):
            loop.tell("zzz", {"loss": 1.0})
    with pytest.raises(InputError, match="is closed: reopen it"):
        loop.ask()


def test_one_process_holds_a_run(tmp_path: Path) -> None:
    with search().begin(name="q", storage=tmp_path), pytest.raises(InputError, match="is taken"):
        search().begin(name="q", storage=tmp_path)
    with tuner.load(tmp_path / "q").reopen(), pytest.raises(InputError, match=r"another process|works on"):
        tuner.load(tmp_path / "q").reopen()


@pytest.mark.parametrize(
    "scheduler",
    [tuner.schedulers.Pbt(max_t=9), tuner.schedulers.RayScheduler(class_path="a:b")],
)
def test_a_scheduler_that_acts_on_ray_is_refused(scheduler: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"scheduler"), contextlib.ExitStack() as stack:
        stack.enter_context(search(scheduler=scheduler).begin(storage=tmp_path))


def test_a_search_without_a_trainable_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"this search has no trainable.*begin\(\)"):
        search().run(storage=tmp_path, progress="none")
    assert not list(tmp_path.iterdir())

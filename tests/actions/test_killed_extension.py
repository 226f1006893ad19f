"""`extend` and `retry` that are killed between two of their steps, and given once more: done once. Without Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.execution.test_crash import TRIALS, begin, loop, quiet, tuner, without_ray  # noqa: F401 - the fixture
from tests.journals import read_journal
from tuner import extend, load_run, resume, retry
from tuner.errors import InputError
from tuner.runs.diagnose import explain
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_latest
from tuner.runs.results import ResultSet
from tuner.storage.folder import RunFolder

STEPS = [
    "tuner.actions.resume.prepare",
    "tuner.search.recovery.recover",
    "tuner.actions.resume.write_experiment",
    "tuner.actions.resume.search",
    "tuner.execution.recorder.Recorder.close",
]
"""Functions in the order in which they are called; the last one says that the search came to its end."""


class Killed(BaseException):
    """The process is gone: nothing that it would have done later is done."""


def killed(patch: pytest.MonkeyPatch, step: str, act: Callable[[], Any]) -> None:
    """``act`` is killed when it comes to ``step``."""

    def kill(*arguments: Any, **options: Any) -> None:
        raise Killed

    with patch.context() as within:
        within.setattr(step, kill)
        with pytest.raises(Killed):
            act()


def requests() -> list[str]:
    return [event["request"] for event in read_journal(RunFolder.at("runs/r")).events if event["what"] == "extended"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("trials", ["+2", TRIALS + 2])
def test_a_longer_search_is_that_much_longer_once(monkeypatch: pytest.MonkeyPatch, step: str, trials: Any) -> None:
    begin()
    said: list[str] = []
    for _ in range(2):
        killed(monkeypatch, step, lambda: extend("r", trials=trials, say=said.append))
    said.clear()
    extend("r", trials=trials, say=said.append)
    results = load_run("r")
    assert [trial.number for trial in results.trials] == list(range(1, TRIALS + 3))
    assert {trial.status for trial in results.trials} == {"completed"} or results.count("stopped") == TRIALS + 2
    assert requests() == [f"extend --trials {trials}"]
    assert explain(results).state == "finished"
    again = f"`extend --trials {trials}` was given before, and the search has not come to its end since: it continues"
    assert any(again in text for text in said) == (step != STEPS[0])
    if trials == "+2":  # it has come to its end, so that this is another request
        assert len(extend("r", trials=trials, say=quiet).trials) == TRIALS + 4
    else:
        with pytest.raises(InputError, match=f"it was {TRIALS + 2}, and {TRIALS + 2} is not longer"):
            extend("r", trials=trials, say=quiet)


def test_killed_in_the_midst_of_the_new_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    begin()

    def one_trial(plan: Any, task: Any, recorder: Any, control: Any) -> None:
        ended = recorder.ended

        def end(trial: Any) -> None:
            ended(trial)
            raise Killed

        recorder.ended = end
        loop(plan, task, recorder, control)

    for count in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr("tuner.execution.fit.fit", one_trial)
            patch.setattr("tuner.actions.run._leave", quiet_leave)
            with pytest.raises(Killed):
                extend("r", trials="+3", say=quiet)
        known = load_latest(RunFolder.at("runs/r"))
        assert (len(known.trials), explain(known).state) == (TRIALS + count, "dead")
    assert len(extend("r", trials="+3", say=quiet).trials) == TRIALS + 3
    assert len(requests()) == 1


def quiet_leave(*arguments: Any) -> None: ...


def test_another_request_is_another_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    begin()
    killed(monkeypatch, "tuner.actions.resume.search", lambda: extend("r", trials="+2", say=quiet))
    assert len(extend("r", trials="+3", say=quiet).trials) == TRIALS + 5


@pytest.mark.parametrize("step", STEPS[1:])
def test_resume_continues_what_an_extension_began(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    begin()
    killed(monkeypatch, step, lambda: extend("r", trials="+2", say=quiet))
    known = load_latest(RunFolder.at("runs/r"))
    assert explain(known).state == "dead"
    assert known.unreadable == []
    assert "damaged" not in tuner("list")
    assert len(resume("r", say=quiet).trials) == TRIALS + 2
    assert load_run("r").provenance["trials"] == TRIALS + 2


def begin_and_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose trials 2 and 5 fail."""

    def failing(plan: Any, task: Any, recorder: Any, control: Any) -> None:
        def fail(trial: Any) -> None:
            recorder._end(trial, "failed" if trial.number in (2, 5) else "completed", "")

        recorder.ended = fail
        loop(plan, task, recorder, control)

    with monkeypatch.context() as patch:
        patch.setattr("tuner.execution.fit.fit", failing)
        begin()


@pytest.mark.parametrize("step", STEPS)
def test_chosen_failed_trials_run_again_once(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    begin_and_fail(monkeypatch)
    with pytest.raises(InputError, match=r"--trial 3: .* has no failed trial of that id or number; allowed: 2, 5"):
        retry("r", trials=["2", "3"], say=quiet)
    killed(monkeypatch, step, lambda: retry("r", trials=["5"], say=quiet))
    results = retry("r", trials=["5"], say=quiet)
    assert [trial.number for trial in results.trials if trial.status == "failed"] == [2]
    assert requests() == ["retry --trial 5"]
    results = retry("r", trials=[results.trials[1].id], say=quiet)
    assert results.count("failed") == 0


@pytest.mark.parametrize("step", STEPS)
def test_failed_trials_run_again_once(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    begin_and_fail(monkeypatch)
    for _ in range(2):
        killed(monkeypatch, step, lambda: retry("r", say=quiet))
    results = retry("r", say=quiet)
    assert (results.count("failed"), len(results.trials)) == (0, TRIALS)
    assert requests() == ["retry --failed"]
    ran = [event["trial"] for event in read_journal(results.folder).events if event["what"] == "reported"]
    assert [ran.count(trial.id) for trial in results.trials] == [
        1 + (trial.number in (2, 5)) for trial in results.trials
    ]
    with pytest.raises(InputError, match="nothing to retry"):
        retry("r", say=quiet)


def test_a_run_that_an_earlier_version_extended_can_be_continued() -> None:
    """It wrote an event for each trial that was to continue, and did not note what was asked for."""
    begin()
    folder = RunFolder.at("runs/r")
    journal = JournalWriter(folder)
    journal.append("extended", spec=load_run("r").spec)
    for trial in load_run("r").trials[:2]:
        journal.append("reopened", trial=trial.id)
    journal.close()
    known: ResultSet = load_latest(folder)
    assert [trial.status for trial in known.trials[:3]] == ["paused", "paused", known.trials[2].status]
    assert known.trials[2].has_ended
    assert len(resume("r", say=quiet).trials) == TRIALS
    assert Path("runs/r/report.html").exists()

"""Trackers of the user's own: checked before the search, fed by the process beside it, and tried again if they fail."""

from __future__ import annotations

import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.made_up import made_up_run, made_up_trial
from tuner import TrackingBackend, validate
from tuner.errors import EnvironmentFailure, InputError
from tuner.experiment.plug_ins import BACKEND_METHODS
from tuner.experiment.tracking import Tracking
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_latest
from tuner.storage.folder import RunFolder
from tuner.tracking import backends_of, check_reachable
from tuner.tracking.follower import follow
from tuner.tracking.sync import sync_run

BACKENDS = """
    from pathlib import Path
    from tuner import TrackingBackend
    from tuner.errors import EnvironmentFailure

    class Lines(TrackingBackend):
        def __init__(self, file, away=False):
            self.file, self.away, self.name = Path(file), away, "the lines"

        def check(self):
            if self.away:
                raise EnvironmentFailure("the lines are away")

        def open(self, results):
            self.write("open")

        def send(self, results, trials):
            self.write("send", *sorted(trial.id for trial in trials))

        def close(self, results):
            self.write("close", *(f"{trial.id}:{len(trial.reports)}" for trial in results.trials))

        def write(self, *words):
            with self.file.open("a") as out:
                print(*words, file=out)

    class Breaks(Lines):
        def close(self, results):
            if self.file.with_suffix(".broken").exists():
                return super().close(results)
            self.file.with_suffix(".broken").touch()
            return {}["nothing"]

    class Exits(Lines):
        def __init__(self):
            raise SystemExit(3)

    class Half(TrackingBackend):
        def open(self, results): ...

    class Bare:
        def open(self, results): ...

    def function(): ...
"""

EXPERIMENT = {
    "trainable": "train.py:train",
    "search_space": {"x": {"uniform": [0, 1]}},
    "objective": {"metric": "score", "mode": "max"},
    "budget": {"trials": 2},
}


@pytest.fixture(autouse=True)
def module(user_folder: Path) -> Path:
    (user_folder / "train.py").write_text("def train(config): config['x']\n")
    (user_folder / "records.py").write_text(textwrap.dedent(BACKENDS))
    return user_folder


def tracked(*customs: dict[str, Any]) -> Tracking:
    return Tracking.model_validate({"custom": list(customs)})


def run_of(folder: Path, *customs: dict[str, Any]) -> JournalWriter:
    """A run that asks for these trackers, with one trial of two reports."""
    results = made_up_run(folder, roots=[str(folder)], working_directory=str(folder))
    results.spec["tracking"] = {"custom": list(customs)}
    results.folder.filesystem.create_dir(results.folder.path)
    journal = JournalWriter(results.folder)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    journal.append("suggested", trial="a", config={"lr": 0.1})
    journal.append("started", trial="a")
    for step in (1, 2):
        values = {"seconds": 1.0, "timestamp": 1.8e9, "checkpoint": None}
        journal.append("reported", trial="a", step=step, metrics={"epoch": step, "acc": 0.5}, **values)
    return journal


def problem_of(custom: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        validate({**EXPERIMENT, "tracking": {"custom": [custom]}})
    (problem,) = caught.value.problems
    return str(problem)


def test_the_methods_that_are_asked_for_are_those_of_the_interface() -> None:
    assert set(BACKEND_METHODS) == {name for name, value in vars(TrackingBackend).items() if callable(value)}


@pytest.mark.parametrize(
    ("custom", "message"),
    [
        ({"class_path": "records.py:Linse"}, "has no 'Linse'; did you mean 'Lines'?"),
        ({"class_path": "nowhere.py:Lines"}, "no file 'nowhere.py'"),
        ({"class_path": "records.py:function"}, "is not a class"),
        ({"class_path": "records.py:Half"}, "does not define send, close: derive it from tuner.TrackingBackend"),
        ({"class_path": "records.py:Bare"}, "does not define check, send, close: derive it"),
        ({"class_path": "records.py:Lines"}, "cannot be made with no options: missing a required argument: 'file'"),
        ({"class_path": "records.py:Lines", "options": {"flie": 1}}, "cannot be made with flie: missing a required"),
        ({"class_path": "Lines"}, "class_path"),
        ({"class_path": "records.py:Lines", "options": {"file": "http://me:secret@host/x"}}, "holds a password"),
    ],
)
def test_a_class_that_cannot_be_used_is_one_problem_before_the_search(custom: dict[str, Any], message: str) -> None:
    told = problem_of(custom)
    assert told.startswith("<python>: tracking.custom[0].")
    assert message in told
    assert "secret" not in told


def test_one_that_can_be_used_is_valid() -> None:
    custom = {"class_path": "records.py:Lines", "options": {"file": "x"}}
    assert validate({**EXPERIMENT, "tracking": {"custom": [custom]}}).spec.tracking.custom


def test_check_decides_whether_the_search_starts(module: Path) -> None:
    away = {"class_path": "records.py:Lines", "options": {"file": "x", "away": True}}
    storage, said = RunFolder.at(module), []
    with pytest.raises(EnvironmentFailure, match="the lines are away"):
        check_reachable(tracked(away), storage, (module,), said.append)
    check_reachable(tracked({**away, "required": False}), storage, (module,), said.append)
    assert said == ["NOTICE: the lines are away"]
    with pytest.raises(EnvironmentFailure, match=r"tracking.custom: records.py:Exits: SystemExit: 3"):
        check_reachable(tracked({"class_path": "records.py:Exits"}), storage, (module,), said.append)


def test_it_is_opened_fed_and_closed(module: Path) -> None:
    file = module / "lines.txt"
    journal = run_of(module, {"class_path": "records.py:Lines", "options": {"file": str(file)}})
    over = threading.Event()
    over.set()
    assert follow(made_up_run(module).folder, over, print) == ""
    assert file.read_text().splitlines() == ["open", "close a:2"]
    journal.append("ended", trial="a", status="completed", reason="", rung=None)
    (backend,) = sync_run(load_latest(made_up_run(module).folder))
    assert backend.name == "the lines"
    assert file.read_text().splitlines()[2:] == ["open", "close a:2"]


def test_news_are_sent_as_they_come(module: Path) -> None:
    file = module / "lines.txt"
    run_of(module, {"class_path": "records.py:Lines", "options": {"file": str(file)}})
    results = load_latest(made_up_run(module).folder)
    (backend,) = backends_of(Tracking.model_validate(results.spec["tracking"]), results)
    backend.open(results)
    backend.send(results, [made_up_trial(results, 0.5)])
    assert file.read_text().splitlines() == ["open", "send id2"]


def test_any_exception_is_a_notice_with_its_line_and_the_call_is_repeated(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.tracking.follower._RETRY_S", 0.0)
    file, said = module / "lines.txt", []
    run_of(module, {"class_path": "records.py:Breaks", "options": {"file": str(file)}})
    over = threading.Event()
    over.set()
    assert follow(made_up_run(module).folder, over, said.append) == ""
    assert file.read_text().splitlines() == ["open", "open", "close a:2"]
    failed, back = said
    assert failed.startswith("the lines: KeyError: 'nothing' (")
    assert f"{module}/records.py, line 32); the search continues" in failed
    assert back == "the lines is back; what was missing is sent"

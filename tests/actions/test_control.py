"""Commands are sent and answered: without Ray, the search is a thread that holds the lock and writes the journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.runs.test_listing import saved
from tuner.actions.control import command
from tuner.cli import control
from tuner.errors import EnvironmentFailure, InputError
from tuner.experiment.spec import Budget
from tuner.runs.commands import COMMANDS, Commanded, discard, waiting_commands
from tuner.runs.journal import JournalWriter
from tuner.search.changes import changed_budget
from tuner.search.emitted_events import commanded
from tuner.search.orders import NewBudget, arguments_of
from tuner.storage.folder import RunFolder
from tuner.storage.lock import locked


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000")
    return RunFolder.at(tmp_path / "q")


class Search:
    """Holds the lock of the run; ``answers`` what comes of each command, or ends without an answer."""

    def __init__(self, folder: RunFolder, answers: dict[str, Any] | None, ends: bool = False) -> None:
        self.folder, self.answers, self.ends = folder, answers, ends
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.over, self.ready = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()
        assert self.ready.wait(30)

    def _work(self) -> None:
        with locked(self.folder) as lock:
            journal = JournalWriter(self.folder, lock)
            self.ready.set()
            while not self.over.wait(0.01):
                for sent in waiting_commands(self.folder)[0]:
                    if self.ends:
                        return
                    if self.answers is not None:
                        self.sent.append((sent.do, dict(sent.arguments)))
                        journal.append(**commanded(Commanded(**vars(sent), **self.answers)))
                        discard(self.folder, sent)


@pytest.fixture
def search(folder: RunFolder) -> Iterator[Any]:
    started: list[Search] = []

    def start(answers: dict[str, Any] | None, ends: bool = False) -> Search:
        started.append(Search(folder, answers, ends))
        return started[-1]

    yield start
    for one in started:
        one.over.set()
        one.thread.join()


def test_a_command_is_answered_by_the_search(folder: RunFolder, search: Any) -> None:
    search({"done": True, "trials": ("t1",)})
    outcome = command(folder, "stop-trial", {"trial": 1}, by="ada@laptop")
    assert (outcome.done, outcome.reason, outcome.trials) == (True, "", ("t1",))
    assert not (folder / COMMANDS).files()


@pytest.mark.parametrize(
    ("method", "words", "sent"),
    [
        ("stop_trial", ([7], {}), ("stop-trial", {"trial": 7})),
        ("keep_trial", (["t1"], {}), ("keep-trial", {"trial": "t1"})),
        ("add_trial", ([{"lr": 0.1, "net": {"depth": 2}}], {}), ("add", {"config": {"lr": 0.1, "net": {"depth": 2}}})),
        ("clone_trial", ([7], {}), ("clone", {"trial": 7, "changes": {}, "checkpoint": False})),
        (
            "clone_trial",
            ([7, {"lr": 0.2}], {"checkpoint": True}),
            ("clone", {"trial": 7, "changes": {"lr": 0.2}, "checkpoint": True}),
        ),
        ("change_budget", ([], {"trials": 20, "cost": None}), ("budget", {"trials": 20, "cost": None})),
        (
            "narrow_space",
            ([{"lr": {"uniform": [0, 0.5]}}], {}),
            ("space", {"search_space": {"lr": {"uniform": [0, 0.5]}}}),
        ),
        ("pause", ([], {}), ("pause", {})),
        ("unpause", ([], {}), ("continue", {})),
        ("limit_slots", ([3], {}), ("slots", {"trials": 3})),
        ("limit_slots", ([None], {}), ("slots", {"trials": None})),
    ],
)
def test_each_command_from_python(
    folder: RunFolder, search: Any, method: str, words: tuple[list[Any], dict[str, Any]], sent: tuple[str, Any]
) -> None:
    running = search({"done": True, "trials": ("t9",)})
    positional, named = words
    answer = getattr(tuner.load(folder.location), method)(*positional, **named)
    assert running.sent == [sent]
    assert answer == ("t9" if method in ("add_trial", "clone_trial") else None)
    arguments_of(*sent)  # the search takes them


def test_a_refusal_is_an_outcome_and_an_error_of_python(folder: RunFolder, search: Any) -> None:
    search({"done": False, "reason": "it has ended"})
    assert command(folder, "pause").reason == "it has ended"
    with pytest.raises(InputError, match=r"^pause: refused: it has ended$"):
        tuner.load(folder.location).pause()


def test_who_commands_is_this_user_unless_named(folder: RunFolder) -> None:
    command(folder, "pause", wait_s=0)
    command(folder, "pause", by="ada", wait_s=0)
    (mine, hers), _ = waiting_commands(folder)
    assert "@" in mine.by
    assert hers.by == "ada"


def test_nobody_answers_where_no_process_works(folder: RunFolder) -> None:
    with pytest.raises(InputError, match=r"no process works on this run; to continue it: python -m tuner resume"):
        command(folder, "pause")
    saved(Path(folder.path), "2026-01-01T10:00:00+0000", interrupted=False)
    with pytest.raises(InputError, match=r"the search came to its end; a longer one: python -m tuner extend"):
        command(folder, "pause")
    assert waiting_commands(folder) == ([], [])


def test_a_command_that_is_not_answered_is_taken_back(folder: RunFolder, search: Any) -> None:
    search(None)
    with pytest.raises(
        EnvironmentFailure, match=r"not answered within 0.2s.*taken back.*python -m tuner status"
    ) as told:
        command(folder, "pause", wait_s=0.2)
    assert "\n" not in str(told.value)
    assert waiting_commands(folder) == ([], [])


def test_a_search_that_ends_meanwhile_is_told_so(folder: RunFolder, search: Any) -> None:
    search(None, ends=True)
    began = time.monotonic()
    with pytest.raises(InputError, match="no process works on this run"):
        command(folder, "pause", wait_s=600)
    assert time.monotonic() - began < 300
    assert waiting_commands(folder) == ([], [])


@pytest.mark.parametrize(
    ("do", "arguments", "problem"),
    [
        ("fly", {}, "'fly' is not a command; allowed"),
        ("puase", {}, "did you mean 'pause'"),
        ("stop-trial", {}, "stop-trial: it needs trial"),
        ("stop-trial", {"trial": ["1"]}, "stop-trial: trial: "),
        ("slots", {"trials": 1.5}, "slots: trials: 1.5"),
        ("pause", {"trial": 1}, "pause: trial is not an argument of it; it has none"),
    ],
)
def test_a_wrong_command_is_not_sent(folder: RunFolder, do: str, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as raised:
        command(folder, do, arguments)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("stop-trial 3", {"trial": "3"}),
        ("slots 2", {"trials": 2}),
        ("slots none", {"trials": None}),
        ("pause", {}),
        ("add lr=1e-4 model.width=32 name=on", {"config": {"lr": 1e-4, "model.width": 32, "name": "on"}}),
        ("clone 3 lr=0.5", {"trial": "3", "changes": {"lr": 0.5}}),
        ("clone 3", {"trial": "3", "changes": {}}),
        ("budget trials=+20 wall_clock=2h", {"trials": "+20", "wall_clock": "2h"}),
        ("space model.lr.loguniform=[1,2]", {"search_space": {"model": {"lr": {"loguniform": [1, 2]}}}}),
        ("budget gpu_hours=null", {"gpu_hours": None}),
    ],
)
def test_the_words_of_a_command_line(words: str, arguments: dict[str, Any]) -> None:
    do, *rest = words.split(" ")
    assert control.arguments(do, rest) == arguments


@pytest.mark.parametrize(
    "words",
    ["add", "add lr", "add =3", "clone", "budget", "slots 0", "slots -1", "slots many", "stop-trial 1 2", "pause now"],
)
def test_words_that_make_no_sense(words: str) -> None:
    do, *rest = words.split(" ")
    with pytest.raises(InputError, match=f"^{do}"):
        arguments_of(do, control.arguments(do, rest))


BUDGET = {"trials": 30, "wall_clock": 60.0, "cost": {"per_gpu_hour": 2.0, "max": 2.5}}


@pytest.mark.parametrize(
    ("limits", "budget"),
    [
        ({"trials": "+5"}, {"trials": 35}),
        ({"trials": 7}, {"trials": 7}),
        ({"wall_clock": "+1h", "epochs": 100}, {"wall_clock": 3660.0, "epochs": 100}),
        ({"wall_clock": "2h"}, {"wall_clock": 7200.0}),
        ({"cost": " +1"}, {"cost": {"per_gpu_hour": 2.0, "max": 3.5}}),
        ({"wall_clock": None}, {"wall_clock": None}),
    ],
)
def test_a_plus_adds_to_the_limit_that_the_search_has(limits: dict[str, Any], budget: dict[str, Any]) -> None:
    order = arguments_of("budget", limits)
    assert isinstance(order, NewBudget)
    assert changed_budget(BUDGET, order) == Budget.model_validate({**BUDGET, **budget})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("epochs", "+1", "there was no limit to add to"),
        ("trials", "+1.5", "trials: 31.5: "),
        ("trials", "+0", "that is what it is"),
        ("cost", "+1e308", "no number so large"),
    ],
)
def test_a_plus_that_adds_nothing(name: str, value: str, problem: str) -> None:
    order = arguments_of("budget", {name: value})
    assert isinstance(order, NewBudget)
    known = BUDGET | ({"cost": {"per_gpu_hour": 2.0, "max": 1e308}} if value == "+1e308" else {})
    with pytest.raises(InputError, match=f"^budget: .*{problem}"):
        changed_budget(known, order)


@pytest.mark.parametrize(
    ("name", "value"),
    [("trials", "+many"), ("trials", "+inf"), ("cost", "+nan"), ("wall_clock", "+soon"), ("epochs", "+1e400")],
)
def test_a_plus_without_a_number_is_not_sent(folder: RunFolder, name: str, value: str) -> None:
    with pytest.raises(InputError, match=rf"^budget: {name}: '\{value}': it adds no number: write \+"):
        command(folder, "budget", {name: value}, wait_s=0)
    assert waiting_commands(folder) == ([], [])


def test_two_who_add_at_once_both_add(folder: RunFolder) -> None:
    for by in ("ada", "bob"):
        command(folder, "budget", {"trials": "+5"}, by=by, wait_s=0)
    budget = BUDGET
    for sent in waiting_commands(folder)[0]:
        order = arguments_of(sent.do, sent.arguments)
        assert isinstance(order, NewBudget)
        budget = changed_budget(budget, order).model_dump(exclude_none=True)
    assert budget["trials"] == 40

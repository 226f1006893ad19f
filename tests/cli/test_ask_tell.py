"""``begin``, ``ask`` and ``tell``: a search whose trials somebody else runs, a process a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tuner
from tests.documents import conforms
from tuner.cli import cli
from tuner.errors import InputError

LABORATORY = (
    "trainable: nobody:knows\nsearch_space: {temperature: {uniform: [20, 90]}}\n"
    "objective: {metric: yield_percent, mode: max}\nsearch: {kind: random, seed: 0}\nbudget: {trials: 3}\n"
)


def said(*words: str) -> str:
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def document(command: str, *words: str) -> Any:
    return conforms(command, said(command, *words, "--json"))


@pytest.fixture
def laboratory(user_folder: Path) -> str:
    Path("laboratory.yaml").write_text(LABORATORY)
    begun = document("begin", "laboratory.yaml", "--name", "lab", "--set", "budget.trials=2")
    assert (begun["run"], begun["folder"], begun["trials"]) == ("lab", "runs/lab", 2)
    return "lab"


def test_a_search_from_its_begin_to_its_end(laboratory: str) -> None:
    first, second, third = (document("ask", "lab") for _ in range(3))
    assert (first["number"], second["number"], third["trial"], third["ended"]) == (1, 2, None, False)
    assert 20 <= first["config"]["temperature"] <= 90
    assert document("tell", "lab", second["trial"], "yield_percent=71.5")["answer"] == "continue"
    assert document("tell", "lab", "2", "yield_percent=72", "cost=3", "--finish")["answer"] == "finished"
    assert document("tell", "lab", "1", "--fail", "the flask broke")["answer"] == "failed"
    assert document("ask", "lab")["ended"]
    run = tuner.load("runs/lab")
    assert run.state == "finished"
    assert [(trial.status, trial.reason, trial.steps) for trial in run.trials] == [
        ("failed", "the flask broke", 0),
        ("completed", "", 2),
    ]
    assert run.best_value == 72
    with pytest.raises(InputError, match="the search came to its end"):
        said("tell", "lab", "2", "yield_percent=1")


def test_the_scheduler_answers(user_folder: Path) -> None:
    Path("laboratory.yaml").write_text(LABORATORY)
    scheduler = "scheduler={kind: asha, time_attr: day, max_t: 4, grace_period: 1, reduction_factor: 2}"
    document("begin", "laboratory.yaml", "--name", "lab", "--set", scheduler)
    answers = []
    for value in (3, 2, 1):
        number = str(document("ask", "lab")["number"])
        answers.append(document("tell", "lab", number, f"yield_percent={value}", "day=1")["answer"])
    assert answers == ["continue", "stop", "stop"]
    assert document("tell", "lab", "1", "yield_percent=4", "day=4", "--finish")["answer"] == "stop"
    assert document("ask", "lab")["ended"]


def test_a_program_proposes(laboratory: str) -> None:
    for config, number in (('{"temperature": 55.5}', 1), ("temperature: 60", 2)):
        asked = document("ask", "lab", "--config", config)
        assert asked["number"] == number
        assert document("tell", "lab", asked["trial"], "yield_percent=1", "--finish")["answer"] == "finished"
    assert asked["config"] == {"temperature": 60}
    for config, text in (("{temperature: 7}", "propose: temperature: 7 is outside"), ("[7]", "--config: .*a mapping")):
        with pytest.raises(InputError, match=text):
            said("ask", "lab", "--config", config)
    assert [document("ask", "lab")["number"] for _ in range(3)] == [3, 4, None]


def test_people_read_it(laboratory: str) -> None:
    assert set(json.loads(said("ask", "lab"))) == {"temperature"}
    assert said("tell", "lab", "1", "yield_percent=1", "--finish") == "finished\n"
    assert said("ask", "lab")
    assert said("ask", "lab") == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["1", "yield_percent"], "'yield_percent': give METRIC=NUMBER, such as loss=0.25"),
        (["1", "yield_percent=high"], "give METRIC=NUMBER"),
        (["1", "yield_percent=nan"], "yield_percent is nan: a finite number is needed"),
        (["1", "other=1"], "yield_percent is not among the metrics"),
        (["7", "yield_percent=1"], "has no trial '7'"),
        (["1", "--finish"], "reported nothing"),
    ],
)
def test_a_report_that_is_wrong(laboratory: str, words: list[str], text: str) -> None:
    document("ask", "lab")
    with pytest.raises(InputError, match=text):
        said("tell", "lab", *words)
    assert document("tell", "lab", "1", "yield_percent=1", "--finish")["answer"] == "finished"


@pytest.mark.parametrize("words", [["1"], ["1", "yield_percent=1", "--fail", "x"], ["1", "--finish", "--fail", "x"]])
def test_words_that_do_not_go_together(laboratory: str, words: list[str]) -> None:
    assert CliRunner().invoke(cli, ["tell", "lab", *words]).exit_code == 2


def test_another_run_is_refused(user_folder: Path) -> None:
    from tests.runs.test_listing import saved

    saved(user_folder / "runs/q", "2026-01-01T10:00:00+0000")
    for command in (["ask", "q"], ["tell", "q", "1", "loss=1"]):
        with pytest.raises(InputError):
            said(*command)

"""Hostile and damaged experiment files: one clear answer each, within seconds of a processor, and nothing is executed.

A sample; `python -m tests.hostile.driver` runs as many as there is time for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.driver import Answer
from tuner.errors import MOST_PROBLEMS, InputError, did_you_mean
from tuner.spec.document import dump_yaml, read_yaml

ROOT = Path(__file__).parents[1]


@pytest.mark.processes
def test_a_sample_of_hostile_files() -> None:
    """In a process of its own: it forks, which a process with threads must not."""
    command = [sys.executable, "-m", "tests.hostile.driver", "--first", "0", "--count", "40", "--minutes", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    *wrong, summary = done.stdout.splitlines()
    assert [line for line in wrong if not line.startswith("slowest")] == []
    found = json.loads(summary)
    assert found["files"] > 10
    assert found["status 0"] > 0
    assert found["status 0"] + found["status 2"] == found["files"]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Answer(0, 0.1, "experiment x", ""), ""),
        (Answer(2, 0.1, "", "error: no"), ""),
        (Answer(0, 0.1, "", ""), "silence"),
        (Answer(2, 0.1, "plan", ""), "silence"),
        (Answer(7, 0.1, "", ""), "status 7"),
        (Answer(-9, 60, "", ""), "hang"),
        (Answer(-24, 5, "", ""), "hang"),
        (Answer(1, 0.1, "", "Traceback (most recent call last):\n"), "traceback"),
        (Answer(2, 0.1, "", "error: x" * 10_000), "long text"),
        (Answer(2, 0.1, "", "error: \x1b[31m"), "control characters"),
    ],
)
def test_the_driver_notices(answer: Answer, verdict: str) -> None:
    assert answer.wrong() == verdict


@given(st.text(st.characters(), max_size=60) | st.text("[]{}:,-&*!|>'\"#%@ \n\tab01.e+~?\\uxd8", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = read_yaml(text, "x").value
    except InputError:
        return
    again = read_yaml(dump_yaml(value, []).decode(), "x").value
    assert repr(again) == repr(value)


def test_many_problems_are_told_in_part() -> None:
    text = "".join(f"k: {i}\n" for i in range(200))
    with pytest.raises(InputError) as caught:
        read_yaml(text, "x")
    assert len(caught.value.problems) == 199
    lines = str(caught.value).splitlines()
    assert len(lines) == MOST_PROBLEMS + 1
    assert lines[-1] == "and 149 more problems"


def test_a_hint_is_short_and_soon_there() -> None:
    many = [f"parameter_{i}" for i in range(10_000)]
    assert did_you_mean("parameter_x", many).endswith("parameter_29 and 9,970 more")
    assert did_you_mean("x" * 100_000, ["x" * 100_000]) == "allowed: " + "x" * 100_000
    assert did_you_mean("optt", ["lr", "opt"]) == "allowed: lr, opt; did you mean 'opt'?"

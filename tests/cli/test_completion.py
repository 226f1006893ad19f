"""What the shell completes, asked as click asks, and in a real bash."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pyte
import pytest
from click.shell_completion import ShellComplete

from tests.runs.test_listing import saved
from tuner import examples
from tuner.cli import cli
from tuner.cli.completion import Bash

ROOT = Path(__file__).parents[2]


def completed(line: str) -> list[str]:
    """What is offered at the end of ``line``."""
    *words, last = line.split(" ")
    return [item.value for item in ShellComplete(cli, {}, "tuner", "_X").get_completions(words, last)]


@pytest.fixture(autouse=True)
def storage(user_folder: Path) -> Path:
    saved(user_folder / "runs" / "asha-20260101-120000", "2026-01-01T10:00:00+0000", interrupted=False)
    saved(user_folder / "runs" / "asha-20260102-120000", "2026-01-02T10:00:00+0000", interrupted=False)
    saved(user_folder / "other" / "bohb", "2026-01-02T10:00:00+0000", interrupted=False)
    (user_folder / "runs" / "no-run").mkdir()
    (user_folder / "runs" / ".jobs" / "submitted").mkdir(parents=True)
    (user_folder / "experiments").mkdir()
    (user_folder / "experiments" / "e.yaml").touch()
    (user_folder / "mine.yaml").touch()
    (user_folder / "train.py").touch()
    return user_folder


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sta", ["status"]),
        ("wh", []),
        ("extend r --max", ["--max-t"]),
        ("show ", ["asha-20260102-120000", "asha-20260101-120000"]),
        ("show asha-20260101", ["asha-20260101-120000"]),
        ("show --storage other ", ["bohb"]),
        ("compare asha-20260101-120000 asha-20260102", ["asha-20260102-120000"]),
        ("stop su", ["submitted"]),
        ("logs su", ["submitted"]),
        ("replay asha-20260101-120000 ", ["1", "2", "id1", "id2"]),
        ("replay runs/asha-20260101-120000 id", ["id1", "id2"]),
        ("best bohb --storage other ", ["1", "2", "id1", "id2"]),
        ("retry asha-20260101-120000 --trial ", ["1", "2", "id1", "id2"]),
        ("replay nothing ", []),
        ("run ", ["experiments/", "mine.yaml", "other/", "runs/", *examples.names()]),
        ("run quick", ["quickstart"]),
        ("run experiments/", ["experiments/e.yaml"]),
        ("validate m", ["mine.yaml"]),
        ("run mine.yaml --set budget.tr", ["budget.trials="]),
        ("run mine.yaml --set=budget.tr", ["budget.trials="]),
        ("run mine.yaml --set objective.mode=", ["objective.mode=min", "objective.mode=max"]),
        ("run mine.yaml --set tracking.mlflow.req", ["tracking.mlflow.required="]),
        (
            "run mine.yaml --set tracking.mlflow.required=",
            ["tracking.mlflow.required=true", "tracking.mlflow.required=false"],
        ),
        ("run mine.yaml --set budget.trials=", []),
        ("completion ", ["bash", "zsh", "fish"]),
        ("jobs r", ["recover"]),
    ],
)
def test_offered(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_values_of_a_choice_of_kinds() -> None:
    assert {"search.kind=optuna", "search.kind=random"} <= set(completed("run e.yaml --set search.kind="))
    assert completed("run e.yaml --set scheduler.kind=ash") == ["scheduler.kind=asha"]


def test_the_storage_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STORAGE", "other")
    assert completed("show ") == ["bohb"]
    monkeypatch.setenv("TUNER_STORAGE", "s3://bucket/runs")
    assert completed("replay r ") == []


def test_a_folder_that_is_no_run_and_a_table_that_is_damaged_offer_nothing(storage: Path) -> None:
    (storage / "runs" / "asha-20260101-120000" / "trials.csv").write_bytes(b'\xff"')
    assert completed("replay asha-20260101-120000 ") == []
    assert completed("replay no-run ") == []


@pytest.mark.parametrize(
    ("words", "before", "last"),
    [
        (["tuner", "show", ""], ["show"], ""),
        (["tuner", "run", "e", "--set", "a", "=", "1", "--st"], ["run", "e", "--set", "a=1"], "--st"),
        (["tuner", "run", "e", "--set", "a.b", "=", ""], ["run", "e", "--set"], "a.b="),
        (["tuner", "run", "e", "--set", "a.b", "="], ["run", "e", "--set"], "a.b="),
        (["tuner", "run", "e", "--set", "=", "a.b"], ["run", "e"], "--set=a.b"),
    ],
)
def test_words_that_bash_takes_apart(
    words: list[str], before: list[str], last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert Bash(cli, {}, "tuner", "_TUNER_COMPLETE").get_completion_args() == (before, last)


class Terminal:
    """A shell that a user types into."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PS1": "> ", "TERM": "dumb", "INPUTRC": "/dev/null"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        environment["HOME"] = str(folder)
        self._leader, follower = pty.openpty()
        self._shell = subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(follower)
        self._screen = pyte.Screen(120, 50)
        self._stream = pyte.ByteStream(self._screen)

    def type(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def until(self, text: str) -> None:
        """Reads until ``text`` is at the end of a line of the screen, and clears that."""
        while not any(line.rstrip().endswith(text) for line in self._screen.display):
            self._stream.feed(os.read(self._leader, 65536))
        self._screen.reset()

    def close(self) -> None:
        os.close(self._leader)
        self._shell.kill()
        self._shell.wait()


def installed(shell: str) -> str:
    """The program of a shell. CI must have all three; elsewhere a test is skipped where its shell is missing."""
    found = shutil.which(shell)
    if found is None:
        pytest.fail(f"{shell} is missing") if "CI" in os.environ else pytest.skip(f"{shell} is missing")
    return found


@pytest.mark.parametrize("command", [["bash", "--norc", "--noprofile", "-i"], ["zsh", "-f", "-i"]], ids=lambda c: c[0])
def test_in_a_real_shell(command: list[str], storage: Path) -> None:
    """A tab completes what is typed; the key that follows shows whether a space was added.

    The shells have read no start-up file: zsh has not loaded its own completion.
    """
    installed(command[0])
    terminal = Terminal(storage, command)
    try:
        terminal.type(f"eval \"$(tuner completion {command[0]})\" && PS1='rea''dy> '\n")
        terminal.until("ready>")  # from the prompt on the shell reads a tab as a key
        for typed, completed in (
            ("tuner sta\t!", "tuner status !"),
            ("tuner show asha-20260101\t!", "tuner show asha-20260101-120000 !"),
            ("tuner run mi\t!", "tuner run mine.yaml !"),
            ("tuner run experiments/e\t!", "tuner run experiments/e.yaml !"),
            ("tuner run exp\t!", "tuner run experiments/!"),
            ("tuner run mine.yaml --set objective.mo\t!", "--set objective.mode=!"),
            ("tuner run mine.yaml --set objective.mode=ma\t!", "--set objective.mode=max !"),
            ("tuner run mine.yaml --set budget.trials=3 --na\t!", "--set budget.trials=3 --name !"),
        ):
            terminal.type(typed)
            terminal.until(completed)
            terminal.type("\x15")  # deletes the line
    finally:
        terminal.close()


def test_in_a_real_fish(storage: Path) -> None:
    script = "tuner completion fish | source; complete -C 'tuner sta'; complete -C 'tuner show asha-20260101'"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(storage)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        [installed("fish"), "-c", script], capture_output=True, text=True, check=True, cwd=storage, env=environment
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["status", "asha-20260101-120000"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_one_that_it_can_read(shell: str, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("tuner")
    script = subprocess.run([program, "completion", shell], capture_output=True, text=True, check=True).stdout
    assert "_TUNER_COMPLETE" in script
    assert "complete" in script or "compdef" in script
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(script)
        check = subprocess.run([found, "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
        assert (check.returncode, check.stderr) == (0, "")


def test_completing_loads_nothing_heavy(storage: Path) -> None:
    text = "import sys; from click.shell_completion import ShellComplete; from tuner.cli import cli\n"
    text += "found = ShellComplete(cli, {}, 'tuner', '_X').get_completions(['replay', 'asha-20260101-120000'], '')\n"
    text += "assert len(found) == 4\n"
    text += (
        "print([name for name in ('torch', 'ray', 'pandas', 'pyarrow', 'optuna', 'pydantic') if name in sys.modules])"
    )
    program = [sys.executable, "-c", text]
    done = subprocess.run(
        program, capture_output=True, text=True, check=True, cwd=storage, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.stdout == "[]\n"

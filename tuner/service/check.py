"""Checks an experiment where its code lies, in a process of its own: the code of users is not for the server's process.

    python -m tuner.service.check ANSWER SERVER < QUESTION

Question and answer are JSON. The answer is a file: the user's modules may print what they like when they are imported.
SERVER is the id of the process that asks. The check ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import BaseModel

from tuner.documents.errors import FailureProblem
from tuner.errors import MOST_PROBLEMS, EnvironmentFailure, InputError, Problem, TunerError
from tuner.experiment.reader import load_experiment, shipped_experiment
from tuner.plan.cluster import Cluster, Node

CHECK_S = 120.0
"""How long a check may take: it imports what the experiment names, such as torch."""


class _Question(BaseModel):
    file: str
    overrides: list[str]
    has_gpus: bool
    mlflow: str | None


class _Answer(BaseModel):
    error: str = ""
    problems: list[FailureProblem] = []
    name: str = ""
    per_trial: dict[str, float] = {}
    trials: int | None = None
    overrides: list[str] = []


@dataclass(frozen=True)
class Checked:
    """What a queue must know of an experiment that can be run."""

    name: str
    """The experiment's."""
    per_trial: Mapping[str, float]
    """What all workers of a trial hold."""
    trials: int | None
    """How many it runs; None if other limits end it."""
    overrides: tuple[str, ...] = ()
    """What the service sets in it, as with ``--set``."""


@dataclass(frozen=True)
class _AnyCluster(Cluster):
    """One that has room: how much a cluster has is the queue's to know."""

    def most_slots(self, request: Mapping[str, float], workers: int = 1) -> int:
        """At least one."""
        return 1


def check(project: Path, file: str, overrides: list[str], has_gpus: bool, mlflow: str | None = None) -> Checked:
    """What `tuner validate` finds of an experiment.

    Args:
        project: The folder of its code.
        file: The experiment in it, or the name of a shipped one.
        overrides: As of ``--set``.
        has_gpus: Whether the cluster has any.
        mlflow: The server for an experiment that uses MLflow and names none.

    Returns:
        What it needs.

    Raises:
        InputError: It cannot be run; holds all problems, as those of `validate`.
        EnvironmentFailure: The check took too long, or its process ended without an answer.
    """
    _check_file(project, file)
    question = _Question(file=file, overrides=overrides, has_gpus=has_gpus, mlflow=mlflow).model_dump_json()
    with tempfile.TemporaryDirectory(prefix="tuner-check-") as folder:
        target = Path(folder) / "answer.json"
        # -P: a folder tuner of the code is not us
        words = [sys.executable, "-P", "-m", "tuner.service.check", str(target), str(os.getpid())]
        status = _ran(words, project, question)
        if not target.exists():
            raise InputError(
                f"{file}: its check ended with status {status} and without an answer: does a module that it names end "
                "the process when it is imported?"
            )
        answer = _Answer.model_validate_json(target.read_bytes())
    if answer.error:
        raise InputError([problem.problem for problem in answer.problems] or answer.error)
    return Checked(answer.name, answer.per_trial, answer.trials, tuple(answer.overrides))


def _check_file(project: Path, file: str) -> None:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\0" in file or len(file) > 1000:
        raise InputError(f"file {file[:200]!r}: name a file of the code that was sent, by its path below the root")
    if not (project / file).is_file() and shipped_experiment(file) is None:
        raise InputError(
            f"file {file!r}: the code that was sent has no such file, and no shipped experiment is so named"
        )


def _ran(words: list[str], project: Path, question: str) -> int:
    """The exit status of a process, which is ended with all its children if it takes too long."""
    child = subprocess.Popen(
        words,
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        child.communicate(question, timeout=CHECK_S)
    except subprocess.TimeoutExpired:
        raise EnvironmentFailure(
            f"the check of the experiment took more than {CHECK_S:.0f} s: does an import of its code wait?"
        ) from None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return child.returncode


def _answered(question: _Question) -> _Answer:
    from tuner.plan.planner import make_plan
    from tuner.search.earlier_trials import with_earlier_trials

    nodes = (Node("the cluster", {"CPU": 1.0, "GPU": float(question.has_gpus)}),)
    try:
        plan = with_earlier_trials(make_plan(load_experiment(question.file, question.overrides), _AnyCluster(nodes)))[0]
    except TunerError as error:
        problems: tuple[Problem, ...] = error.problems[:MOST_PROBLEMS] if isinstance(error, InputError) else ()
        return _Answer(error=str(error), problems=[FailureProblem.of(problem) for problem in problems])
    workers = plan.spec.resources.workers
    per_trial = {name: amount * workers for name, amount in plan.request.items()}
    sets = plan.spec.tracking.overrides_for(question.mlflow)
    return _Answer(name=plan.spec.name, per_trial=per_trial, trials=plan.spec.budget.trials, overrides=sets)


def _end_with(server: int) -> None:
    """Ends this process and its children when the server has: nobody else would, if an import waits."""
    while os.getppid() == server:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Answers one question."""
    os.nice(10)  # the answers of the service come first
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    answer = _answered(_Question.model_validate_json(sys.stdin.buffer.read()))
    target = Path(sys.argv[1])
    target.with_suffix(".part").write_text(answer.model_dump_json())
    target.with_suffix(".part").replace(target)


if __name__ == "__main__":
    main()

"""The check of an experiment in its own process: what `validate` finds, and never the server's end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import until
from tuner.actions.run import validate
from tuner.errors import EnvironmentFailure, InputError
from tuner.service import check as checking
from tuner.service.check import check

EXPERIMENT = """\
trainable: t.py:train
objective: {metric: loss, mode: min}
search_space: {lr: {loguniform: [1e-4, 1e-1]}}
resources: {cpu: 2, workers: 3}
budget: {trials: 9}
"""


@pytest.fixture
def project(user_folder: Path) -> Path:
    (user_folder / "t.py").write_text("def train(config): ...\n")
    (user_folder / "e.yaml").write_text(EXPERIMENT)
    return user_folder


def test_what_a_trial_holds(project: Path) -> None:
    found = check(project, "e.yaml", ["resources.custom.disk=1"], has_gpus=True)
    assert (found.name, found.trials) == ("e", 9)
    assert found.per_trial == {"CPU": 6.0, "GPU": 3.0, "disk": 3.0}
    assert "GPU" not in check(project, "e.yaml", ["budget={wall_clock: 1h}"], has_gpus=False).per_trial


@pytest.mark.processes
def test_a_shipped_experiment_needs_no_code(tmp_path: Path) -> None:
    assert check(tmp_path, "quickstart", [], has_gpus=False).name == "quickstart"


@pytest.mark.parametrize(
    ("tracking", "found"),
    [
        ("{mlflow: {}}", ("tracking.mlflow.uri=http://h:5000",)),
        ("{mlflow: {uri: 'http://mine:5000'}}", ()),
        ("{tensorboard: {}}", ()),
    ],
)
def test_a_search_that_names_no_mlflow_gets_that_of_the_team(
    tracking: str, found: tuple[str, ...], project: Path
) -> None:
    checked = check(project, "e.yaml", [f"tracking={tracking}"], has_gpus=True, mlflow="http://h:5000")
    assert checked.overrides == found


def test_the_problems_are_those_of_validate(project: Path) -> None:
    (project / "bad.yaml").write_text(EXPERIMENT + "budgett: 3\nscheduler: {kind: ashaa}\n")
    with pytest.raises(InputError) as here:
        validate("bad.yaml")
    with pytest.raises(InputError) as there:
        check(project, "bad.yaml", [], has_gpus=False)
    assert there.value.problems == here.value.problems
    assert len(there.value.problems) == 2


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os\nos._exit(7)", "ended with status 7 and without an answer"),
        ("raise RuntimeError('mine')", "mine"),
        ("print('x' * 10)\nimport nothing_of_this_name", "nothing_of_this_name"),
    ],
)
def test_code_that_fails_when_it_is_imported(code: str, message: str, project: Path) -> None:
    (project / "t.py").write_text(code)
    with pytest.raises(InputError, match=message):
        check(project, "e.yaml", [], has_gpus=False)


@pytest.mark.processes
def test_an_import_that_never_ends(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "t.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setattr(checking, "CHECK_S", 3.0)
    with pytest.raises(EnvironmentFailure, match="took more than 3 s"):
        check(project, "e.yaml", [], has_gpus=False)


@pytest.mark.processes
def test_a_check_ends_with_a_server_that_is_killed(project: Path) -> None:
    (project / "t.py").write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)\n")
    asks = (
        "from pathlib import Path; from tuner.service.check import check; check(Path(), 'e.yaml', [], has_gpus=False)"
    )
    server = subprocess.Popen([sys.executable, "-c", asks])
    until(lambda: (project / "pid").exists() and (project / "pid").read_text())
    process = Path("/proc", (project / "pid").read_text())
    assert process.exists()
    server.kill()
    server.wait()
    until(lambda: not process.exists())


@pytest.mark.parametrize("file", ["/etc/passwd", "../e.yaml", "a/../../e.yaml", "\0", "nothing.yaml", "", "."])
def test_a_file_that_the_code_does_not_have(file: str, project: Path) -> None:
    with pytest.raises(InputError, match="code that was sent"):
        check(project, file, [], has_gpus=False)

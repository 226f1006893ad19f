"""``track RUN``: a run that nobody searches any more, sent to any MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.documents import conforms
from tests.tracking.held import held, parent, recorded
from tests.tracking.made_up import made_up_run, made_up_trial
from tuner.cli import cli
from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.results import EXPERIMENT, PROVENANCE, ResultSet, write_json
from tuner.spec.document import dump_yaml
from tuner.storage.lock import locked


@pytest.fixture
def results(tmp_path: Path) -> ResultSet:
    made = made_up_run(tmp_path, interrupted=False, notices=[])
    made_up_trial(made, 0.1, 0.2, status="completed")
    made.spec["tracking"] = {}
    made.folder.filesystem.create_dir(made.folder.path)
    made.folder.write(EXPERIMENT, dump_yaml(made.spec, []))
    write_json(made.folder, PROVENANCE, made.provenance)
    made.save()
    return made


def track(results: ResultSet, *arguments: str) -> str:
    """What is printed."""
    command = ["track", results.folder.location, *arguments]
    done = CliRunner().invoke(cli, command, standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def test_a_run_that_nothing_tracked_is_sent_beside_the_run_folders(results: ResultSet, database: str) -> None:
    for _ in range(2):
        assert track(results) == f"MLflow at {database} holds run: trials 1, reports 2\n"
        assert held(database) == recorded(results)
    assert parent(database).info.status == "FINISHED"
    assert conforms("sync", track(results, "--json"))["reports"] == 2


def test_it_is_sent_where_the_user_says(
    results: ResultSet, database: str, tmp_path: Path, empty_database: Path
) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(empty_database.read_bytes())
    assert f"sqlite:///{other} holds run" in track(results, "--mlflow", f"sqlite:///{other}")
    assert held(f"sqlite:///{other}") == recorded(results)


def test_what_cannot_be_sent_is_said(results: ResultSet) -> None:
    with pytest.raises(InputError, match=r"--mlflow: './mlruns' is neither a server"):
        track(results, "--mlflow", "./mlruns")
    with pytest.raises(EnvironmentFailure, match=r"127.0.0.1:9: nothing answers there"):
        track(results, "--mlflow", "http://127.0.0.1:9")
    with locked(results.folder), pytest.raises(InputError, match="the search runs, and sends what happens by itself"):
        track(results)

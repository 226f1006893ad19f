"""Every command with ``--json`` has a model, and prints what it says. Commands that need Ray do so in tests/cli."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner

from tests.cli.test_json import document
from tests.documents import conforms
from tests.runs.test_listing import saved
from tests.runs.test_results import new_run, trial
from tuner.actions import control
from tuner.cli import cli
from tuner.cli.groups import HIDDEN, names
from tuner.cli.run import summary
from tuner.doctor.finding import Finding
from tuner.documents import DOCUMENTS, ERROR, schema, schemas
from tuner.errors import InputError
from tuner.jobs import client, cluster_address
from tuner.runs.failure import Failure
from tuner.runs.loading import load_latest
from tuner.runs.trial import Trial
from tuner.storage.folder import RunFolder

EXPERIMENT = (
    "trainable: t.py:train\nobjective: {metric: loss, mode: min}\nsearch_space: {lr: {loguniform: [1e-4, 1e-1]}}\n"
    "budget: {trials: 9}\nscheduler: {kind: asha, max_t: 9}\n"
)


def printed(*words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    return done.stdout


@pytest.fixture
def runs(user_folder: Path) -> Path:
    """The working directory, with two runs below ``runs``."""
    saved(user_folder / "runs/q", "2026-01-01T10:00:00+0000", interrupted=False)
    saved(user_folder / "runs/dead", "2026-01-02T10:00:00+0000")
    return user_folder


def commands() -> Iterator[str]:
    """Those that have ``--json``."""
    for name in (*names(), *HIDDEN):
        command = cli.get_command(click.Context(cli), name)
        if command is not None and any(parameter.name == "as_json" for parameter in command.params):
            yield name


OLDER = {"why": "status", "track": "sync", "table": "export"}
"""Older names, which print what the commands of today print."""


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_with_json_has_a_document(name: str) -> None:
    assert OLDER.get(name, name) in DOCUMENTS


def test_every_document_is_of_a_command() -> None:
    assert set(DOCUMENTS) <= {*commands(), ERROR}


def properties(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield from value.get("properties", {}).items()
        for inner in value.values():
            yield from properties(inner)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_and_describes_every_key(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))
    assert [key for key, found in properties(schema(name)) if not found.get("description", "").strip()] == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("list", []),
        ("show", ["q"]),
        ("status", ["q"]),
        ("status", ["dead"]),
        ("report", ["q", "-o", "q.html"]),
        ("compare", ["q", "dead"]),
        ("stop", ["q"]),
        ("export", ["q", "--table", "q.parquet"]),
        ("algorithms", []),
        ("init", ["quick"]),
    ],
)
def test_a_document_is_as_its_model_says(command: str, words: list[str], runs: Path) -> None:
    conforms(command, printed(command, *words))


def test_a_run_that_cannot_be_read_is_listed_as_documented(runs: Path) -> None:
    for file in (runs / "runs/dead").iterdir():
        file.write_bytes(b"{")
    listed = conforms("list", printed("list"))
    assert {row["run"]: row["state"] for row in listed} == {"q": "finished", "dead": "damaged"}


def test_a_plan(user_folder: Path) -> None:
    Path("t.py").write_text("def train(config): ...\n")
    Path("e.yaml").write_text(EXPERIMENT)
    assert conforms("validate", printed("validate", "e.yaml"))["trials"] == 9


@pytest.mark.parametrize("command", ["run", "resume", "extend", "retry"])
def test_a_search_that_ended(command: str, runs: Path) -> None:
    conforms(command, json.dumps(summary(load_latest(RunFolder.at("runs/q")))))


def test_a_command_that_was_carried_out(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "command", lambda folder, do, arguments: control.Outcome("1", do, True, "", ("t1",)))
    assert conforms("control", printed("control", "q", "stop-trial", "1"))["trials"] == ["t1"]


def test_findings() -> None:
    found = [Finding("ok", "python", "3.11"), Finding("error", "disk", "is full", "make room")]
    conforms("doctor", json.dumps([dataclasses.asdict(finding) for finding in found]))


def test_failed_trials_are_shown_as_documented(tmp_path: Path) -> None:
    results = new_run(tmp_path / "q")
    trial(results, 0.5)
    results.add(Trial("bad", 2, {"lr": 1.0}, "failed", failures=[Failure("NaN", "loss is NaN", final=True)]))
    results.save()
    (_, bad) = conforms("show", printed("show", str(tmp_path / "q")))["all"]
    assert bad["status"] == "failed"


def test_an_error(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.yaml").write_text("trainable: 3\n")
    for words in (["show", "nothing"], ["validate", "e.yaml"], ["run"]):
        _, found = document(*words, "--json", capsys=capsys)
        conforms(ERROR, found)


def test_an_error_of_a_search_holds_its_summary(runs: Path) -> None:
    from tuner.cli import failing
    from tuner.errors import Interrupted

    error = Interrupted("interrupted")
    error.results = load_latest(RunFolder.at("runs/q"))
    assert conforms(ERROR, json.dumps(failing.document(error)))["run"] == "q"


def test_jobs_of_a_cluster(monkeypatch: pytest.MonkeyPatch, user_folder: Path) -> None:
    status = SimpleNamespace(value="RUNNING", is_terminal=lambda: False)
    metadata = {client.STORAGE_KEY: str(user_folder / "mnt"), client._BY: "me@here"}
    job = SimpleNamespace(submission_id="q", status=status, start_time=1e12, metadata=metadata)
    told = {"list_jobs": lambda: [job], "get_job_logs": lambda name: "trial #1\n", "stop_job": lambda name: True}
    monkeypatch.setattr(
        cluster_address, "jobs_api", lambda address, cluster: contextlib.nullcontext(SimpleNamespace(**told))
    )
    saved(user_folder / "mnt/q", "2026-01-01T10:00:00+0000", interrupted=False)
    place = ["--jobs-address", "http://h:1"]
    assert [row["job"] for row in conforms("jobs", printed("jobs", *place))] == ["q"]
    assert conforms("logs", printed("logs", "q", *place))["log"] == "trial #1\n"
    assert conforms("stop", printed("stop", "q", *place))["was_running"]
    assert Path(conforms("fetch", printed("fetch", "q", *place))["folder"], "trials.csv").exists()


def test_the_schema_command_prints_each_and_all() -> None:
    for name in DOCUMENTS:
        assert json.loads(CliRunner().invoke(cli, ["schema", "--command", name]).stdout) == schema(name)
    assert json.loads(CliRunner().invoke(cli, ["schema", "--command", "all"]).stdout) == schemas()
    with pytest.raises(InputError, match=r"--command shw: prints no document; .*did you mean 'show'"):
        CliRunner().invoke(cli, ["schema", "--command", "shw"], catch_exceptions=False)


def test_a_document_survives_new_keys() -> None:
    """A program with the schema of today reads the document of a later version."""
    row = {"level": "ok", "check": "a", "found": "b", "remedy": "", "status": 4, "later": 1}
    jsonschema.Draft202012Validator(schema("doctor")).validate([row])


def test_models_agree_with_the_records_that_become_documents() -> None:
    """A record that gets a field, and a document that does not describe it, are found here before a command runs."""
    from tuner.actions.confirm import Confirmed
    from tuner.actions.replay import Replay
    from tuner.documents.tools import CheckFinding, SimulatedSearch
    from tuner.documents.trust import ConfirmedConfiguration, Replayed
    from tuner.simulator.comparison import Row

    for record, model, more in (
        (Confirmed, ConfirmedConfiguration, {"intervals", "tie"}),
        (Replay, Replayed, {"agrees"}),
        (Finding, CheckFinding, set()),
        (Row, SimulatedSearch, set()),
    ):
        assert {found.name for found in dataclasses.fields(record)} | more == set(model.model_fields)

"""No password, key or token of a URI comes into a file, a message or `ps`; in a whole search: tests/execution."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tracking.made_up import made_up_run
from tuner.cli import cli
from tuner.errors import InputError, TunerError
from tuner.jobs.client import _storage
from tuner.jobs.cluster_address import ClusterFile
from tuner.redaction import PASSWORD, has_secret, redacted, redacted_argv, with_password, without_secrets
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_latest
from tuner.runs.results import EXPERIMENT, PROVENANCE, write_json
from tuner.spec.document import dump_yaml
from tuner.storage.folder import RunFolder

ROOT = Path(__file__).parents[1]

SECRETS = {
    "s3://bucket/runs?endpoint_override=http://u:SECRET@127.0.0.1:9&region=x": "s3://bucket/runs?region=x",
    "postgresql://user:TOPSECRET@host/db": "postgresql://user@host/db",
    "postgresql+psycopg://user:TOPSECRET@host:5432/db?sslmode=require": "postgresql+psycopg://user@host:5432/db?sslmode=require",
    "postgresql://user:TOP/SECRET@host/db": "postgresql://user@host/db",
    "postgresql://user:123/TOPSECRET@host/db": "postgresql://user@host/db",
    "mysql://user:TOPSECRET?a#b@host/db": "mysql://user@host/db",
    "postgresql://host/db?user=u&password=TOPSECRET": "postgresql://host/db?user=u",
    "postgresql://host/db?sslpassword=TOPSECRET": "postgresql://host/db",
    "mssql+pyodbc://?odbc_connect=DRIVER%3Dx%3BPWD%3DTOPSECRET": "mssql+pyodbc://",
    "https://TOPSECRET@host": "https://host",
    "https://user:TOPSECRET@host/a": "https://host/a",
    "https://host/a?access_token=TOPSECRET": "https://host/a",
    "s3://KEY:TOPSECRET@bucket/runs?region=us-east-1": "s3://KEY@bucket/runs?region=us-east-1",
    "abfs://account:TOPSECRET@host/x": "abfs://account@host/x",
}

PLAIN = [
    "sqlite:////home/me@corp/mlflow.db",
    "http://127.0.0.1:5000",
    "http://[::1]:5000/a@b",
    "http://host:5000/user@corp/x",
    "s3://bucket/team@corp/runs?scheme=http&endpoint_override=127.0.0.1:9000&region=us-east-1",
    "hdfs://name:8020/a@b",
    "gs://anonymous@bucket/x",
    "postgresql://user@host/db?sslmode=verify-full&sslkey=/home/me/key.pem",
    "mssql+pyodbc://?odbc_connect=DRIVER%3Dx%3BTrusted_Connection%3Dyes",
    "/home/me@corp/runs",
]


@pytest.mark.parametrize(("uri", "rest"), SECRETS.items())
def test_a_secret_is_seen_and_hidden(uri: str, rest: str) -> None:
    assert has_secret(uri)
    assert without_secrets(uri) == rest
    assert not has_secret(rest)
    for text in (
        redacted(uri, whole=True),
        redacted(f"cannot connect to {uri!r}: refused"),
        *redacted_argv([f"a={uri}"]),
    ):
        assert "***" in text
        assert "SECRET" not in text


def test_a_password_with_spaces_is_hidden_in_a_word_of_a_command_line() -> None:
    assert redacted_argv(["--set", "a.uri=mysql://u:TOP SECRET@h/d"]) == ["--set", "a.uri=mysql://***@h/d"]


def test_a_password_with_an_at_sign_is_hidden_whole() -> None:
    assert redacted("mysql://u:TOP@SEC/R@host/d is down") == "mysql://***@host/d is down"


@pytest.mark.parametrize("uri", PLAIN)
def test_what_holds_no_secret_stays_as_it_is(uri: str) -> None:
    assert not has_secret(uri)
    assert redacted(f"at {uri}: refused") == f"at {uri}: refused"
    assert redacted_argv(["x", f"--storage={uri}"]) == ["x", f"--storage={uri}"]
    assert without_secrets(uri) == uri


@pytest.mark.parametrize(
    ("uri", "filled"),
    [
        ("postgresql://me@host/db", "postgresql://me:a%2Fb%40c@host/db"),
        ("postgresql://me:own@host/db", None),
        ("postgresql://host/db", None),
        ("https://me@host", None),
        ("sqlite:///me@x.db", None),
    ],
)
def test_the_environment_holds_the_password_of_a_database(
    uri: str, filled: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_password(uri) == uri
    monkeypatch.setenv(PASSWORD, "a/b@c")
    assert with_password(uri) == (filled or uri)


# What a user gives


@pytest.mark.parametrize("uri", ["postgresql://user:TOPSECRET@host/db", "https://TOPSECRET@host"])
def test_an_experiment_with_a_password_is_refused_and_told_what_to_do(uri: str, user_folder: Path) -> None:
    (user_folder / "x.yaml").write_text(
        "trainable: train.py:train\nsearch_space: {x: {uniform: [0, 1]}}\nobjective: {metric: a, mode: max}\n"
        f"tracking: {{mlflow: {{uri: '{uri}'}}}}\n"
    )
    (user_folder / "train.py").write_text("def train(config): ...\n")
    for words in (["validate", "x.yaml"], ["run", "x.yaml"], ["submit", "x.yaml", "--storage", "/mnt"]):
        done = CliRunner().invoke(cli, words)
        assert isinstance(done.exception, InputError)
        assert "SECRET" not in done.output + str(done.exception)
        assert f"x.yaml:4:21: tracking.mlflow.uri: '{redacted(uri)}' holds a password or token" in str(done.exception)
        assert "set MLFLOW_TRACKING_PASSWORD, or for a server MLFLOW_TRACKING_TOKEN" in str(done.exception)
    assert not (user_folder / "runs").exists()


def test_a_storage_with_a_key_is_refused(tmp_path: Path) -> None:
    for use in (RunFolder.at, lambda uri: _storage(uri, None)):
        with pytest.raises(
            InputError, match=r"storage 's3://\*\*\*@bucket/runs' holds a password or key: .*AWS_SECRET"
        ):
            use("s3://AKIA:TOPSECRET@bucket/runs")


@pytest.mark.parametrize("name", ["storage", "mlflow"])
def test_a_launcher_file_with_a_password_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        f"provider: {{type: aws}}\nauth: {{ssh_user: me}}\nmetadata: {{{name}: 's3://me:TOPSECRET@host/a'}}\n"
    )
    with pytest.raises(InputError, match=f"metadata.{name}: a password or key must not stand in it") as caught:
        ClusterFile.read(str(file))
    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize("url", ["nosuch://u:TOPSECRET@h/db", "postgresql+psycopg://u:TOPSECRET@127.0.0.1:9/db"])
def test_export_says_no_password(url: str, tmp_path: Path) -> None:
    results = made_up_run(tmp_path)
    results.spec["search_space"] = {"lr": {"uniform": [0, 1]}}
    results.folder.create()
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
    write_json(results.folder, PROVENANCE, results.provenance | {"roots": ["."]})
    results.save()
    done = CliRunner().invoke(cli, ["export", str(results.folder.local_path), "--optuna", url])
    assert isinstance(done.exception, TunerError)
    assert "***" in str(done.exception)
    assert "SECRET" not in done.output + str(done.exception)


def test_a_run_that_an_earlier_version_recorded_with_a_password_is_read_without(tmp_path: Path) -> None:
    results = made_up_run(tmp_path)
    results.spec["tracking"]["mlflow"]["uri"] = "postgresql://user:TOPSECRET@host/db"
    results.folder.create()
    journal = JournalWriter(results.folder)
    journal.append("began", spec=results.spec, provenance=results.provenance | {"command": ["x=s3://K:TOPSECRET@b"]})
    journal.close()
    assert load_latest(results.folder).spec["tracking"]["mlflow"]["uri"] == "postgresql://user@host/db"
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
    results.save()
    done = CliRunner().invoke(cli, ["report", str(results.folder.local_path)])
    assert done.exit_code == 0
    assert b"SECRET" not in (results.folder.local_path / "report.html").read_bytes()


def test_the_command_line_of_ui_names_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the interpreter writes down what it was started with, and ends."""
    from tuner.tracking.ui import Page

    (tmp_path / "python").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words; env > {tmp_path}/environment\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv(PASSWORD, "TOPSECRET")
    with pytest.raises(TunerError, match="did not come up"), Page("postgresql://me@127.0.0.1:9/db", "").served(None):
        pass
    assert "postgresql" not in (tmp_path / "words").read_text()
    environment = (tmp_path / "environment").read_text()
    assert "MLFLOW_BACKEND_STORE_URI=postgresql://me:TOPSECRET@127.0.0.1:9/db\n" in environment
    assert "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false\n" in environment

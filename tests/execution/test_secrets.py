"""A search that is given secrets in every place keeps none: no file of it, nothing that it says, nothing in MLflow."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tuner import run as search
from tuner.cli import cli

SECRET = "TOPSECRET"

COMMAND = [
    "tuner",
    "run",
    "--storage=s3://AKIA:TOPSECRET@bucket/runs",
    "--set",
    "tracking.mlflow.uri=postgresql://me:TOPSECRET@host/db?sslpassword=TOPSECRET",
    "--set=a=https://TOPSECRET@host",
]


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_no_secret_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", COMMAND)
    for name in ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    experiment = {
        "trainable": f"{Path(__file__).parent}/toys.py:quadratic",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "params": {"epochs": 1},
        "budget": {"trials": 1},
        "resources": {"gpu": 0},
        "tracking": {"mlflow": {}, "tensorboard": {}},
    }
    results = search(experiment, storage=tmp_path, name="run")
    run = str(results.folder.local_path)
    for verb in ("show", "report", "track", "why"):
        done = CliRunner().invoke(cli, [verb, run])
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"mlflow.db", "journal.jsonl", "provenance.json", "report.html"} <= {path.name for path in files}
    assert [str(path) for path in files if SECRET.encode() in path.read_bytes()] == []
    kept = json.loads((tmp_path / "run/provenance.json").read_text())["command"]
    assert kept[2:] == [
        "--storage=s3://***@bucket/runs",
        "--set",
        "tracking.mlflow.uri=postgresql://***@host/db?sslpassword=***",
        "--set=a=https://***@host",
    ]

"""``list`` and ``show``: many runs and one run at a glance, damaged ones too."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.runs.test_results import new_run, trial
from tuner.cli import cli, options
from tuner.runs.results import PROVENANCE, REPORTS, TRIALS, write_json
from tuner.storage.lock import LOCK, holder, locked


def saved(folder: Path, started: str, values: tuple[float, ...] = (0.5, 0.7), **provenance: Any) -> None:
    results = new_run(folder)
    results.provenance |= {"started": started, "trials": 3, "notices": [], **provenance}
    write_json(results.folder, PROVENANCE, results.provenance)
    for k, value in enumerate(values):
        trial(results, value, config={"lr": 0.125 * k, "optimizer": "adam"}).reason = "epoch reached max_t 9"
    results.save()


def said(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    saved(tmp_path / "old", "2026-01-01T10:00:00+0000", interrupted=False, ended_by="budget.target 0.7 is reached")
    saved(tmp_path / "new", "2026-01-03T10:00:00+0000", interrupted=True)
    saved(tmp_path / "killed", "2026-01-02T10:00:00+0000", ())
    (tmp_path / "no run").mkdir()
    return tmp_path


def test_runs_are_listed_newest_first_with_how_they_stand(storage: Path) -> None:
    assert said("list", "--storage", str(storage)).splitlines() == [
        "run     state        trials  best  metric   started",
        "new     interrupted  2/3     0.7   max acc  2026-01-03 10:00",
        "killed  dead         0/3           max acc  2026-01-02 10:00",
        "old     finished     2/3     0.7   max acc  2026-01-01 10:00",
        "  ended by budget.target 0.7 is reached",
    ]
    rows = json.loads(said("list", "--storage", str(storage), "--json"))
    assert [(row["run"], row["state"], row["best"]) for row in rows] == [
        ("new", "interrupted", 0.7),
        ("killed", "dead", None),
        ("old", "finished", 0.7),
    ]


def test_a_run_that_a_process_works_on_is_running(storage: Path) -> None:
    from tuner.storage.folder import RunFolder

    folder = RunFolder.at(storage / "killed")
    assert holder(folder) is None
    assert not folder.exists(LOCK)  # to look leaves nothing behind
    with locked(folder):
        assert "killed  running " in said("list", "--storage", str(storage))
        assert "running: process" in said("show", str(storage / "killed")).splitlines()[1]
    assert holder(folder) is None


def test_a_copy_of_a_run_that_another_host_works_on_does_not_seem_to_be_killed(storage: Path) -> None:
    (storage / "killed" / LOCK).write_text(json.dumps({"pid": 7, "host": "head-of-a-cluster", "time": 0.0}))
    told = said("show", str(storage / "killed")).splitlines()[1]
    assert "process 7 on head-of-a-cluster is gone, or this is a copy of its run" in told
    (storage / "killed" / LOCK).write_text(json.dumps({"pid": 7, "host": socket.gethostname(), "time": 0.0}))
    assert "dead: the process that ran it is gone" in said("show", str(storage / "killed")).splitlines()[1]
    (storage / "killed" / LOCK).write_text("[")
    assert "dead: the process that ran it is gone" in said("show", str(storage / "killed")).splitlines()[1]


@pytest.mark.parametrize(
    ("name", "content", "reason", "best"),
    [
        (REPORTS, None, "results.parquet is missing: the run folder is damaged", "0.7"),
        (TRIALS, None, "trials.csv is missing: the run folder is damaged", ""),
        (TRIALS, b"id,number\nid1", "trials.csv cannot be read: ValueError", ""),
        (PROVENANCE, b'{"sta', "provenance.json cannot be read: JSONDecodeError", "0.7"),
        ("experiment.yaml", b"nam", "experiment.yaml cannot be read: ValueError", ""),
    ],
)
def test_a_damaged_run_is_listed_with_the_reason(
    storage: Path, name: str, content: bytes | None, reason: str, best: str
) -> None:
    damaged = storage / "old" / name
    damaged.unlink() if content is None else damaged.write_bytes(content)
    lines = said("list", "--storage", str(storage)).splitlines()
    (k,) = [k for k, line in enumerate(lines) if line.startswith("old")]
    assert lines[k].split()[1] == "damaged"
    assert (best in lines[k].split()) or not best
    assert lines[k + 1].startswith(f"  {reason}")
    assert "new     interrupted  2/3     0.7" in "\n".join(lines)


def test_what_is_left_of_a_damaged_run_is_shown(storage: Path) -> None:
    (storage / "old" / REPORTS).write_bytes(b"PAR1")
    shown = said("show", "old", "--storage", str(storage))
    assert f"NOTICE: {storage}/old: results.parquet cannot be read" in shown
    assert "best: trial #2 (id2), acc 0.7 at step 1: lr 0.125, optimizer adam" in shown
    found = json.loads(said("show", "old", "--storage", str(storage), "--json"))
    assert (found["state"], found["best"]["value"], len(found["unreadable"])) == ("finished", 0.7, 1)


@pytest.mark.parametrize("columns", [80, 40])
def test_on_a_terminal_no_line_is_too_long(storage: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "width", lambda: columns)
    saved(storage / ("quickstart-20260101-120000" * 2), "2026-01-04", (0.123456789,) * 3)
    for arguments in (("list", "--storage", str(storage)), ("show", str(storage / "old"))):
        lines = said(*arguments).splitlines()
        assert max(map(len, lines)) <= columns
    assert "lr 0.125, optimizer adam" in lines[-2] or columns < 80  # rather than that completed trials are complete
    monkeypatch.setattr(options, "width", lambda: None)
    assert "epoch reached max_t 9" in said("show", str(storage / "old"))


def test_an_unknown_run_names_the_nearest(storage: Path) -> None:
    from tuner.errors import InputError

    with pytest.raises(InputError, match="did you mean 'killed'"):
        CliRunner().invoke(cli, ["show", "kiled", "--storage", str(storage)], catch_exceptions=False)

"""Run folders of others: no verb that reads executes what lies in one. See docs/how-to/use-run-folders-of-others.md."""

from __future__ import annotations

import base64
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ray import cloudpickle

from tests.tracking.made_up import made_up_run, made_up_trial
from tuner.actions.run import run
from tuner.cli import cli
from tuner.errors import InputError
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_summary
from tuner.runs.results import EXPERIMENT, PROVENANCE, write_json
from tuner.search.recovery import read_stored_search
from tuner.search.snapshot import STATE
from tuner.spec.document import dump_yaml, read_yaml
from tuner.storage.folder import RunFolder
from tuner.storage.signing import key_file

READING = {
    "list": ["list", "--storage", "{storage}"],
    "show": ["show", "{run}"],
    "show of a name that is none": ["show", "nosuch", "--storage", "{storage}"],
    "why": ["why", "{run}"],
    "report": ["report", "{run}", "-o", "{storage}/page.html"],
    "compare": ["compare", "{run}", "{run}"],
    "table": ["table", "{run}", "-o", "{storage}/table.parquet"],
    "run with a name that is taken": ["run", "{run}/experiment.yaml", "--name", "run", "--storage", "{storage}"],
}


class Armed:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one run, in which each place that can hold a pickle holds an armed one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    storage, armed = tmp_path / "runs", Armed(tmp_path / "boom")
    results = made_up_run(storage, working_directory=str(tmp_path), roots=[str(tmp_path)])
    results.spec["search_space"] = {"lr": {"uniform": [0, 1]}}
    made_up_trial(results, 0.5, status="completed")
    results.folder.create()
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, []))
    write_json(results.folder, PROVENANCE, results.provenance)
    results.save()
    journal = JournalWriter(results.folder)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    journal.append("suggested", trial="id1", config={"lr": 0.1, "act": armed})
    journal.close()
    pickled = base64.b64encode(cloudpickle.dumps(armed)).decode()
    event = {"n": 3, "what": "suggested", "trial": "id2", "config": {"lr": 0.1, "act": {"__pickled__": pickled}}}
    text = json.dumps(event).encode()
    with open(storage / "run/journal.jsonl", "ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(text), text))
    results.folder.write(STATE, b"{}\n" + cloudpickle.dumps(armed))
    key_file().unlink()  # another user wrote it
    assert not armed.folder.exists()
    return storage


@pytest.mark.parametrize("verb", READING)
def test_what_reads_executes_nothing(verb: str, storage: Path, tmp_path: Path) -> None:
    words = [word.format(storage=storage, run=storage / "run") for word in READING[verb]]
    CliRunner().invoke(cli, words)
    assert not (tmp_path / "boom").exists()


def test_a_run_with_python_objects_can_be_shown_anywhere(storage: Path) -> None:
    (storage / "run/trials.csv").unlink()  # the journal stands in
    done = CliRunner().invoke(cli, ["show", str(storage / "run")])
    assert done.exit_code == 0
    assert "<Python object>" in done.output


@pytest.mark.parametrize("verb", [["resume"], ["extend", "--trials", "+1"], ["retry", "--failed"]])
def test_what_takes_a_search_up_opens_only_the_users_own(verb: list[str], storage: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, [verb[0], str(storage / "run"), *verb[1:]])
    assert isinstance(done.exception, InputError)
    assert "--trust" in str(done.exception)
    assert str(done.exception).startswith(f"{storage}/run: event 2 of the journal: it holds Python objects")
    assert not (tmp_path / "boom").exists()


def test_with_trust_they_are_opened(storage: Path, tmp_path: Path) -> None:
    shutil.copytree(storage / "run", tmp_path / "copy")
    lines = (tmp_path / "copy/journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "copy/journal.jsonl").write_bytes(b"".join(lines[:2]))
    read_stored_search(load_summary(RunFolder.at(tmp_path / "copy")), trust=True)
    assert (tmp_path / "boom").exists()


def test_an_experiment_cannot_smuggle_a_pickle_into_its_journal(tmp_path: Path) -> None:
    pickled = base64.b64encode(cloudpickle.dumps(Armed(tmp_path / "boom"))).decode()
    for written in (pickled, ["", pickled]):
        params = read_yaml(f"params: {{innocent: {{__pickled__: {json.dumps(written)}}}}}", "x.yaml").value["params"]
        results = made_up_run(tmp_path / str(type(written).__name__))
        results.folder.create()
        journal = JournalWriter(results.folder)
        journal.append("began", spec=results.spec | {"params": params}, provenance={})
        journal.close()
        stock = read_stored_search(load_summary(results.folder), trust=True)
        assert stock.results.spec["params"] == {"innocent": {"__pickled__": written}}
    assert not (tmp_path / "boom").exists()


def test_a_folder_whose_journal_is_damaged_from_its_start_is_taken(user_folder: Path) -> None:
    (user_folder / "train.py").write_text("def train(config): ...\n")
    folder = user_folder / "runs/q"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text("no event\n")
    spec = {"trainable": "train.py:train", "search_space": {"x": {"uniform": [0, 1]}}}
    with pytest.raises(InputError, match=r"'runs/q' is taken"):
        run(spec | {"objective": {"metric": "loss", "mode": "min"}}, name="q", say=lambda text: None)
    assert (folder / "journal.jsonl").read_text() == "no event\n"

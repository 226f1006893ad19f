"""What the verbs make of run folders that are damaged, or made to do harm: one line, and the rest of the answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.hostile import run_folders
from tests.hostile.run_folders import arguments, asked, complaint
from tests.hostile.whole import PROVENANCE, SPEC, made
from tuner.spec.document import dump_yaml

ROOT = Path(__file__).parents[2]
DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run folder without a journal, which would make good for what the other files lost."""
    folder = tmp_path_factory.mktemp("made") / "whole"
    made(folder, with_journal=False)
    return folder


@pytest.fixture
def victim(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, in a storage of its own."""
    shutil.copytree(whole, tmp_path / "storage" / "victim")
    return tmp_path / "storage" / "victim"


def text(name: str, content: str) -> Callable[[Path], None]:
    def write(run: Path) -> None:
        (run / name).write_text(content)

    return write


def told(**changes: object) -> Callable[[Path], None]:
    return text("provenance.json", json.dumps(PROVENANCE | changes))


def spec(**changes: object) -> Callable[[Path], None]:
    return text("experiment.yaml", dump_yaml(SPEC | changes, []).decode())


def cell(old: str, new: str) -> Callable[[Path], None]:
    def replace(run: Path) -> None:
        table = run / "trials.csv"
        assert old in table.read_text()
        table.write_text(table.read_text().replace(old, new, 1))

    return replace


def other_kind(name: str, kind: str) -> Callable[[Path], None]:
    def put(run: Path) -> None:
        (run / name).unlink()
        if kind == "pipe":
            os.mkfifo(run / name)
        elif kind == "folder":
            (run / name).mkdir()
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(run / name))
        elif kind == "sparse":
            with (run / name).open("wb") as file:
                file.truncate(10**12)
        else:
            (run / name).symlink_to("/dev/zero")

    return put


def metric_as_text(run: Path) -> None:
    table = pq.read_table(run / "results.parquet")
    place = table.column_names.index("acc")
    pq.write_table(table.set_column(place, "acc", pa.array(["high"] * len(table))), run / "results.parquet")


def value(column: str, new: object) -> Callable[[Path], None]:
    """The first cell of a column of results.parquet, which becomes ``new``."""

    def put(run: Path) -> None:
        table = pq.read_table(run / "results.parquet")
        values = [new, *table[column].to_pylist()[1:]]
        place = table.column_names.index(column)
        pq.write_table(table.set_column(place, column, pa.array(values)), run / "results.parquet")

    return put


def bomb(run: Path) -> None:
    """Three million reports in some kilobytes."""
    table = pq.read_table(run / "results.parquet").slice(0, 1)
    few = pa.table({name: pa.repeat(table[name][0], 1_000_000) for name in table.column_names})
    with pq.ParquetWriter(run / "results.parquet", few.schema) as writer:
        for _ in range(3):
            writer.write_table(few)


def text_bomb(run: Path) -> None:
    """A text of a megabyte, that every report has."""
    table = pq.read_table(run / "results.parquet")
    place = table.column_names.index("note")
    pq.write_table(table.set_column(place, "note", pa.array(["x" * 10**6] * len(table))), run / "results.parquet")


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (text("provenance.json", DEEP), "provenance.json cannot be read: ValueError: it is nested deeper than 100 levels"),
    (text("failures.json", DEEP), "failures.json cannot be read: ValueError: it is nested deeper than 100 levels"),
    (text("lineage.json", "[]"), "lineage.json cannot be read: ValueError: the content: Input should be a valid dict"),
    (text("failures.json", "[]"), "failures.json cannot be read: ValueError: the content: Input should be a valid di"),
    (told(notices=5), "provenance.json: notices: Input should be a valid list: it is left out"),
    (told(notices=[{}]), "provenance.json: notices.0: Input should be a valid string: it is left out"),
    (told(git="x"), "provenance.json: git: Input should be a valid dictionary"),
    (told(cluster="x"), "provenance.json: cluster: Input should be a valid list"),
    (told(cluster=[{"name": "a", "CPU": "x"}]), "provenance.json: cluster.0.CPU: Input should be a valid number"),
    (told(packages=[]), "provenance.json: packages: Input should be a valid dictionary"),
    (told(elapsed_s="x"), "provenance.json: elapsed_s: Input should be a valid number"),
    (told(elapsed_s=float("nan")), "provenance.json: elapsed_s: Input should be a finite number"),
    (told(elapsed_s=float("inf")), "provenance.json: elapsed_s: Input should be a finite number"),
    (told(trial_resources=[]), "provenance.json: trial_resources: Input should be a valid dictionary"),
    (told(host=3), "provenance.json: host: Input should be a valid string"),
    (told(command=3), "provenance.json: command: Input should be a valid list"),
    (told(started="soon"), "provenance.json: started: Invalid isoformat string: 'soon'"),
    (spec(objective={"metric": "nope", "mode": "max"}), "trial 'id1' has no finite best_nope, an objective of exp"),
    (
        spec(scheduler="asha"),
        "experiment.yaml cannot be read: ValueError: scheduler: Input should be a valid dictionary",
    ),
    (
        spec(scheduler={"kind": "asha", "time_attr": "epoch", "max_t": "x"}),
        "scheduler.max_t: Input should be a valid i",
    ),
    (spec(scheduler={"max_t": 9}), "experiment.yaml cannot be read: ValueError: scheduler.kind: Field required"),
    (metric_as_text, "results.parquet cannot be read: ValueError: the column acc holds dictionary<values=string"),
    (
        value("acc", float("nan")),
        "results.parquet cannot be read: ValueError: report 1 of trial 'id1' has no acc, by w",
    ),
    (value("acc", None), "results.parquet cannot be read: ValueError: report 1 of trial 'id1' has no acc, by which"),
    (value("acc", float("inf")), "results.parquet cannot be read: ValueError: report 1 of trial 'id1' has inf as acc"),
    (value("epoch", float("inf")), "results.parquet cannot be read: ValueError: report 1 of trial 'id1' has inf as ep"),
    (
        value("epoch", 10**18),
        "results.parquet cannot be read: ValueError: report 1 of trial 'id1' has 1000000000000000",
    ),
    (spec(scheduler=None), "experiment.yaml cannot be read: ValueError: scheduler: Input should be a valid dictionary"),
    (spec(resources=None), "experiment.yaml cannot be read: ValueError: resources: Input should be a valid dictionary"),
    (bomb, " bytes say that they hold 3000000 reports"),
    (cell("id1,1", "../id1,1"), "trials.csv cannot be read: ValueError: '../id1' is not the id of a trial"),
    (cell("id2,2", "id1,2"), "trials.csv cannot be read: ValueError: trial 'id1' has two lines"),
    (cell(",ray/id1/", ",../../ray/id1/"), "/ray/id1/checkpoint_1' does not lie in the run folder"),
    (
        other_kind("experiment.yaml", "pipe"),
        "experiment.yaml cannot be read: OSError: experiment.yaml is not a plain file",
    ),
    (
        other_kind("experiment.yaml", "device"),
        "experiment.yaml cannot be read: OSError: experiment.yaml is not a plain fil",
    ),
    (other_kind("trials.csv", "pipe"), "trials.csv cannot be read: OSError: trials.csv is not a plain file"),
    (other_kind("trials.csv", "folder"), "trials.csv cannot be read: OSError: trials.csv is not a plain file"),
    (other_kind("trials.csv", "sparse"), "trials.csv has 1000000000000 bytes, and at most 1073741824 are read"),
    (other_kind("provenance.json", "socket"), "provenance.json is not a plain file"),
]


@pytest.mark.parametrize(("damage", "line"), DAMAGE, ids=[f"{i}" for i in range(len(DAMAGE))])
def test_a_damaged_file_is_one_line_of_the_answer(victim: Path, damage: Callable[[Path], None], line: str) -> None:
    damage(victim)
    storage = victim.parent
    shutil.copytree(storage / "victim", storage / "other", symlinks=True, ignore=lambda *_: os.listdir(victim))
    (storage / "other" / "experiment.yaml").write_bytes(dump_yaml(SPEC, []))
    for verb in ("show", "list", "why"):
        status, said = asked(arguments(verb, storage))
        assert status in (0, 4), said
        reads_it = verb == "show" or (verb == "list" and not line.startswith(("results.parquet", " bytes")))
        assert line in " ".join(said.split()) or not reads_it, said
    assert len([row for row in asked(["list", "--storage", str(storage)])[1].splitlines() if row[:1] != " "]) == 3
    assert complaint(arguments("report", storage)) == ""


def test_a_text_that_all_reports_share_is_kept_once(victim: Path) -> None:
    text_bomb(victim)
    status, said = asked(["show", str(victim)])
    assert (status, "cannot be read" in said) == (0, False)


@pytest.mark.parametrize("content", [DEEP, "[]", "3", '{"time": "x", "trials": 5}', '{"trials": {"id2": {}}}'])
def test_a_damaged_live_file_is_as_good_as_none(victim: Path, content: str) -> None:
    (victim / "live.json").write_text(content)
    assert asked(["why", str(victim)])[0] == 0


@pytest.mark.parametrize("content", ["[]", "{}", DEEP, '{"trial": 3, "step": 1}', '{"trial": "id1", "step": "x"}'])
def test_best_says_what_of_the_best_trial_is_damaged(victim: Path, content: str) -> None:
    (victim / "best" / "metrics.json").write_text(content)
    status, said = asked(["best", str(victim)])
    assert status == 4
    assert said.startswith(f"error: {victim}/best is damaged: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_a_lock_that_is_no_file_holds_nobody_up(victim: Path, kind: str) -> None:
    other_kind("run.lock", kind)(victim)
    assert complaint(["show", str(victim)]) == ""


def test_a_course_that_leads_back_to_itself_has_an_end(victim: Path) -> None:
    segment = {"after": 0, "config": {}, "donor": None, "donor_step": 0}
    there = {"after": 1, "config": {}, "donor": "id2", "donor_step": 9}
    back = {"after": 1, "config": {}, "donor": "id1", "donor_step": 9}
    (victim / "lineage.json").write_text(json.dumps({"id1": [segment, there], "id2": [segment, back]}))
    status, said = asked(["show", str(victim)])
    assert status == 0
    assert "continues from its own checkpoint of a later report" in said


def test_a_table_ends_a_curve_where_its_fidelity_is_0(victim: Path) -> None:
    table = pq.read_table(victim / "results.parquet")
    place = table.column_names.index("epoch")
    damaged = table.set_column(place, "epoch", pa.array([0] * len(table)))
    pq.write_table(damaged, victim / "results.parquet")
    status, said = asked(arguments("table", victim.parent))
    assert status == 2
    assert "no trial has a finite acc at a epoch above 0: no table" in said


def test_export_says_that_nobody_knows_where_the_code_of_a_run_was(victim: Path) -> None:
    del (known := dict(PROVENANCE))["roots"]
    (victim / "provenance.json").write_text(json.dumps(known))
    status, said = asked(arguments("export", victim.parent))
    assert status == 4
    assert "provenance.json has no 'roots', the folders in which the files of its experiment lie" in said


@pytest.mark.parametrize("folder", ["x" * 20_000, "/nope", "a\0b"])
def test_a_replay_does_without_the_working_directory_of_then(victim: Path, folder: str) -> None:
    told(working_directory=folder)(victim)
    assert complaint(arguments("replay", victim.parent)) == ""


@pytest.mark.parametrize(
    "content",
    [b"x", b"NaN", b"a: [" * 50, {1: torch.zeros(1)}, {"a": torch.zeros(1).to_sparse()}, {"model": {"a": 5}}, []],
    ids=range(7),
)
@pytest.mark.filterwarnings("ignore:Validating sparse tensor")
def test_a_file_that_holds_no_model_is_none(victim: Path, content: object) -> None:
    model = victim / "best" / "checkpoint" / "model.pt"
    (model.parent / ".manifest.json").unlink()
    model.write_bytes(content) if isinstance(content, bytes) else torch.save(content, model)
    status, said = asked(arguments("best --export", victim.parent))
    assert status == 2
    assert "holds a model's state dict that torch.load reads with weights_only=True" in said


@pytest.mark.parametrize("verb", run_folders.VERBS)
def test_an_experiment_may_lack_all_but_its_objective(victim: Path, verb: str) -> None:
    few = {"objective": SPEC["objective"]}
    (victim / "experiment.yaml").write_bytes(dump_yaml(few, []))
    assert complaint(arguments(verb, victim.parent)) == ""


# --- the command line --------------------------------------------------------------------------------------------

COMMANDS: list[tuple[list[str], int, str]] = [
    (["list", "--storage", "/etc/hostname"], 4, "storage /etc/hostname cannot be listed: Not a directory"),
    (["list", "--storage", "/proc/1/fd/x/y"], 0, "no runs in /proc/1/fd/x/y"),
    (["show", "x" * 5000], 4, "cannot be read: File name too long"),
    (["show", "~nobody_has_this_name/run"], 2, "storage '~nobody_has_this_name/run' cannot be used: "),
    (["show", "run\udc80"], 2, r"storage 'run\udc80' cannot be used: "),
    (["jobs", "--address", "x" * 3000], 2, "must be http://HEAD:8265, the address of the cluster's dashboard"),
    (["jobs", "--address", "http://" + "é" * 100], 2, "must be http://HEAD:8265"),
    (["jobs", "--cluster", "LAUNCHER: x"], 2, "available_node_types.worker.min_workers: must be a whole number from 0"),
    (["jobs", "--cluster", "LAUNCHER: null"], 2, "min_workers: must be a whole number from 0 on, not None"),
    (["jobs", "--cluster", "LAUNCHER: -1"], 2, "min_workers: must be a whole number from 0 on, not -1"),
    (["jobs", "--cluster", "LAUNCHER: '\udcff"], 2, "cannot be read: 'utf-8' codec can't decode byte 0xff"),
    (["\x1b[2J"], 2, r"no such command '\x1b[2J'"),
]


@pytest.mark.parametrize(("words", "status", "line"), COMMANDS, ids=[f"{i}" for i in range(len(COMMANDS))])
def test_what_is_typed_wrong_is_one_line(tmp_path: Path, words: list[str], status: int, line: str) -> None:
    if words[-1].startswith("LAUNCHER"):
        content = "provider: {type: local, head_ip: h}\nauth: {ssh_user: me}\navailable_node_types:\n  worker: "
        content += "{min_workers: " + words[-1].removeprefix("LAUNCHER: ") + "}\n"
        (tmp_path / "launcher.yaml").write_text(content, errors="surrogateescape")
        words = [*words[:-1], str(tmp_path / "launcher.yaml")]
    done, said = asked(words)
    assert done == status, said
    assert line in said
    assert len(said) < 8000


def test_a_folder_whose_name_is_no_text_is_passed_over(victim: Path) -> None:
    Path(os.fsdecode(os.fsencode(victim.parent) + b"/\xff")).mkdir()
    status, said = asked(["list", "--storage", str(victim.parent)])
    assert (status, "victim" in said) == (0, True)


# --- generated ---------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_no_generated_folder_breaks_a_verb() -> None:
    """A sample; the script runs as many as one likes. It forks, which a process with threads must not."""
    command = [sys.executable, "-m", "tests.hostile.run_folders", "--cases", "40"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["40 cases from 0 on", "40 cases from 0 on, 0 wrong"], done.stdout

"""``simulate`` and ``table`` as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.documents import conforms
from tests.simulator.test_table import ASHA, epochs, run_of
from tests.tables import DOMAINS, by_formula
from tuner.cli.simulate import command as simulate
from tuner.cli.table import command as table
from tuner.errors import InputError
from tuner.spec.document import dump_yaml

ROOT = Path(__file__).parents[2]

EXPERIMENT = {
    "trainable": "nowhere:train",
    "search_space": DOMAINS,
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "budget": {"trials": 20},
}

GRID = ["--set", "search.kind=grid"]
PLUG_IN = "{kind: ray, class_path: 'ray.tune.schedulers:MedianStoppingRule'}"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two experiments and a table, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    asha = {"scheduler": {"kind": "asha", "time_attr": "epoch", "max_t": 27, "reduction_factor": 3}}
    (tmp_path / "asha.yaml").write_bytes(dump_yaml(EXPERIMENT | asha, []))
    (tmp_path / "fifo.yaml").write_bytes(dump_yaml(EXPERIMENT, []))
    by_formula(informative=True, configurations=50).to_parquet(tmp_path / "t.parquet")
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, arguments, catch_exceptions=False)


def test_two_experiments_are_compared(files: Path) -> None:
    done = call("asha.yaml", "fifo.yaml", "--table", "t.parquet", "--workers", "1,4", "--seeds", "2", "-o", "out")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split("  ")[0] == "experiment"
    assert [line.split()[:2] for line in lines[1:]] == [["asha", "1"], ["fifo", "1"], ["asha", "4"], ["fifo", "4"]]
    assert "figure: out/comparison.png" in done.stderr
    assert "completes 20 trials" in done.stderr
    assert (files / "out/comparison.png").stat().st_size > 10_000
    page = (files / "out/comparison.html").read_text()
    assert "regret" in page
    assert "default-src 'none'; img-src data:" in page  # nothing that a name or value smuggles in runs or loads


def test_json_is_one_document_and_one_seed_has_no_spread(files: Path) -> None:
    done = call("fifo.yaml", "--table", "t.parquet", "--seeds", "1", "--hours", "1", "--json", "-o", "out")
    found = json.loads(done.stdout, parse_constant=lambda text: pytest.fail(text))
    (row,) = conforms("simulate", found)["results"]
    assert row["experiment"] == "fifo"
    assert row["workers"] == 8
    assert row["whole"]["standard_error"] is None
    assert found["virtual_seconds"] == {"t, 8 workers": 3600}


def test_a_limit_of_trials(files: Path) -> None:
    done = call("asha.yaml", "--table", "t.parquet", "--seeds", "2", "--trials", "7", "--json", "-o", "out")
    assert json.loads(done.stdout)["results"][0]["trials"] == 7


def test_by_default_the_result_is_a_folder_below_runs(files: Path) -> None:
    call("fifo.yaml", "--table", "t.parquet", "--seeds", "1", "--trials", "2")
    assert [path.name for path in files.glob("runs/simulate-*/*")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*GRID, "--set", "search_space={lr: {loguniform: [1e-4, 1e-1]}}"], "loguniform [0.0001, 0.1] has no end of"),
        (["--set", "scheduler.kind=bohb", "--set", "search.kind=random"], "bohb's brackets feed bohb's models, not"),
        (["--set", "constraints=[width <= 64]"], "configurations break them: take these configurations out"),
        (["--set", "objective.metric=loss"], "loss: the table lacks this column (the metric of the objective)"),
        (["--set", "scheduler={kind: asha, time_attr: step}"], "step: the table lacks this column (the fidelity"),
        (["--hours", "inf"], "--hours inf: must be a finite number"),
        (["--hours", "nan"], "--hours nan: must be a finite number"),
        (["--fidelity", "rung"], "rung: the table lacks this column (the fidelity"),
        (["--table", "t.parquet"], "--table: two have the same name"),
        (["--table", "."], "--table: two have the same name"),
        (["--table", "empty"], "--table: empty: there is no *.parquet file in this folder"),
        (["fifo.yaml"], "'fifo' is the name of an earlier experiment too"),
        (["--set", "scheduler.kind=pbt"], "scheduler.kind: pbt changes the configurations of running trials"),
        (["--set", "scheduler.kind=pb2"], "simulate with one of asha, bohb, fifo, hyperband, median"),
        (["--set", f"scheduler={PLUG_IN}"], "scheduler.kind: ray acts on trials of Ray, which a simulator has not"),
    ],
)  # fmt: skip
def test_wrong_input_is_said_in_one_line(files: Path, arguments: list[str], message: str) -> None:
    (files / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        call("fifo.yaml", "--table", "t.parquet", *arguments)
    (line,) = str(caught.value).splitlines()
    assert message in line
    assert not (files / "runs").exists()


def test_who_cannot_be_simulated_is_told_where(files: Path) -> None:
    other = EXPERIMENT | {"scheduler": {"kind": "pbt", "time_attr": "epoch"}}
    (files / "pbt.yaml").write_bytes(dump_yaml(other, []))
    with pytest.raises(InputError, match=r"^pbt.yaml:\d+:\d+: scheduler.kind: pbt changes"):
        call("fifo.yaml", "pbt.yaml", "--table", "t.parquet")


FUNCTIONS = """
import numpy as np

def curves(configurations):
    lr = np.log10([[c["lr"]] for c in configurations])
    return 1 - (lr + 2) ** 2 - 1 / np.arange(1, 28), np.arange(1, 28) + 0 * lr

def fails(configurations):
    return configurations[0]["nothing"]

def one_number(configurations):
    return 1.0, 1.0

def backwards(configurations):
    return np.zeros((len(configurations), 2)), np.array([[2.0, 1.0]] * len(configurations))

number = 3
"""


def test_a_function_in_place_of_a_table(files: Path) -> None:
    (files / "functions.py").write_text(FUNCTIONS)
    options = ["--function", "functions.py:curves", "--seeds", "1", "--json", "-o", "out"]
    found = json.loads(call("asha.yaml", "fifo.yaml", *options).stdout)
    assert list(found["virtual_seconds"]) == ["curves, 8 workers"]
    assert found["notes"][0].startswith("regret: (best that a local search finds - incumbent)")
    assert "mean over 1 function" in found["notes"][0]
    free = {row["experiment"]: row["trials"] for row in found["results"]}
    paid = json.loads(call("asha.yaml", "fifo.yaml", *options, "--start-cost", "27").stdout)
    assert {row["experiment"]: row["trials"] for row in paid["results"]}["fifo"] == free["fifo"] / 2
    assert paid["costs"] == {"start": 27, "resume": 0}
    assert "before it trains, a new trial takes 27 s, and a resumed one 0 s" in paid["notes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "learning curves: give --table or --function, one of the two"),
        (["--table", "t.parquet", "--function", "functions.py:curves"], "one of the two"),
        (["--function", "curves"], "--function curves: must be module:function or file.py:function"),
        (["--function", "nowhere.py:curves"], "nowhere.py"),
        (["--function", "functions.py:curve"], "has no 'curve'; did you mean 'curves'"),
        (["--function", "functions.py:number"], "functions.py:number: is a int, not a function"),
        (["--function", "functions.py:fails"], "--function functions.py:fails: KeyError: 'nothing'"),
        (["--function", "functions.py:one_number"], "gave an array with 0 dimensions for the values, not 2"),
        (["--function", "functions.py:backwards"], "backwards: values must be finite, and seconds cumulative"),
        (["--function", "functions.py:curves", "--function", "functions.py:curves"], "two have the same name"),
        (["--function", "functions.py:curves", "--resume-cost", "inf"], "--resume-cost inf: must be a finite number"),
    ],
)
def test_a_function_that_cannot_be_used(files: Path, arguments: list[str], message: str) -> None:
    (files / "functions.py").write_text(FUNCTIONS)
    with pytest.raises(InputError) as caught:
        call("fifo.yaml", *arguments)
    (line,) = str(caught.value).splitlines()
    assert message in line
    assert not (files / "runs").exists()


def test_a_folder_stands_for_its_tables(files: Path) -> None:
    (files / "more").mkdir()
    for name in ("b", "a"):
        by_formula(informative=True, configurations=5).to_parquet(files / f"more/{name}.parquet")
    (files / "more/README.md").write_text("no table")
    options = ["--seeds", "1", "--trials", "2", "--json", "-o", "out"]
    found = json.loads(call("fifo.yaml", "--table", "more", "--table", "t.parquet", *options).stdout)
    assert list(found["virtual_seconds"]) == ["a, 8 workers", "b, 8 workers", "t, 8 workers"]
    assert "mean over 3 tables" in found["notes"][0]


def test_one_table_and_one_seed_are_said_so(files: Path) -> None:
    (note, *_) = json.loads(call("fifo.yaml", "--table", "t.parquet", "--seeds", "1", "--json").stdout)["notes"]
    assert note.endswith("mean over 1 table, one seed")
    (note, *_) = json.loads(call("fifo.yaml", "--table", "t.parquet", "--seeds", "2", "--json").stdout)["notes"]
    assert "mean over 1 table, ± standard error over 2 seeds" in note


def test_curves_that_end_before_max_t_are_named(files: Path) -> None:
    options = ["--table", "t.parquet", "--seeds", "1", "--json", "--set"]
    *_, note = json.loads(call("asha.yaml", *options, "scheduler.max_t=81").stdout)["notes"]
    assert note.startswith("asha: its scheduler.max_t is 81, but the curves of t end at epoch 27: trials end there")
    assert "max_t" not in call("asha.yaml", *options, "scheduler.max_t=27").stdout
    assert "max_t" not in call("asha.yaml", *options, "scheduler.max_t=9").stdout


def test_a_search_that_fails_leaves_no_folder(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise InputError("a search that fails")

    monkeypatch.setattr("tuner.simulator.comparison.compare", fails)
    with pytest.raises(InputError, match="a search that fails"):
        call("fifo.yaml", "--table", "t.parquet")
    assert not list(files.glob("runs/*"))


def test_experiments_must_have_one_objective_in_common(files: Path) -> None:
    other = EXPERIMENT | {"objective": {"metric": "val_accuracy", "mode": "min"}}
    (files / "other.yaml").write_bytes(dump_yaml(other, []))
    with pytest.raises(InputError, match="min val_accuracy differs from max val_accuracy of fifo"):
        call("fifo.yaml", "other.yaml", "--table", "t.parquet")


def test_schedulers_must_count_by_one_column(files: Path) -> None:
    other = EXPERIMENT | {"scheduler": {"kind": "asha", "time_attr": "step"}}
    (files / "other.yaml").write_bytes(dump_yaml(other, []))
    with pytest.raises(InputError, match="schedulers count by epoch and step"):
        call("asha.yaml", "other.yaml", "--table", "t.parquet")


@pytest.mark.parametrize("workers", ["0", "two", "1,,2", ""])
def test_workers_are_whole_numbers(files: Path, workers: str) -> None:
    done = call("fifo.yaml", "--table", "t.parquet", "--workers", workers)
    assert done.exit_code == 2
    assert "must be whole numbers above 0, such as 1,8,64" in done.stderr


def test_a_bad_table_ends_with_2_and_one_line(files: Path) -> None:
    by_formula(informative=True, configurations=5).drop(index=3).to_parquet(files / "bad.parquet")
    command = [sys.executable, "-m", "tuner", "simulate", "fifo.yaml", "--table", "bad.parquet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=files, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: bad.parquet: epoch: 1 of 5 curves are not complete")


def test_a_run_is_written_as_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = run_of(tmp_path, ASHA, ({"x": 0}, epochs(0.1, 0.2)), ({"x": 1}, epochs(0.3)))
    monkeypatch.setattr("tuner.runs.loading.load_run", lambda run, storage: results)
    done = CliRunner().invoke(table, ["run", "-o", str(tmp_path / "t.parquet")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path}/t.parquet\n"
    assert "2 configurations, 1 of them cut short and carried on; 0 trials left out" in done.stderr
    assert (tmp_path / "t.parquet").exists()

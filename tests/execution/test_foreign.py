"""Training code that was not written for tuner, on a real Ray session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.how_to import write_files
from tuner import load_run, run
from tuner.errors import NoUsableResult
from tuner.storage.folder import RunFolder
from tuner.visualization.text_tables import headline

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]

SCRIPT = """
import argparse, pathlib, sys
import tuner

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--fails", action="store_true")
    arguments = parser.parse_args(OPTIONS)
    if arguments.fails:
        sys.exit(1)
    begun = tuner.get_checkpoint()
    start = int((begun / "epoch").read_text()) if begun else 0
    pathlib.Path("state").mkdir(exist_ok=True)
    for epoch in range(start + 1, arguments.epochs + 1):
        pathlib.Path("state", "epoch").write_text(str(epoch))
        tuner.report(loss=arguments.learning_rate / epoch, epoch=epoch, start=start, checkpoint="state")
    sys.exit(0)

if __name__ == "__main__":
    main()
"""


def experiment(**keys: object) -> dict:
    return {
        "trainable": "train.py",
        "objective": {"metric": "loss", "mode": "min"},
        "params": {"epochs": 4},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        "failures": {"retries": 0},
        **keys,
    }


def test_a_script_is_searched_stopped_paused_and_restored(user_folder: Path) -> None:
    (user_folder / "train.py").write_text(SCRIPT.replace("OPTIONS", ""))
    spec = experiment(
        search_space={"learning_rate": {"grid_search": [4.0, 2.0, 1.0]}, "fails": {"grid_search": [False, True]}},
        search={"kind": "grid"},
        scheduler={"kind": "hyperband", "time_attr": "epoch", "max_t": 4, "reduction_factor": 2},
    )
    results = run(spec, storage=user_folder / "runs", name="run", say=lambda text: None)
    failed = [trial for trial in results.trials if trial.config["fails"]]
    assert {trial.reason for trial in failed} == {"ScriptError: train.py exited with status 1"}
    others = [trial for trial in results.trials if not trial.config["fails"]]
    assert {trial.status for trial in others} <= {"completed", "stopped"}
    assert all([r.metrics["epoch"] for r in trial.reports] == list(range(1, trial.steps + 1)) for trial in others)
    assert any(trial.reports[-1].metrics["start"] for trial in others), "one was paused, and continued"
    best = results.best
    assert best is not None
    assert best.config["learning_rate"] == 1.0
    assert best.steps == 4
    assert (RunFolder.at(user_folder / "runs/run") / "best/checkpoint").read("epoch") == b"4"


def test_arguments_that_the_script_refuses_are_the_reason_of_the_failure(user_folder: Path) -> None:
    (user_folder / "train.py").write_text(
        SCRIPT.replace("OPTIONS", "sys.argv[1:]")
        .replace("parser.add", "add_to(parser).add", 1)
        .replace("def main", "from added import add_to\ndef main")
    )
    (user_folder / "added.py").write_text("def add_to(parser): return parser")
    spec = experiment(search_space={"lrr": {"grid_search": [4.0]}})
    with pytest.raises(NoUsableResult, match="unrecognized arguments: --lrr 4"):
        run(spec, storage=user_folder / "runs", name="run", say=lambda text: None)


@pytest.mark.parametrize("page", ["bring-a-script.md", "bring-an-optuna-objective.md"])
def test_the_search_of_a_how_to_page_finds_something(user_folder: Path, page: str) -> None:
    write_files(page, user_folder)
    results = run("search.yaml", storage=user_folder / "runs", name="run", say=lambda text: None)
    assert results.best is not None
    assert results.count("failed") == 0


def test_a_parameter_without_effect_is_pointed_out(user_folder: Path) -> None:
    write_files("find-parameters-without-effect.md", user_folder)
    said: list[str] = []
    results = run("search.yaml", storage=user_folder / "runs", name="run", say=said.append)
    never_read, same = (line for line in headline(load_run(user_folder / "runs/run")) if line.startswith("NOTICE: "))
    assert never_read in said
    assert never_read.startswith("NOTICE: dropout is never read by the trainable forgetful.py:train")
    assert "differ in dropout only and have the same curve of loss" in same
    assert results.count("completed") == 4

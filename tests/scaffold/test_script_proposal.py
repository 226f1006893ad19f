"""What is read of a script, and the experiment that comes of it."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.one_trial import run_trial
from tuner.actions.run import validate
from tuner.errors import InputError
from tuner.plan.plan import Plan
from tuner.scaffold.experiment import experiment_text
from tuner.scaffold.metrics import mode_of, reported
from tuner.scaffold.script import ScriptProposal, read, trainable_of

ARGPARSE = """
import argparse

import tuner

WIDTH = 32
SMOOTHING = 0.1

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-l", "--learning-rate", type=float, default=0.1, help="peak\\n rate # of all")
    parser.add_argument("--model.width", type=int, default=WIDTH)
    parser.add_argument("--optimizer", choices=["sgd", "on"], default="sgd")
    parser.add_argument("--augment", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--no-cuda", dest="cuda", action="store_false")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--data", required=True)
    parser.add_argument("--untyped", default=0.5)
    parser.add_argument("--layers", type=int, nargs="+")
    arguments = parser.parse_args()
    for epoch in range(1, arguments.epochs + 1):
        metrics = {"epoch": epoch, "train_loss": 2.0}
        metrics = {**metrics, "val_loss": arguments.learning_rate * arguments.clip * SMOOTHING}
        tuner.report(metrics)

if __name__ == "__main__":
    main()
"""

DATACLASS = """
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Optional

from ray import tune

SIZE = 360

@dataclass
class Config:
    lr: float = 0.01
    hidden: Optional[int] = 64
    activation: Literal["relu", "gelu"] = "relu"
    dropout: "float | None" = field(default=0.1)
    layers: list[int] = field(default_factory=list)
    epochs: int = 9
    known: ClassVar[int] = 1

def helper(config: Config): ...

def train(config: "Config", verbose: bool = False) -> None:
    tune.report({"step": 1, "val/accuracy": 0.5, "val/loss": 1.0})

if __name__ == "__main__":
    train(Config())
"""

CONSTANTS = """
import tuner

LEARNING_RATE = 1e-3
EPOCHS = 4
OPTIMIZER = "adam"
USE_BIAS = True
for epoch in range(1, EPOCHS + 1):
    tuner.report(epoch=epoch, loss=LEARNING_RATE)
"""


def proposal(folder: Path, text: str) -> ScriptProposal:
    (folder / "train.py").write_text(textwrap.dedent(text))
    return read(Path("train.py"))


def planned(found: ScriptProposal) -> Plan:
    """The plan of the experiment that is proposed."""
    Path("search.yaml").write_text(experiment_text(found, trainable_of(found, Path()), "search.yaml"))
    return validate("search.yaml")


def searched(found: ScriptProposal) -> dict[str, Any]:
    return {one.name: one.domain for one in found.of("search")}


def test_a_script_with_argparse(user_folder: Path) -> None:
    found = proposal(user_folder, ARGPARSE)
    assert searched(found) == {
        "learning_rate": {"loguniform": [0.01, 1.0]},
        "model_width": {"choice": [8, 16, 32, 64]},
        "optimizer": {"choice": ["sgd", "on"]},
        "augment": {"choice": [True, False]},
        "SMOOTHING": {"uniform": [0.0, 0.3]},
    }
    assert [one.name for one in found.of("unsure")] == ["clip"]
    assert [one.name for one in found.of("fixed")] == ["epochs", "data"]
    assert [one.name for one in found.of("left")] == ["cuda", "untyped"]
    assert found.found == "9 arguments of argparse and 1 constant"
    text = experiment_text(found, "train.py", "search.yaml")
    assert "#  data: VALUE  # line 18" in text
    assert '"peak rate # of all"' in text
    with pytest.raises(InputError, match=r"data: required by train\.py"):
        planned(found)
    Path("search.yaml").write_text(text.replace("#  data: VALUE", "  data: mnist"))
    plan = validate("search.yaml")
    assert plan.spec.params == {"epochs": 9, "data": "mnist"}
    assert str(plan.spec.objective) == "min val_loss"
    first = {p.name: p.default and p.default.value for p in plan.spec.search_space.parameters}
    assert first == {
        "learning_rate": 0.1, "model_width": 32, "optimizer": "sgd", "augment": True, "SMOOTHING": 0.1
    }  # fmt: skip
    assert plan.spec.scheduler.kind == "asha"
    reports, failure = run_trial(
        user_folder, "train.py", {"learning_rate": 0.5, "SMOOTHING": 0.2, "model_width": 8}, ("val_loss",),
        params=plan.spec.params,
    )  # fmt: skip
    assert failure == ""
    assert reports[-1] == {"epoch": 9, "train_loss": 2.0, "val_loss": 0.1}


def test_a_function_that_takes_a_dataclass(user_folder: Path) -> None:
    found = proposal(user_folder, DATACLASS)
    assert searched(found) == {
        "lr": {"loguniform": [0.001, 0.1]},
        "hidden": {"choice": [16, 32, 64, 128]},
        "activation": {"choice": ["relu", "gelu"]},
        "dropout": {"uniform": [0.0, 0.5]},
    }
    assert found.found == "6 fields of Config, which train takes"
    plan = planned(found)
    assert plan.spec.trainable == "train.py:train"
    assert str(plan.spec.objective) == "max val/accuracy"
    assert plan.spec.scheduler.kind == "fifo"


def test_constants(user_folder: Path) -> None:
    found = proposal(user_folder, CONSTANTS)
    plan = planned(found)
    assert searched(found).keys() == {"LEARNING_RATE", "USE_BIAS"}
    assert (plan.spec.trainable, plan.spec.params) == ("train.py", {"EPOCHS": 4})
    reports, failure = run_trial(user_folder, "train.py", {"LEARNING_RATE": 0.5}, params={"EPOCHS": 2})
    assert (reports, failure) == ([{"epoch": epoch, "loss": 0.5} for epoch in (1, 2)], "")


def test_a_dataclass_that_becomes_arguments(user_folder: Path) -> None:
    text = "import tyro\n" + DATACLASS.replace("train(Config())", "train(tyro.cli(Config))").replace(
        "def train(config", "def start(first, config"
    ).replace("epochs: int = 9", "epochs: int = 9\n    amp_loss: bool = True")
    found = proposal(user_folder, text.replace("def helper(config: Config)", "def helper(a, b)"))
    assert found.function == ""
    assert found.found == "7 fields of Config, which become arguments and 1 constant"
    assert planned(found).spec.trainable == "train.py"


def test_guesses_are_searched_if_there_is_nothing_else(user_folder: Path) -> None:
    found = proposal(user_folder, "import tuner\nTHRESHOLD = 3.0\ntuner.report(loss=THRESHOLD)\n")
    assert searched(found) == {"THRESHOLD": {"loguniform": [0.3, 30.0]}}
    assert planned(found).spec.trainable == "train.py"


def test_reading_runs_nothing(user_folder: Path) -> None:
    assert proposal(user_folder, "raise SystemExit('it ran')\nLR = 0.1\n").of("search")


@pytest.mark.parametrize(
    ("report", "line", "message"),
    [
        ("", "# TODO: train.py reports nothing: call tuner.report(", "objective: required, but missing"),
        (
            "tuner.report(a=1, b=2)",
            "# TODO: name the metric to compare, one of a, b (",
            "objective: required, but missing",
        ),
        ("tuner.report(a=1, epoch=2)", "TODO: add mode: max, or mode: min", "objective.mode: required, but missing"),
    ],
)
def test_without_a_certain_objective_the_file_is_refused_with_one_line(
    user_folder: Path, report: str, line: str, message: str
) -> None:
    found = proposal(user_folder, f"import tuner\nLR = 0.1\n{report}\n")
    assert line in experiment_text(found, "train.py", "search.yaml")
    with pytest.raises(InputError) as raised:
        planned(found)
    (problem,) = raised.value.problems
    assert message in str(problem)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print(1)", "no hyperparameters found: tuner reads arguments of argparse"),
        ("def (:", "train.py is not Python: "),
        (
            DATACLASS.replace("SIZE = 360", "").replace('train(config: "Config"', "train(config: dict"),
            "no function that trains takes Config (line 10)",
        ),
        (
            DATACLASS.replace("SIZE = 360", "").replace('if __name__ == "__main__":\n    ', ""),
            'begins to work when it is imported (line 24), so that a trial cannot call a function of it',
        ),
    ],
)  # fmt: skip
def test_a_script_from_which_nothing_can_be_proposed(user_folder: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        proposal(user_folder, text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"--from nowhere\.py: there is no such file"):
        read(Path("nowhere.py"))


@pytest.mark.parametrize(
    ("code", "names", "objective"),
    [
        ("tuner.report({'loss': 1, 'acc': 2}, checkpoint='x')", ("loss", "acc"), ("acc", "max")),
        ("tune.report(dict(train_acc=1, val_loss=2))", ("train_acc", "val_loss"), ("val_loss", "min")),
        ("session.report({'a': 1} | {'test_f1': 2})", ("a", "test_f1"), ("test_f1", "max")),
        ("tune.report(metrics={'eval/ppl': 1, 'epoch': 1}, checkpoint=c)", ("eval/ppl", "epoch"), ("eval/ppl", "min")),
        ("report(accelerator, {'val_loss': 1})", ("val_loss",), ("val_loss", "min")),
        ("x = Trainer(callbacks=[Report()])\nself.log('val_loss', 1)", ("val_loss",), ("val_loss", "min")),
        ("m = {'reward': 1}\nm['b'] = 2\nm = {**m}\ntune.report(m)", ("reward", "b"), ("reward", "max")),
        ("print('loss', 1)", (), ("", "")),
        ("tune.report({'x': 1, 'y': 2})", ("x", "y"), ("", "")),
    ],
)
def test_the_metrics_that_a_script_reports(code: str, names: tuple[str, ...], objective: tuple[str, str]) -> None:
    found = reported(ast.parse(code))
    assert (found.names, found.objective) == (names, objective)


@pytest.mark.parametrize(
    ("name", "mode"), [("val_accuracy", "max"), ("map", "max"), ("RMSE", "min"), ("accumulated", ""), ("speed", "")]
)
def test_the_direction_of_a_metric(name: str, mode: str) -> None:
    assert mode_of(name) == mode


def test_an_experiment_names_the_script_so_that_it_finds_that_one(user_folder: Path) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
    Path("a/train.py").write_text(CONSTANTS)
    found = read(Path("a/train.py"))
    assert trainable_of(found, Path("a")) == "train.py"
    assert trainable_of(found, Path("b")) == "../a/train.py"
    assert trainable_of(found, Path("new/folder")) == "../../a/train.py"
    Path("train.py").write_text("another")
    assert trainable_of(found, Path("a")) == "a/train.py"

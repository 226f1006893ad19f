"""A plain script as a trainable: its arguments, what is known of them without running it, its end."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.one_trial import run_trial
from tuner.errors import InputError
from tuner.trainable.arguments import argv, of_argparse
from tuner.trainable.constants import constants
from tuner.trainable.script import ScriptError
from tuner.trainable.trainable import Trainable, load_trainable

PARSER = """
import argparse
import sys

import tuner


def read_arguments():
    parser = argparse.ArgumentParser(description="trains")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--weight-decay", "-w", type=float, default=0.0)
    parser.add_argument("--model.width", type=int, dest="width")
    group = parser.add_argument_group("more")
    group.add_argument("--layers", type=int, nargs="+")
    group.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--tag", action="append", default=[])
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--no-cuda", dest="cuda", action="store_false")
    parser.add_argument("--augment", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--nesterov", type=bool, default=True)
    parser.add_argument("--opt", choices=["sgd", "adam"], default="sgd")
    return parser.parse_args()


def main():
    arguments = read_arguments()
    print(vars(arguments))
    tuner.report(loss=arguments.lr)


if __name__ == "__main__":
    main()
"""


def script(folder: Path, text: str, name: str = "train.py") -> Trainable:
    (folder / name).write_text(textwrap.dedent(text))
    return load_trainable(name, (folder,))


def call(trainable: Trainable, config: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """What the script prints."""
    trainable.train(config)
    return capsys.readouterr().out.strip()


def config_problems(trainable: Trainable, **values: Any) -> dict[str, str]:
    return {".".join(path): message for path, message in trainable.config_problems(values)}


# --- arguments ---------------------------------------------------------------------------------------------------


def test_without_a_known_parser_names_and_values_are_spelled_plainly() -> None:
    values = [
        ("lr", 0.01),
        ("model.width", 16),
        ("weight_decay", -1e-05),
        ("name", "-x"),
        ("layers", [64, 32]),
        ("amp", True),
        ("debug", False),
        ("seed", None),
    ]
    expected = "--lr 0.01 --model.width 16 --weight_decay -0.00001 --name=-x --layers 64 32 --amp"
    assert argv(values) == expected.split()


def test_what_argparse_reads_is_what_the_configuration_holds(
    user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "lr": 1e-05,
        "weight_decay": -1e-05,
        "model": {"width": 16},
        "layers": [64, -32],
        "sizes": [3, 5],
        "tag": ["-a", "b"],
        "amp": True,
        "cuda": False,
        "augment": False,
        "nesterov": False,
        "opt": "adam",
    }
    printed = call(script(user_folder, PARSER), config, capsys)
    expected = {**config, "width": 16}
    del expected["model"]
    first, second = printed.splitlines()
    assert eval(first) == expected
    assert second == "loss 1e-05"


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"amp": False}, "amp=False"),
        ({"cuda": True}, "cuda=True"),
        ({"no_cuda": True}, "cuda=False"),
        ({"no-cuda": False}, "cuda=True"),
        ({"augment": True}, "augment=True"),
        ({"nesterov": True}, "nesterov=True"),
        ({"w": 0.5}, "weight_decay=0.5"),
        ({"opt": None}, "opt='sgd'"),
    ],
)
def test_booleans_and_other_spellings(given: dict[str, Any], read: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weight-decay", "-w", type=float)
    parser.add_argument("--amp", action="store_true", default=False)
    parser.add_argument("--no-cuda", dest="cuda", action="store_false")
    parser.add_argument("--augment", action=argparse.BooleanOptionalAction)
    parser.add_argument("--nesterov", type=bool)
    parser.add_argument("--opt", default="sgd")
    assert read in repr(parser.parse_args(argv(given.items(), of_argparse(parser))))


def test_two_flags_with_one_destination_are_one_parameter() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", default=True)
    parser.add_argument("--slow", dest="fast", action="store_false")
    assert argv([("fast", True)], of_argparse(parser)) == ["--fast"]
    assert argv([("fast", False)], of_argparse(parser)) == ["--slow"]
    assert argv([("slow", True)], of_argparse(parser)) == ["--slow"]


def test_a_positional_argument_comes_first() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--lr", type=float)
    assert argv([("lr", 1.0), ("data", "mnist")], of_argparse(parser)) == ["mnist", "--lr", "1.0"]


def test_a_script_may_read_sys_argv_itself(user_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = list(sys.argv)
    found = call(script(user_folder, "import sys; print(sys.argv[1:], __name__)"), {"lr": 0.5}, capsys)
    assert found == "['--lr', '0.5'] __main__"
    assert sys.argv == before


@pytest.mark.parametrize("standalone", ["main()", "main(standalone_mode=False)"])
def test_a_script_with_click(user_folder: Path, capsys: pytest.CaptureFixture[str], standalone: str) -> None:
    text = f"""
    import click

    @click.command()
    @click.argument("data")
    @click.option("--lr", type=float)
    @click.option("--batch-size", type=int)
    @click.option("--amp/--no-amp", default=True)
    @click.option("--tag", multiple=True)
    @click.option("--betas", nargs=2, type=float)
    def main(data, lr, batch_size, amp, tag, betas):
        print(data, lr, batch_size, amp, tag, betas)

    {standalone}
    """
    config = {"lr": -0.5, "batch_size": 8, "amp": False, "tag": ["a", "b"], "betas": [0.9, 0.99], "data": "mnist"}
    assert call(script(user_folder, text), config, capsys) == "mnist -0.5 8 False ('a', 'b') (0.9, 0.99)"


def test_a_parser_that_leaves_arguments_to_another_one(user_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    import argparse
    first = argparse.ArgumentParser()
    first.add_argument("--lr", type=float)
    known, rest = first.parse_known_args()
    second = argparse.ArgumentParser()
    second.add_argument("--n-layers", type=int)
    print(known.lr, second.parse_args(rest).n_layers)
    """
    assert call(script(user_folder, text), {"lr": 0.5, "n-layers": 3}, capsys) == "0.5 3"


# --- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(0)"])
def test_an_exit_with_status_0_is_a_normal_end(user_folder: Path, end: str) -> None:
    script(user_folder, f"import sys\n{end}").train({})


@pytest.mark.parametrize(
    ("code", "config", "message"),
    [
        ("sys.exit(1)", {}, "train.py exited with status 1"),
        ("sys.exit('no data')", {}, "train.py exited: no data"),
        (PARSER, {"lrr": 0.1}, "train.py: error: unrecognized arguments: --lrr 0.1"),
        (PARSER, {"lr": "x"}, "train.py: error: argument --lr: invalid float value: 'x'"),
        (PARSER, {"amp": 3}, "train.py: error: argument --amp: ignored explicit argument '3'"),
        (
            "import click\n@click.command()\ndef main(): ...\nmain()",
            {"lr": 1},
            "train.py: error: No such option '--lr'",
        ),
    ],
)
def test_another_exit_is_a_failure_that_names_the_reason(
    user_folder: Path, code: str, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScriptError) as raised:
        script(user_folder, f"import sys\n{code}").train(config)
    assert str(raised.value).startswith(message)


def test_what_the_script_raises_arrives_and_everything_is_put_back(user_folder: Path) -> None:
    before = argparse.ArgumentParser.parse_known_args, argparse.ArgumentParser.exit, list(sys.path), list(sys.argv)
    main = sys.modules["__main__"]
    with pytest.raises(KeyError, match="here"):
        script(user_folder, "raise KeyError('here')").train({"lr": 1})
    after = argparse.ArgumentParser.parse_known_args, argparse.ArgumentParser.exit, list(sys.path), list(sys.argv)
    assert before == after
    assert sys.modules["__main__"] is main


def test_a_script_finds_its_neighbours_and_pickles_its_classes(
    user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (user_folder / "deep").mkdir()
    (user_folder / "deep" / "neighbour_of_script.py").write_text("VALUE = 7")
    text = """
    import pickle
    import neighbour_of_script
    class Model: ...
    print(neighbour_of_script.VALUE, type(pickle.loads(pickle.dumps(Model()))) is Model)
    """
    assert call(script(user_folder, text, "deep/train.py"), {}, capsys) == "7 True"


# --- in a trial --------------------------------------------------------------------------------------------------


def in_trial(folder: Path, config: dict[str, Any], last: int = 99) -> tuple[list[Any], str]:
    """Reports of `TRAIN`, and why it failed."""
    (folder / "train.py").write_text(TRAIN)
    return run_trial(folder, "train.py", config, params={"epochs": 3}, last=last)


TRAIN = """
import argparse, pathlib, sys, tempfile
import tuner

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--epochs", type=int)
arguments = parser.parse_args()
for epoch in range(1, arguments.epochs + 1):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "epoch").write_text(str(epoch))
        tuner.report({"loss": arguments.lr / epoch}, epoch=epoch, checkpoint=folder)
    assert pathlib.Path(tuner.get_checkpoint(), "epoch").read_text() == str(epoch)
sys.exit(0)
"""


def test_reports_and_checkpoints_reach_the_trial(user_folder: Path) -> None:
    reports, failure = in_trial(user_folder, {"lr": 0.5})
    assert reports == [{"loss": 0.5 / epoch, "epoch": epoch} for epoch in (1, 2, 3)]
    assert failure == ""


def test_a_trial_can_be_stopped_at_a_report(user_folder: Path) -> None:
    reports, failure = in_trial(user_folder, {"lr": 0.5}, last=2)
    assert [report["epoch"] for report in reports] == [1, 2]
    assert failure == ""


def test_a_failure_names_the_argument(user_folder: Path) -> None:
    _, failure = in_trial(user_folder, {"lrr": 0.5})
    assert failure == "ScriptError: train.py: error: unrecognized arguments: --lrr 0.5"


# --- before the run ----------------------------------------------------------------------------------------------


def test_a_wrong_name_and_a_wrong_value_are_found_without_running_the_script(user_folder: Path) -> None:
    trainable = script(user_folder, PARSER.replace("import sys", "raise SystemExit('it ran')"))
    found = config_problems(trainable, lrr=0.1, lr="x", opt="lion", model={"depth": 3}, layers=[0.5], amp=1)
    assert found["lrr"].startswith("train.py has no such argument; allowed: lr, weight_decay, width,")
    assert found["lrr"].endswith("did you mean 'lr'?")
    assert found["model.depth"].startswith("train.py has no such argument")
    assert found["lr"] == "train.py refuses it: argument --lr: invalid float value: 'x'"
    assert found["layers"] == "train.py refuses it: argument --layers: invalid int value: '0.5'"
    assert found["opt"].startswith("train.py refuses it: argument --opt: invalid choice: 'lion'")
    assert "ignored explicit argument" in found["amp"]
    good = {"lr": 1e-5, "weight_decay": 0.1, "w": 1.0, "model": {"width": 3}, "sizes": [1], "nesterov": False}
    assert config_problems(trainable, **good, cuda=True, no_cuda=True, augment=False, tag="a") == {}


def test_a_required_argument_that_is_missing_is_found(user_folder: Path) -> None:
    text = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--lr", type=float, required=True)
    if debug:
        parser.add_argument("--trace", required=True)
    parser.parse_args()
    """
    trainable = script(user_folder, text)
    message = "required by train.py, but neither in params nor in search_space"
    assert config_problems(trainable, epochs=3).keys() == {"epochs", "data", "lr"}
    assert config_problems(trainable, data="mnist") == {"lr": message}


@pytest.mark.parametrize(
    "change",
    [
        ("parser.parse_args()", "parser.parse_known_args()[0]"),
        ('parser.add_argument("--lr"', 'for name in NAMES: parser.add_argument(name)\n    parser.add_argument("--lr"'),
        ('parser.add_argument("--lr"', 'parser.add_argument("--lr", **options'),
        ("argparse.ArgumentParser(", "argparse.ArgumentParser(parents=[base], "),
        ("argparse.ArgumentParser(", "HfArgumentParser("),
        ("return parser.parse_args()", "library.add_arguments(parser)\n    return parser.parse_args()"),
        ("return parser.parse_args()", "parser.add_subparsers()\n    return parser.parse_args()"),
        (PARSER, "import library\nlibrary.parse()"),
        (PARSER, "import sys\nprint(sys.argv)"),
    ],
    ids=["known", "loop", "options", "parents", "other class", "handed on", "subcommands", "elsewhere", "no parser"],
)
def test_what_cannot_be_known_without_running_the_script_is_not_checked(
    user_folder: Path, change: tuple[str, str]
) -> None:
    assert change[0] in PARSER
    assert config_problems(script(user_folder, PARSER.replace(*change)), unknown=1) == {}


@pytest.mark.parametrize(
    ("reference", "message"),
    [("nowhere.py", "no file 'nowhere.py'"), ("broken.py", "broken.py is not Python: ")],
)
def test_a_script_that_cannot_be_read_is_an_input_error(user_folder: Path, reference: str, message: str) -> None:
    (user_folder / "broken.py").write_text("def (:")
    with pytest.raises(InputError, match=message):
        load_trainable(reference, (user_folder,))


def test_a_search_from_python_takes_a_script(user_folder: Path) -> None:
    (user_folder / "train.py").write_text(TRAIN)
    space = {"lr": {"uniform": [0, 1]}}
    search = tuner.Search("train.py", space, objective=tuner.minimize("loss"), params={"epochs": 3})
    assert "train.py" in str(search.plan())
    with pytest.raises(InputError, match="has no such argument"):
        tuner.Search("train.py", {"lrr": {"uniform": [0, 1]}}, objective=tuner.minimize("loss")).plan()


# --- constants ---------------------------------------------------------------------------------------------------


CONSTANTS = """
import argparse

import tuner

LEARNING_RATE = 0.1
HIDDEN: int = 64
OPTIMIZER = "sgd"
NESTEROV = False
STEPS = HIDDEN * 2
TWICE = 1
TWICE = 2
LAYERS = [1, 2]
lower = 3
if HIDDEN:
    BRANCH = 1


def change():
    global CHANGED
    CHANGED = 2


CHANGED = 1
print(LEARNING_RATE, HIDDEN, OPTIMIZER, NESTEROV, STEPS, CHANGED)
"""


def test_a_parameter_in_capitals_sets_a_constant_of_the_script(
    user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainable = script(user_folder, CONSTANTS)
    config = {"LEARNING_RATE": 1, "HIDDEN": 16, "OPTIMIZER": None, "NESTEROV": True}
    assert call(trainable, config, capsys) == "1.0 16 sgd True 32 1"
    assert call(trainable, {}, capsys) == "0.1 64 sgd False 128 1"
    assert (user_folder / "train.py").read_text() == CONSTANTS


def test_only_a_constant_with_one_literal_value_can_be_set() -> None:
    assert list(constants(CONSTANTS)) == ["LEARNING_RATE", "HIDDEN", "OPTIMIZER", "NESTEROV"]
    found = constants("A = -0.5\nB = A = 1\nC: int\nD = 1\nimport x as D\nE = 1\nE += 1\nF, G = 1, 2\nH = None\nI = 2")
    assert list(found) == ["I"]
    assert constants("A = -0.5")["A"].value == -0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"LEARNING_RATE": "x"}, "must be a finite number, not 'x': train.py has LEARNING_RATE = 0.1 (line 6)"),
        ({"LEARNING_RATE": float("nan")}, "must be a finite number, not nan: "),
        ({"HIDDEN": 0.5}, "must be an integer, not 0.5: train.py has HIDDEN = 64 (line 7); write HIDDEN = 64.0 there"),
        ({"HIDDEN": True}, "must be an integer, not True: "),
        ({"NESTEROV": 1}, "must be true or false, not 1: "),
        ({"OPTIMIZER": 3}, "must be a text, not 3: "),
        ({"LEARNING_RAT": 0.1}, "train.py has no such constant; allowed: LEARNING_RATE, HIDDEN,"),
        ({"STEPS": 3}, "train.py has no such constant; "),
        ({"lr": 0.1}, ""),  # an argument, which the script may read itself
    ],
)
def test_a_wrong_constant_is_found_without_running_the_script(
    user_folder: Path, given: dict[str, Any], message: str
) -> None:
    trainable = script(user_folder, "raise SystemExit('it ran')\n" + CONSTANTS.lstrip())
    found = config_problems(trainable, **given)
    assert [text.startswith(message) for text in found.values()] == [True] * bool(message)


def test_arguments_and_constants_of_one_script(user_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    import argparse
    WIDTH = 8
    DEPTH = 2
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--WIDTH", type=int, default=WIDTH)
    arguments = parser.parse_args()
    print(arguments.lr, arguments.WIDTH, WIDTH, DEPTH)
    """
    trainable = script(user_folder, text)
    config = {"lr": 0.5, "WIDTH": 16, "DEPTH": 3}
    assert config_problems(trainable, **config) == {}
    assert call(trainable, config, capsys) == "0.5 16 8 3"
    found = config_problems(trainable, DEPHT=3)
    assert found["DEPHT"].startswith("train.py has no such argument or constant; allowed: lr, WIDTH, DEPTH")
    assert found["DEPHT"].endswith("did you mean 'DEPTH'?")


def test_an_error_in_a_script_with_constants_names_its_line(user_folder: Path) -> None:
    trainable = script(user_folder, "RATE = 1.0\n\n1 / (RATE - 0.5)")
    with pytest.raises(ZeroDivisionError) as raised:
        trainable.train({"RATE": 0.5})
    assert (raised.traceback[-1].path, raised.traceback[-1].lineno + 1) == (user_folder / "train.py", 3)


def test_constants_are_set_in_a_trial(user_folder: Path) -> None:
    (user_folder / "train.py").write_text("import tuner\nRATE = 0.5\ntuner.report(loss=RATE)\n")
    reports, failure = run_trial(user_folder, "train.py", {"RATE": 0.25})
    assert (reports, failure) == ([{"loss": 0.25}], "")

"""The command line as a user meets it who wrote something wrong: exit status 2, one clear line a problem, no traces."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.hostile.user_code import MODULES
from tuner import cli

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
HEAD = "trainable: t.py:train\nobjective: {metric: loss, mode: min}\n"
SPACE = "search_space: {lr: {loguniform: [1e-4, 1e-1]}}\n"
GOOD = HEAD + SPACE  # three lines: what a row adds stands in line 4
FILES = {
    "t.py": "def train(config):\n    raise SystemExit('a trial ran')\n",
    "two.py": "def train(config, data): ...\n",
    "broken.py": "import os\nimport no_such_package_xyz\ndef train(config): ...\n",
    "renamed.py": "from json import no_such_name\ndef train(config): ...\n",
    "syntax.py": "x = 1\ndef train(config:\n    pass\n",
    "typed.py": MODULES["typed.py"],
    "spaces.py": "SPACE = {'lr': 3}\nLIST = [1]\n",
    "space_bad.yaml": "lr: {uniform: [1, 0]}\n",
    "other.yaml": GOOD,
}


@dataclass
class Row:
    """``text`` of the file, arguments after it, and for each expected line the words that it holds."""

    text: str
    lines: list[tuple[str, ...]]
    arguments: list[str] = field(default_factory=list)
    verbs: tuple[str, ...] = ("validate", "run")


def space(text: str, extra: str = "") -> str:
    return f"{HEAD}search_space:\n{text}\n{extra}"


def typed(name: str, extra: str = "", domain: str = "loguniform: [1e-4, 1e-1]") -> str:
    head = GOOD.replace("t.py:train", f"typed.py:{name}").replace("loguniform: [1e-4, 1e-1]", domain)
    return head + extra


ROWS = {
    "unknown key": Row(GOOD + "budgett: {trials: 3}", [("e.yaml:4:1: budgett: unknown key", "did you mean 'budget'?")]),
    "unknown key below": Row(
        GOOD + "budget: {trial: 3}", [("e.yaml:4:10: budget.trial: unknown key", "did you mean 'trials'?")]
    ),
    "repeated key": Row(GOOD + "name: a\nname: b", [("e.yaml:5:1: name: repeated key", "line 4")]),
    "text for int": Row(GOOD + "budget: {trials: many}", [("e.yaml:4:10: budget.trials: ", "integer", "'many'")]),
    "true for int": Row(GOOD + "budget: {trials: true}", [("e.yaml:4:10: budget.trials: ", "integer", "true")]),
    "list for mapping": Row(GOOD + "budget: [3]", [("e.yaml:4:1: budget: ", "a list")]),
    "negative trials": Row(GOOD + "budget: {trials: -1}", [("e.yaml:4:10: budget.trials: ", "1", "-1")]),
    "NaN target": Row(GOOD + "budget: {target: .nan}", [("e.yaml:4:10: budget.target: ", "finite")]),
    "bad duration": Row(GOOD + "budget: {wall_clock: 20 min}", [("e.yaml:4:10: budget.wall_clock: ", "20m")]),
    "quoted number in a choice": Row(
        space('  lr: {choice: ["1e-4", 0.1]}'), [("e.yaml:4:17: search_space.lr.choice[0]: ", "remove the quotes")]
    ),
    "quoted bound": Row(space('  lr: {uniform: ["0", 1]}'), [("e.yaml:4:18: search_space.lr.uniform[0]: ", "quotes")]),
    "reversed range": Row(space("  lr: {uniform: [1, 0]}"), [("e.yaml:4:21: search_space.lr.uniform[1]: ", "empty")]),
    "empty range": Row(space("  n: {randint: [3, 3]}"), [("e.yaml:4:20: search_space.n.randint[1]: ", "empty")]),
    "log range from 0": Row(
        space("  lr: {loguniform: [0, 1]}"), [("e.yaml:4:21: search_space.lr.loguniform[0]: ", "above 0")]
    ),
    "quantum that does not divide": Row(
        space("  d: {quniform: [0, 1, 0.3]}"), [("e.yaml:4:21: search_space.d.quniform[1]: ", "multiple of", "0.9")]
    ),
    "unknown domain": Row(
        space("  lr: {log_uniform: [1e-4, 1]}"), [("e.yaml:4:8: search_space.lr.log_uniform: ", "'loguniform'")]
    ),
    "when of an unknown parameter": Row(
        space("  opt: {choice: [a, b]}\n  lr: {uniform: [0, 1], when: {optt: a}}"),
        [("e.yaml:5:32: search_space.lr.when.optt: ", "no such parameter", "did you mean 'opt'?")],
    ),
    "when of a later parameter": Row(
        space("  lr: {uniform: [0, 1], when: {opt: a}}\n  opt: {choice: [a, b]}"),
        [("e.yaml:4:32: search_space.lr.when.opt: ", "later", "move it above lr")],
    ),
    "when of a value that never is": Row(
        space("  opt: {choice: [a, b]}\n  lr: {uniform: [0, 1], when: {opt: c}}"),
        [("e.yaml:5:32: search_space.lr.when.opt: ", "never c")],
    ),
    "missing module": Row(
        GOOD.replace("t.py:train", "no.such.module:train"), [("e.yaml:1:1: trainable: no module 'no'", "looked in")]
    ),
    "missing trainable file": Row(
        GOOD.replace("t.py:train", "tt.py:train"), [("e.yaml:1:1: trainable: no file 'tt.py'", "looked in")]
    ),
    "missing function": Row(
        GOOD.replace("t.py:train", "t.py:trian"),
        [("e.yaml:1:1: trainable: ", "has no 'trian'", "did you mean 'train'?")],
    ),
    "no function": Row(GOOD.replace("t.py:train", "t"), [("e.yaml:1:1: trainable: 't' is not module:function",)]),
    "import error in the user's module": Row(
        GOOD.replace("t.py:", "broken:"),
        [
            (
                "e.yaml:1:1: trainable: broken cannot be imported: ModuleNotFoundError: ",
                "'no_such_package_xyz'",
                "broken.py, line 2",
            )
        ],
    ),
    "import error in the user's file": Row(
        GOOD.replace("t.py:", "renamed.py:"),
        [("e.yaml:1:1: trainable: renamed.py cannot be imported: ImportError: ", "renamed.py, line 1")],
    ),
    "syntax error": Row(
        GOOD.replace("t.py:", "syntax.py:"), [("e.yaml:1:1: trainable: ", "SyntaxError", "syntax.py, line 2")]
    ),
    "two arguments": Row(
        GOOD.replace("t.py:", "two.py:"), [("e.yaml:1:1: trainable: ", "(config, data)", "def train(config)")]
    ),
    **{
        f"{what} for a {name}": Row(typed(name, *rest), [words])
        for name in ("dataclass", "model")
        for what, rest, words in [
            ("unknown param", ["params: {epoch: 3}"], ("e.yaml:4:10: params.epoch: ", "did you mean 'epochs'?")),
            ("wrong type", ["params: {epochs: '3'}"], ("e.yaml:4:10: params.epochs: ", "integer, not '3'")),
            ("float for int", ["params: {epochs: 2.5}"], ("e.yaml:4:10: params.epochs: ", "2.5")),
            ("unknown choice", ["params: {opt: sdg}"], ("e.yaml:4:10: params.opt: ", "'sgd' or 'adam'")),
            ("text domain", ["", "choice: [a, b]"], ("e.yaml:3:16: search_space.lr: ", "valid number, not '")),
        ]
    },
    "unknown parameter in the space": Row(
        typed("dataclass").replace("lr: {log", "lrr: {log"),
        [
            ("e.yaml:3:1: ", "lr: ", "neither in params nor in search_space"),
            ("e.yaml:3:16: search_space.lrr: ", "'lr'"),
        ],
    ),
    "parameter in params and search_space": Row(
        GOOD + "params: {lr: 0.1}", [("e.yaml:4:10: params.lr: ", "is also in search_space", "keep one")]
    ),
    "grid_search with optuna": Row(
        space("  a: {grid_search: [1, 2]}", "search: {kind: optuna}"),
        [("e.yaml:4:3: search_space.a: grid_search belongs to search.kind grid or random", "use choice")],
    ),
    "a range with grid": Row(
        GOOD + "search: {kind: grid}", [("e.yaml:3:16: search_space.lr: loguniform [0.0001, 0.1] has no end", "use")]
    ),
    "unknown search": Row(GOOD + "search: {kind: optunna}", [("e.yaml:4:10: search.kind: ", "did you mean 'optuna'?")]),
    "unknown scheduler": Row(GOOD + "scheduler: {kind: ahsa}", [("e.yaml:4:13: scheduler.kind: ", "'asha'")]),
    "unknown sampler": Row(
        GOOD + "search: {kind: optuna, sampler: tpee}",
        [("e.yaml:4:24: search.sampler: ", "tpe, gp, cmaes, qmc, nsga2", "'tpe'?")],
    ),
    "max_t below grace_period": Row(
        GOOD + "scheduler: {kind: asha, max_t: 2, grace_period: 3}",
        [("e.yaml:4:", "scheduler", "grace_period: 3 is above max_t 2")],
    ),
    "objective missing": Row(
        "trainable: t.py:train\n" + SPACE, [("e.yaml:1:1: objective: required", "{metric: NAME, mode: max}")]
    ),
    "metric missing": Row(GOOD.replace("metric: loss, ", ""), [("e.yaml:2:1: objective.metric: required",)]),
    "mode missing": Row(GOOD.replace(", mode: min", ""), [("e.yaml:2:1: objective.mode: required", "max if large")]),
    "mode wrong": Row(
        GOOD.replace("mode: min", "mode: minimum"), [("e.yaml:2:27: objective.mode: ", "min, max", "'min'?")]
    ),
    "name with a slash": Row(GOOD + "name: a/b", [("e.yaml:4:1: name: 'a/b' cannot name a folder",)]),
    "empty file": Row("", [("e.yaml: the file is empty",)]),
    "objective is empty": Row(
        GOOD.replace("{metric: loss, mode: min}", "[]"), [("e.yaml:2:1: objective: is empty", "{metric: NAME")]
    ),
    "objective is a number": Row(
        GOOD.replace("{metric: loss, mode: min}", "3"), [("e.yaml:2:1: objective: must be a mapping", "3")]
    ),
    "an objective without its mode": Row(
        GOOD.replace("{metric: loss, mode: min}", "[{metric: loss, mode: min}, {metric: size}]"),
        [("e.yaml:2:40: objective[1].mode: required", "max if large")],
    ),
    "an unknown key of an objective": Row(
        GOOD.replace("{metric: loss, mode: min}", "[{metric: loss, mode: min, wieght: 1}, {metric: size, mode: min}]"),
        [("e.yaml:2:39: objective[0].wieght: unknown key", "did you mean 'weight'?")],
    ),
    "the same metric twice": Row(
        GOOD.replace("{metric: loss, mode: min}", "[{metric: loss, mode: min}, {metric: loss, mode: max}]"),
        [("e.yaml:2:1: objective: ", "'loss' is named twice")],
    ),
    "a weight for one of two objectives": Row(
        GOOD.replace("{metric: loss, mode: min}", "[{metric: loss, mode: min, weight: 1}, {metric: a, mode: max}]"),
        [("e.yaml:2:1: objective: a has no weight", "every objective one, or none")],
    ),
    "a weight for a single objective": Row(
        GOOD.replace("mode: min", "mode: min, weight: 1"), [("e.yaml:2:1: objective: ", "leave its weight out")]
    ),
    "a negative weight": Row(
        GOOD.replace(
            "{metric: loss, mode: min}", "[{metric: l, mode: min, weight: -1}, {metric: a, mode: max, weight: 1}]"
        ),
        [("e.yaml:2:36: objective[0].weight: must be greater than 0", "-1")],
    ),
    "several objectives for a search of one": Row(
        GOOD.replace("{metric: loss, mode: min}", "[{metric: loss, mode: min}, {metric: a, mode: max}]")
        + "search: {kind: optuna, sampler: cmaes}",
        [("e.yaml:2:1: objective: names 2", "optuna cmaes can search for 1 at once", "optuna tpe", "optuna nsga2")],
    ),
    "population-based training with a search that learns": Row(
        GOOD + "search: {kind: optuna}\nscheduler: {kind: pbt}",
        [("e.yaml:5:13: scheduler.kind: pbt changes configurations", "search.kind random")],
    ),
    "BOHB's brackets without its searcher": Row(
        GOOD + "scheduler: {kind: bohb}\nsearch: {kind: random}",
        [("e.yaml:4:13: scheduler.kind: bohb's brackets", "search.kind bohb", "scheduler.kind hyperband")],
    ),
    "only comments": Row("# nothing\n", [("e.yaml: the file is empty", "trainable, search_space and objective")]),
    "not YAML": Row("a: [1\n", [("e.yaml:2:1: not valid YAML", "']'")]),
    "a Python object": Row(
        GOOD + "params: {a: !!python/object/apply:os.mkdir [hacked]}",
        [("e.yaml:4:13: params.a: the tag ", "python/object/apply:os.mkdir", "not allowed")],
    ),
    "a GPU that is not there": Row(
        GOOD + "resources: {gpu: 1}", [("e.yaml:4:13: resources.gpu: ", "no GPU", "gpu: auto")]
    ),
    "too many cores": Row(
        GOOD + "resources: {cpu: 6400}", [("e.yaml:4:13: resources.cpu: ", "6400 CPU", "ask for less")]
    ),
    "too much memory": Row(
        GOOD + "resources: {memory_gib: 1e6}",
        [("e.yaml:4:13: resources.memory_gib: ", "1000000.0 GiB", "ask for less")],
    ),
    "a resource that is not there": Row(
        GOOD + "resources: {custom: {tpu: 1}}", [("e.yaml:4:22: resources.custom.tpu: ", "no tpu")]
    ),
    "missing space file": Row(
        HEAD + "search_space: spaces/none.yaml", [("e.yaml:3:1: search_space: no file 'spaces/none.yaml'", "looked in")]
    ),
    "problem in a space file": Row(HEAD + "search_space: space_bad.yaml", [("space_bad.yaml:1:19: search_space.lr.",)]),
    "missing space attribute": Row(
        HEAD + "search_space: spaces:SPCE", [("e.yaml:3:1: search_space: ", "has no 'SPCE'", "did you mean 'SPACE'?")]
    ),
    "space that is no dict": Row(
        HEAD + "search_space: spaces:LIST", [("e.yaml:3:1: search_space: ", "list, not a dict")]
    ),
    "missing space module": Row(HEAD + "search_space: spacs:SPACE", [("e.yaml:3:1: search_space: no module 'spacs'",)]),
    "--set without =": Row(GOOD, [("--set budget.trials: write --set KEY=VALUE",)], ["--set", "budget.trials"]),
    "--set of an unknown key": Row(
        GOOD, [("--set budget.trial: budget.trial: unknown key", "'trials'?")], ["--set", "budget.trial=3"]
    ),
    "--set of a wrong value": Row(
        GOOD, [("--set budget.trials: budget.trials: ", "integer", "'x'")], ["--set", "budget.trials=x"]
    ),
    "several at once": Row(
        GOOD + "budget: {trials: 0}\nsearch: {kind: x}\nresources: {cpu: -1}",
        [("e.yaml:4:10: budget.trials",), ("e.yaml:5:10: search.kind",), ("e.yaml:6:13: resources.cpu",)],
    ),
    "storage below a file": Row(
        GOOD, [("a_file/sub", "cannot be written", "--storage")], ["--storage", "a_file/sub"], ("run",)
    ),
    "storage that cannot be": Row(GOOD, [("/proc/nope", "cannot be written")], ["--storage", "/proc/nope"], ("run",)),
    "storage of an unknown kind": Row(
        GOOD, [("storage 'nope://x' cannot be used",)], ["--storage", "nope://x"], ("run",)
    ),
    "name taken": Row(GOOD, [("taken", "is taken", "choose another")], ["--name", "taken"], ("run",)),
    "run name with a slash": Row(GOOD, [("a/b", "--name", "cannot name a folder")], ["--name", "a/b"], ("run",)),
    "run name that climbs out": Row(GOOD, [("..", "--name", "cannot name a folder")], ["--name", ".."], ("run",)),
    "empty run name": Row(GOOD, [("--name", "cannot name a folder")], ["--name", ""], ("run",)),
}


def _started(*_: object) -> None:
    raise AssertionError("a search started")


@pytest.fixture
def folder(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, text in FILES.items():
        (user_folder / name).write_text(text)
    (user_folder / "a_file").write_text("")
    (user_folder / "runs" / "taken").mkdir(parents=True)
    (user_folder / "runs" / "taken" / "experiment.yaml").touch()
    monkeypatch.setattr("tuner.actions.run.search", _started)
    return user_folder


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Calls the command line in this process; (exit status, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        return int(caught.value.code or 0), out, err

    return call


def listing(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "__pycache__" not in p.parts)


@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name, row in ROWS.items() for verb in row.verbs])
def test_wrong_input(name: str, verb: str, folder: Path, tuner: Call) -> None:
    row = ROWS[name]
    (folder / "e.yaml").write_text(row.text)
    before = listing(folder)
    status, out, err = tuner(verb, "e.yaml", *row.arguments)
    lines = [line for line in err.splitlines() if line]
    assert status == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert listing(folder) == before
    assert len(lines) == len(row.lines), err
    for line, words in zip(lines, row.lines, strict=True):
        assert line.startswith("error: ")
        assert all(word in line for word in words), (line, words)
        assert re.search(r"<class|object at 0x|pydantic|instance of|Value error", line) is None, line


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if len(row.verbs) == 2])
def test_validate_and_run_use_the_same_words(name: str, folder: Path, tuner: Call) -> None:
    (folder / "e.yaml").write_text(ROWS[name].text)
    assert tuner("validate", "e.yaml", *ROWS[name].arguments) == tuner("run", "e.yaml", *ROWS[name].arguments)


@pytest.mark.parametrize("verb", ["validate", "run"])
def test_a_missing_file_lists_the_yaml_files_nearby(verb: str, folder: Path, tuner: Call) -> None:
    status, _, err = tuner(verb, "othr.yaml")
    assert status == 2
    assert err == "error: othr.yaml: no such file; in . there is: other.yaml, space_bad.yaml\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu", "e.yaml"], ["no such command 'rnu'", "did you mean 'run'?", "validate"]),
        (["zzz"], ["no such command 'zzz'", "run, ", "validate"]),
        (["run"], ["FILE"]),
        (["run", "other.yaml", "extra"], ["extra"]),
        (["run", "other.yaml", "--nmae", "x"], ["--nmae", "--name"]),
        (["validate", "other.yaml", "--set"], ["--set"]),
        (["show", "tkaen"], ["no run 'tkaen'", "did you mean 'known-1'?"]),
        (["show", "know-1"], ["no run 'know-1' (looked at know-1, runs/know-1)", "did you mean 'known-1'?"]),
        (["best", "know-1"], ["no run 'know-1'", "did you mean 'known-1'?"]),
        (["show", "x", "--storage", "nowhere"], ["no run 'x'", "there are no runs in nowhere"]),
        (["show", "x", "--storage", "nope://x"], ["storage 'nope://x' cannot be used"]),
        (["list", "--storage", "nope://x"], ["storage 'nope://x' cannot be used"]),
    ],
)
def test_wrong_arguments(arguments: list[str], words: list[str], folder: Path, tuner: Call) -> None:
    (folder / "runs" / "known-1").mkdir()
    (folder / "runs" / "known-1" / "experiment.yaml").write_text(GOOD)
    words = [word for word in words if not (arguments[1:2] == ["tkaen"] and word.startswith("did"))]
    before = listing(folder)
    status, out, err = tuner(*arguments)
    assert (status, out) == (2, "")
    assert all(word in err for word in words), err
    assert "Traceback" not in err
    assert listing(folder) == before


def test_a_damaged_run_is_an_environment_failure(folder: Path, tuner: Call) -> None:
    (folder / "runs" / "known-1").mkdir()
    (folder / "runs" / "known-1" / "experiment.yaml").write_text(GOOD)
    status, out, err = tuner("best", "known-1")
    assert (status, out) == (4, "")
    assert err.startswith("error: runs/known-1: provenance.json is missing")
    status, out, err = tuner("show", "known-1")
    assert status == 0
    assert "NOTICE: runs/known-1: provenance.json is missing" in out


def test_a_module_that_prints_at_import_leaves_stdout_alone(folder: Path, tuner: Call) -> None:
    (folder / "e.yaml").write_text(GOOD.replace("t.py:", "noisy.py:") + "resources: {gpu: 1}")
    (folder / "noisy.py").write_text("print('noise')\ndef train(config): ...\n")
    status, out, err = tuner("run", "e.yaml", "--json")
    assert status == 2
    assert json.loads(out)["problems"][0]["key"] == "resources.gpu"
    assert "resources.gpu" in err


def test_the_right_file_is_accepted(folder: Path, tuner: Call) -> None:
    before = listing(folder)
    status, out, err = tuner("validate", "other.yaml")
    assert (status, err) == (0, "")
    assert "loguniform [0.0001, 0.1]" in out
    assert listing(folder) == before


def test_a_user_without_a_terminal_sees_the_same(folder: Path) -> None:
    """One row in a process of its own, without a UTF-8 locale: nothing depends on this process."""
    (folder / "e.yaml").write_bytes((GOOD + "budgett: 1\nn\u00e4me: 2\n").encode())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "tuner", "run", "e.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first.startswith("error: e.yaml:4:1: budgett: unknown key; allowed: name, trainable, ")
    assert second.startswith("error: e.yaml:5:1: n")

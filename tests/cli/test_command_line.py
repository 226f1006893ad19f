"""The command line as a user drives it: processes of their own, real signals, real files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import conforms

ROOT = Path(__file__).parents[2]
TOYS = ROOT / "tests/execution/toys.py"


def tuner(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tuner", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=220, env=environment, check=False)


@pytest.mark.processes
def test_quickstart_gives_a_model_that_best_restores(tmp_path: Path) -> None:
    done = tuner("run", "experiments/quickstart.yaml", "--json", "--storage", str(tmp_path), "--name", "q")
    assert done.returncode == 0, done.stderr
    found = conforms("run", done.stdout)
    assert found["folder"] == f"{tmp_path}/q"
    assert found["best"]["value"] == found["best"]["metrics"]["val_accuracy"] > 0.95
    assert found["best"]["config"]["epochs"] == 27
    assert sum(found["trials"].values()) == 30
    assert found["trials"]["stopped"] > 10
    assert "Traceback" not in done.stderr

    best = tuner("best", "q", "--storage", str(tmp_path), "--test", "--json", "--export", str(tmp_path / "out"))
    assert best.returncode == 0, best.stderr
    scores = conforms("best", best.stdout)
    assert scores["test"]["test_accuracy"] > 0.95
    assert scores["validation"]["val_accuracy"] == pytest.approx(found["best"]["value"], abs=1e-6)
    assert scores["validation"]["val_loss"] == pytest.approx(found["best"]["metrics"]["val_loss"], abs=1e-6)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "metrics.json", "model.safetensors"}

    listed = json.loads(tuner("list", "--storage", str(tmp_path), "--json").stdout)
    assert [row["run"] for row in listed] == ["q"]
    shown = tuner("show", f"{tmp_path}/q").stdout
    assert found["best"]["trial"] in shown
    assert "saved by stopping early" in shown


@pytest.mark.processes
def test_a_user_s_own_file_and_param_space_run_unchanged(tmp_path: Path) -> None:
    (tmp_path / "my_train.py").write_text(
        "import os\n"
        "from ray import tune\n"
        "param_space = {'lr': tune.loguniform(1e-4, 1e-1), 'layers': {'size': tune.choice([8, 16])},\n"
        "               'twice': tune.sample_from(lambda spec: spec.config.lr * 2), 'seed': tune.grid_search([0, 1])}\n"
        "def train(config):\n"
        "    assert config['twice'] == config['lr'] * 2\n"
        "    assert os.environ['CUDA_VISIBLE_DEVICES'] == ''  # a trial without a GPU sees none\n"
        "    for step in range(3):\n"
        "        tune.report({'loss': config['lr'] / (step + 1) + config['layers']['size']})\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "trainable: my_train.py:train\nsearch_space: my_train:param_space\nobjective: {metric: loss, mode: min}\n"
        "search: {kind: random, seed: 1}\nbudget: {trials: 4}\nresources: {gpu: 0}\n"
    )
    done = tuner("run", "mine.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = conforms("run", done.stdout)
    assert found["trials"]["completed"] == 4
    assert found["best"]["config"]["layers"]["size"] == 8


def test_a_trainable_that_compiles_its_model_ends_without_a_word_of_leaks(tmp_path: Path) -> None:
    """Python ends without a last collection, which triton's bindings would take for leaks and print by the dozen."""
    pytest.importorskip("triton")
    (tmp_path / "compiled.py").write_text(
        "from triton._C.libtriton import ir\nfrom ray import tune\ndef train(config):\n    tune.report({'loss': 0.0})\n"
    )
    (tmp_path / "compiled.yaml").write_text(
        "trainable: compiled.py:train\nsearch_space: {lr: {uniform: [0, 1]}}\nobjective: {metric: loss, mode: min}\n"
    )
    done = tuner("validate", "compiled.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_data_that_cannot_be_had_ends_with_4_before_any_trial(tmp_path: Path) -> None:
    done = tuner(
        "run", "experiments/cifar_asha.yaml", "--set", "params.dataset=npz:/nope.npz", "--storage", str(tmp_path)
    )
    assert done.returncode == 4
    assert "/nope.npz" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_import_tuner_is_light() -> None:
    text = "import sys, tuner; sys.exit(any(name in sys.modules for name in ('torch', 'ray', 'pandas', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [["-h"], *([verb, "-h"] for verb in ("run", "best", "schema", "replay", "doctor", "confirm", "export"))],
)
def test_help_loads_neither_torch_nor_ray(arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "tuner", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"torch", "ray", "pandas", "pyarrow", "optuna"}
    assert re.search(r"^  (Example:\n    )?.*python -m tuner ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(("verb", "rarely"), [("run", True), ("validate", True), ("replay", False), ("best", False)])
def test_garbage_is_looked_for_rarely_where_no_training_runs(verb: str, rarely: bool) -> None:
    """One that leaves cycles with a GPU's memory in them is to be as in its trial."""
    text = f"import gc, click, tuner.cli as c; c.cli.get_command(click.Context(c.cli), {verb!r})\n"
    text += "print(gc.get_threshold() == c.RARELY)"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{rarely}\n"


def test_validate_loads_only_what_the_trainable_does(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("def train(config): ...\n")
    (tmp_path / "e.yaml").write_text("""
trainable: nothing.py:train
search_space: {x: {uniform: [0.0, 1.0]}}
objective: {metric: score, mode: max}
search: {kind: optuna}
scheduler: {kind: asha, max_t: 9}
tracking: {mlflow: {}}
""")
    command = [sys.executable, "-X", "importtime", "-m", "tuner", "validate", "e.yaml"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment)
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"torch", "ray", "mlflow", "pandas", "pyarrow", "optuna", "scipy"}
    assert "optuna" in done.stdout

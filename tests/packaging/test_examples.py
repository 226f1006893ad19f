"""Shipped experiments are found by name, from any folder, and what they name is found with them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.test_shipped import marked
from tuner import examples
from tuner.errors import InputError
from tuner.execution.user_modules import forget, user_modules
from tuner.experiment.reader import load_experiment
from tuner.spec.user_imports import search_path
from tuner.trainable.trainable import load_trainable

ROOT = Path(__file__).parents[2]


def test_in_a_checkout_the_examples_are_at_its_top() -> None:
    assert ROOT == examples.FOLDER
    assert {"quickstart", "cifar_asha"} <= set(examples.names())


@pytest.mark.usefixtures("user_folder")
@pytest.mark.parametrize("name", marked(examples.names(), need_an_extra=pytest.mark.integrations))
def test_each_is_found_by_name_from_an_empty_folder(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.file == ROOT / "experiments" / f"{name}.yaml"
    assert experiment.roots == (ROOT, Path.cwd())
    assert experiment.spec.name == name
    assert load_trainable(experiment.spec.trainable, experiment.roots).module.__name__.startswith("trainables.")


def test_a_file_of_this_name_comes_first_and_a_folder_does_not(user_folder: Path) -> None:
    (user_folder / "quickstart").mkdir()
    assert load_experiment("quickstart").spec.name == "quickstart"
    (user_folder / "quickstart").rmdir()
    mine = "{trainable: mine:train, search_space: {x: {uniform: [0, 1]}}, objective: {metric: m, mode: max}}"
    (user_folder / "quickstart").write_text(mine)
    assert load_experiment("quickstart").spec.trainable == "mine:train"


@pytest.mark.usefixtures("user_folder")
def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(InputError) as caught:
        load_experiment("quickstrat")
    names = ", ".join(examples.names())
    assert str(caught.value) == (
        f"quickstrat: no such file; the shipped experiments are: {names}; did you mean 'quickstart'?"
    )


@pytest.mark.processes
def test_the_users_own_trainables_do_not_hide_those_of_a_shipped_experiment(user_folder: Path) -> None:
    (user_folder / "trainables").mkdir()
    (user_folder / "trainables" / "__init__.py").write_text("")
    code = (
        "from tuner.experiment.reader import load_experiment; from tuner.trainable.trainable import load_trainable; "
        "e = load_experiment('quickstart'); print(load_trainable(e.spec.trainable, e.roots).module.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(ROOT / "trainables" / "digits.py")


def test_a_copy_of_a_shipped_experiment_runs_elsewhere(user_folder: Path) -> None:
    (user_folder / "mine.yaml").write_text((ROOT / "experiments" / "quickstart.yaml").read_text())
    experiment = load_experiment("mine.yaml")
    assert experiment.spec.search_space.parameters
    front, back = search_path(experiment.roots)
    assert front[0] == str(user_folder)
    assert back[-1] == str(ROOT)
    assert load_trainable(experiment.spec.trainable, experiment.roots).train.__name__ == "train"


def test_the_process_of_a_trial_imports_a_shipped_trainable_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages" / "tuner" / "examples"
    monkeypatch.setattr(examples, "FOLDER", folder)
    files = {"shipped_one": folder / "trainables" / "one.py", "a_package": tmp_path / "site-packages" / "a_package.py"}
    for name, file in files.items():
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    forget(user_modules((folder, tmp_path)))
    assert "shipped_one" not in sys.modules
    assert "a_package" in sys.modules


def test_a_package_without_init_is_forgotten_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it looks for its parent in ``sys.modules``, and the next import of a module in it fails."""
    (tmp_path / "outer_of_test/inner").mkdir(parents=True)
    (tmp_path / "outer_of_test/__init__.py").touch()
    (tmp_path / "outer_of_test/inner/mine.py").write_text("calls = []")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("outer_of_test.inner.mine").calls.append(1)
    forget(user_modules((tmp_path,)))
    assert importlib.import_module("outer_of_test.inner.mine").calls == []
    forget(user_modules((tmp_path,)))
    assert not [name for name in sys.modules if name.startswith("outer_of_test")]

"""The function that a Hydra configuration belongs to, found without importing it, and without Hydra."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tuner import installed
from tuner.errors import InputError
from tuner.experiment.reader import load_experiment
from tuner.experiment.spec import ExperimentSpec
from tuner.trainable.hydra_main import COMPATIBLE, Main, main_of, mains_in
from tuner.trainable.trainable import load_trainable

TRAIN = """
import hydra


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg):
    return cfg.x
"""


def written(folder: Path, files: dict[str, str]) -> Path:
    """The configuration, below ``folder`` with ``files``."""
    for name, text in {"conf/config.yaml": "x: 1\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "conf" / "config.yaml"


def found(folder: Path, files: dict[str, str]) -> str | None:
    main = main_of(written(folder, files), folder, "hydra:conf/config.yaml")
    return None if main is None else f"{main.file.relative_to(folder)}:{main.name}"


@pytest.mark.parametrize(
    "source",
    [
        TRAIN,
        TRAIN.replace('config_name="config"', 'config_name="config.yaml"'),
        TRAIN.replace("import hydra", "import hydra as h").replace("@hydra", "@h"),
        TRAIN.replace("import hydra", "from hydra import main as m").replace("@hydra.main", "@m"),
        TRAIN.replace('config_path="conf", config_name="config", version_base="1.3"', '"conf", "config", None'),
        TRAIN.replace("@hydra", "@other\n@hydra"),
    ],
)
def test_the_decorator_is_known_in_every_spelling(tmp_path: Path, source: str) -> None:
    assert found(tmp_path, {"train.py": source}) == "train.py:main"


@pytest.mark.parametrize(
    "source",
    [
        TRAIN.replace("import hydra", "import click as hydra"),
        TRAIN.replace('"conf"', '"other"'),
        TRAIN.replace('"conf"', "CONF"),
        TRAIN.replace('"conf"', '"pkg://conf"'),
        TRAIN.replace('config_path="conf", ', ""),
        TRAIN.replace("def main(cfg):", "def main(cfg:"),
    ],
)
def test_another_function_is_not_taken(tmp_path: Path, source: str) -> None:
    assert found(tmp_path, {"train.py": source}) is None


def test_the_folder_is_relative_to_the_file(tmp_path: Path) -> None:
    files = {"src/package/train.py": TRAIN.replace('"conf"', '"../../conf"')}
    assert found(tmp_path, files) == "src/package/train.py:main"


def test_a_function_that_names_the_file_goes_before_one_of_the_folder(tmp_path: Path) -> None:
    other = TRAIN.replace('"config"', '"other"')
    assert found(tmp_path, {"other.py": other}) == "other.py:main"
    assert found(tmp_path, {"train.py": TRAIN}) == "train.py:main"


def test_several_functions_are_listed_with_the_form_that_chooses(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        found(tmp_path, {"a.py": TRAIN, "b/c.py": TRAIN.replace('"conf"', '"../conf"')})
    assert str(error.value) == (
        "hydra:conf/config.yaml: 2 functions with @hydra.main read it: a.py:main, b/c.py:main; name one of them, as in "
        "hydra:conf/config.yaml:a.py:main"
    )


@pytest.mark.parametrize("folder", [".git", "outputs", "venv", "x/site-packages"])
def test_folders_that_hold_no_code_of_the_user_are_passed_over(tmp_path: Path, folder: str) -> None:
    files = {f"{folder}/train.py": TRAIN.replace('"conf"', f'"{"../" * (folder.count("/") + 1)}conf"')}
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    assert found(tmp_path, files) is None


def test_a_folder_with_too_many_files_asks_for_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.trainable.hydra_main._MOST_FILES", 1)
    with pytest.raises(InputError, match=r"at most 1 Python files, .*; name it, as in hydra:conf/config.yaml:train.py"):
        found(tmp_path, {"a.py": "", "b.py": ""})


@pytest.mark.parametrize(
    ("options", "base", "folder"),
    [
        ('config_path="conf", version_base="1.2"', "1.2", "conf"),
        ('config_path="conf", version_base=None', None, "conf"),
        ('config_path="conf"', COMPATIBLE, "conf"),
        ('config_name="config"', COMPATIBLE, "."),
    ],
)
def test_the_behaviour_is_that_of_the_version_that_the_decorator_names(
    tmp_path: Path, options: str, base: str | None, folder: str
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"import hydra\n@hydra.main({options})\ndef main(cfg): ...\n")
    (main,) = mains_in(file)
    assert (main.version_base, main.folder) == (base, tmp_path / folder)


def test_a_function_without_a_configuration_file_has_none(tmp_path: Path) -> None:
    assert Main(tmp_path, "main", tmp_path, "", None).config is None


# --- the reference ---------------------------------------------------------------------------------------------------


def read(trainable: str) -> ExperimentSpec:
    document = {"trainable": trainable, "search_space": {"x": 1}, "objective": {"metric": "y", "mode": "min"}}
    return load_experiment(document).spec


@pytest.mark.parametrize(
    "name",
    ["hydra:conf/config.yaml", "hydra:a.yml", "hydra:a.yaml:b/c.py:main", "hydra:a.yaml:m:f", "lightning:a/b.yml"],
)
def test_an_experiment_may_name_a_configuration(name: str) -> None:
    assert read(name).trainable == name


@pytest.mark.parametrize(
    "name",
    [
        "hydra:conf/config",
        "hydra:a.yaml:b/main.py",
        "hydra:a/b.yaml:c/d.py:1",
        "conf/config.yaml",
        "lightning:a/b.yaml:m:f.g",
    ],
)
def test_what_names_no_configuration_is_refused_with_the_forms(name: str) -> None:
    forms = "module:function, .* hydra:config.yaml or lightning:config.yaml"
    with pytest.raises(InputError, match=f"trainable: .* is not {forms}"):
        read(name)


def test_without_hydra_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installed, "requires", lambda name: ['hydra-core<2,>=1.3; extra == "hydra"'])
    monkeypatch.setattr(installed, "version", nothing)
    written(tmp_path, {"train.py": TRAIN})
    with pytest.raises(InputError) as error:
        load_trainable("hydra:conf/config.yaml", (tmp_path,))
    assert str(error.value) == (
        "trainable hydra:conf/config.yaml needs hydra-core: pip install 'tuner[hydra]', or in a clone pip install -e "
        "'.[hydra]'"
    )


def test_an_old_hydra_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "requires", lambda name: ['hydra-core<2,>=1.3; extra == "hydra"'])
    monkeypatch.setattr(installed, "version", lambda name: "1.2.0")
    written(tmp_path, {"train.py": TRAIN})
    with pytest.raises(InputError, match=r"works with hydra-core <2,>=1.3, and 1.2.0 is installed: pip install"):
        load_trainable("hydra:conf/config.yaml", (tmp_path,))

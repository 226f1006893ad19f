"""A configuration of LightningCLI as a trainable, with the real LightningCLI: read, checked, trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import tuner
from tests.integrations.lightning_cli_toy import CONFIG, write_project
from tests.one_trial import run_trial
from tuner.errors import InputError
from tuner.trainable.lightning_arguments import argument, ordered
from tuner.trainable.trainable import load_trainable

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

REFERENCE = "lightning:config.yaml"


@pytest.fixture
def project(user_folder: Path) -> Path:
    write_project(user_folder)
    return user_folder


def losses(folder: Path, **config: Any) -> list[float]:
    reports, failure = run_trial(folder, REFERENCE, config, ("val_loss",))
    assert failure == ""
    assert [report["epoch"] for report in reports] == list(range(1, len(reports) + 1))
    return [report["val_loss"] for report in reports]


def problems(folder: Path, **config: Any) -> dict[str, str]:
    trainable = load_trainable(REFERENCE, (folder,))
    return {".".join(path): message for path, message in trainable.config_problems(config)}


# --- training --------------------------------------------------------------------------------------------------------


def test_parameters_are_arguments_and_every_validation_is_reported(project: Path) -> None:
    assert len(losses(project)) == 4
    short = losses(project, trainer={"max_epochs": 2}, model={"init_args": {"lr": 1e-05}})
    assert len(short) == 2
    assert short == losses(project, trainer={"max_epochs": 2}, model={"lr": 1e-05})
    assert short != losses(project, trainer={"max_epochs": 2})


def test_the_sections_of_optimizer_and_schedule_count(project: Path) -> None:
    (project / "digits.py").write_text((project / "digits.py").read_text().partition("    def configure_opt")[0] + REST)
    section = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
    slow = losses(project, optimizer=section, trainer={"max_epochs": 1})
    fast = losses(project, optimizer={**section, "init_args": {"lr": 0.5}}, trainer={"max_epochs": 1})
    assert slow != fast


REST = """

class Data(lightning.LightningDataModule):
    def setup(self, stage):
        x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
        self.data = TensorDataset(x[:600].float() / 16, y[:600])

    def train_dataloader(self):
        return DataLoader(self.data, 60)

    val_dataloader = train_dataloader
"""


def test_a_file_with_subcommands_is_read_for_fit(project: Path) -> None:
    plain = losses(project, trainer={"max_epochs": 2})
    nested = {"fit": {**yaml.safe_load(CONFIG), "ckpt_path": None}, "test": {"trainer": {"max_epochs": 9}}}
    (project / "config.yaml").write_text(yaml.safe_dump(nested))
    assert losses(project, trainer={"max_epochs": 2}) == plain


def test_the_callbacks_of_the_file_stay(project: Path) -> None:
    stop = "    - {class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {monitor: val_loss, patience: 0, "
    stop += "min_delta: 100.0}}\n"
    text = CONFIG.replace("trainer:\n", f"trainer:\n  callbacks:\n{stop}")
    (project / "config.yaml").write_text(text)
    assert len(losses(project)) == 2


def test_files_of_the_trainer_are_in_the_folder_of_the_trial(project: Path) -> None:
    (project / "config.yaml").write_text(CONFIG.replace("  logger: false\n", ""))
    losses(project, trainer={"max_epochs": 1})
    assert sorted(path.name for path in project.iterdir() if path.name != "__pycache__") == ["config.yaml", "digits.py"]


def test_what_the_module_raises_fails_the_trial(project: Path) -> None:
    _, failure = run_trial(project, REFERENCE, {"model": {"init_args": {"dropout": 7.0}}}, ("val_loss",))
    assert failure.startswith("ValueError: dropout probability has to be between 0 and 1")


def test_what_only_a_trial_tells_has_one_line(project: Path) -> None:
    _, failure = run_trial(project, REFERENCE, {"model": {"init_args": {"width": "wide"}}}, ("val_loss",))
    assert failure == "ConfigurationError: must be int, not wide"


# --- checks before anything runs -------------------------------------------------------------------------------------


def test_what_fits_has_no_problem(project: Path) -> None:
    config = {"model": {"init_args": {"lr": 1e-05, "width": 8}}, "trainer": {"max_epochs": 3}, "seed_everything": 1}
    assert problems(project, **config) == {}
    assert problems(project, model={"class_path": "digits.Untested", "init_args": {"width": 3}}) == {}


@pytest.mark.parametrize(
    ("config", "name", "message"),
    [
        (
            {"model": {"init_args": {"widht": 3}}},
            "model.init_args.widht",
            "digits.Digits has no argument 'widht'; allowed: width, lr, dropout, kill; did you mean 'width'?",
        ),
        (
            {"data": {"init_args": {"batch": 3}}},
            "data.init_args.batch",
            "digits.Data has no argument 'batch'; allowed: batch_size; did you mean 'batch_size'?",
        ),
        (
            {"modle": 3},
            "modle",
            "LightningCLI has no such key for config.yaml; allowed: seed_everything, trainer, model, data",
        ),
        ({"trainer": {"max_epoch": 3}}, "trainer.max_epoch", "did you mean 'trainer.max_epochs'?"),
        ({"trainer": {"max_epochs": "many"}}, "trainer.max_epochs", "must be int, not many"),
        ({"model": {"init_args": {"width": 2.5}}}, "model.init_args.width", "must be int, not 2.5"),
        (
            {"model": {"class_path": "digits.Nothing"}},
            "model.class_path",
            "'digits.Nothing': module 'digits' has no attribute 'Nothing'",
        ),
    ],
)
def test_what_does_not_fit_is_named(project: Path, config: dict[str, Any], name: str, message: str) -> None:
    ((found, text),) = problems(project, **config).items()
    assert found == name
    assert message in text
    assert "\n" not in text


def test_several_mistakes_are_told_at_once(project: Path) -> None:
    config = {"model": {"init_args": {"widht": 3, "lr": "fast"}}}
    assert list(problems(project, **config)) == ["model.init_args.lr", "model.init_args.widht"]


def test_a_required_argument_must_be_given(project: Path) -> None:
    (project / "config.yaml").write_text(CONFIG.replace("    width: 16", "    lr: 0.1"))
    (message,) = problems(project).values()
    assert "width" in message
    assert problems(project, model={"init_args": {"width": 3}}) == {}


def test_validate_tells_the_place(project: Path) -> None:
    (project / "search.yaml").write_text(
        f"trainable: {REFERENCE}\nsearch_space:\n  model: {{init_args: {{rate: {{uniform: [0, 1]}}}}}}\n"
        "objective: {metric: val_loss, mode: min}\n"
    )
    place = "search.yaml:3:23: search_space.model.init_args.rate"
    with pytest.raises(InputError, match=f"^{place}: digits.Digits has no argument 'rate'"):
        tuner.validate("search.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "is not a configuration of LightningCLI: it has none of the keys model, data and trainer"),
        ("lr: 1", "is not a configuration of LightningCLI: it has none of the keys model, data and trainer"),
        ("a: [", "lightning:config.yaml cannot be read: while parsing a flow"),
    ],
)
def test_a_file_of_another_kind_is_refused(project: Path, text: str, message: str) -> None:
    (project / "config.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        load_trainable(REFERENCE, (project,))
    assert message in str(error.value)


def test_a_missing_file_is_an_error(project: Path) -> None:
    with pytest.raises(InputError, match=r"^no file 'confg.yaml'; looked in "):
        load_trainable("lightning:confg.yaml", (project,))


# --- scores ----------------------------------------------------------------------------------------------------------


def test_only_a_module_with_a_test_step_can_be_evaluated(project: Path) -> None:
    assert load_trainable(REFERENCE, (project,)).can_evaluate
    (project / "config.yaml").write_text(CONFIG.replace("digits.Digits", "digits.Untested"))
    assert not load_trainable(REFERENCE, (project,)).can_evaluate
    (project / "config.yaml").write_text(CONFIG.replace("class_path: digits.Digits", "init_args: {}"))
    assert load_trainable(REFERENCE, (project,)).can_evaluate  # a parameter tells the class


def test_other_optional_functions_there_are_none(project: Path) -> None:
    trainable = load_trainable(REFERENCE, (project,))
    assert (trainable.can_load_model, trainable.prepare({}), trainable.checkpoint_bytes({})) == (False, {}, None)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "--x=a b"),
        (1e-05, "--x=1e-05"),
        (None, "--x=null"),
        (True, "--x=true"),
        ([1, "a"], '--x=[1, "a"]'),
        (float("inf"), "--x=.inf"),
    ],
)
def test_a_parameter_is_one_argument(value: Any, text: str) -> None:
    assert argument("x", value) == text


def test_a_class_is_chosen_before_its_arguments() -> None:
    names = ["model.init_args.lr", "model.class_path", "trainer.max_epochs", "model"]
    assert [name for name, _ in ordered((name, 1) for name in names)] == [
        "model",
        "model.class_path",
        "trainer.max_epochs",
        "model.init_args.lr",
    ]

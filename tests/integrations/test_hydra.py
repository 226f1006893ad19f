"""A Hydra configuration as a trainable, with the real Hydra: composed, checked, called."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.one_trial import run_trial
from tuner.errors import InputError
from tuner.trainable.hydra_overrides import as_text
from tuner.trainable.trainable import load_trainable

pytestmark = pytest.mark.integrations

REFERENCE = "hydra:conf/config.yaml"

FILES = {
    "conf/config.yaml": """
        defaults:
          - model: mlp
          - optimizer: sgd
          - _self_
        epochs: 2
        name: ${model.kind}-${epochs}
        layers: [8, 4]
    """,
    "conf/model/mlp.yaml": "{kind: mlp, width: 64}",
    "conf/model/resnet.yaml": "{kind: resnet, depth: 18}",
    "conf/optimizer/sgd.yaml": "{lr: 0.1, momentum: 0.9}",
    "conf/optimizer/decay/cosine.yaml": "{kind: cosine}",
    "conf/optimizer/decay/step.yaml": "{kind: step}",
    "train.py": """
        import json
        from pathlib import Path

        import hydra
        from omegaconf import OmegaConf

        import tuner


        @hydra.main(config_path="conf", config_name="config", version_base="1.3")
        def main(cfg):
            Path("seen.json").write_text(json.dumps(OmegaConf.to_container(cfg, resolve=True)))
            tuner.report(loss=1.0)


        if __name__ == "__main__":
            raise SystemExit("it is imported, and not run")
    """,
}

MAIN = '@hydra.main(config_path="conf", config_name="config", version_base="1.3")\ndef main(cfg):\n'


@pytest.fixture
def project(user_folder: Path) -> Path:
    write(user_folder, FILES)
    return user_folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


def with_main(folder: Path, body: str, before: str = "") -> None:
    """Replaces the function."""
    head = "import os\nimport hydra\nimport tuner\nfrom hydra.core.hydra_config import HydraConfig\n"
    function = MAIN + textwrap.indent(textwrap.dedent(body), "    ")
    (folder / "train.py").write_text(head + textwrap.dedent(before) + function)


def seen(folder: Path, **config: Any) -> dict[str, Any]:
    """What the function gets in a trial."""
    import json

    assert run_trial(folder, REFERENCE, config) == ([{"loss": 1.0}], "")
    found: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return found


def problems(folder: Path, **config: Any) -> dict[str, str]:
    trainable = load_trainable(REFERENCE, (folder,))
    return {".".join(path): message for path, message in trainable.config_problems(config)}


# --- composing -------------------------------------------------------------------------------------------------------


def test_the_configuration_is_composed_with_the_parameters(project: Path) -> None:
    config = seen(project, epochs=3, optimizer={"lr": 1e-05}, layers=[1, 2])
    assert config == {
        "epochs": 3,
        "name": "mlp-3",
        "layers": [1, 2],
        "model": {"kind": "mlp", "width": 64},
        "optimizer": {"lr": 1e-05, "momentum": 0.9},
    }


def test_a_parameter_with_the_name_of_a_config_group_chooses_in_it(project: Path) -> None:
    config = seen(project, model="resnet")
    assert config["model"] == {"kind": "resnet", "depth": 18}
    assert config["name"] == "resnet-2"


def test_a_group_is_chosen_beside_parameters_of_its_keys(project: Path) -> None:
    config = seen(project, defaults={"model": "resnet"}, model={"depth": 50})
    assert config["model"] == {"kind": "resnet", "depth": 50}


def test_a_group_outside_of_the_defaults_list_is_appended(project: Path) -> None:
    assert seen(project, optimizer={"decay": "step"})["optimizer"]["decay"] == {"kind": "step"}


def test_a_group_that_an_option_of_another_group_brings_is_overridden(project: Path) -> None:
    (project / "conf/optimizer/adam.yaml").write_text("defaults: [{decay: cosine}, _self_]\nlr: 0.2\n")
    found = seen(project, optimizer="adam")
    assert found["optimizer"] == {"decay": {"kind": "cosine"}, "lr": 0.2}
    found = seen(project, defaults={"optimizer": {"decay": "step"}}, optimizer="adam")
    assert found["optimizer"] == {"decay": {"kind": "step"}, "lr": 0.2}


VALUES = [None, True, False, 3, -2.5, 1e-05, 1e16, [1, "b c"]]
TEXTS = ["x", "it's", 'a "b"', "a\\", "\\'", "a,b=c", " ", "", "null", "1"]


@pytest.mark.parametrize("value", [*VALUES, *TEXTS])
def test_a_value_arrives_as_it_is(project: Path, value: Any) -> None:
    found = seen(project, name=value)["name"]
    assert (found, type(found)) == (value, type(value))


def test_a_nested_value_in_a_list_is_written_in_hydras_grammar() -> None:
    assert as_text([{"a": [1, None]}, "b"]) == "[{a:[1,null]},'b']"


# --- checks before anything runs -------------------------------------------------------------------------------------


def test_what_fits_has_no_problem(project: Path) -> None:
    assert problems(project, model="resnet", optimizer={"lr": 1.0}, layers=[3]) == {}


@pytest.mark.parametrize(
    ("config", "name", "message"),
    [
        (
            {"optimizer": {"lrr": 1}},
            "optimizer.lrr",
            "config.yaml has no such key; allowed: model, model.kind, model.width, optimizer, optimizer.lr, "
            "optimizer.momentum, epochs, name, layers; did you mean 'optimizer.lr'?",
        ),
        (
            {"model": "resnett"},
            "model",
            "the config group 'model' has no 'resnett'; allowed: mlp, resnet; did you mean 'resnet'?",
        ),
        (
            {"defaults": {"model": "cnn"}},
            "defaults.model",
            "the config group 'model' has no 'cnn'; allowed: mlp, resnet",
        ),
        (
            {"model": 3},
            "model",
            "is a group of keys in config.yaml (kind, width), and no config group: name one of them",
        ),
        ({"epochs": {1}}, "epochs", "is a set: Hydra takes numbers, texts, lists and mappings"),
    ],
)
def test_what_does_not_fit_is_named(project: Path, config: dict[str, Any], name: str, message: str) -> None:
    assert problems(project, **config) == {name: message}


def test_the_keys_are_those_of_the_chosen_group(project: Path) -> None:
    assert problems(project, defaults={"model": "resnet"}, model={"depth": 3}) == {}
    (message,) = problems(project, defaults={"model": "mlp"}, model={"depth": 3}).values()
    assert message.startswith("config.yaml has no such key; allowed: model, model.kind, model.width")


def test_a_mandatory_value_must_be_given(project: Path) -> None:
    (project / "conf/optimizer/sgd.yaml").write_text("lr: ???")
    message = "config.yaml requires it (???), but neither params nor search_space gives it"
    assert problems(project, epochs=1) == {"optimizer.lr": message}
    assert problems(project, optimizer={"lr": 1}) == {}


def test_a_mandatory_choice_must_be_given(project: Path) -> None:
    file = project / "conf/config.yaml"
    file.write_text(file.read_text().replace("model: mlp", "model: ???"))
    (message,) = problems(project, epochs=1).values()
    assert message.startswith("config.yaml: You must specify 'model', e.g, model=<OPTION>; Available options: ")
    assert problems(project, model="mlp") == {}


def test_the_types_of_a_structured_configuration_are_checked(project: Path) -> None:
    before = """
        from dataclasses import dataclass
        from hydra.core.config_store import ConfigStore

        @dataclass
        class Schema:
            epochs: int = 1
            lr: float = 0.1

        ConfigStore.instance().store(name="schema", node=Schema)

    """
    with_main(project, "return cfg.lr\n", before)
    (project / "conf/config.yaml").write_text("defaults: [schema, _self_]\nepochs: 3\n")
    assert problems(project, lr=1) == {}
    (message,) = problems(project, lr="fast", epochs=2).values()
    assert message.startswith("Error merging override lr='fast': Value 'fast' of type 'str' could not be converted")


def test_a_configuration_that_hydra_cannot_read_is_refused_in_one_line(project: Path) -> None:
    (project / "conf/config.yaml").write_text("defaults: [{model: cnn}]\n")
    (message,) = problems(project, x=1).values()
    assert message == "config.yaml: In 'config': Could not find 'model/cnn'; Available options in 'model': mlp, resnet"
    (project / "conf/config.yaml").write_text("a: [\n")
    assert list(problems(project, x=1)) == [""]


def test_validate_tells_the_place(project: Path) -> None:
    (project / "search.yaml").write_text(
        f"trainable: {REFERENCE}\nsearch_space:\n  optimizer: {{lrate: {{uniform: [0, 1]}}}}\n"
        "objective: {metric: loss, mode: min}\n"
    )
    with pytest.raises(
        InputError, match=r"^search.yaml:3:15: search_space.optimizer.lrate: config.yaml has no such key"
    ):
        tuner.validate("search.yaml")


# --- its function ----------------------------------------------------------------------------------------------------


def test_a_target_at_the_top_is_called(project: Path) -> None:
    write(
        project,
        {
            "conf/config.yaml": "{_target_: work.fit, lr: 0.5}",
            "train.py": "",
            "work.py": "import tuner\ndef fit(lr):\n    tuner.report(loss=lr)\n",
        },
    )
    assert run_trial(project, REFERENCE, {"lr": 0.25}) == ([{"loss": 0.25}], "")


def test_without_a_function_the_message_names_the_form_that_does_not_need_it(project: Path) -> None:
    (project / "train.py").unlink()
    with pytest.raises(InputError) as error:
        load_trainable(REFERENCE, (project,))
    assert str(error.value) == (
        f"hydra:conf/config.yaml belongs to no function: no Python file below {project} has one with "
        "@hydra.main(config_path='conf', config_name='config'), and the configuration has no _target_ at its top; name "
        "the function of one argument, as in hydra:conf/config.yaml:train.py:main"
    )


def test_a_function_that_is_named_needs_no_decorator(project: Path) -> None:
    (project / "other.py").write_text("import tuner\ndef fit(cfg):\n    tuner.report(loss=cfg.epochs)\n")
    assert run_trial(project, f"{REFERENCE}:other.py:fit", {"epochs": 5}) == ([{"loss": 5}], "")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hydra:conf/confg.yaml", "no file 'conf/confg.yaml'; looked in "),
        ("hydra:conf/config.yaml:train.py:fit", "has no 'fit'"),
        (
            "hydra:conf/config.yaml:train.py:hydra",
            "train.py:hydra is not a function of one argument, the configuration",
        ),
        ("hydra:conf/config.yaml:other.py:main", "no file 'other.py'"),
        ("hydra:a.yml", "Hydra reads files that end with .yaml: rename a.yml"),
    ],
)
def test_a_wrong_name_is_an_error(project: Path, reference: str, message: str) -> None:
    (project / "a.yml").touch()
    with pytest.raises(InputError) as error:
        load_trainable(reference, (project,))
    assert message in str(error.value)


def test_a_configuration_below_that_of_the_decorator_has_its_groups(project: Path) -> None:
    write(project, {"conf/experiment/a.yaml": "defaults: [/model: resnet, _self_]\nlr: 1\n", "train.py": ""})
    with_main(project, "tuner.report(loss=cfg.experiment.lr + cfg.experiment.model.depth)\n")
    reference = "hydra:conf/experiment/a.yaml:train.py:main"
    assert run_trial(project, reference, {"experiment": {"lr": 2}}) == ([{"loss": 20}], "")


def test_optional_functions_get_the_composed_configuration(project: Path) -> None:
    with_main(
        project,
        "tuner.report(loss=1.0)\n",
        """
        def evaluate(cfg, checkpoint):
            return {"depth": cfg.model.depth, "job": len(HydraConfig.get().job.name)}

        def prepare():
            raise AssertionError("it takes no configuration: it is something else")

        """,
    )
    trainable = load_trainable(REFERENCE, (project,))
    assert trainable.can_evaluate
    assert trainable.evaluate({"model": "resnet"}, project, "test") == {"depth": 18.0, "job": 5.0}
    assert trainable.prepare({}) == {}


# --- the call --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "metrics", "reports", "failure"),
    [
        ("return cfg.epochs\n", ("loss",), [{"loss": 2.0}], ""),
        ("return cfg.epochs, 7\n", ("loss", "size"), [{"loss": 2.0, "size": 7.0}], ""),
        ("return {'loss': 1, 'other': 2}\n", ("loss",), [{"loss": 1, "other": 2}], ""),
        ("tuner.report(loss=3)\nreturn cfg.epochs\n", ("loss",), [{"loss": 3}], ""),
        ("from ray.tune import report\nreport({'loss': 3})\nreturn object()\n", ("loss",), [{"loss": 3}], ""),
        (
            "return 1, 2\n",
            ("loss",),
            [],
            "ObjectiveError: the function of config.yaml returns 2 values, but the experiment has 1: loss",
        ),
        (
            "return object()\n",
            ("loss",),
            [],
            "ObjectiveError: the function of config.yaml reports nothing and returns a object: it must return loss, or "
            "call tuner.report",
        ),
        ("raise OSError('no data')\n", ("loss",), [], "OSError: no data"),
    ],
)
def test_what_the_function_returns_counts_unless_it_reports(
    project: Path, body: str, metrics: tuple[str, ...], reports: list[dict[str, Any]], failure: str
) -> None:
    with_main(project, body)
    assert run_trial(project, REFERENCE, {"epochs": 2}, metrics) == (reports, failure)


def test_hydras_node_belongs_to_the_trial(project: Path) -> None:
    with_main(
        project,
        """
        node = HydraConfig.get()
        assert node.job.id == "abc" and node.job.num == 0xABC and node.job.name == "train"
        assert node.runtime.choices.model == "resnet"
        assert os.path.isfile(os.path.join(node.runtime.output_dir, ".hydra", "config.yaml"))
        assert hydra.utils.get_original_cwd() == os.getcwd() != node.runtime.output_dir
        tuner.report(loss=1)
        """,
    )
    assert run_trial(project, REFERENCE, {"model": "resnet"}) == ([{"loss": 1}], "")
    assert not list(project.glob("outputs"))


def test_a_job_that_changes_its_directory_is_in_the_folder_of_the_trial(project: Path) -> None:
    with_main(project, "assert os.getcwd() == HydraConfig.get().runtime.output_dir\ntuner.report(loss=1)\n")
    assert run_trial(project, REFERENCE, {"hydra": {"job": {"chdir": True}}}) == ([{"loss": 1}], "")
    assert Path.cwd() == project


def test_a_process_has_nothing_of_the_trial_before(project: Path) -> None:
    """Singletons and resolvers: what a new process may do once, each trial may do."""
    with_main(
        project,
        """
        assert OmegaConf.create({"x": "${twice:2}"}).x == 4
        HydraConfig.instance().get()
        with open("calls", "a") as file:
            file.write("x")
        tuner.report(loss=1)
        GlobalHydra.instance().clear()
        hydra.initialize(version_base=None, config_path=None)
        """,
        """
        from hydra.core.global_hydra import GlobalHydra
        from omegaconf import OmegaConf

        OmegaConf.register_new_resolver("twice", lambda x: 2 * x)
        """,
    )
    for _ in range(2):
        assert run_trial(project, REFERENCE, {}) == ([{"loss": 1}], "")
    assert (project / "calls").read_text() == "xx"


def test_a_resolver_that_is_registered_twice_in_a_trial_is_still_an_error(project: Path) -> None:
    line = 'OmegaConf.register_new_resolver("thrice", lambda x: 3 * x)\n'
    with_main(project, "tuner.report(loss=1)\n", f"from omegaconf import OmegaConf\n{line}{line}")
    for _ in range(2):
        _, failure = run_trial(project, REFERENCE, {})
        assert "resolver 'thrice' is already registered" in failure

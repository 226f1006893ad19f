"""Parameters that the trainable never reads are found in its source; where that is uncertain, nothing is reported."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import tuner
from tests.packaging.test_shipped import EXPERIMENTS, ROOT, marked
from tuner import validate
from tuner.actions.run import prepare
from tuner.plan.describe import description
from tuner.storage.folder import RunFolder
from tuner.trainable.trainable import load_trainable

NAMES = ["lr", "dropout", "net.width"]


def unread(folder: Path, body: str, head: str = "", **files: str) -> list[str]:
    """What ``train``, with this body, never reads of `NAMES`."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    argument = "config: Config" if "class Config" in head else "config"
    source = textwrap.dedent(head) + f"\ndef train({argument}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    (folder / "reader_of_config.py").write_text(source)
    return load_trainable("reader_of_config.py:train", (folder,)).never_read(NAMES)


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("x = config['lr'] + config['hidden'] + config['net']['width']", ["hidden"]),
        ("for epoch in range(config['epochs']):\n    x = config['hidden'], config.get('seed')", ["epochs", "hidden"]),
        ("if config['dropout']:\n    x = config['hidden']", []),
        ("x = config['hidden'] if config.get('hidden') else 1", []),
        ("try:\n    x = config['hidden']\nexcept KeyError:\n    x = 1", []),
        ("config['hidden'] = 3\nx = config['hidden']", []),
        ("config = {'hidden': 1, **config}\nx = config['hidden']", []),
        ("config.setdefault('hidden', 2)\nx = config['hidden']", []),
        ("fill(config)\nx = config['hidden']", []),
        ("make = lambda: config['hidden']", []),
    ],
)
def test_a_key_that_nothing_gives(body: str, missing: list[str], tmp_path: Path) -> None:
    unread(tmp_path, body)
    assert load_trainable("reader_of_config.py:train", (tmp_path,)).never_given(NAMES) == missing


def test_prepare_may_give_more(tmp_path: Path) -> None:
    unread(tmp_path, "x = config['hidden']", "def prepare(config):\n    return {'hidden': 3}\n")
    assert load_trainable("reader_of_config.py:train", (tmp_path,)).never_given(NAMES) == []


def test_a_key_that_nothing_gives_is_named_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unread(tmp_path, "x = config['lr'], config['dropuot']")
    space = {"lr": {"uniform": [0, 1]}, "dropout": {"uniform": [0, 1]}}
    search = tuner.Search("reader_of_config.py:train", space, objective=tuner.minimize("loss"))
    (notice,) = [text for text in str(search.plan()).splitlines() if "dropuot" in text]
    assert notice.endswith("gives: its trials will fail with a KeyError; they give lr, dropout")


@pytest.mark.parametrize(
    "body",
    [
        "x = config['lr'], config['net']['width']",
        "x = config.get('lr', 0.1); y = config.pop('net')",
        "if 'lr' in config and 'net' not in config: pass",
        "cfg = config\nx = cfg['lr'] * cfg['net']['width']",
        "def inner():\n    return config['lr'] + config['net']['width']\ninner()",
        "def inner(c):\n    return c['lr'] + c['net']['width']\ninner(config)",
        "print(config, len(config))\nx = config['lr'], config['net']",
        "config['dropout'] = 0.5\nx = config['lr'], config['net']",
        "x = [config['lr'] for _ in range(3)] + [config['net']]",
        "model = build(config['net'])\nx = config['lr']\nmodel.train()\nmodel.eval()",
    ],
)
def test_what_is_never_read_of_a_dict_is_named(user_folder: Path, body: str) -> None:
    assert unread(user_folder, body) == ["dropout"]


def test_the_configuration_is_followed_through_functions_modules_and_objects(user_folder: Path) -> None:
    head = """
    import other_reader
    from other_reader import Model, schedule

    class Trainer:
        def __init__(self, config, epochs):
            self.settings = config
            self.epochs = epochs

        def fit(self):
            return self.step(self.settings)

        def step(self, settings):
            return settings["lr"]

    """
    other = """
    class Model:
        def __init__(self, name, cfg):
            self.width = width_of(c=cfg["net"])

    def schedule(config): return config["lr"]
    def width_of(c): return c["width"]
    """
    body = "Trainer(config, epochs=3).fit()\nModel('x', cfg=config)\nother_reader.schedule(config)"
    assert unread(user_folder, body, head, other_reader=other) == ["dropout"]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("", "x = {**config}"),
        ("", "dict(config)"),
        ("", "for name in config: pass"),
        ("", "x = [config[name] for name in config.keys()]"),
        ("", "x = config.items()"),
        ("NAMES = ['dropout']", "x = [config[name] for name in NAMES]"),
        ("", "x = config[f'drop{1}']"),
        ("import json", "json.dumps(config)"),
        ("import yaml", "yaml.safe_dump(config)"),
        ("def build(lr, dropout, **rest): ...", "build(**config)"),
        ("def build(*everything): ...", "build(config)"),
        ("import functools\n@functools.cache\ndef build(config): ...", "build(config)"),
        ("def build(config): return config", "build(config)"),
        ("", "x = config or {}"),
        ("", "x = [config]"),
        ("", "x = lambda c=config: c"),
        ("", "x = f'{config}'"),
        ("", "x = locals()"),
        ("", "x = eval('config')"),
        ("import pandas", "x = pandas.eval('config')"),
        ("", "x = print.eval"),
        ("", "config['dropout'] += 1"),
        ("STATE = {}", "STATE['config'] = config"),
        ("class Struct:\n    def __init__(self, d): self.__dict__ = d", "x = Struct(config).dropout"),
        ("class Model:\n    def __init__(self, c): self.c = c", "x = Model(config)\ny = dict(x.c)"),
        ("class Model:\n    def __init__(self, c): self.c = c", "x = getattr(Model(config), 'c')"),
        ("class Model:\n    def __init__(self, c): self.c = c\n    def __setattr__(self, n, v): ...", "Model(config)"),
        ("class Model:\n    def __new__(cls, c): return dict(c)\n    def __init__(self, c): ...", "Model(config)"),
        ("class Meta(type): ...\nclass Model(metaclass=Meta):\n    def __init__(self, c): ...", "Model(config)"),
        ("def dumps(config): ...", "from json import dumps\ndumps(config)"),
        ("class Model(dict): ...", "Model(config)"),
        ("", "import late_reader\nlate_reader.build(config)"),
        ("build = None", "build(config)"),
        ("def build(config): ...", "build = dict\nbuild(config)"),
        ("", "global config_seen\nconfig_seen = config"),
        ("", "config['net'] = config['lr']\nyield config"),
    ],
)
def test_where_it_is_uncertain_nothing_is_named(user_folder: Path, head: str, body: str) -> None:
    assert unread(user_folder, f"x = config['lr'], config['net']\n{body}", head) == []


def test_an_attribute_that_another_module_reads_counts(user_folder: Path) -> None:
    head = """
    import attribute_reader
    class Model:
        def __init__(self, config): self.settings = config
    """
    other = "def use(model): return model.settings['dropout']"
    body = "x = config['lr'], config['net']\nattribute_reader.use(Model(config))"
    assert unread(user_folder, body, head, attribute_reader=other) == []


def test_a_module_that_is_imported_later_may_read_an_attribute(user_folder: Path) -> None:
    head = """
    class Model:
        def __init__(self, config): self.settings = config
    """
    body = "import late_reader\nx = config['lr'], config['net']\nlate_reader.use(Model(config))"
    assert unread(user_folder, body, head, late_reader="def use(m): return m.settings['dropout']") == []


CONFIG = """
import dataclasses
from dataclasses import dataclass, field

@dataclass
class Net:
    width: int = 3

@dataclass
class Config:
    lr: float = 0.1
    dropout: float = 0.1
    net: Net = field(default_factory=Net)
"""
MODEL = """
from pydantic import BaseModel

class Net(BaseModel):
    width: int = 3

class Config(BaseModel):
    lr: float = 0.1
    dropout: float = 0.1
    net: Net = Net()
"""


INIT_ONLY = (
    CONFIG.replace("dropout: float", "dropout: dataclasses.InitVar[float]")
    + """
    def __post_init__(self, dropout): ...
"""
)
ALIAS = MODEL.replace("import BaseModel", "import BaseModel, Field").replace(
    "dropout: float = 0.1", "rate: float = Field(0.1, alias='dropout')"
)


@pytest.mark.parametrize("head", [CONFIG, MODEL])
@pytest.mark.parametrize("body", ["x = config.lr * config.net.width", "x = config.lr * build(config)"])
def test_attributes_of_a_typed_configuration(user_folder: Path, head: str, body: str) -> None:
    assert unread(user_folder, body, f"{head}\ndef build(c): return c.net.width\n") == ["dropout"]


@pytest.mark.parametrize("head", [CONFIG, MODEL])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("config = Settings(**config)\nx = config.lr, config.net.width", ["dropout"]),
        ("x = config['lr'], config['net']\nsettings = Settings(**config)", ["dropout"]),
        ("build(Settings(**config))\nx = config['lr'], config['net']", ["dropout"]),
        ("settings = Settings(**config)\nx = config['lr'], config['net'], settings.dropout", []),
        ("settings = Settings(**config)\nx = config['lr'], config['net'], vars(settings)", []),
        ("x = config['lr'], config['net'], Settings(**config).copy()", []),
    ],
)
def test_a_dict_that_becomes_an_object(user_folder: Path, head: str, body: str, expected: list[str]) -> None:
    head = head.replace("class Config", "class Settings") + "\ndef build(settings): return settings.lr\n"
    assert unread(user_folder, body, head) == expected


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (CONFIG, "dataclasses.asdict(config)"),
        (CONFIG, "x = vars(config)"),
        (CONFIG, "x = getattr(config, 'dropout')"),
        (CONFIG, "x = getattr(config, 'drop' + 'out')"),
        (CONFIG + "\n    def rate(self): return self.dropout", "x = config.rate()"),
        (CONFIG + "\n    def __post_init__(self): assert self.dropout < 1", ""),
        (INIT_ONLY, ""),
        (ALIAS, ""),
        (MODEL.replace("    dropout", "    model_config = {'alias_generator': str.lower}\n    DROPOUT"), ""),
        (MODEL, "config.model_dump()"),
        (MODEL, "x = dict(config)"),
    ],
)
def test_where_a_typed_configuration_is_used_whole_nothing_is_named(user_folder: Path, head: str, body: str) -> None:
    assert unread(user_folder, f"x = config.lr, config.net\n{body}", head) == []


def test_what_only_prepare_or_evaluate_reads_is_read(user_folder: Path) -> None:
    head = "def prepare(config): return {'path': config['dropout']}"
    assert unread(user_folder, "x = config['lr'], config['net']", head) == []


def test_a_function_of_a_library_is_not_looked_into(user_folder: Path) -> None:
    assert load_trainable("json:dumps", (user_folder,)).never_read(NAMES) == []


def test_a_search_whose_loop_is_the_users_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # tuner is below the working directory
    search = tuner.Search(None, {"lr": {"uniform": [0, 1]}}, objective=tuner.minimize("loss"))
    assert "NOTICE" not in str(search.plan())


def test_the_plan_says_so(user_folder: Path) -> None:
    (user_folder / "reader_of_config.py").write_text("def train(config):\n    x = config['lr']\n")
    experiment = {
        "name": "n",
        "trainable": "reader_of_config.py:train",
        "search_space": {"lr": {"uniform": [0, 1]}, "dropout": {"uniform": [0, 1]}, "momentum": {"choice": [1, 2]}},
        "objective": {"metric": "loss", "mode": "min"},
    }
    plan = validate(experiment)
    told = "dropout, momentum are never read by the trainable reader_of_config.py:train: their values change nothing"
    assert description(plan)[-1] == ("NOTICE", told)
    assert plan.as_json()["notices"] == [told]
    said: list[str] = []
    _, _, notices = prepare(plan, RunFolder.at(user_folder / "run"), user_folder, said.append)
    assert (said, notices) == ([f"NOTICE: {told}"], [told])


@pytest.mark.parametrize("file", marked(EXPERIMENTS, need_an_extra=pytest.mark.integrations))
def test_the_shipped_trainables_read_all_their_parameters(file: Path) -> None:
    assert validate(file).notices == []

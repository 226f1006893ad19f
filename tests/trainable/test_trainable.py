"""Loading a trainable, reading its signature, and checking values against its Config."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import InputError
from tuner.spec.configuration import merge
from tuner.trainable.trainable import Trainable, load_trainable

TYPES = """
import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from nowhere import Unknown


@dataclasses.dataclass
class Inner:
    width: int = 8
    act: str = "relu"


@dataclasses.dataclass
class Config:
    lr: float
    epochs: int = 3
    name: str = "x"
    flag: bool = False
    opt: Literal["sgd", "adam"] = "sgd"
    clip: Optional[float] = None
    layers: list[int] = dataclasses.field(default_factory=list)
    shape: tuple[int, int] = (1, 1)
    inner: Inner = dataclasses.field(default_factory=Inner)
    derived: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Checked:
    lr: float = 0.1

    def __post_init__(self):
        if self.lr > 1:
            raise ValueError(f"lr {self.lr} is above 1")


class Model(BaseModel):
    lr: Annotated[float, Field(gt=0)]
    inner: Inner = Inner()
    sub: "Sub" = Field(default_factory=lambda: Sub())
    opt: Literal["sgd", "adam"] | None = None


class Sub(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


Model.model_rebuild()


def dataclass(config: Config): ...
def text(config: "Config"): ...
def union(config: Config | dict): ...
def union_text(config: "dict | Config"): ...
def optional(config: Optional[Config]): ...
def checked(config: Checked): ...
def model(config: Model): ...
def plain(config): ...
def typed_dict(config: dict[str, Any]): ...
def unknown(config: "Unknown"): ...
def defaults(config: Config, checkpoint=None, *args, verbose=False, **options): ...
def any_name(hyperparameters: Config): ...
def positional(config, /): ...
def variadic(*args): ...
def two(config, data): ...
def keyword_only(config, *, data): ...
def none(): ...
class Callable:
    def __call__(self, config: Config): ...
instance = Callable()
partial = functools.partial(defaults, verbose=True)
number = 3
"""


@pytest.fixture
def folder(user_folder: Path) -> Path:
    (user_folder / "some_types.py").write_text(TYPES)
    return user_folder


def load(folder: Path, name: str) -> Trainable:
    return load_trainable(f"some_types.py:{name}", (folder,))


def config_problems(trainable: Trainable, **values: Any) -> dict[str, str]:
    return {".".join(path): message for path, message in trainable.config_problems(values)}


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("dataclass", "Config"),
        ("text", "Config"),
        ("union", "Config"),
        ("union_text", "Config"),
        ("optional", "Config"),
        ("checked", "Checked"),
        ("model", "Model"),
        ("plain", None),
        ("typed_dict", None),
        ("unknown", None),
        ("defaults", "Config"),
        ("any_name", "Config"),
        ("positional", None),
        ("instance", "Config"),
        ("partial", "Config"),
    ],
)
def test_the_config_type_is_read_from_the_signature(folder: Path, name: str, type_: str | None) -> None:
    found = load(folder, name).config_type
    assert (found and found.__name__) == type_


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("two", "takes (config, data); a trainable takes one argument, its config: def train(config)"),
        ("keyword_only", "takes (config, data)"),
        ("none", "takes (); a trainable takes one argument"),
        ("number", "is a int, not a function"),
        ("plan", "has no 'plan'; did you mean 'plain'?"),
        ("zzzzzz", "has no 'zzzzzz'"),
    ],
)
def test_what_is_no_trainable(folder: Path, name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(folder, name)
    assert message in str(caught.value)
    assert "some_types.py" in str(caught.value)


def test_the_optional_functions_come_from_the_same_module(folder: Path) -> None:
    (folder / "whole.py").write_text(
        "def train(config): ...\n"
        "def evaluate(config, checkpoint, split): return {'acc': len(split)}\n"
        "def prepare(config): return {'data': config['root'] + '/x'}\n"
        "def checkpoint_bytes(config): return config['n'] * 4.0\n"
    )
    whole = load_trainable("whole:train", (folder,))
    assert (whole.can_evaluate, whole.can_validate) == (True, True)
    assert whole.evaluate({}, folder, "test") == {"acc": 4.0}
    assert whole.prepare({"root": "r"}) == {"data": "r/x"}
    assert whole.checkpoint_bytes({"n": 2}) == 8
    bare = load(folder, "plain")
    assert (bare.can_evaluate, bare.can_validate) == (False, False)
    assert bare.prepare({}) == {}
    assert bare.checkpoint_bytes({}) is None
    (folder / "old.py").write_text("def train(config): ...\ndef evaluate(config, checkpoint): return {'acc': 1}\n")
    old = load_trainable("old:train", (folder,))
    assert (old.can_evaluate, old.can_validate) == (True, False)
    assert old.evaluate({}, folder, "test") == {"acc": 1.0}


def test_a_trainable_that_imports_its_neighbour(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "helper_xyz.py").write_text("N = 3\n")
    (folder / "sub" / "main_xyz.py").write_text("from helper_xyz import N\ndef train(config): return N\n")
    trainable = load_trainable("sub/main_xyz.py:train", (folder,))
    assert trainable.train({}) == 3
    assert load_trainable("sub/main_xyz.py:train", (folder,)).train is trainable.train


def test_files_of_the_same_name_are_told_apart(folder: Path) -> None:
    for n in (1, 2, 3):
        (folder / f"d{n}").mkdir()
        (folder / f"d{n}" / "same_name.py").write_text(f"def train(config): return {n}\n")
    assert [load_trainable(f"d{n}/same_name.py:train", (folder,)).train({}) for n in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_package_here", "ModuleNotFoundError: No module named 'no_such_package_here'"),
        ("from json import no_such_name", "ImportError: cannot import name 'no_such_name'"),
        ("x = 1\n\n1 / 0", "ZeroDivisionError: division by zero"),
        ("x = 1\ndef train(config:\n    pass", "SyntaxError"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("raise RuntimeError", "RuntimeError"),
    ],
)
@pytest.mark.parametrize("form", ["broken_one.py:train", "broken_one:train"])
def test_errors_at_import_are_shown_as_what_they_are(folder: Path, form: str, code: str, message: str) -> None:
    (folder / "broken_one.py").write_text(code + "\n")
    with pytest.raises(InputError) as caught:
        load_trainable(form, (folder,))
    text = str(caught.value)
    line = {"x": 3 if "/" in code else 2, "i": 2}.get(code[0] if "x = 1" in code or "exit" in code else "")
    assert message in text
    assert f"{folder / 'broken_one.py'}, line " in text
    assert line is None or f"line {line})" in text
    assert "\n" not in text
    assert "broken_one" not in sys.modules


def test_an_error_in_an_installed_package_names_the_line_that_called_it(folder: Path) -> None:
    (folder / "site-packages").mkdir()
    (folder / "site-packages" / "hooked_m.py").write_text("def leave(): raise SystemExit(3)\n")
    (folder / "caller_m.py").write_text(
        f"import sys\nsys.path.insert(0, {str(folder / 'site-packages')!r})\nimport hooked_m\nhooked_m.leave()\n"
    )
    with pytest.raises(InputError) as caught:
        load_trainable("caller_m.py:train", (folder,))
    assert f"SystemExit: 3 ({folder / 'caller_m.py'}, line 4)" in str(caught.value)


def test_an_error_of_the_training_kit_names_the_line_that_called_it(folder: Path) -> None:
    (folder / "kit_m.py").write_text("from tuner.training.accumulation import accumulation\n\naccumulation(0)\n")
    with pytest.raises(InputError) as caught:
        load_trainable("kit_m.py:train", (folder,))
    assert f"ValueError: batch_size: 0, must be at least 1 ({folder / 'kit_m.py'}, line 3)" in str(caught.value)


def test_an_import_error_two_modules_deep_names_the_innermost_line(folder: Path) -> None:
    (folder / "outer_m.py").write_text("\nimport inner_m\ndef train(config): ...\n")
    (folder / "inner_m.py").write_text("\n\nimport no_such_package_here\n")
    with pytest.raises(InputError) as caught:
        load_trainable("outer_m:train", (folder,))
    assert "outer_m cannot be imported: ModuleNotFoundError: No module named 'no_such_package_here'" in str(
        caught.value
    )
    assert f"{folder / 'inner_m.py'}, line 3" in str(caught.value)


@pytest.mark.parametrize("reference", ["no_such_module:train", "no/such_file.py:train", "json.no_such_sub:train"])
def test_what_is_not_found_says_where_was_looked(folder: Path, reference: str) -> None:
    with pytest.raises(InputError, match=f"no (module|file) .*{folder.name}"):
        load_trainable(reference, (folder,))


# --- values against a Config -------------------------------------------------------------------------------------


def test_a_config_is_made_from_plain_values(folder: Path) -> None:
    dataclass = load(folder, "dataclass")
    config = dataclass.make_config({"lr": 1, "layers": [1, 2], "shape": [3, 4], "inner": {"width": 2}, "clip": None})
    assert type(config).__name__ == "Config"
    assert (config.lr, config.layers, config.shape, config.inner.width, config.inner.act) == (
        1,
        [1, 2],
        (3, 4),
        2,
        "relu",
    )
    model = load(folder, "model").make_config({"lr": 0.5, "sub": {"depth": 2}, "inner": {"width": 3}, "opt": "adam"})
    assert (model.lr, model.sub.depth, model.inner.width, model.opt) == (0.5, 2, 3, "adam")
    values = {"anything": object()}
    assert load(folder, "plain").make_config(values) is values


@pytest.mark.parametrize(
    "values",
    [
        {"lr": 1},
        {"lr": 0.5, "epochs": 2},
        {"lr": 1e-4, "opt": "adam", "clip": 1},
        {"lr": 1, "clip": None, "layers": [], "inner": {}},
        {"lr": 1, "name": "1", "flag": True},
    ],
)
def test_values_that_fit(folder: Path, values: dict[str, Any]) -> None:
    for name in ("dataclass", "text", "union", "union_text", "any_name"):
        assert load(folder, name).config_problems(values) == []


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({}, "lr", "required by the trainable, but neither in params nor in search_space"),
        ({"lr": "1"}, "lr", "must be a valid number, not '1'"),
        ({"lr": True}, "lr", "must be a valid number, not True"),
        ({"lr": None}, "lr", "not None"),
        ({"lr": 1, "epochs": True}, "epochs", "must be a valid integer, not True"),
        ({"lr": 1, "epochs": 1.5}, "epochs", "1.5"),
        ({"lr": 1, "epochs": "1"}, "epochs", "must be a valid integer, not '1'"),
        ({"lr": 1, "name": 1}, "name", "must be a valid string, not 1"),
        ({"lr": 1, "flag": 1}, "flag", "must be a valid boolean, not 1"),
        ({"lr": 1, "flag": "true"}, "flag", "must be a valid boolean, not 'true'"),
        ({"lr": 1, "opt": "sdg"}, "opt", "must be 'sgd' or 'adam', not 'sdg'"),
        ({"lr": 1, "clip": "x"}, "clip", "must be a valid number, not 'x'"),
        ({"lr": 1, "layers": [1, "2"]}, "layers.1", "must be a valid integer, not '2'"),
        ({"lr": 1, "inner": {"width": 1.5}}, "inner.width", "1.5"),
        (
            {"lr": 1, "inner": {"widht": 1}},
            "inner.widht",
            "no such parameter; allowed: width, act; did you mean 'width'?",
        ),
        ({"lr": 1, "epoch": 3}, "epoch", "did you mean 'epochs'?"),
        ({"lr": 1, "derived": 3}, "derived", "no such parameter"),
    ],
)
def test_values_that_do_not_fit(folder: Path, values: dict[str, Any], path: str, words: str) -> None:
    found = config_problems(load(folder, "dataclass"), **values)
    assert list(found) == [path]
    assert words in found[path]


def test_all_complaints_at_once(folder: Path) -> None:
    found = config_problems(load(folder, "dataclass"), epochs="3", lrr=1, inner={"act": 2, "wdth": 1})
    assert sorted(found) == ["epochs", "inner.act", "inner.wdth", "lr", "lrr"]


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"lr": 0}, "lr", "must be greater than 0, not 0"),
        ({"lr": "1"}, "lr", "must be a valid number"),
        ({"lr": 1, "lrs": 2}, "lrs", "did you mean 'lr'?"),
        ({"lr": 1, "sub": {"dept": 2}}, "sub.dept", "did you mean 'depth'?"),
        ({"lr": 1, "inner": {"width": "2"}}, "inner.width", "must be a valid integer"),
        ({"lr": 1, "opt": "x"}, "opt", "'sgd' or 'adam'"),
    ],
)
def test_values_that_do_not_fit_a_model(folder: Path, values: dict[str, Any], path: str, words: str) -> None:
    found = config_problems(load(folder, "model"), **values)
    assert list(found) == [path]
    assert words in found[path]


def test_the_users_own_check(folder: Path) -> None:
    assert config_problems(load(folder, "checked"), lr=2.0) == {"": "lr 2.0 is above 1"}
    assert config_problems(load(folder, "checked"), lr=1.0) == {}


def test_a_check_that_fails_in_another_way_is_a_complaint_too(folder: Path) -> None:
    (folder / "odd_check.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    n: int = 1\n"
        "    def __post_init__(self): self.x = 1 // self.n\n"
        "def train(config: Config): ...\n"
    )
    found = config_problems(load_trainable("odd_check:train", (folder,)), n=0)
    assert "division" in found[""]


def test_python_objects_reach_a_config_whose_fields_take_them(folder: Path) -> None:
    (folder / "objects.py").write_text(
        "import dataclasses\nclass Thing: ...\n"
        "@dataclasses.dataclass\nclass Config:\n    thing: Thing\n    n: int = 1\n"
        "def train(config: Config): ...\n"
    )
    trainable = load_trainable("objects:train", (folder,))
    thing = trainable.module.Thing()
    assert trainable.make_config({"thing": thing}).thing is thing
    assert trainable.config_problems({"thing": thing}) == []


def test_non_finite_numbers_reach_the_config(folder: Path) -> None:
    assert load(folder, "dataclass").make_config({"lr": float("inf")}).lr == float("inf")
    assert load(folder, "dataclass").config_problems({"lr": float("inf")}) == []


def test_merge() -> None:
    base = {"a": 1, "n": {"x": 1, "y": {"z": 1}}, "l": [1]}
    over = {"a": 2, "n": {"y": {"w": 2}, "x": {"new": 1}}, "l": [2], "b": {"c": 1}}
    assert merge(base, over) == {
        "a": 2,
        "n": {"x": {"new": 1}, "y": {"z": 1, "w": 2}},
        "l": [2],
        "b": {"c": 1},
    }
    assert base == {"a": 1, "n": {"x": 1, "y": {"z": 1}}, "l": [1]}
    assert over["n"] == {"y": {"w": 2}, "x": {"new": 1}}
    assert merge({"n": {"x": 1}}, {"n": 3}) == {"n": 3}
    assert merge({}, over) == over

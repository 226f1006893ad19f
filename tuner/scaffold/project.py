"""A project of its own, made from a shipped experiment: its trainable, and the files around it."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tuner import examples
from tuner.scaffold.rewriting import PACKAGE, helpers, moved, with_log

_DOT = "dot_"
"""How the name of a file begins whose name in the project begins with a dot."""

_SHORT = '{"budget.trials": 1}'
"""The overrides of the one trial in the template's test."""


@dataclass(frozen=True)
class Template:
    """What ``tuner init --from NAME`` copies. The modules that the trainable imports come with it."""

    experiment: str
    """The shipped experiment."""
    about: str
    """A sentence for the project's README."""
    extra: str = ""
    """The extra of this package that the trainable needs."""
    short: Mapping[str, Any] = field(default_factory=lambda: {"params.epochs": 1})
    """Overrides with which one trial takes seconds, for the project's test."""


_FEW = {"params.epochs": 1, "params.data": "shapes5_few"}
"""Overrides with which one trial on images takes seconds."""

TEMPLATES = {
    "images": Template(
        "images",
        "A pretrained network on a folder of images, with schedules, samplers and freezing as hyperparameters.",
    ),
    "text": Template(
        "text_lora", "A language model of Transformers, tuned by LoRA adapters on texts in classes.", "peft"
    ),
    "tabular": Template(
        "tabular",
        "Boosted trees and a random forest on a table, cross-validated fold by fold.",
        "tabular",
        {"params.folds": 2, "search_space.trees.choice": [10]},
    ),
    "lightning": Template("lightning_images", "A Lightning module on a folder of images.", "lightning", _FEW),
    "accelerate": Template("accelerate_images", "A loop with Accelerate on a folder of images.", "accelerate", _FEW),
}
"""The templates by their name. To add one is to add one entry."""


def project_files(template: Template, name: str) -> dict[str, bytes]:
    """The files of a project called ``name``, by their path in it."""
    experiment = _shipped("experiments", f"{template.experiment}.yaml")
    trainable = _trainable_of(experiment)
    sources = dict(_sources(trainable))
    files = {"train.py" if one == trainable else f"{one}.py": moved(text, trainable) for one, text in sources.items()}
    files["train.py"] = with_log(files["train.py"])
    files["search.yaml"] = _named(moved(experiment, trainable), template.experiment, name)
    files["search_space.yaml"] = moved(_shipped("search_spaces", _space_of(experiment)), trainable)
    files |= _common(template, name, list(files))
    return {path: text.encode() for path, text in files.items()} | dict(_data(sources.values()))


def _data(sources: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The files beside the shipped trainables that ``sources`` name, such as pretrained weights."""
    for file in sorted((examples.FOLDER / PACKAGE).glob("*.safetensors")):
        if any(file.name in text for text in sources):
            yield file.name, file.read_bytes()


def _shipped(kind: str, file: str) -> str:
    return (examples.FOLDER / kind / file).read_text(encoding="utf-8")


def _value(experiment: str, key: str) -> str:
    """The text after ``key:`` at the top level of an experiment, without its comment."""
    line = next(line for line in experiment.splitlines() if line.startswith(f"{key}:"))
    return line.partition(":")[2].partition(" #")[0].strip()


def _trainable_of(experiment: str) -> str:
    return _value(experiment, "trainable").removeprefix(f"{PACKAGE}.").partition(":")[0]


def _space_of(experiment: str) -> str:
    return Path(_value(experiment, "search_space")).name


def _sources(trainable: str) -> Iterator[tuple[str, str]]:
    """The trainable and all modules of the examples that it needs, each with its text."""
    left, seen = [trainable], {trainable}
    while left:
        module = left.pop(0)
        source = _shipped(PACKAGE, f"{module}.py")
        yield module, source
        more = sorted(helpers(source) - seen)
        seen.update(more)
        left += more


def _named(experiment: str, before: str, name: str) -> str:
    """The experiment under the project's name, if that can name a run folder."""
    from tuner.experiment.spec import check_name

    try:
        return experiment.replace(f"\nname: {before}\n", f"\nname: {check_name(name)}\n")
    except ValueError:
        return experiment


_HOLDS = {
    "train.py": "the configuration, the model, the data, the loss, the metrics, the training",
    "search_space.yaml": "what the search chooses",
    "search.yaml": "the experiment: objective, search, scheduler, budget, resources",
    "test_train.py": "the test",
    "requirements.txt": "what to install",
    ".github/workflows/ci.yml": "the same test as a job of GitHub Actions",
    "runs/": "the run folders of your searches",
}


def _common(template: Template, name: str, own: list[str]) -> dict[str, str]:
    """The files around a trainable, which are the same in each project but for some words."""
    modules = [file for file in own if file.endswith(".py") and file != "train.py"]
    holds = {**_HOLDS, **dict.fromkeys(modules, "imported by `train.py`")}
    package = f"tuner[{template.extra}]" if template.extra else "tuner"
    words = {
        "name": name,
        "about": template.about,
        "tuner": f"{package}>={metadata.version('tuner')}",
        "files": "\n".join(f"| `{file}` | {text} |" for file, text in holds.items()),
    }
    short = {"budget.trials": 1, "scheduler": {"kind": "fifo"}, "tracking": {}, **template.short}
    lines = "".join(f'\n    "{key}": {value!r},'.replace("'", '"') for key, value in short.items())
    found = {}
    for path, text in _tree(resources.files("tuner.cli") / "templates" / "project"):
        if path == "test_train.py":
            found[path] = text.replace(_SHORT, f"{{{lines}\n}}")
        elif path in ("README.md", "requirements.txt"):
            found[path] = string.Template(text).substitute(words)
        else:
            found[path] = text
    return found


def _tree(folder: Traversable, before: str = "") -> Iterator[tuple[str, str]]:
    """The text files below ``folder``, by the path that they get."""
    for entry in folder.iterdir():
        name = before + entry.name.replace(_DOT, ".", 1) if entry.name.startswith(_DOT) else before + entry.name
        if entry.is_dir():
            yield from _tree(entry, f"{name}/")
        elif not entry.name.endswith(".pyc"):
            yield name, entry.read_text(encoding="utf-8")


def missing(template: Template) -> str:
    """The package that the project needs and this Python lacks, in words; empty if there is none."""
    from importlib.util import find_spec

    from tuner.integrations.requirements import require

    if template.extra:
        try:
            require(template.extra)
        except ImportError as error:
            return str(error).partition(":")[0]
    return "" if find_spec("pytest") else "pytest, which runs the test, is not installed"

"""What the schema says of options, and what an import does not do."""

from __future__ import annotations

import subprocess
import sys

from tuner.spec.model import Model


class Base(Model):
    depth: int = 1
    """How deep
    it is."""


class Derived(Base):
    """A model."""

    width: int = 1
    """How wide."""

    height: int = 1

    rate: float = 0.1
    """How fast."""


def described(model: type[Model]) -> dict[str, str]:
    found = model.model_json_schema()["properties"]
    return {name: option["description"] for name, option in found.items() if "description" in option}


def test_an_option_is_described_by_its_docstring_an_inherited_one_too() -> None:
    assert described(Derived) == {"depth": "How deep\nit is.", "width": "How wide.", "rate": "How fast."}
    assert described(Base) == {"depth": "How deep\nit is."}


def test_a_model_whose_source_is_not_kept_has_a_schema() -> None:
    known = {"Model": Model, "__name__": "gone"}
    exec("class Made(Model):\n    size: int = 1\n    '''Its size.'''", known)
    made = known["Made"]
    assert isinstance(made, type)
    assert issubclass(made, Model)
    assert described(made) == {}


def test_validators_are_not_built_by_an_import() -> None:
    code = "import tuner; kind = tuner.schedulers.Asha; print(kind.__pydantic_complete__, kind(max_t=3).max_t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "3"]

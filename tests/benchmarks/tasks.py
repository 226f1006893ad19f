"""Tasks for searches whose curves answer every configuration as it was asked: surrogate models, and formulas.

Each family has tasks for development (constants are chosen on them), decision (variants are compared on them) and
report (looked at for what the docs say). A formula's task draws its optimum, the weights of its parameters and its
shape from its number:

- plain: early ranks tell the last ones, and a wide network takes up to 3 times longer;
- plateau: up to 20 of 50 epochs at chance;
- crossing: the better a configuration is in the end, the slower it starts;
- noise: each report has noise of standard deviation 0.02;
- diverging: in a fifth of the space a trial falls back to chance at some epoch, the earlier the further inside;
- costs: an epoch of one configuration takes up to 100 times as long as one of another;
- rounding: reports in steps of 0.02;
- conditional: two optimizers, each with parameters of its own;
- wide: 20 parameters, of which 4 matter.

The tasks "measured" are for reports only: surrogate models of trainings that this product ran, with the noise of their
seeds (``measured_curves.py``).
"""

from __future__ import annotations

import functools
import json
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import measured_curves
import numpy as np
from numpy.typing import NDArray

from tuner.simulator import CurveFunction
from tuner.spec.configuration import Configuration
from tuner.spec.document import Document, read_yaml
from tuner.spec.space import Space, read_space

Array = NDArray[np.float64]
Curves = Callable[[Sequence[Configuration]], tuple[Array, Array]]
Part = Literal["development", "decision", "report"]

EPOCHS = 50
LCBENCH, MEASURED = "lcbench", "measured"
FORMULAS = ("plain", "plateau", "crossing", "noise", "diverging", "costs", "rounding", "conditional", "wide")
PARTS: dict[Part, range] = {"development": range(4), "decision": range(4, 8), "report": range(8, 12)}
"""The numbers of the formulas' tasks."""

_CHANCE, _TOP = 0.1, 0.95
_STEEPNESS = 6.0
"""The median configuration comes to about half of the way from chance to the top."""

_SPACE_FILE = Path(__file__).parents[2] / "search_spaces" / "lcbench.yaml"
_PLAIN = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "width": {"lograndint": [8, 513]},
    "dropout": {"uniform": [0.0, 0.9]},
    "weight_decay": {"loguniform": [1e-6, 1e-1]},
    "batch_size": {"choice": [16, 32, 64, 128, 256]},
    "act": {"choice": ["relu", "gelu", "tanh"]},
}
_CONDITIONAL = {
    "width": {"lograndint": [8, 513]},
    "dropout": {"uniform": [0.0, 0.9]},
    "optimizer": {"choice": ["sgd", "adam"]},
    "sgd_lr": {"loguniform": [1e-3, 1.0], "when": {"optimizer": "sgd"}},
    "momentum": {"uniform": [0.0, 0.99], "when": {"optimizer": "sgd"}},
    "adam_lr": {"loguniform": [1e-5, 1e-1], "when": {"optimizer": "adam"}},
    "beta2": {"uniform": [0.9, 0.9999], "when": {"optimizer": "adam"}},
}
_WIDE = {f"x{k}": {"uniform": [0.0, 1.0]} for k in range(20)}


@dataclass(frozen=True, eq=False)
class Task:
    """What a search sees, and what its configurations are worth."""

    family: str
    seen: CurveFunction
    true: CurveFunction
    """The same without noise and rounding: regret is measured in it."""

    @property
    def epochs(self) -> int:
        """At which a trial is complete."""
        return self.seen.fidelities[-1]


def names(family: str, part: Part, data: Path | None) -> list[str]:
    """The tasks of a part of a family."""
    if family == MEASURED:
        return [f"{MEASURED} {name}" for name in measured_curves.TASKS] if part == "report" else []
    if family != LCBENCH:
        return [f"{family} {number}" for number in PARTS[part]]
    if data is None or part == "report":
        raise SystemExit("lcbench needs --data FOLDER, and its tasks for reports are kept elsewhere")
    found = list(json.loads((data / "tasks.json").read_text()))
    return [f"{LCBENCH} {name}" for name in (found[::2] if part == "development" else found[1::2])]


@functools.cache
def task(name: str, data: Path | None) -> Task:
    """The task called ``name``."""
    family, _, number = name.partition(" ")
    if family == LCBENCH:
        assert data is not None
        curves = _surrogate(data, name, number)
        return Task(family, curves, curves)
    if family == MEASURED:
        return _measured(name, number)
    return _formula(family, int(number))


def _measured(name: str, of: str) -> Task:
    surrogate = measured_curves.Surrogate.read(of)
    fidelities = tuple(range(1, len(measured_curves.TASKS[of].fidelities) + 1))
    seen, true = (
        CurveFunction(name, surrogate.space, fidelities, function)
        for function in (surrogate.with_noise, surrogate.predict)
    )
    return Task(MEASURED, seen, true)


# --- LCBench's surrogate ---------------------------------------------------------------------------------------------


def _surrogate(data: Path, name: str, number: str) -> CurveFunction:
    """Of YAHPO Gym: ``surrogate.onnx``, and the code of each task in ``tasks.json``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it keeps gigabytes for each task
    session = onnxruntime.InferenceSession(str(data / "surrogate.onnx"), options)
    code = json.loads((data / "tasks.json").read_text())[number]
    space = _space(read_yaml(_SPACE_FILE.read_text(), str(_SPACE_FILE)))
    parameters = [parameter.name for parameter in space.parameters]
    steps = np.arange(2, EPOCHS + 2, dtype=np.float32)  # its epoch 1 is before any training

    def curves(configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        rows = np.array([[c[name] for name in parameters] for c in configurations], dtype=np.float32)
        inputs = np.column_stack([np.tile(steps, len(rows)), np.repeat(rows, EPOCHS, axis=0)])
        codes = np.full((len(inputs), 1), code, np.int32)
        (answers,) = session.run(None, {"x_cat": codes, "x_cont": inputs})
        seconds = np.maximum.accumulate(np.maximum(answers[:, 0].reshape(-1, EPOCHS), 1e-3), axis=1)
        return answers[:, 1].reshape(-1, EPOCHS).astype(np.float64) / 100, seconds.astype(np.float64)

    return CurveFunction(name, space, tuple(range(1, EPOCHS + 1)), curves)


def _space(document: Document) -> Space:
    problems: list[Any] = []
    space = read_space(document, (), problems)
    assert space is not None, problems
    return space


# --- formulas --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """What a task draws from its number, in the unit cube."""

    optimum: Array
    weights: Array
    """How much each parameter matters; they add up to 1."""
    direction: Array
    """Along which a second property varies: the speed, or the length of a plateau."""

    @classmethod
    def of(cls, name: str, parameters: int, relevant: int) -> _Shape:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        weights = rng.exponential(size=parameters)
        weights[rng.permutation(parameters)[relevant:]] *= 0.02
        direction = rng.standard_normal(parameters)
        return cls(
            rng.uniform(0.1, 0.9, parameters), weights / weights.sum(), direction / math.sqrt(direction @ direction)
        )

    def quality(self, points: Array) -> Array:
        """In 0..1, with a few ripples; a parameter that is inactive matters no more than on average."""
        distance = np.where(np.isnan(points), 0.3, points - self.optimum)
        bowl = np.exp(-_STEEPNESS * (self.weights * distance**2).sum(axis=1))
        ripples = (self.weights * np.sin(3 * math.pi * distance) ** 2).sum(axis=1)
        return np.asarray(bowl * (1 - 0.1 * ripples))

    def second(self, points: Array) -> Array:
        """In 0..1, about evenly spread."""
        along = np.nan_to_num(points - 0.5, nan=0.0) @ self.direction
        return np.asarray(1 / (1 + np.exp(-6 * along)))


def _formula(family: str, number: int) -> Task:
    name = f"{family} {number}"
    space = _space(Document({"conditional": _CONDITIONAL, "wide": _WIDE}.get(family, _PLAIN), name))
    columns = [parameter.name for parameter in space.free]
    shape = _Shape.of(name, len(columns), 4 if family == "wide" else len(columns))
    epochs = np.arange(1, EPOCHS + 1)

    def points(configurations: Sequence[Configuration]) -> Array:
        return np.array([space.to_unit(configuration) for configuration in configurations])

    def true(configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        x = points(configurations)
        quality, second = shape.quality(x)[:, None], shape.second(x)[:, None]
        tau = EPOCHS / 8 * np.exp(second - 0.5)
        if family == "crossing":
            tau = EPOCHS / 20 * np.exp(2 * quality)
        begun = 20 * second if family == "plateau" else 0.0
        risen = 1 - np.exp(-np.maximum(epochs - begun, 0) / tau)
        if family == "diverging":
            inside = (second - 0.8) / 0.2  # above 0 in a fifth of the space
            risen = np.where((inside > 0) & (epochs > EPOCHS * (1 - inside)), 0.0, risen)
        width = x[:, columns.index("width")][:, None] if "width" in columns else np.zeros((len(x), 1))
        epoch_seconds = 10 ** (2 * width) if family == "costs" else 1 + 2 * width
        return _CHANCE + (_TOP - _CHANCE) * quality * risen, epoch_seconds * epochs

    def seen(configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        values, seconds = true(configurations)
        if family == "noise":
            seeds = [zlib.crc32(point.tobytes()) for point in points(configurations)]
            values = values + 0.02 * np.array([np.random.default_rng(s).standard_normal(EPOCHS) for s in seeds])
        if family == "rounding":
            values = np.round(values / 0.02) * 0.02
        return values, seconds

    def curves(function: Curves) -> CurveFunction:
        return CurveFunction(name, space, tuple(epochs.tolist()), function)

    return Task(family, curves(seen), curves(true))

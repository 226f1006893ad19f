"""Learning curves of real trainings, measured with this product, for the tasks "measured" of regret.py.

    python tests/benchmarks/measured_curves.py measure [TASK …] [--trials 200] [--repeated 40]
    python tests/benchmarks/measured_curves.py fit [TASK …]

``measure`` trains configurations at random, the first ones with three seeds, and writes ``measured_curves.npz`` (1 to 2
hours of one core). ``fit`` makes a surrogate model of each task from them, and prints how well such models predict
configurations that they have not seen.

A surrogate model is an ensemble of small networks, from the unit cube to the main components of the logarithm of the
losses, and to the logarithm of the seconds of an epoch. So it answers every configuration as it was asked. What a
search sees has noise: the difference of one measured repetition, drawn by the configuration, to the mean of its
repetitions.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from tuner.spec.configuration import Configuration, flat  # noqa: E402
from tuner.spec.document import Document, read_yaml  # noqa: E402
from tuner.spec.space import Choice, Space, read_space  # noqa: E402

Array = NDArray[np.float64]

FILE = Path(__file__).with_name("measured_curves.npz")
"""Of each task: unit-cube points, losses and cumulative seconds, the losses of repetitions, and the surrogate model."""

SEEDS = 3

_COMPONENTS, _MEMBERS, _HIDDEN = 6, 5, 32
"""Of the curves, of the ensemble, and the units of each of two hidden layers."""
_DECAYS = (0.01, 0.1, 1.0, 10.0)
"""Weight decays, of which cross-validation chooses."""
_FOLDS = 5
_WORST = 0.05
"""This share of the highest losses becomes the next one: diverged trainings are bad, however far they diverged."""

_DIGITS: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "optimizer": {"choice": ["sgd", "adam"]},
    "momentum": {"uniform": [0.5, 0.99], "when": {"optimizer": "sgd"}},
    "hidden": {"lograndint": [16, 257]},
    "dropout": {"uniform": [0.0, 0.5]},
    "weight_decay": {"loguniform": [1e-6, 1e-2]},
}
_TREES: dict[str, Any] = {
    "learning_rate": {"loguniform": [0.005, 0.5]},
    "num_leaves": {"lograndint": [4, 128]},
    "min_child_samples": {"lograndint": [1, 64]},
    "lambda_l2": {"loguniform": [1e-3, 30.0]},
    "bagging_fraction": {"uniform": [0.4, 1.0]},
    "feature_fraction": {"uniform": [0.3, 1.0]},
    "extra_trees": {"choice": [False, True]},
}
_TRANSFORMER: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "weight_decay": {"loguniform": [1e-3, 1.0]},
    "dropout": {"uniform": [0.0, 0.4]},
    "warmup": {"uniform": [0.0, 0.3]},
    "width": {"choice": [16, 32, 64]},
    "layers": {"randint": [1, 3]},
    "heads": {"choice": [1, 2, 4]},
    "batch_size": {"choice": [8, 16, 32]},
}


@dataclass(frozen=True)
class Measured:
    """What is trained for a task."""

    trainable: str
    space: dict[str, Any] | str
    """Or the file in ``search_spaces``."""
    metric: str
    """A loss."""
    fidelities: tuple[int, ...]
    """Values of ``epoch``."""
    params: dict[str, Any]

    @functools.cached_property
    def document(self) -> Document:
        """The search space."""
        if isinstance(self.space, str):
            file = ROOT / "search_spaces" / self.space
            return read_yaml(file.read_text(), str(file))
        return Document(self.space, "measured_curves.py")


def _of_trees(table: str) -> Measured:
    return Measured(
        "tests.benchmarks.measured_trainings:trees", _TREES, "val_loss", tuple(range(4, 201, 4)),
        {"table": table},
    )  # fmt: skip


FIFTY = tuple(range(1, 51))
TASKS = {
    "digits": Measured("trainables.digits:train", _DIGITS, "val_loss", FIFTY, {"epochs": 50}),
    "mixture": _of_trees("mixture"),
    "cancer": _of_trees("cancer"),
    "transformer": Measured("tests.benchmarks.measured_trainings:transformer", _TRANSFORMER, "val_loss", FIFTY, {}),
    "images": Measured("trainables.images:train", "images.yaml", "val_loss", tuple(range(1, 11)), {"epochs": 10}),
}


def read(document: Document) -> Space:
    """The search space of a document."""
    problems: list[Any] = []
    space = read_space(document, (), problems)
    assert space is not None, problems
    return space


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(name: str, trials: int, repeated: int) -> dict[str, Array]:
    """Trains; the arrays of a task in `FILE`."""
    found = [_curves(name, seed, trials if seed == 0 else repeated) for seed in range(SEEDS)]
    again = [key for key in found[0] if all(key in run for run in found)]
    space = read(TASKS[name].document)
    return {
        "points": np.array([space.to_unit(json.loads(key)) for key in found[0]]),
        "losses": np.array([losses for losses, _ in found[0].values()]),
        "seconds": np.array([seconds for _, seconds in found[0].values()]),
        "repetitions": np.array([[run[key][0] for run in found] for key in again]),
    }


def _curves(name: str, seed: int, trials: int) -> dict[str, tuple[list[float], list[float]]]:
    """By configuration, if its curve is whole: the losses and the cumulative seconds."""
    import tuner

    task, found = TASKS[name], {}
    with tempfile.TemporaryDirectory() as folder:
        results = tuner.run(
            {
                "name": name,
                "trainable": task.trainable,
                "params": {**task.params, "seed": seed},
                "search_space": task.document.value,
                "objective": {"metric": task.metric, "mode": "min"},
                "search": {"kind": "random", "seed": 0},
                "scheduler": {"kind": "fifo"},
                "budget": {"trials": trials},
                "resources": {"cpu": 1, "gpu": 0, "max_concurrent_trials": 1},
            },
            storage=folder,
        )
        for trial in results.trials:
            reports = {report.metrics["epoch"]: report for report in trial.reports}
            if all(math.isfinite(reports[k].metrics[task.metric]) if k in reports else False for k in task.fidelities):
                config = {key: value for key, value in flat(trial.config) if key not in (*task.params, "seed")}
                found[json.dumps(config, sort_keys=True)] = (
                    [reports[k].metrics[task.metric] for k in task.fidelities],
                    [reports[k].seconds for k in task.fidelities],
                )
    return found


# --- surrogate models ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surrogate:
    """Losses and seconds of any configuration of a task; the arrays are those of `FILE`."""

    space: Space
    arrays: dict[str, Array]

    @classmethod
    @functools.cache
    def read(cls, name: str) -> Surrogate:
        with np.load(FILE) as file:
            arrays = {key.partition("/")[2]: file[key] for key in file.files if key.startswith(f"{name}/")}
        return cls(read(TASKS[name].document), arrays)

    def predict(self, configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        """Minus the losses, and the cumulative seconds."""
        logarithms, seconds = self._logarithms(configurations)
        return -np.exp(logarithms), seconds

    def _logarithms(self, configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        inputs = features(self.space, np.array([self.space.to_unit(c) for c in configurations]))
        return curves_of(outputs(inputs, self.arrays), self.arrays)

    def with_noise(self, configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        """The same with the noise of one measured repetition, which the configuration draws."""
        logarithms, seconds = self._logarithms(configurations)
        repetitions = np.log(self.arrays["repetitions"])
        noise = repetitions - repetitions.mean(axis=1, keepdims=True)
        noise = (noise * math.sqrt(SEEDS / (SEEDS - 1))).reshape(-1, logarithms.shape[1])
        drawn = [zlib.crc32(json.dumps(c, sort_keys=True).encode()) % len(noise) for c in configurations]
        return -np.exp(logarithms + noise[drawn]), seconds


def features(space: Space, points: Array) -> Array:
    """Columns for a network: of a category one a value, of a number its place; inactive ones are 0."""
    columns = []
    for u, parameter in zip(points.T, space.free, strict=True):
        if isinstance(parameter.domain, Choice):
            count = len(parameter.domain.categories)
            columns += [np.minimum(u * count, count - 1) // 1 == k for k in range(count)]
        else:
            columns.append(np.nan_to_num(2 * u - 1))
    return np.stack(columns, axis=1).astype(np.float64)


def outputs(inputs: Array, arrays: dict[str, Array], members: int = _MEMBERS) -> Array:
    """The mean of the networks."""
    found = []
    for member in range(members):
        hidden = inputs
        for layer in range(3):
            hidden = hidden @ arrays[f"weights{member}{layer}"] + arrays[f"biases{member}{layer}"]
            hidden = np.tanh(hidden) if layer < 2 else hidden
        found.append(hidden)
    return np.asarray(np.mean(found, axis=0))


def curves_of(found: Array, arrays: dict[str, Array]) -> tuple[Array, Array]:
    """Logarithms of losses, and seconds, from the outputs of the networks."""
    losses = arrays["middle"] + (found[:, :-1] * arrays["scales"]) @ arrays["components"]
    epoch = np.exp(found[:, -1:] * arrays["spread"] + arrays["level"])
    return losses, epoch * np.arange(1, losses.shape[1] + 1)


def targets(losses: Array, seconds: Array) -> tuple[Array, dict[str, Array]]:
    """What the networks learn of the logarithms of losses, and what `curves_of` needs to undo it."""
    middle = losses.mean(axis=0)
    _, _, components = np.linalg.svd(losses - middle, full_matrices=False)
    components = components[:_COMPONENTS]
    shares = (losses - middle) @ components.T
    # the first report of a trial also waits for its process and its data
    epoch = np.log((seconds[:, -1] - seconds[:, 0]) / (seconds.shape[1] - 1))
    arrays = {"middle": middle, "components": components, "scales": shares.std(axis=0)}
    arrays |= {"level": epoch.mean(), "spread": epoch.std()}
    return np.column_stack([shares / arrays["scales"], (epoch - arrays["level"]) / arrays["spread"]]), arrays


def trained(inputs: Array, learned: Array, decay: float, members: int = _MEMBERS) -> dict[str, Array]:
    """The weights of the networks."""
    from sklearn.neural_network import MLPRegressor

    arrays = {}
    for member in range(members):
        network = MLPRegressor(
            hidden_layer_sizes=(_HIDDEN, _HIDDEN),
            activation="tanh",
            solver="lbfgs",
            alpha=decay,
            max_iter=300,
            random_state=member,
        )
        network.fit(inputs, learned)
        for layer in range(3):
            arrays[f"weights{member}{layer}"] = network.coefs_[layer]
            arrays[f"biases{member}{layer}"] = network.intercepts_[layer]
    return arrays


def fit(name: str) -> dict[str, Array]:
    """The arrays of the surrogate model of a task; prints its quality."""
    surrogate = Surrogate.read(name)
    points, losses, seconds, repetitions = (
        surrogate.arrays[key].astype(np.float64) for key in ("points", "losses", "seconds", "repetitions")
    )
    losses = np.log(np.minimum(losses, np.quantile(losses, 1 - _WORST)))
    inputs = features(surrogate.space, points)
    learned, form = targets(losses, seconds)
    part = np.random.default_rng(0).integers(0, _FOLDS, len(points))

    def unseen(decay: float) -> Array:
        found = np.empty_like(learned)
        for k in range(_FOLDS):
            found[part == k] = outputs(inputs[part == k], trained(inputs[part != k], learned[part != k], decay, 1), 1)
        return found

    predictions = {decay: unseen(decay) for decay in _DECAYS}
    decay = min(_DECAYS, key=lambda decay: float(((predictions[decay] - learned) ** 2)[:, :-1].sum()))
    found, _ = curves_of(predictions[decay], form)
    last = losses[:, -1]
    errors = {
        "Spearman": spearmanr(found[:, -1], last).statistic,
        "R2": 1 - ((found[:, -1] - last) ** 2).mean() / last.var(),
        "noise": float(np.log(repetitions[:, :, -1]).std(axis=1, ddof=1).mean()) / last.std(),
        "decay": decay,
    }
    print(f"{name}: {len(points)} curves; " + ", ".join(f"{key} {value:.3g}" for key, value in errors.items()))
    return form | trained(inputs, learned, decay)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "fit"))
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--repeated", type=int, default=40)
    options = parser.parse_args()
    for name in options.tasks:
        arrays = measure(name, options.trials, options.repeated) if options.what == "measure" else fit(name)
        known = dict(np.load(FILE)) if FILE.exists() else {}
        known |= {f"{name}/{key}": np.asarray(array, dtype=np.float32) for key, array in arrays.items()}
        np.savez_compressed(FILE, allow_pickle=False, **known)


if __name__ == "__main__":
    main()

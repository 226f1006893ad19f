"""The best model in MLflow's model registry."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.restore import best_model
from tuner.runs.results import ResultSet

if TYPE_CHECKING:
    from mlflow import MlflowClient

_FOLDER = "model"

_FLAVORS = {
    "torch.nn.modules.module.Module": "pytorch",
    "xgboost.core.Booster": "xgboost",
    "xgboost.sklearn.XGBModel": "xgboost",
    "lightgbm.basic.Booster": "lightgbm",
    "lightgbm.sklearn.LGBMModel": "lightgbm",
    "sklearn.base.BaseEstimator": "sklearn",
}
"""Of MLflow, each with the class whose models it saves; the first that fits counts."""


def register(client: MlflowClient, name: str, run: str, results: ResultSet) -> None:
    """A new version of the model ``name``: the best trial's, which `mlflow.<its flavor>.load_model` reads.

    ``run`` is the search's run, among whose artifacts it lies. Raises EnvironmentFailure if the trainable cannot
    build its model, and whatever MLflow raises.
    """
    from mlflow.exceptions import MlflowException

    try:
        trial, model = best_model(results)
        flavor = _flavor(model)
    except InputError as error:
        raise EnvironmentFailure(f"tracking.mlflow.register: {error}") from None
    with tempfile.TemporaryDirectory() as scratch:
        packages, files = _sources(_parts(model, flavor))
        importlib.import_module(f"mlflow.{flavor}").save_model(
            model, f"{scratch}/{_FOLDER}", code_paths=files, pip_requirements=packages, **_options(model, flavor)
        )
        client.log_artifacts(run, scratch)
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    source = f"{client.get_run(run).info.artifact_uri}/{_FOLDER}"
    client.create_model_version(name, source, run, tags={"trial": trial, "search": results.name})


def _flavor(model: Any) -> str:
    """The module of MLflow that saves this kind of model. Raises InputError if none does."""
    bases = {f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__}
    for name, flavor in _FLAVORS.items():
        if name in bases:
            return flavor
    raise InputError(
        f"load_model returned {type(model).__module__}.{type(model).__qualname__}; "
        "it must be a model of torch, XGBoost, LightGBM or scikit-learn"
    )


def _options(model: Any, flavor: str) -> dict[str, Any]:
    if flavor == "pytorch":
        return {"serialization_format": "pickle"}  # the other one, pt2, needs an example of the input
    if flavor == "sklearn":
        import skops.io

        # they are in the user's own model; who loads it reads their names in the file
        return {"skops_trusted_types": skops.io.get_untrusted_types(data=skops.io.dumps(model))}
    return {}


def _parts(model: Any, flavor: str) -> Iterable[Any]:
    """The objects whose classes a process needs that loads the model."""
    if flavor == "pytorch":
        return list(model.modules())
    steps = getattr(model, "steps", None)  # of a pipeline
    return [model, *(step for _, step in steps)] if isinstance(steps, list) else [model]


def _sources(parts: Iterable[Any]) -> tuple[list[str], list[str]]:
    """The origins of the classes: packages to install, with versions, and files or folders of the user's own."""
    installed: set[str] = set()
    own: set[str] = set()
    distributions = metadata.packages_distributions()
    for top in {type(part).__module__.partition(".")[0] for part in parts} - {"builtins"}:
        module = sys.modules[top]
        place = next(iter(getattr(module, "__path__", ())), None) or getattr(module, "__file__", None)
        if place is not None and "site-packages" not in Path(place).parts:
            own.add(str(place))
        else:
            installed.update(distributions.get(top, ()))
    # without what stands behind a +, which no index has
    return [f"{name}=={metadata.version(name).partition('+')[0]}" for name in sorted(installed)], sorted(own)

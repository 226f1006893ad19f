"""The best model in MLflow's model registry."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.restore import best_model
from tuner.runs.results import ResultSet

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from torch.nn import Module

_FOLDER = "model"


def register(client: MlflowClient, name: str, run: str, results: ResultSet) -> None:
    """A new version of the model ``name``: the best trial's, which `mlflow.pytorch.load_model` reads.

    ``run`` is the search's run, among whose artifacts it lies. Raises EnvironmentFailure if the trainable cannot
    build its model, and whatever MLflow raises.
    """
    import mlflow.pytorch
    from mlflow.exceptions import MlflowException

    try:
        trial, model = best_model(results)
    except InputError as error:
        raise EnvironmentFailure(f"tracking.mlflow.register: {error}") from None
    with tempfile.TemporaryDirectory() as scratch:
        versions = results.provenance.get("packages", {})
        mlflow.pytorch.save_model(
            model,
            f"{scratch}/{_FOLDER}",
            serialization_format="pickle",  # the other one, pt2, needs an example of the input
            code_paths=_code(model),
            pip_requirements=[f"{package}=={versions[package]}" for package in ("torch",) if package in versions],
        )
        client.log_artifacts(run, scratch)
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    source = f"{client.get_run(run).info.artifact_uri}/{_FOLDER}"
    client.create_model_version(name, source, run, tags={"trial": trial, "search": results.name})


def _code(model: Module) -> list[str]:
    """The files or packages of the user's that the model's classes are from: who loads it may not have them."""
    tops = {type(part).__module__.partition(".")[0] for part in model.modules()} - {"torch", "torchvision", "builtins"}
    paths = []
    for top in sorted(tops):
        file = getattr(sys.modules.get(top), "__file__", None)
        locations = getattr(sys.modules.get(top), "__path__", None)
        if locations:
            paths.append(str(next(iter(locations))))
        elif file and "site-packages" not in Path(file).parts:
            paths.append(file)
    return [path for path in paths if "site-packages" not in Path(path).parts]

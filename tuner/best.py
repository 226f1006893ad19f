"""The best trial, restored: its model rebuilt from its checkpoint, scored, and exported."""

from __future__ import annotations

import contextlib
import json
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.results import BEST, ResultSet
from tuner.storage import RunFolder
from tuner.trainable import Trainable, load_trainable

MODEL_KEYS = ("model", "model_state_dict", "state_dict", "net_state_dict", "net")
"""Where a checkpoint file may hold the model's state, by custom."""


@dataclass(frozen=True)
class Best:
    """The best trial of a run."""

    trial: str
    config: dict[str, Any]
    recorded: dict[str, Any]
    """What the trial reported with this checkpoint."""
    validation: dict[str, float] | None
    """The same, computed again from the restored model; None where the trainable's ``evaluate`` has no ``split``."""
    test: dict[str, float] | None
    """Metrics on the test set; None unless asked for."""
    exported: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "trial": self.trial,
            "config": self.config,
            "recorded": self.recorded,
            "validation": self.validation,
            "test": self.test,
            "exported": self.exported,
        }


def restore_best(results: ResultSet, *, test: bool = False, export: str | Path | None = None) -> Best:
    """Reads ``best/`` of a run and rebuilds the model through the trainable's ``evaluate``.

    ``test``: also score it on the test set. ``export``: a folder to write config.json, metrics.json, the checkpoint
    and model.safetensors to.

    Raises InputError when the run or its trainable cannot do this, EnvironmentFailure when its files are damaged.
    """
    folder = results.folder / BEST
    try:
        config = json.loads(folder.read("config.json"))
        recorded = json.loads(folder.read("metrics.json"))
    except FileNotFoundError:
        raise InputError(f"{folder.shown} does not exist: the run has no result yet") from None
    except ValueError as error:
        raise EnvironmentFailure(f"{folder.shown} is damaged: {error}") from None
    trial = recorded.pop("trial")
    if not folder.exists("checkpoint"):
        raise InputError(
            f"the trainable of {results.folder.shown} reported no checkpoints: there is no model to restore"
        )
    trainable = load_trainable(results.spec["trainable"], tuple(map(Path, results.provenance.get("roots", []))))
    if test and not trainable.can_evaluate:
        raise InputError(f"{trainable.reference}: its module has no evaluate(config, checkpoint), which --test calls")
    with _on_disk(folder / "checkpoint") as checkpoint:
        validation = _evaluate(trainable, config, checkpoint, "val") if trainable.can_validate else None
        tested = _evaluate(trainable, config, checkpoint, "test") if test else None
        best = Best(trial, config, recorded, validation, tested, str(export) if export else None)
        if export:
            _export(best, checkpoint, Path(export))
    return best


def _evaluate(trainable: Trainable, config: dict[str, Any], checkpoint: Path, split: str) -> dict[str, float]:
    try:
        return trainable.evaluate(config, checkpoint, split)
    except OSError as error:
        raise EnvironmentFailure(f"{trainable.reference}: evaluate: {error}") from error


@contextlib.contextmanager
def _on_disk(folder: RunFolder) -> Iterator[Path]:
    if folder.is_local:
        yield folder.local_path
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder.copy_to(RunFolder.at(scratch))
        yield Path(scratch)


def _export(best: Best, checkpoint: Path, target: Path) -> None:
    from safetensors.torch import save_file

    weights = _weights(checkpoint)
    try:
        target.mkdir(parents=True, exist_ok=True)
        save_file(weights, target / "model.safetensors", metadata={"trial": best.trial})
        (target / "config.json").write_text(json.dumps(best.config, indent=2) + "\n")
        metrics = {"recorded": best.recorded, "validation": best.validation, "test": best.test}
        (target / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    except OSError as error:
        raise InputError(f"--export {target}: cannot be written: {error.strerror}") from None


def _weights(checkpoint: Path) -> dict[str, Any]:
    """The tensors of the model, from the first file of ``checkpoint`` that holds a state dict.

    Only tensors and plain values are loaded (``weights_only``): a checkpoint cannot run code here.
    """
    import torch

    for file in sorted(p for p in checkpoint.rglob("*") if p.is_file()):
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError):
            continue  # not a file of tensors
        if not isinstance(content, dict):
            continue
        for candidate in [content, *(content.get(key) for key in MODEL_KEYS)]:
            tensors = (
                {k: v for k, v in candidate.items() if isinstance(v, torch.Tensor)}
                if isinstance(candidate, dict)
                else {}
            )
            if tensors:
                return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    raise InputError(
        f"--export: no file in {checkpoint} holds a model's state dict that torch.load reads with weights_only=True; "
        f"save one with torch.save(), at the top level or under one of {', '.join(MODEL_KEYS)}"
    )

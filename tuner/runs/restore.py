"""The best trial (or another), restored: its model rebuilt from its checkpoint, scored, and exported."""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentFailure, InputError, did_you_mean
from tuner.runs.feasibility import no_winner
from tuner.runs.file_shapes import MAX_CONFIG_BYTES, Mapping, Recorded, checked
from tuner.runs.provenance import trainable_of
from tuner.runs.repetitions import first, over_all
from tuner.runs.results import BEST, ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import merge
from tuner.spec.values import metrics_line
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import find_damage
from tuner.storage.untrusted_json import parsed
from tuner.trainable.trainable import Trainable

MODEL_KEYS = ("model", "model_state_dict", "state_dict", "net_state_dict", "net")
"""Keys under which a checkpoint file holds the model's state, by custom."""

SHOWN = 20
"""Trials that a message lists at most."""


@dataclass(frozen=True)
class Best:
    """The best trial of a run."""

    trial: str
    config: dict[str, Any]
    recorded: dict[str, Any]
    """What the trial reported with this checkpoint."""
    validation: dict[str, float] | None
    """The same, computed again from the restored model; None if the trainable cannot, see ``not_validated``."""
    test: dict[str, float] | None
    """Metrics on the test set; None unless asked for."""
    checkpoint: str = ""
    """The folder of the checkpoint."""
    exported: str | None = None
    notices: tuple[str, ...] = ()
    """Which checkpoints are damaged, so that another one was restored."""
    not_validated: str = ""
    """Why ``validation`` is None."""

    def as_json(self) -> dict[str, Any]:
        return {
            "trial": self.trial,
            "config": self.config,
            "recorded": self.recorded,
            "checkpoint": self.checkpoint,
            "validation": self.validation,
            "test": self.test,
            "exported": self.exported,
        }


def restore_best(
    results: ResultSet, *, trial: str | None = None, test: bool = False, export: str | Path | None = None
) -> Best:
    """Rebuilds the best trial's model through the trainable's ``evaluate``.

    A checkpoint that is damaged is passed over: the next best report whose checkpoint is whole is restored, of any
    trial, or of ``trial`` if that is given.

    Args:
        results: Of the run.
        trial: Id or number of another trial, needed where several objectives leave a front.
        test: Whether it is scored on the test set too.
        export: A folder to write config.json, metrics.json and model.safetensors to.

    Returns:
        The trial, its configuration, what it reported, and the metrics computed again.

    Raises:
        InputError: The run or its trainable cannot do this.
        EnvironmentFailure: The files of the run are damaged.

    Example:
        >>> import tuner
        >>> best = tuner.restore_best(tuner.load_run("runs/q"), test=True)
        >>> sorted(best.test)
        ['test_accuracy', 'test_loss']
    """
    found, notices = _whole(_kept(results) if trial is None else _restorable(results, trial))
    trainable = trainable_of(results)
    if test and not trainable.can_evaluate:
        raise InputError(f"{trainable.reference}: its module has no evaluate(config, checkpoint), which --test calls")
    with _on_disk(found.checkpoint) as checkpoint:
        repeat = results.spec.get("repeat")

        def scored(split: str) -> dict[str, float]:
            return over_all(repeat, found.config, checkpoint, partial(_evaluate, trainable, split))

        validation = scored("val") if trainable.can_validate else None
        tested = scored("test") if test else None
        best = Best(
            trial=found.trial,
            config=found.config,
            recorded=found.recorded,
            validation=validation,
            test=tested,
            checkpoint=found.checkpoint.location,
            exported=str(export) if export else None,
            notices=notices,
            not_validated=_why_not_validated(trainable),
        )
        if export:
            _export(best, first(repeat, found.config, checkpoint)[1], Path(export))
    return best


def _why_not_validated(trainable: Trainable) -> str:
    if trainable.can_validate:
        return ""
    lacks = "takes no split" if trainable.can_evaluate else "does not exist"
    return f"not computed again: evaluate() {lacks} in the module of {trainable.reference}"


def best_model(results: ResultSet) -> tuple[str, Any]:
    """The best trial's id, and its model: a ``torch.nn.Module`` from the trainable's ``load_model``.

    Raises InputError when the run or its trainable cannot do this, EnvironmentFailure when its files are damaged.
    """
    found, _ = _whole(_kept(results))
    trainable = trainable_of(results)
    if not trainable.can_load_model:
        raise InputError(f"{trainable.reference}: its module has no load_model(config, checkpoint)")
    with _on_disk(found.checkpoint) as checkpoint:
        return found.trial, trainable.load_model(*first(results.spec.get("repeat"), found.config, checkpoint))


@dataclass(frozen=True)
class _Found:
    """A trial that can be restored."""

    trial: str
    config: dict[str, Any]
    recorded: dict[str, Any]
    checkpoint: RunFolder


def _whole(candidates: Iterable[_Found]) -> tuple[_Found, tuple[str, ...]]:
    """The first whose checkpoint is not damaged, and what is wrong with those before it."""
    problems: list[str] = []
    for found in candidates:
        problem = find_damage(found.checkpoint)
        if not problem:
            other = f"; restored is {found.checkpoint.location}, trial {found.trial}, step {found.recorded['step']}"
            return found, tuple(text + other for text in problems)
        problems.append(f"checkpoint {found.checkpoint.location} is damaged: {problem}")
    raise EnvironmentFailure(f"{'; '.join(problems)}; the run has no other one to restore")


def _reports(results: ResultSet, trials: Iterable[Trial], feasible: bool = False) -> Iterator[_Found]:
    """All reports with a checkpoint, best first in the first objective; of equals the earlier trial's latest.

    ``feasible``: only those that keep the outcome constraints.
    """
    kept = [(trial, report) for trial in trials for report in trial.reports if report.checkpoint]
    kept = [(trial, report) for trial, report in kept if not feasible or results.is_feasible(report)]
    for trial, report in sorted(kept, key=lambda k: (-results.point(k[1])[0], k[0].number, -k[1].step)):
        recorded = {"step": report.step, **report.metrics}
        config = merge(results.section("params"), trial.config_at(report.step))
        yield _Found(trial.id, config, recorded, results.folder / str(report.checkpoint))


def _kept(results: ResultSet) -> Iterator[_Found]:
    """What best/ holds, then what the trials hold."""
    if results.has_front and results.front:
        front = [(trial.id, metrics_line(results.values(trial.best))) for trial in results.front if trial.best]
        choices = ", ".join(f"{trial} ({values})" for trial, values in front[:SHOWN])
        raise InputError(
            f"{results.folder.location} has several objectives and no single best trial: choose one of its front of "
            f"{len(front)} as TRIAL: {choices}"
        )
    folder = results.folder / BEST
    try:
        config = checked(Mapping, parsed(folder.read("config.json", MAX_CONFIG_BYTES)))
        recorded = parsed(folder.read("metrics.json", MAX_CONFIG_BYTES))
        checked(Recorded, recorded)
    except FileNotFoundError:
        reason = no_winner(results) or "the run has no result yet"
        raise InputError(f"{folder.location} does not exist: {reason}") from None
    except (ValueError, OSError) as error:
        raise EnvironmentFailure(f"{folder.location} is damaged: {error}") from None
    trial = recorded.pop("trial")
    if not folder.exists("checkpoint"):
        raise _no_model(results)
    yield _Found(trial, config, recorded, folder / "checkpoint")
    yield from _reports(results, results.trials, feasible=True)


def _restorable(results: ResultSet, name: str) -> Iterator[_Found]:
    """The best report of the trial that is called ``name``, then its others."""
    trial = next((trial for trial in results.trials if name in (trial.id, str(trial.number))), None)
    if trial is None:
        known = [trial.id for trial in results.rank(results.trials)]
        raise InputError(f"TRIAL: {results.folder.location} has no trial {name!r}; {did_you_mean(name, known[:SHOWN])}")
    if trial.best is None:
        raise InputError(f"TRIAL: trial {trial.label} reported nothing: there is no model to restore")
    if trial.best.checkpoint is None:
        kept = [t.id for t in results.rank(results.trials) if t.best and t.best.checkpoint][:SHOWN]
        if not kept:
            raise _no_model(results)
        raise InputError(
            f"TRIAL: no checkpoint of trial {trial.label} is kept (checkpoints.keep_trials limits them); "
            f"those that have one: {', '.join(kept)}"
        )
    yield from _reports(results, [trial])


def _no_model(results: ResultSet) -> InputError:
    return InputError(
        f"the trainable of {results.folder.location} reported no checkpoints: there is no model to restore"
    )


def _evaluate(trainable: Trainable, split: str, config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
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


_NO_TENSORS = (
    *(pickle.UnpicklingError, struct.error, RuntimeError, EOFError, ValueError, LookupError),
    *(TypeError, AttributeError, OverflowError),
)
"""What torch.load raises of a file that is none of tensors: its unpickler trusts the bytes to be a pickle."""


def _is_plain(value: Any) -> bool:
    """Whether a file of safetensors can hold it."""
    import torch

    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _weights(checkpoint: Path) -> dict[str, Any]:
    """The tensors of the model, from the first file of ``checkpoint`` that holds a state dict.

    Only tensors and plain values are loaded (``weights_only``): a checkpoint cannot run code here.
    """
    import torch

    for file in sorted(p for p in checkpoint.rglob("*") if p.is_file()):
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except _NO_TENSORS:
            continue
        if not isinstance(content, dict):
            continue
        for candidate in [content, *(content.get(key) for key in MODEL_KEYS)]:
            tensors = (
                {k: v for k, v in candidate.items() if isinstance(k, str) and _is_plain(v)}
                if isinstance(candidate, dict)
                else {}
            )
            if tensors:
                return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    raise InputError(
        f"--export: no file in {checkpoint} holds a model's state dict that torch.load reads with weights_only=True; "
        f"save one with torch.save(), at the top level or under one of {', '.join(MODEL_KEYS)}"
    )

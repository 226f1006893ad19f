"""A search whose trials train as one model, in this process."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.actions.ask_tell import AskTell, Suggestion
from tuner.errors import InputError, TunerError
from tuner.runs.results import RAY, ResultSet
from tuner.runs.trial import Trial

Report = Callable[..., bool]
TrainMany = Callable[[Sequence[dict[str, Any]], Report, Sequence[Path] | None], None]


def train_fused(
    loop: AskTell, train_many: TrainMany, *, at_once: int = 8, shape: Callable[[dict[str, Any]], Hashable] | None = None
) -> ResultSet:
    """Runs a search of `tuner.Search.begin` to its end, with several trials as one model at a time.

    To the searcher and the scheduler they are separate trials: each is suggested, stopped and paused by itself. A trial
    whose objective is not finite fails alone. If ``train_many`` raises, all its trials fail.

    Args:
        loop: The search, new or reopened, on a local disk.
        train_many: Called as ``train_many(configs, report, checkpoints)``. It calls ``report(number, metrics, save)``
            for each configuration, by its place in ``configs``; ``save(folder)`` writes a checkpoint, or is None. If
            the answer is False, that configuration leaves. ``checkpoints`` are the folders from which all continue;
            None if they begin.
        at_once: How many trials train as one at most.
        shape: Gives something equal for configurations that can train as one. Absent: all can.

    Returns:
        The results.

    Raises:
        InputError: If a report lacks a number that trials are compared by, or the run is not on a local disk.

    Example:
        >>> import tempfile
        >>> import tuner
        >>> def train_many(configs, report, checkpoints):
        ...     going = list(range(len(configs)))
        ...     for epoch in range(1, 10):
        ...         losses = {k: (configs[k]["x"] - 0.3) ** 2 + 1 / epoch for k in going}  # of all in one call
        ...         going = [k for k in going if report(k, {"loss": losses[k], "epoch": epoch}, None)]
        >>> search = tuner.Search(None, {"x": {"uniform": [0, 1]}}, objective=tuner.minimize("loss"),
        ...                       searcher=tuner.searchers.Random(seed=0), budget=tuner.Budget(trials=8),
        ...                       scheduler=tuner.schedulers.Asha(time_attr="epoch", max_t=9, grace_period=1))
        >>> with search.begin(storage=tempfile.mkdtemp()) as loop:
        ...     results = tuner.train_fused(loop, train_many, at_once=4)
        >>> len(results.trials), {trial.status for trial in results.trials} == {"completed", "stopped"}
        (8, True)
    """
    if not loop.results.folder.is_local:
        raise InputError(f"{loop.results.folder.location}: train_fused needs a run folder on a local disk")
    while group := _ask(loop, at_once):
        alike: dict[Hashable, list[Suggestion]] = {}
        for trial in group:
            alike.setdefault((shape(trial.config) if shape else None, trial.step), []).append(trial)
        for trials in alike.values():
            _train(loop, train_many, trials)
    return loop.results


def _ask(loop: AskTell, most: int) -> list[Suggestion]:
    found: list[Suggestion] = []
    while len(found) < most and (trial := loop.ask()) is not None:
        found.append(trial)
    return found


def _train(loop: AskTell, train_many: TrainMany, trials: list[Suggestion]) -> None:
    root = Path(loop.results.folder.path)
    running = dict(enumerate(trials))
    starts = None
    if trials[0].step:
        latest = [loop.results.trial(trial.id).reports[-1].checkpoint for trial in trials]
        if None in latest:
            for trial in trials:
                loop.fail(trial, "it was left before its end, and has no checkpoint from which it could continue")
            return
        starts = [root / str(checkpoint) for checkpoint in latest]

    def report(number: int, metrics: Mapping[str, Any], save: Callable[[str], Any] | None = None) -> bool:
        trial = trials[number]
        for objective in loop.results.objectives:
            value = metrics.get(objective.metric)
            if isinstance(value, float) and not math.isfinite(value):
                loop.fail(running.pop(number), f"{objective.metric} is {value}")
                return False
        ours = loop.results.trial(trial.id)
        checkpoint = None
        if save is not None:
            checkpoint = f"{RAY}/{ours.id}/checkpoint_{ours.steps:06}"
            shutil.rmtree(root / checkpoint, ignore_errors=True)  # of a report that a kill has prevented
            (root / checkpoint).mkdir(parents=True)
            save(str(root / checkpoint))
        if loop.tell(trial, metrics, checkpoint=checkpoint) != "continue":
            del running[number]
        _remove_old(root, ours)
        return number in running

    try:
        train_many([trial.config for trial in trials], report, starts)
    except TunerError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        for trial in running.values():
            loop.fail(trial, f"{type(error).__name__}: {error}")
        return
    for trial in running.values():
        if loop.results.trial(trial.id).reports:
            loop.finish(trial)
        else:
            loop.fail(trial, "train_many made no report of it")


def _remove_old(root: Path, trial: Trial) -> None:
    """All checkpoints of a trial but that of its best report and the latest one."""
    kept = {one.checkpoint for one in (trial.best, trial.reports[-1]) if one is not None}
    for report in trial.reports[:-1]:
        if report.checkpoint and report.checkpoint not in kept:
            shutil.rmtree(root / report.checkpoint, ignore_errors=True)

"""XGBoost: a trial in `xgboost.train`.

from tuner.integrations.xgboost import Report, resume

xgboost.train(params, training, evals=[(validation, "val")], callbacks=[Report()], **resume(num_boost_round=300))
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.integrations.requirements import require

require("xgboost")

from xgboost import Booster
from xgboost.callback import TrainingCallback
from xgboost.collective import CommunicatorContext, get_world_size
from xgboost.tracker import RabitTracker

from tuner.integrations import session

if TYPE_CHECKING:
    from tuner.training.distributed import Group

FILE_NAME = "model.ubj"
"""The file of the model in the checkpoint of a trial."""


class Report(TrainingCallback):  # type: ignore[misc]
    """Reports the evaluations of `xgboost.train` to the trial, with the model as checkpoint.

    The metrics are XGBoost's own, as `val-logloss` for the metric `logloss` on the data named `val`, with `epoch` and
    `step`: both are the number of finished rounds, those before a resume included. During a trial each round draws its
    random numbers from the seed and the number of the round. So a resumed trial grows the trees of an uninterrupted
    one. Early stopping counts its patience anew. Outside of a trial the callback does nothing.

    Args:
        every: Reports each round of which the number is a multiple of it, and the last one.

    Example:
        >>> from tuner.integrations.xgboost import Report
        >>> callbacks = [Report(every=10)]  # for xgboost.train(..., callbacks=callbacks)
    """

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every: {every}, must be at least 1")
        super().__init__()
        self._every = every
        self._active = False
        self._reported = 0

    def before_training(self, model: Booster) -> Booster:
        self._active = session.active()
        if self._active:
            if not isinstance(model, Booster):
                raise ValueError("tuner.integrations.xgboost is for xgboost.train, not for xgboost.cv")
            session.check_processes("XGBoost", get_world_size(), "train in `collective(group)`, or take workers out")
            learner = json.loads(model.save_config())["learner"]
            self._seed = int(learner["generic_param"]["seed"])
            self._tree_method = _tree_method(learner["gradient_booster"])
            self._reported = model.num_boosted_rounds()
        return model

    def before_iteration(self, model: Booster, epoch: int, evals_log: TrainingCallback.EvalsLog) -> bool:
        if self._active:
            if self._tree_method is not None:
                # The builder of the trees has a random state of its own. Another method replaces the builder, and the
                # random state with it, when the parameters are applied: save_config applies them.
                model.set_param("tree_method", "approx" if self._tree_method != "approx" else "hist")
                model.save_config()
                model.set_param("tree_method", self._tree_method)
            model.set_param("seed", self._seed + model.num_boosted_rounds())
            model.save_config()
        return False

    def after_iteration(self, model: Booster, epoch: int, evals_log: TrainingCallback.EvalsLog) -> bool:
        if self._active:
            self._metrics = _latest(evals_log)
            if model.num_boosted_rounds() % self._every == 0:
                self._report(model)
        return False

    def after_training(self, model: Booster) -> Booster:
        if self._active and self._reported < model.num_boosted_rounds():
            self._report(model)
        return model

    def _report(self, model: Booster) -> None:
        self._reported = model.num_boosted_rounds()
        if not self._metrics:
            raise ValueError(
                "tuner.integrations.xgboost.Report reports evaluations, and there is no data to evaluate on: "
                "xgboost.train(..., evals=[(validation, 'val')])"
            )
        with tempfile.TemporaryDirectory(prefix="tuner-xgboost-") as folder:
            model.save_model(Path(folder, FILE_NAME))
            session.report({**self._metrics, "epoch": self._reported, "step": self._reported}, Path(folder))


def resume(num_boost_round: int) -> dict[str, Any]:
    """The arguments of `xgboost.train` that bring the model to ``num_boost_round`` rounds in all.

    Args:
        num_boost_round: Rounds of a training that is not interrupted.

    Returns:
        `num_boost_round`, the rounds that are left, and `xgb_model`, the checkpoint; None if the trial begins.

    Example:
        >>> from tuner.integrations.xgboost import resume
        >>> resume(num_boost_round=100)
        {'num_boost_round': 100, 'xgb_model': None}
    """
    folder = session.checkpoint_folder()
    if folder is None:
        return {"num_boost_round": num_boost_round, "xgb_model": None}
    model = Booster(model_file=folder / FILE_NAME)
    return {"num_boost_round": num_boost_round - model.num_boosted_rounds(), "xgb_model": model}


@contextlib.contextmanager
def collective(group: Group) -> Iterator[None]:
    """Makes `xgboost.train` build one model in all processes of a group: what `resources: {workers: N}` needs.

    Give each process the rows that are its part, of the data to evaluate on too: XGBoost itself adds up histograms and
    metrics. In a group of one this does nothing.

    Args:
        group: The processes, from `tuner.training.distributed.group`.

    Yields:
        Nothing.

    Raises:
        XGBoostError: From XGBoost, if the processes cannot reach each other.

    Example:
        >>> from tuner.integrations.xgboost import collective
        >>> from tuner.training import distributed
        >>> with distributed.group() as group, collective(group):
        ...     rows = slice(group.rank, None, group.size)  # of this process, for xgboost.DMatrix(x[rows], y[rows])
    """
    if group.size == 1:
        yield
        return
    trackers: list[RabitTracker] = []

    def begin() -> dict[str, Any]:
        trackers.append(RabitTracker(group.size, os.environ["MASTER_ADDR"], sortby="task"))
        trackers[0].start()
        return dict(trackers[0].worker_args())

    arguments = group.from_first(begin)
    with CommunicatorContext(**arguments, dmlc_task_id=f"{group.rank:06}"):
        yield
    for tracker in trackers:
        tracker.wait_for()


def _tree_method(booster: Mapping[str, Any]) -> str | None:
    """The method of a booster of trees, as its configuration names it; None for a linear one."""
    trees = booster.get("gbtree", booster)  # dart holds a gbtree
    method = trees.get("gbtree_train_param", {}).get("tree_method")
    return None if method is None else str(method)


def _latest(evals_log: TrainingCallback.EvalsLog) -> dict[str, float]:
    """The values of the round that has just ended."""
    return {
        f"{data}-{metric}": float(values[-1])
        for data, metrics in evals_log.items()
        for metric, values in metrics.items()
    }

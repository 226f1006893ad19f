"""LightGBM: a trial in `lightgbm.train`.

from tuner.integrations.lightgbm import report, resume

lightgbm.train(params, training, valid_sets=[validation], callbacks=[*report()], **resume(num_boost_round=300))
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tuner.integrations.requirements import require

require("lightgbm")

from lightgbm import Booster
from lightgbm.callback import CallbackEnv, EarlyStopException

from tuner.integrations import session

FILE_NAME = "model.txt"
"""The file of the model in the checkpoint of a trial."""

_SEEDS = ("feature_fraction_seed", "extra_seed", "drop_seed", "objective_seed")
"""Of which random numbers are drawn anew in each round; `bagging_seed` follows `bagging_freq`."""


def train_arguments(
    num_boost_round: int, *, every: int = 1, callbacks: Iterable[Callable[[CallbackEnv], None]] = ()
) -> dict[str, Any]:
    """The arguments of `lightgbm.train` that report its evaluations to the trial, and continue it.

    The metrics are LightGBM's own, as `valid_0-auc` for the metric `auc` on the data named `valid_0`, with `epoch` and
    `step`: both are the number of finished rounds, those before a resume included. During a trial each round draws its
    random numbers from the seeds and the number of the round. So a resumed trial grows the trees of an uninterrupted
    one. (Not with `boosting: dart`, which cannot drop trees from before a resume, and not with GOSS.) Outside of a
    trial nothing is added to what `lightgbm.train` does.

    Args:
        num_boost_round: Rounds of a training that is not interrupted.
        every: Reports each round of which the number is a multiple of it, and the last one.
        callbacks: Further callbacks.

    Returns:
        `num_boost_round`, the rounds that are left; `init_model`, the checkpoint, or None if the trial begins;
        `callbacks`.

    Raises:
        ValueError: If ``every`` is below 1.

    Example:
        >>> from tuner.integrations.lightgbm import train_arguments
        >>> arguments = train_arguments(num_boost_round=100, every=10)
        >>> arguments["num_boost_round"], arguments["init_model"]
        (100, None)
    """
    if every < 1:
        raise ValueError(f"every: {every}, must be at least 1")
    folder = session.checkpoint_folder()
    model = None if folder is None else Booster(model_file=folder / FILE_NAME)
    left = num_boost_round - (model.current_iteration() if model else 0)
    return {
        "num_boost_round": max(left, 1),  # LightGBM refuses to train none: _Report ends that one
        "init_model": model,
        "callbacks": [_Seeds(), _Report(every, num_boost_round), *callbacks],
    }


class _Seeds:
    """Before a round: gives it seeds of its own."""

    before_iteration = True

    def __init__(self) -> None:
        self._options: dict[str, float] | None = None

    def __call__(self, env: CallbackEnv) -> None:
        if not isinstance(env.model, Booster) or not session.active():
            return
        if self._options is None:
            self._options = _options(env.model)
        found, number = self._options, env.iteration
        seeds = {name: int(found[name]) + number for name in _SEEDS}
        fraction, frequency = found["bagging_fraction"], int(found["bagging_freq"])
        if frequency > 0:
            # LightGBM draws the rows anew, from bagging_seed, only if the fraction has changed
            env.model.reset_parameter({"bagging_fraction": fraction / 2})
            seeds["bagging_seed"] = int(found["bagging_seed"]) + number // frequency * frequency
            env.model.reset_parameter({**seeds, "bagging_fraction": fraction})
        else:
            env.model.reset_parameter(seeds)


class _Report:
    """After a round: reports it, if it is due."""

    order = 0  # before early_stopping, which ends the training with an exception

    def __init__(self, every: int, rounds: int) -> None:
        self._every, self._rounds = every, rounds

    def __call__(self, env: CallbackEnv) -> None:
        number = env.iteration + 1
        if number > self._rounds:
            raise EarlyStopException(self._rounds - 1, env.evaluation_result_list or [])
        if (number % self._every and number < env.end_iteration) or not session.active():
            return
        if not isinstance(env.model, Booster):
            raise ValueError("tuner.integrations.lightgbm is for lightgbm.train, not for lightgbm.cv")
        if not env.evaluation_result_list:
            raise ValueError(
                "tuner.integrations.lightgbm reports evaluations, and there is no data to evaluate on: "
                "lightgbm.train(..., valid_sets=[validation])"
            )
        metrics = {f"{data}-{metric}": value for data, metric, value, *_ in env.evaluation_result_list}
        with tempfile.TemporaryDirectory(prefix="tuner-lightgbm-") as folder:
            env.model.save_model(Path(folder, FILE_NAME))
            session.report({**metrics, "epoch": number, "step": number}, Path(folder))


def _options(model: Booster) -> dict[str, float]:
    """The numeric options of a model under their own names: the user may have written aliases, or one seed for all."""
    lines = re.findall(r"^\[(\w+): ([-\d.e]+)\]$", model.model_to_string(num_iteration=1), re.M)
    return {name: float(value) for name, value in lines}

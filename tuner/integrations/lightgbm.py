"""LightGBM: a trial in `lightgbm.train`.

from tuner.integrations.lightgbm import train_arguments

lightgbm.train(params, training, valid_sets=[validation], **train_arguments(num_boost_round=300))
"""

from __future__ import annotations

import functools
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.integrations.requirements import require

require("lightgbm")

from lightgbm import Booster
from lightgbm.callback import CallbackEnv, EarlyStopException

from tuner.integrations import session

if TYPE_CHECKING:
    from tuner.training.distributed import Group

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
    one: not with `boosting: dart`, with GOSS, with `linear_tree`, with quantized gradients, and with a schedule by
    `lightgbm.reset_parameter`. Early stopping counts its patience anew. Outside of a trial nothing is reported.

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
    if folder is None:
        model, finished = None, 0
    else:
        model, finished = Booster(model_file=folder / FILE_NAME), int((folder / _ROUNDS).read_text())
    trial = _Trial(every, num_boost_round, finished - (model.current_iteration() if model else 0))
    return {
        "num_boost_round": max(num_boost_round - finished, 1),  # LightGBM refuses to train none: after_round ends that
        "init_model": model,
        "callbacks": [trial.before_round, trial.after_round, *map(trial.reporting_the_end, callbacks)],
    }


def network(group: Group) -> dict[str, Any]:
    """The parameters of `lightgbm.train` for one model in all processes of a group: for `resources: {workers: N}`.

    Give each process the rows that are its part to train on, and all rows to evaluate on: LightGBM adds up histograms,
    and the metrics are those of the first process. Each process must call this.

    Args:
        group: The processes, from `tuner.training.distributed.group`.

    Returns:
        `machines`, `num_machines`, `local_listen_port`, `tree_learner` and `pre_partition`; nothing in a group of one.

    Example:
        >>> from tuner.integrations.lightgbm import network
        >>> from tuner.training import distributed
        >>> with distributed.group() as group:
        ...     rows = slice(group.rank, None, group.size)  # of this process
        ...     network(group)
        {}
    """
    if group.size == 1:
        return {}
    # the address from which the first process is reached, and a port that is free now
    with socket.socket(type=socket.SOCK_DGRAM) as probe, socket.socket() as free:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        address = probe.getsockname()[0]
        free.bind((address, 0))
        port = free.getsockname()[1]
        gathered = group.gather(f"{address}:{port}")
    return {
        "machines": ",".join(group.from_first(lambda: gathered)),
        "num_machines": group.size,
        "local_listen_port": port,
        "tree_learner": "data",
        "pre_partition": True,
    }


_ROUNDS = "rounds.txt"
"""The number of finished rounds, beside the model: a round that found no split has left no tree."""


class _Trial:
    """The callbacks of one call of `lightgbm.train`."""

    def __init__(self, every: int, rounds: int, without_tree: int) -> None:
        self._every, self._rounds, self._without_tree = every, rounds, without_tree
        self._active = session.active()
        self._options: dict[str, float] | None = None
        self._reported = 0

    @property
    def before_round(self) -> Callable[[CallbackEnv], None]:
        """Gives a round seeds of its own."""

        def callback(env: CallbackEnv) -> None:
            if self._active and isinstance(env.model, Booster):
                remedy = "give it `network(group)`, or take workers out"
                session.check_processes("LightGBM", int(env.params.get("num_machines", 1)), remedy)
                self._seed(env.model, env.iteration + self._without_tree)

        callback.before_iteration = True  # type: ignore[attr-defined]
        return callback

    def _seed(self, model: Booster, number: int) -> None:
        found = self._options = self._options or _options(model)
        seeds = {name: int(found[name]) + number for name in _SEEDS}
        fraction, frequency = found["bagging_fraction"], int(found["bagging_freq"])
        if frequency > 0 and fraction < 1:
            # LightGBM draws the rows anew, from bagging_seed, only if the fraction has changed
            model.reset_parameter({"bagging_fraction": fraction * 0.999999})
            seeds["bagging_seed"] = int(found["bagging_seed"]) + number // frequency * frequency
            model.reset_parameter({**seeds, "bagging_fraction": fraction})
        else:
            model.reset_parameter(seeds)

    @property
    def after_round(self) -> Callable[[CallbackEnv], None]:
        """Reports a round, if it is due."""

        def callback(env: CallbackEnv) -> None:
            number = self._number(env)
            if self._active and number > self._rounds:
                raise EarlyStopException(self._rounds - 1, env.evaluation_result_list or [])
            if self._active and (number % self._every == 0 or number == self._rounds):
                self._report(env)

        callback.order = 0  # type: ignore[attr-defined]  # before early_stopping
        return callback

    def reporting_the_end(self, callback: Callable[[CallbackEnv], None]) -> Callable[[CallbackEnv], None]:
        """As ``callback``; if that ends the training, the last round is reported first."""

        @functools.wraps(callback, updated=("__dict__",))
        def wrapped(env: CallbackEnv) -> None:
            try:
                callback(env)
            except EarlyStopException:
                if self._active and self._reported < self._number(env):
                    self._report(env)
                raise

        return wrapped

    def _number(self, env: CallbackEnv) -> int:
        return int(env.iteration) + 1 + self._without_tree

    def _report(self, env: CallbackEnv) -> None:
        if not isinstance(env.model, Booster):
            raise ValueError("tuner.integrations.lightgbm is for lightgbm.train, not for lightgbm.cv")
        if not env.evaluation_result_list:
            raise ValueError(
                "tuner.integrations.lightgbm reports evaluations, and there is no data to evaluate on: "
                "lightgbm.train(..., valid_sets=[validation])"
            )
        self._reported = number = self._number(env)
        metrics = {f"{data}-{metric}": value for data, metric, value, *_ in env.evaluation_result_list}
        with tempfile.TemporaryDirectory(prefix="tuner-lightgbm-") as folder:
            env.model.save_model(Path(folder, FILE_NAME))
            Path(folder, _ROUNDS).write_text(str(number))
            session.report({**metrics, "epoch": number, "step": number}, Path(folder))


def _options(model: Booster) -> dict[str, float]:
    """The numeric options of a model under their own names: the user may have written aliases, or one seed for all."""
    lines = re.findall(r"^\[(\w+): ([-\d.e]+)\]$", model.model_to_string(num_iteration=1), re.M)
    return {name: float(value) for name, value in lines}

"""A search, and its plan: one object for what an experiment file says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.actions.run import Say, run, validate
from tuner.api.progress import Show
from tuner.api.run import Run, run_of
from tuner.api.written import as_written, default_name, named, space_of
from tuner.errors import InputError
from tuner.experiment.failures import Failures
from tuner.experiment.notify import Notify
from tuner.experiment.reader import Experiment, load_experiment
from tuner.experiment.repeat import Repeat
from tuner.experiment.resources import Resources
from tuner.experiment.spec import Budget, Checkpoints
from tuner.experiment.tracking import Tracking
from tuner.plan.describe import description
from tuner.plan.plan import Plan
from tuner.runs.results import ResultSet
from tuner.schedulers.base import SchedulerSpec
from tuner.searchers.base import SearchSpec
from tuner.spec.document import dump_yaml
from tuner.spec.objective import Objective
from tuner.storage.folder import STORAGE, RunFolder

if TYPE_CHECKING:
    from tuner.actions.ask_tell import Answer, AskTell, Suggestion
    from tuner.execution.recorder import Listener


def maximize(metric: str, *, weight: float | None = None) -> Objective:
    """The objective of making a reported metric large.

    Args:
        metric: Name under which the trainable reports it.
        weight: Its weight among several objectives, where schedulers need one number.

    Returns:
        The objective, for `Search`; a list of several gives a Pareto front.

    Example:
        >>> import tuner
        >>> str(tuner.maximize("val_accuracy"))
        'max val_accuracy'
    """
    return Objective(metric=metric, mode="max", weight=weight)


def minimize(metric: str, *, weight: float | None = None) -> Objective:
    """The objective of making a reported metric small; see `maximize`.

    Args:
        metric: Name under which the trainable reports it.
        weight: Its weight among several objectives, where schedulers need one number.

    Returns:
        The objective, for `Search`.

    Example:
        >>> import tuner
        >>> str(tuner.minimize("loss"))
        'min loss'
    """
    return Objective(metric=metric, mode="min", weight=weight)


_BLOCKS: dict[str, tuple[type, str]] = {
    "search": (SearchSpec, "tuner.searchers.Bohb()"),
    "scheduler": (SchedulerSpec, 'tuner.schedulers.Asha(time_attr="epoch", max_t=27)'),
    "budget": (Budget, "tuner.Budget(trials=60)"),
    "repeat": (Repeat, 'tuner.Repeat(over="seed", times=5)'),
    "resources": (Resources, "tuner.Resources(gpu=0.5)"),
    "checkpoints": (Checkpoints, "tuner.Checkpoints(keep_trials=10)"),
    "failures": (Failures, "tuner.Failures(retries=1)"),
    "tracking": (Tracking, "tuner.Tracking(mlflow={})"),
    "notify": (Notify, 'tuner.Notify(url="$SLACK_WEBHOOK")'),
}
"""The type of each block of options, with an example."""


def _check_type(name: str, value: object, kind: type, example: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"{name}: {value!r} is no {kind.__name__}; an example: {example}")


class Search:
    """What to search, in Python; the same specification as an experiment file, with the same checks.

    Args:
        trainable: The training procedure: any callable that Ray Tune takes, of a module, a script or a notebook cell,
            or its name as text, ``"module:function"``; None if the trials run in a loop of your own (`begin`). A
            callable without an importable name is pickled into the run folder, so that `Run.resume` finds it.
        search_space: A Ray Tune ``param_space`` dict, a dict in the notation of an experiment file, or text: the path
            of a YAML file, or ``"module:attribute"``.
        objective: What to optimise, from `maximize` or `minimize`; a list of several gives a Pareto front.
        params: Fixed arguments of the trainable.
        searcher: The search algorithm, such as ``tuner.searchers.Bohb()``. Default: one that
                ``tuner.searchers.Auto()`` chooses.
        scheduler: The scheduler, such as ``tuner.schedulers.Asha(max_t=27)``. Default: every trial runs to its end.
        budget: When the search ends. Default: 20 trials, or the whole grid.
        repeat: Several trainings of one configuration as one trial. Default: one training.
        resources: What one trial takes. Default: one CPU, and one GPU if the cluster has GPUs.
        checkpoints: Which checkpoints are kept.
        failures: What becomes of a trial that fails.
        tracking: Where trials are recorded besides the run folder.
        notify: Messages to people while the search runs, and at its end. Default: none.
        constraints: Conditions that every configuration satisfies, such as ``"model.l1 >= model.l2"``.
        outcome_constraints: Limits on reported metrics, such as ``"latency_ms <= 10"``, that the best trial keeps.
        name: Name of the search, and the beginning of its run folder's name. Default: the trainable's name.

    Raises:
        InputError: If anything is wrong with the arguments; it holds every problem found.

    Example:
        >>> import tuner
        >>> from ray import tune
        >>> def train(config):
        ...     tune.report({"loss": (config["x"] - 1) ** 2})
        >>> search = tuner.Search(train, {"x": tune.uniform(-3, 3)}, objective=tuner.minimize("loss"),
        ...                       resources=tuner.Resources(gpu=0))
        >>> search.plan().trials
        20
    """

    def __init__(
        self,
        trainable: Callable[..., Any] | str | None,
        search_space: Mapping[str, Any] | str,
        *,
        objective: Objective | Sequence[Objective],
        params: Mapping[str, Any] | None = None,
        searcher: SearchSpec | None = None,
        scheduler: SchedulerSpec | None = None,
        budget: Budget | None = None,
        repeat: Repeat | None = None,
        resources: Resources | None = None,
        checkpoints: Checkpoints | None = None,
        failures: Failures | None = None,
        tracking: Tracking | None = None,
        notify: Notify | None = None,
        constraints: Sequence[str] = (),
        outcome_constraints: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        reference, roots, code = named(trainable)
        space, space_code = space_of(search_space)
        written: dict[str, Any] = {"name": name or default_name(trainable), "trainable": reference}
        written |= {"params": dict(params)} if params else {}
        written |= {"search_space": space}
        written |= {"constraints": list(constraints)} if constraints else {}
        written |= {"outcome_constraints": list(outcome_constraints)} if outcome_constraints else {}
        several = [objective] if isinstance(objective, Objective) else list(objective)
        for one in several:
            _check_type("objective", one, Objective, 'tuner.maximize("val_accuracy")')
        objectives = [one.model_dump(exclude_none=True) for one in several]
        written["objective"] = objectives[0] if len(objectives) == 1 else objectives
        blocks = {
            "search": searcher,
            "scheduler": scheduler,
            "budget": budget,
            "repeat": repeat,
            "resources": resources,
            "checkpoints": checkpoints,
            "failures": failures,
            "tracking": tracking,
            "notify": notify,
        }
        for key, block in blocks.items():
            if block is not None:
                _check_type("searcher" if key == "search" else key, block, *_BLOCKS[key])
                written[key] = as_written(block)
        self._written = written
        self._experiment = load_experiment(written, (), roots, [*code, *space_code])
        self._loop: AskTell | None = None

    @classmethod
    def from_yaml(cls, file: str | Path, overrides: Mapping[str, Any] | Sequence[str] = ()) -> Search:
        """Reads an experiment file.

        Args:
            file: Its path, or the name of a shipped experiment, as in ``"quickstart"``.
            overrides: Keys to change, as ``{"budget.trials": 6}`` or ``["budget.trials=6"]``.

        Returns:
            The search.

        Raises:
            InputError: If anything is wrong with the file; it holds every problem found, with its line.

        Example:
            >>> import tuner
            >>> tuner.Search.from_yaml("experiments/quickstart.yaml", {"budget.trials": 6}).plan().trials
            6
        """
        return cls._of(load_experiment(file, overrides))

    @classmethod
    def _of(cls, experiment: Experiment) -> Search:
        made = cls.__new__(cls)
        made._experiment, made._written, made._loop = experiment, experiment.document.value, None
        return made

    @property
    def experiment(self) -> Experiment:
        """The checked specification."""
        return self._experiment

    def to_yaml(self, file: str | Path) -> None:
        """Writes the search as an experiment file, which ``tuner run`` takes.

        Objects that no name imports go into the folder ``code`` beside it.

        Args:
            file: Its path; a file that is there is replaced.

        Raises:
            InputError: If a value cannot be written as YAML.

        Example:
            >>> import tempfile, tuner
            >>> search = tuner.Search.from_yaml("experiments/quickstart.yaml")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     search.to_yaml(f"{folder}/search.yaml")
        """
        path = Path(file)
        folder = RunFolder.at(path.absolute().parent)
        for pickled in self._experiment.pickles:
            pickled.write(folder)
        folder.write(path.name, dump_yaml(self._written, [f"# tuner run {path}"]))

    def plan(self, *, ray_address: str | None = None) -> SearchPlan:
        """Checks everything that can be checked before a start; nothing is started.

        Args:
            ray_address: A running Ray cluster; this machine without it.

        Returns:
            What the search would do, as text and in a notebook as a table.

        Raises:
            InputError: If the search cannot run as it is; it holds every problem found.
        """
        return SearchPlan(validate(self._experiment, address=ray_address))

    def run(
        self,
        *,
        name: str | None = None,
        storage: str | Path = STORAGE,
        ray_address: str | None = None,
        callbacks: Sequence[Listener] = (),
        progress: Show = "auto",
    ) -> Run:
        """Searches, and returns everything that was found.

        Args:
            name: Name of the run folder. Default: the search's name and the time.
            storage: Folder or URI (``s3://…``) that holds the run folders.
            ray_address: A running Ray cluster (``auto``, or ``host:port``); this machine without it.
            callbacks: Objects that follow the search; see `tuner.Callback`.
            progress: ``auto`` shows the search where this process runs: below the cell of a notebook, on a terminal in
                place, else line by line. On a terminal other output goes to the run folder's ``run.log`` meanwhile.
                ``none`` shows nothing but notices.

        Returns:
            The run.

        Raises:
            InputError: If the search cannot run as it is.
            EnvironmentFailure: If data, storage or the cluster fails.
            NoUsableResult: If no trial gave a result; its ``results`` hold what is known.
            Interrupted: On Ctrl-C; its ``results`` hold what was found, and `Run.resume` continues.
        """

        def searched(listeners: Sequence[Listener], say: Say) -> ResultSet:
            return run(self._experiment, name=name, storage=storage, address=ray_address, listeners=listeners, say=say)

        return run_of(lambda: self._experiment, callbacks, progress, searched)

    def begin(self, *, name: str | None = None, storage: str | Path = STORAGE) -> AskTell:
        """Begins a search whose loop is your own: no Ray, and everything is journalled as in every search.

        Args:
            name: As of `run`.
            storage: As of `run`.

        Returns:
            What you ask for trials and tell their results, a context manager.

        Raises:
            InputError: If the search cannot run as it is, or its scheduler needs trials of Ray.
            EnvironmentFailure: If the storage fails.
        """
        from tuner.actions.ask_tell import begin  # imports Ray

        return begin(self._experiment, name=name, storage=storage)

    def ask(self) -> Suggestion | None:
        """As `AskTell.ask`; the first call begins the search with the default name and storage."""
        self._loop = self._loop or self.begin()
        return self._loop.ask()

    def propose(self, config: Mapping[str, Any], *, by: str | None = None) -> Suggestion:
        """As `AskTell.propose`; the first call begins the search with the default name and storage.

        Args:
            config: The parameters of the configuration by name.
            by: Who proposes it, for the record. Default: this user on this host.

        Returns:
            The trial, which is to run now.

        Raises:
            InputError: If it is not in the search space.
        """
        self._loop = self._loop or self.begin()
        return self._loop.propose(config, by=by)

    def tell(self, trial: Suggestion | str, metrics: Mapping[str, Any], *, checkpoint: str | None = None) -> Answer:
        """As `AskTell.tell`, of a trial that `ask` gave.

        Args:
            trial: The trial, or its id.
            metrics: What it measured; `AskTell.tell` says what they must hold.
            checkpoint: A folder to keep with the report.

        Returns:
            ``continue``, ``pause`` or ``stop``.

        Raises:
            InputError: No trial of that id runs.
        """
        return self._asked().tell(trial, metrics, checkpoint=checkpoint)

    def finish(self, trial: Suggestion | str) -> None:
        """As `AskTell.finish`, of a trial that `ask` gave.

        Args:
            trial: The trial, or its id.
        """
        self._asked().finish(trial)

    def fail(self, trial: Suggestion | str, reason: str) -> None:
        """As `AskTell.fail`, of a trial that `ask` gave.

        Args:
            trial: The trial, or its id.
            reason: Why, for the record.
        """
        self._asked().fail(trial, reason)

    def close(self) -> Run:
        """Completes the run folder of a search that `ask` began, and returns the run."""
        return Run(self._asked().close())

    def _asked(self) -> AskTell:
        if self._loop is None:
            raise InputError("no trial runs: call ask() first")
        return self._loop


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """What a search would do: shows itself as ``tuner validate`` prints it.

    Example:
        >>> import tuner
        >>> plan = tuner.Search.from_yaml("experiments/quickstart.yaml", {"budget.trials": 6}).plan()
        >>> plan.trials, plan.as_json()["experiment"]
        (6, 'quickstart')
    """

    plan: Plan

    @property
    def trials(self) -> int:
        """Number of configurations."""
        return self.plan.trials

    @property
    def slots(self) -> int:
        """Trials that run at once."""
        return self.plan.slots

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return self.plan.as_json()

    def __str__(self) -> str:
        return "\n".join(f"{heading:<14}{text}" for heading, text in description(self.plan))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        left = ' style="text-align:left;white-space:pre-wrap"'
        cells = ((escape(heading), escape(text)) for heading, text in description(self.plan))
        rows = "".join(f"<tr><th{left}>{heading}</th><td{left}>{text}</td></tr>" for heading, text in cells)
        return f"<table><tbody>{rows}</tbody></table>"

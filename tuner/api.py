"""The public face in Python: a ``Search``, the ``Run`` that it becomes, and what both are made of."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from tuner.errors import InputError, TunerError
from tuner.loading import find_run, last_known
from tuner.own_loop import REFERENCE
from tuner.pickled import Pickled
from tuner.plan import Plan
from tuner.plan_text import description
from tuner.report import notebook
from tuner.report.html import page
from tuner.report.terminal import overview
from tuner.results import ResultSet
from tuner.resumption import extend, resume, retry
from tuner.runner import Say, run, validate_experiment
from tuner.schedulers.base import SchedulerSpec
from tuner.searchers.base import SearchSpec
from tuner.spec.algorithm import AlgorithmSpec, spec_as_mapping
from tuner.spec.document import dump_yaml
from tuner.spec.experiment import Budget, Checkpoints
from tuner.spec.failures import Failures
from tuner.spec.objective import Objective
from tuner.spec.param_space import holds_ray_domain, space_from_param_space
from tuner.spec.reader import Experiment, load_experiment
from tuner.spec.resources import Resources
from tuner.spec.tracking import Tracking
from tuner.storage import STORAGE, RunFolder
from tuner.tracking.notebook import NotebookProgress, in_notebook
from tuner.tracking.screen import Screen
from tuner.trainable import importable_name, pickle_function
from tuner.trial import Trial
from tuner.why import standing

if TYPE_CHECKING:
    import pandas as pd

    from tuner.ask_tell import Answer, AskTell, Suggestion
    from tuner.best import Best
    from tuner.engine.recorder import Listener

Show = Literal["auto", "none"]
"""Whether a search shows its progress: in the notebook or on the terminal, or not at all."""

_TRAINABLE, _SPACE = "code/trainable.pkl", "code/search_space.pkl"


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
        searcher: The search algorithm, such as ``tuner.searchers.Bohb()``. Default: random search.
        scheduler: The scheduler, such as ``tuner.schedulers.Asha(max_t=27)``. Default: every trial runs to its end.
        budget: When the search ends. Default: 20 trials, or the whole grid.
        resources: What one trial takes. Default: one CPU, and one GPU if the cluster has GPUs.
        checkpoints: Which checkpoints are kept.
        failures: What becomes of a trial that fails.
        tracking: Where trials are recorded besides the run folder.
        constraints: Conditions that every configuration satisfies, such as ``"model.l1 >= model.l2"``.
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
        resources: Resources | None = None,
        checkpoints: Checkpoints | None = None,
        failures: Failures | None = None,
        tracking: Tracking | None = None,
        constraints: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        reference, roots, code = _named(trainable)
        space, space_code = _space(search_space)
        written: dict[str, Any] = {"name": name or _default_name(trainable), "trainable": reference}
        written |= {"params": dict(params)} if params else {}
        written |= {"search_space": space}
        written |= {"constraints": list(constraints)} if constraints else {}
        several = [objective] if isinstance(objective, Objective) else list(objective)
        objectives = [one.model_dump(exclude_none=True) for one in several]
        written["objective"] = objectives[0] if len(objectives) == 1 else objectives
        blocks = {
            "search": searcher,
            "scheduler": scheduler,
            "budget": budget,
            "resources": resources,
            "checkpoints": checkpoints,
            "failures": failures,
            "tracking": tracking,
        }
        for key, block in blocks.items():
            if block is not None:
                written[key] = _as_written(block)
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
        return SearchPlan(validate_experiment(self._experiment, address=ray_address))

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

        return _shown(lambda: self._experiment, callbacks, progress, searched)

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
        from tuner.ask_tell import begin

        return begin(self._experiment, name=name, storage=storage)

    def ask(self) -> Suggestion | None:
        """As `AskTell.ask`; the first call begins the search with the default name and storage."""
        self._loop = self._loop or self.begin()
        return self._loop.ask()

    def tell(self, trial: Suggestion | str, metrics: Mapping[str, Any], *, checkpoint: str | None = None) -> Answer:
        """As `AskTell.tell`, of a trial that `ask` gave."""
        return self._asked().tell(trial, metrics, checkpoint=checkpoint)

    def finish(self, trial: Suggestion | str) -> None:
        """As `AskTell.finish`, of a trial that `ask` gave."""
        self._asked().finish(trial)

    def fail(self, trial: Suggestion | str, reason: str) -> None:
        """As `AskTell.fail`, of a trial that `ask` gave."""
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
    """What a search would do: shows itself as ``tuner validate`` prints it."""

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


class Run:
    """A search that was run, or runs: what it found, and what can be done with it.

    A notebook shows it as its headline, its curves and its best trials.

    Args:
        results: What is known of the run.

    Example:
        run = tuner.load("runs/quickstart-20260101-120000")
        run.best_value, run.best_config, run.best_checkpoint
        longer = run.extend(trials=20)
    """

    def __init__(self, results: ResultSet) -> None:
        self.results = results

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.results.name

    @property
    def folder(self) -> str:
        """Path or URI of the run folder."""
        return self.results.folder.shown

    @property
    def state(self) -> str:
        """``running``, ``silent``, ``dead``, ``interrupted`` or ``finished``."""
        return standing(self.results)[0]

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order of their suggestion."""
        return self.results.trials

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the best value; None if no trial has a result."""
        return self.results.best

    @property
    def best_value(self) -> float | None:
        """The best value of the (first) objective for which a checkpoint exists, if trials made checkpoints."""
        return self.results.best_value

    @property
    def best_config(self) -> dict[str, Any] | None:
        """What the trainable was called with in the best trial."""
        return self.results.best_config

    @property
    def best_checkpoint(self) -> Path | str | None:
        """The folder of the checkpoint that came with the best value: a path, or a URI on an object store."""
        found = self.results.best_checkpoint
        if found is None:
            return None
        return found.local_path if found.is_local else found.shown

    @property
    def front(self) -> list[Trial]:
        """The Pareto front of several objectives; of one objective the best trial alone."""
        return self.results.front

    def trials_dataframe(self) -> pd.DataFrame:
        """One row a trial: id, status, ``config.*``, the best values, steps, seconds, checkpoint."""
        return self.results.trials_frame()

    def reports_dataframe(self) -> pd.DataFrame:
        """One row a report: trial_id, training_iteration, time_total_s, timestamp, checkpoint and the metrics."""
        return self.results.frame()

    def resume(
        self,
        *,
        trainable: Callable[..., Any] | None = None,
        ray_address: str | None = None,
        trust: bool = False,
        callbacks: Sequence[Listener] = (),
        progress: Show = "auto",
    ) -> Run:
        """Continues a search that did not come to its end.

        Args:
            trainable: The function again, if the run folder holds one that cannot be opened, or to replace it.
            ray_address: A running Ray cluster; this machine without it.
            trust: Open the Python objects of a run folder that another user or machine wrote, which can run any code.
            callbacks: As of `Search.run`.
            progress: As of `Search.run`.

        Returns:
            The run as it is then.

        Raises:
            InputError: If nothing is left to do; else as `Search.run`.
        """
        return self._again(
            callbacks,
            progress,
            lambda listeners, say: resume(
                self.folder, trainable=trainable, address=ray_address, trust=trust, listeners=listeners, say=say
            ),
        )

    def extend(
        self,
        *,
        trials: int | None = None,
        max_t: int | None = None,
        wall_clock: str | float | None = None,
        overrides: Sequence[str] = (),
        trainable: Callable[..., Any] | None = None,
        ray_address: str | None = None,
        trust: bool = False,
        callbacks: Sequence[Listener] = (),
        progress: Show = "auto",
    ) -> Run:
        """Makes the search longer; the searcher keeps everything that it has learned.

        Args:
            trials: Further trials.
            max_t: By how much trials become longer, in the scheduler's ``time_attr``.
            wall_clock: Further time, in seconds or as ``1h``.
            overrides: Other keys of the experiment, as ``["params.epochs=20"]``.
            trainable: As of `resume`.
            ray_address: A running Ray cluster; this machine without it.
            trust: As of `resume`.
            callbacks: As of `Search.run`.
            progress: As of `Search.run`.

        Returns:
            The run as it is then.

        Raises:
            InputError: If nothing becomes longer; else as `Search.run`.
        """
        more = {"trials": trials, "max_t": max_t, "wall_clock": wall_clock}
        added = {name: f"+{value}" for name, value in more.items() if value is not None}
        return self._again(
            callbacks,
            progress,
            lambda listeners, say: extend(
                self.folder,
                **added,
                overrides=overrides,
                trainable=trainable,
                address=ray_address,
                trust=trust,
                listeners=listeners,
                say=say,
            ),
        )

    def retry(
        self,
        *,
        trainable: Callable[..., Any] | None = None,
        ray_address: str | None = None,
        trust: bool = False,
        callbacks: Sequence[Listener] = (),
        progress: Show = "auto",
    ) -> Run:
        """Runs the failed trials again, from their checkpoints if those were kept.

        Args:
            trainable: As of `resume`.
            ray_address: A running Ray cluster; this machine without it.
            trust: As of `resume`.
            callbacks: As of `Search.run`.
            progress: As of `Search.run`.

        Returns:
            The run as it is then.

        Raises:
            InputError: If no trial failed; else as `Search.run`.
        """
        return self._again(
            callbacks,
            progress,
            lambda listeners, say: retry(
                self.folder, trainable=trainable, address=ray_address, trust=trust, listeners=listeners, say=say
            ),
        )

    def reopen(self, *, trust: bool = False) -> AskTell:
        """Continues a search whose loop is your own, see `Search.begin`.

        Args:
            trust: As of `resume`.

        Returns:
            What you ask for trials; those that were open come first.

        Raises:
            InputError: If the search came to its end, or has a trainable.
        """
        from tuner.ask_tell import reopen

        return reopen(self.results.folder, trust=trust)

    def restore_best(self, *, trial: str | None = None, test: bool = False, export: str | Path | None = None) -> Best:
        """Rebuilds the best trial's model through the ``evaluate`` of the trainable's module, and scores it.

        Args:
            trial: Id or number of another trial; needed if several objectives leave a front.
            test: Also score it on the test set.
            export: A folder for config.json, metrics.json, the checkpoint and model.safetensors.

        Returns:
            The configuration, the recorded metrics, and those that were computed now.

        Raises:
            InputError: If the run or its trainable cannot do this.
            EnvironmentFailure: If every checkpoint is damaged.
        """
        from tuner.best import restore_best

        return restore_best(self.results, trial=trial, test=test, export=export)

    def write_report(self, file: str | Path) -> None:
        """Writes the run as one HTML page.

        Args:
            file: Its path; a file that is there is replaced.
        """
        Path(file).write_text(page(self.results), encoding="utf-8")

    def reload(self) -> Run:
        """Reads the run folder again, as a run that is still going has more to tell."""
        return load(self.folder)

    def __str__(self) -> str:
        return overview(self.results, standing(self.results)[1])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.overview(self.results, standing(self.results)[1])

    def _again(
        self,
        callbacks: Sequence[Listener],
        progress: Show,
        search: Callable[[Sequence[Listener], Say], ResultSet],
    ) -> Run:
        from tuner.provenance import experiment_of

        return _shown(lambda: experiment_of(self.results), callbacks, progress, search)


def load(run: str | Path, *, storage: str = STORAGE) -> Run:
    """Reads a run folder, also of a search that still runs; no code is run.

    Args:
        run: Its path or URI, or its name below ``storage``.
        storage: Folder or URI that holds the run folders.

    Returns:
        The run. If parts of the folder are damaged, ``run.results.unreadable`` says which.

    Raises:
        InputError: If there is no such run.
        EnvironmentFailure: If the folder cannot be read.
    """
    return Run(last_known(find_run(run, storage), partial=True))


def _shown(
    experiment: Callable[[], Experiment],
    callbacks: Sequence[Listener],
    progress: Show,
    search: Callable[[Sequence[Listener], Say], ResultSet],
) -> Run:
    """Runs ``search`` and shows its progress where this process runs."""
    try:
        if progress == "none":
            return Run(search(callbacks, _say))
        if in_notebook():
            below = NotebookProgress()
            return Run(search([below, *callbacks], below.say))
        with Screen() as screen:
            return Run(search([screen.progress(experiment()), *callbacks], screen.say))
    except TunerError as error:
        if isinstance(error.results, ResultSet):
            error.results = Run(error.results)
        raise


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _named(trainable: Callable[..., Any] | str | None) -> tuple[str, tuple[Path, ...], list[Pickled]]:
    """The trainable's name in an experiment, the folders to look it up in, and what no name imports."""
    here = (Path.cwd(),)
    if trainable is None:
        return REFERENCE, here, []
    if isinstance(trainable, str):
        return trainable, here, []
    if named := importable_name(trainable):
        reference, folder = named
        return reference, tuple(dict.fromkeys([*here, *filter(None, [folder])])), []
    return f"{_TRAINABLE}:{_default_name(trainable)}", here, [pickle_function(trainable, _TRAINABLE)]


def _default_name(trainable: Callable[..., Any] | str | None) -> str:
    """A name for the search: the trainable's own, if it has one."""
    text = trainable if isinstance(trainable, str) else getattr(trainable, "__name__", "")
    name = re.sub(r"\W", "_", text.rpartition(":")[2])
    return name if re.match(r"[A-Za-z]", name) else "search"


def _space(search_space: Mapping[str, Any] | str) -> tuple[Any, list[Pickled]]:
    """The search space as an experiment writes it, and what no name imports."""
    if isinstance(search_space, str) or not holds_ray_domain(search_space):
        return search_space, []
    space = space_from_param_space(search_space)
    if space.python_only():
        return f"{_SPACE}:param_space", [Pickled.of(dict(search_space), _SPACE)]
    return space.to_yaml(), []


def _as_written(block: BaseModel) -> dict[str, Any]:
    """A block as an experiment file writes it: what was given, and which algorithm it is."""
    if isinstance(block, AlgorithmSpec):
        return spec_as_mapping(block)
    return block.model_dump(mode="json", by_alias=True, exclude_unset=True)

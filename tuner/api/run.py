"""A run: what its search found, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.actions.resume import extend, resume, retry
from tuner.actions.run import Say
from tuner.api.control import Controlled
from tuner.api.progress import Show, with_progress
from tuner.errors import TunerError
from tuner.experiment.reader import Experiment
from tuner.runs.diagnose import run_state
from tuner.runs.loading import find_run, load_latest
from tuner.runs.provenance import experiment_of
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.storage.folder import STORAGE
from tuner.visualization import notebook
from tuner.visualization.html import page
from tuner.visualization.text_tables import overview

if TYPE_CHECKING:
    import pandas as pd

    from tuner.actions.ask_tell import AskTell
    from tuner.execution.recorder import Listener
    from tuner.runs.restore import Best


class Run(Controlled):
    """A search that was run, or runs: what it found, and what can be done with it.

    A notebook shows it as its headline, its curves and its best trials.

    Args:
        results: What is known of the run.

    Example:
        >>> import tuner
        >>> run = tuner.load("runs/q")
        >>> run.state, len(run.trials_dataframe())
        ('finished', 2)
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
        return self.results.folder.location

    @property
    def state(self) -> str:
        """``running``, ``silent``, ``dead``, ``interrupted`` or ``finished``."""
        return run_state(self.results)[0]

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
        return found.local_path if found.is_local else found.location

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
        return self._continued(resume, callbacks, progress, trainable=trainable, address=ray_address, trust=trust)

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
        options = {"trainable": trainable, "address": ray_address, "trust": trust, "overrides": overrides, **added}
        return self._continued(extend, callbacks, progress, **options)

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
        return self._continued(retry, callbacks, progress, trainable=trainable, address=ray_address, trust=trust)

    def reopen(self, *, trust: bool = False) -> AskTell:
        """Continues a search whose loop is your own, see `Search.begin`.

        Args:
            trust: As of `resume`.

        Returns:
            What you ask for trials; those that were open come first.

        Raises:
            InputError: If the search came to its end, or has a trainable.
        """
        from tuner.actions.ask_tell import reopen

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
        from tuner.runs.restore import restore_best

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
        return overview(self.results, run_state(self.results)[1])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.overview(self.results, run_state(self.results)[1])

    def _continued(
        self, verb: Callable[..., ResultSet], callbacks: Sequence[Listener], progress: Show, **options: Any
    ) -> Run:
        """The run after ``verb``, one of `tuner.actions.resume`, called with ``options``."""

        def search(listeners: Sequence[Listener], say: Say) -> ResultSet:
            return verb(self.folder, listeners=listeners, say=say, **options)

        return run_of(lambda: experiment_of(self.results), callbacks, progress, search)


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

    Example:
        >>> import tuner
        >>> tuner.load("runs/q").name
        'q'
    """
    return Run(load_latest(find_run(run, storage), partial=True))


def run_of(
    experiment: Callable[[], Experiment],
    callbacks: Sequence[Listener],
    progress: Show,
    search: Callable[[Sequence[Listener], Say], ResultSet],
) -> Run:
    """The run that ``search`` makes; the ``results`` of an error that ends it are a `Run` too."""
    try:
        return Run(with_progress(experiment, callbacks, progress, search))
    except TunerError as error:
        if isinstance(error.results, ResultSet):
            error.results = Run(error.results)
        raise

"""``run FILE``: search, and keep the best trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.execution.recorder import Listener
    from tuner.experiment.reader import Experiment
    from tuner.runs.results import ResultSet
    from tuner.runs.trial import Report, Trial

Search = Callable[[Sequence["Listener"], Callable[[str], None]], "ResultSet"]


@click.command()
@options.experiment_file
@options.overrides
@options.option("--name", metavar="N", help="Name of the run folder; by default the experiment's name and the time.")
@options.storage
@options.address
@options.as_json
def command(
    file: str, overrides: tuple[str, ...], name: str | None, storage: str, address: str | None, as_json: bool
) -> None:
    """Search as FILE says, and keep the best trial's model in the run folder.

    FILE is an experiment file, or the name of a shipped experiment.

    \b
    Example:
      tuner run quickstart --set budget.trials=6

    Ctrl-C once: running trials continue to their next checkpoint, and the run folder is complete; twice: at once.

    Exit status: 0 done; 1 an unexpected error (run.log has its traceback); 2 wrong input; 3 no usable result; 4 data,
    storage or the cluster failed; 130 interrupted.
    """
    from tuner.actions.run import run
    from tuner.experiment.reader import load_experiment

    experiment = load_experiment(file, overrides)
    on_screen(
        experiment,
        as_json,
        lambda listeners, say: run(
            experiment, name=name, storage=storage, address=address, listeners=listeners, say=say
        ),
    )


def on_screen(experiment: Experiment, as_json: bool, search: Search) -> None:
    """Runs ``search`` with its progress on the terminal, and prints its result."""
    from tuner.display.choice import progress_on
    from tuner.display.terminal import TerminalCapture

    with TerminalCapture() as screen:
        try:
            search([progress_on(screen, experiment.spec)], screen.say)
        finally:
            results = screen.results
            if results is not None and not as_json:
                screen.after(lambda: echo(results.folder.location))
    if as_json and results is not None:  # of a search that failed, the error's document holds it: there is one document
        print_json(summary(results))


def summary(results: ResultSet) -> dict[str, Any]:
    """What ``--json`` prints of a run."""
    front = [_standing(results, trial, trial.best) for trial in results.front if trial.best]
    return {
        "run": results.name,
        "folder": results.folder.location,
        "metric": results.metric,
        "mode": results.mode,
        "objectives": [{"metric": objective.metric, "mode": objective.mode} for objective in results.objectives],
        "best": front[0] if front and not results.has_front else None,
        "front": front,
        "trials": {
            status: results.count(status)
            for status in ("completed", "stopped", "failed", "paused", "pending", "running")
        },
        "steps": sum(trial.steps for trial in results.trials),
        "notices": results.notices,
    }


def _standing(results: ResultSet, trial: Trial, best: Report) -> dict[str, Any]:
    return {
        "trial": trial.id,
        "number": trial.number,
        "value": results.value(best),
        "step": best.step,
        "metrics": best.metrics,
        "config": results.full_config(trial),
        "checkpoint": best.checkpoint,
    }

"""``run FILE``: search, and keep the best trial."""

from __future__ import annotations

from typing import Any

import click

from tuner.cli import options
from tuner.errors import Interrupted, NoUsableResult


@click.command()
@options.experiment_file
@options.overrides
@click.option("--name", metavar="N", help="Name of the run folder; by default the experiment's name and the time.")
@options.storage
@options.address
@options.as_json
def command(
    file: str, overrides: tuple[str, ...], name: str | None, storage: str, address: str | None, as_json: bool
) -> None:
    """Search as FILE says, and keep the best trial's model in the run folder.

    Example: python -m tuner run experiments/quickstart.yaml --set budget.trials=6

    Ctrl-C once: running trials go on to their next checkpoint, and the run folder is complete; twice: at once.

    Exit status: 0 done; 2 the input is wrong; 3 no trial gave a usable result; 4 data, storage or the cluster
    failed; 130 interrupted.
    """
    from tuner.runner import run
    from tuner.spec.reader import load_experiment
    from tuner.tracking import listeners_of
    from tuner.tracking.progress import Screen

    experiment = load_experiment(file, overrides)
    with Screen() as screen:
        try:
            listeners = [screen.progress(experiment), *listeners_of(experiment.spec, storage)]
            results = run(experiment, name=name, storage=storage, address=address, listeners=listeners, say=screen.say)
        except (Interrupted, NoUsableResult):
            if as_json and screen.results is not None:
                screen.after(lambda: options.print_json(summary(screen.results)))
            raise
    if as_json:
        options.print_json(summary(results))
    else:
        click.echo(results.folder.shown)


def summary(results: Any) -> dict[str, Any]:
    """What ``--json`` prints of a run."""
    best = results.best
    return {
        "run": results.name,
        "folder": results.folder.shown,
        "metric": results.metric,
        "mode": results.mode,
        "best": {
            "trial": best.id,
            "number": best.number,
            "value": results.value(best.best),
            "step": best.best.step,
            "metrics": best.best.metrics,
            "config": results.full_config(best),
            "checkpoint": best.best.checkpoint,
        }
        if best
        else None,
        "trials": {
            status: results.count(status)
            for status in ("completed", "stopped", "failed", "paused", "pending", "running")
        },
        "steps": sum(trial.steps for trial in results.trials),
        "notices": results.notices,
    }

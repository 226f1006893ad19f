"""``sync RUN``: send a run to MLflow."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.option("--mlflow", "uri", metavar="URI", help="Send it there, whatever its experiment file says.")
@options.storage
@options.as_json
def command(run_: str, uri: str | None, storage: str, as_json: bool) -> None:
    """Send a run to the tracker that its experiment names; by default to MLflow beside the run folders.

    Nothing is sent twice: after this, the tracker holds exactly the contents of the run folder.

    \b
    Example:
      tuner sync runs/quickstart-20260101-120000 --mlflow http://localhost:5000
    """
    from tuner.runs.loading import find_run, load_latest
    from tuner.tracking.sync import sync_run

    results = load_latest(find_run(run_, storage))
    places = sync_run(results, uri)
    reports = sum(len(trial.reports) for trial in results.trials)
    if as_json:
        sent = {"run": results.name, "trials": len(results.trials), "reports": reports}
        print_json(sent | {"places": [backend.name for backend in places]})
    for backend in places if not as_json else ():
        echo(f"{backend.name} holds {results.name}: trials {len(results.trials)}, reports {reports}")

"""``export RUN --optuna URL``: a run as an Optuna study."""

from __future__ import annotations

from collections import Counter

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@click.option(
    "--optuna", "url", required=True, metavar="URL", help="The database, as SQLAlchemy writes it: sqlite:///study.db."
)
@click.option("--study", metavar="NAME", help="Name of the study; the run's without it.")
@options.storage
@options.as_json
def command(run_: str, url: str, study: str | None, storage: str, as_json: bool) -> None:
    """Write RUN into a database as an Optuna study, which optuna-dashboard and optuna.visualization read.

    Example: python -m tuner export runs/quickstart-20260101-120000 --optuna sqlite:///study.db

    Completed trials are COMPLETE, stopped ones PRUNED, failed ones FAIL. A run that is exported again replaces what it
    wrote before.
    """
    from tuner.export import NOTICES, optuna_study
    from tuner.loading import find_run, last_known
    from tuner.redaction import redacted

    exported = optuna_study(last_known(find_run(run_, storage)), url, study)
    states = Counter(trial.state.name for trial in exported.get_trials(deepcopy=False))
    notices = exported.user_attrs[NOTICES]
    if as_json:
        print_json({"study": exported.study_name, "trials": dict(states), "notices": notices})
        return
    for notice in notices:
        echo(f"NOTICE: {notice}", err=True)
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    echo(f"{counts or 'no trials'}; to look at it: optuna-dashboard {redacted(url, whole=True)}", err=True)
    echo(exported.study_name)

"""``export RUN``: a run as an Optuna study, or as a table of learning curves."""

from __future__ import annotations

from collections import Counter

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json
from tuner.cli.table import write_table


@click.command()
@options.run_argument
@options.option("--optuna", "url", metavar="URL", help="The database, as SQLAlchemy writes it: sqlite:///study.db.")
@options.option("--study", metavar="NAME", help="Name of the study; the run's without it.")
@options.option(
    "--table", metavar="FILE", shell_complete=complete.files, help="The parquet file, for simulate --table."
)
@options.storage
@options.as_json
def command(run_: str, url: str | None, study: str | None, table: str | None, storage: str, as_json: bool) -> None:
    """Write RUN for other programs: into a database as an Optuna study, or as a table of its learning curves.

    \b
    Example:
      tuner export runs/quickstart-20260101-120000 --optuna sqlite:///study.db
      tuner export runs/digits_random-20260101-120000 --table digits.parquet

    --optuna: optuna-dashboard and optuna.visualization read the study. Completed trials are COMPLETE, stopped ones
    PRUNED, failed ones FAIL. A run that is exported again replaces what it wrote before.

    --table: simulate replays the curves under other schedulers. Curves that early stopping cut short are carried on
    with their last value and marked in the column measured: for a table to trust, run the trials without early stopping
    (scheduler: {kind: fifo}).
    """
    if (url is None) == (table is None):
        raise click.UsageError("name one target: --optuna URL or --table FILE")
    if table is not None:
        if study is not None:
            raise click.UsageError("--study names an Optuna study: it needs --optuna URL")
        write_table(run_, table, storage, as_json)
    elif url is not None:
        _write_study(run_, url, study, storage, as_json)


def _write_study(run: str, url: str, study: str | None, storage: str, as_json: bool) -> None:
    from tuner.actions.export import NOTICES, optuna_study
    from tuner.redaction import redacted
    from tuner.runs.loading import find_run, load_latest

    exported = optuna_study(load_latest(find_run(run, storage)), url, study)
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

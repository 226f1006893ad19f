"""``retry RUN``: run failed trials again."""

from __future__ import annotations

import click

from tuner.cli import complete, options


@click.command()
@options.run_argument
@options.option("--failed", is_flag=True, hidden=True)
@options.option(
    "--trial",
    "trials",
    multiple=True,
    metavar="ID",
    shell_complete=complete.trials,
    help="Only this one of the failed trials: its id, or its number. Repeatable.",
)
@options.storage
@options.address
@options.trust
@options.as_json
def command(
    run_: str,
    failed: bool,
    trials: tuple[str, ...],
    storage: str,
    address: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Run the failed trials of a search again, from their checkpoints where these were kept.

    \b
    Example:
      tuner retry runs/quickstart-20260101-120000
    """
    from tuner.actions.resume import retry
    from tuner.cli.run import on_screen
    from tuner.runs.loading import find_run, load_latest
    from tuner.runs.provenance import experiment_of

    on_screen(
        experiment_of(load_latest(find_run(run_, storage)), trust),
        as_json,
        lambda listeners, say: retry(
            run_, trials=trials, storage=storage, address=address, trust=trust, listeners=listeners, say=say
        ),
    )

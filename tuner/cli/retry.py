"""``retry RUN --failed``: run failed trials again."""

from __future__ import annotations

import click

from tuner.cli import options


@click.command()
@options.run_argument
@click.option("--failed", is_flag=True, required=True, help="The trials that failed.")
@options.storage
@options.address
@options.trust
@options.as_json
def command(run_: str, failed: bool, storage: str, address: str | None, trust: bool, as_json: bool) -> None:
    """Run the failed trials of a search again, from their checkpoints where these were kept.

    Example: python -m tuner retry runs/quickstart-20260101-120000 --failed
    """
    from tuner.cli.run import on_screen
    from tuner.loading import find_run, last_known
    from tuner.provenance import experiment_of
    from tuner.resumption import retry

    on_screen(
        experiment_of(last_known(find_run(run_, storage)), trust),
        as_json,
        lambda listeners, say: retry(run_, storage=storage, address=address, trust=trust, listeners=listeners, say=say),
    )

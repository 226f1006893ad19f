"""``resume RUN``: go on with an interrupted search."""

from __future__ import annotations

import click

from tuner.cli import options


@click.command()
@options.run_argument
@options.storage
@options.address
@options.as_json
def command(run_: str, storage: str, address: str | None, as_json: bool) -> None:
    """Go on with a search that Ctrl-C stopped: paused trials from their checkpoints, then those not yet started.

    Example: python -m tuner resume runs/quickstart-20260101-120000
    """
    from tuner.cli.run import on_screen
    from tuner.loading import load_run
    from tuner.runner import experiment_of, resume

    results = load_run(run_, storage)
    on_screen(
        experiment_of(results),
        storage,
        as_json,
        lambda listeners, say: resume(results, address=address, listeners=listeners, say=say),
    )

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
    """Go on with a search that did not come to its end, after Ctrl-C, kill -9, a crash or a reboot.

    Ended trials stay, started ones go on from their last checkpoint, then come those not yet started.

    Example: python -m tuner resume runs/quickstart-20260101-120000
    """
    from tuner.cli.run import on_screen
    from tuner.loading import find_run, last_known
    from tuner.runner import experiment_of, resume

    on_screen(
        experiment_of(last_known(find_run(run_, storage))),
        as_json,
        lambda listeners, say: resume(run_, storage=storage, address=address, listeners=listeners, say=say),
    )

"""``ui [RUN]``: the MLflow UI."""

from __future__ import annotations

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@click.argument("run_", metavar="[RUN]", required=False, shell_complete=complete.runs)
@options.option("--port", type=click.IntRange(1, 65535), help="Port of this machine; by default one that is free.")
@options.storage
@options.as_json
def command(run_: str | None, port: int | None, storage: str, as_json: bool) -> None:
    """Open the MLflow UI on the charts of a run's trials, or on all runs in a storage folder, until Ctrl-C or SIGTERM.

    A run that is not in MLflow yet, or not whole, is sent there first. The server listens on 127.0.0.1 only and asks
    for no password: all users of this machine can read and delete what is in it. The page's address is printed when it
    answers.

    \b
    Example:
      tuner ui runs/quickstart-20260101-120000
    """
    import signal

    from tuner.tracking.ui import page_of_run, page_of_storage

    for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it starts with & ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    page = page_of_run(run_, storage) if run_ else page_of_storage(storage)
    with page.served(port) as address:
        if as_json:
            print_json({"address": address})
        else:
            echo(address)
        page.wait()

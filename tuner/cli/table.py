"""``table RUN -o FILE``: a table of learning curves from a finished run."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo


@click.command()
@options.run_argument
@click.option("-o", "--output", required=True, metavar="FILE", help="The parquet file to write.")
@options.storage
def command(run_: str, output: str, storage: str) -> None:
    """Write the learning curves of RUN as a table, which ``simulate`` replays under other schedulers.

    Example: python -m tuner table runs/digits_random-20260101-120000 -o digits.parquet

    Curves that early stopping cut short are carried on with their last value and marked in the column measured: for
    a table to trust, run the trials without early stopping (scheduler: {kind: fifo}).
    """
    from tuner.loading import load_run
    from tuner.simulator.recording import record

    recording = record(load_run(run_, storage))
    options.write_output(output, recording.parquet(), "table.parquet")
    echo(
        f"{recording.curves} configurations, {recording.carried_on} of them cut short and carried on; "
        f"{recording.left_out} trials left out",
        err=True,
    )
    echo(output)

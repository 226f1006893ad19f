"""``table RUN -o FILE``: the older spelling of ``export RUN --table FILE``."""

from __future__ import annotations

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.option(
    "-o", "--output", required=True, metavar="FILE", shell_complete=complete.files, help="The parquet file to write."
)
@options.storage
@options.as_json
def command(run_: str, output: str, storage: str, as_json: bool) -> None:
    """Write the learning curves of RUN as a table. The same as export RUN --table FILE."""
    write_table(run_, output, storage, as_json)


def write_table(run: str, target: str, storage: str, as_json: bool) -> None:
    """Writes the learning curves of ``run``, which ``simulate`` replays, to the file ``target``."""
    from tuner.runs.loading import load_run
    from tuner.simulator.recording import record

    made = record(load_run(run, storage))
    options.write_output(target, made.parquet(), "table.parquet")
    counts = {"configurations": made.curves, "carried_on": made.carried_on, "left_out": made.left_out}
    if as_json:
        print_json({"table": target, **counts})
        return
    echo(
        f"{made.curves} configurations, {made.carried_on} of them cut short and carried on; "
        f"{made.left_out} trials left out",
        err=True,
    )
    echo(target)

"""``list``: the runs in a storage folder."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from tuner.cli import options

NOTE = 60
"""Characters of a note that a row shows."""


@click.command()
@options.storage
@options.as_json
def command(storage: str, as_json: bool) -> None:
    """List the runs in a storage folder, newest first.

    Example: python -m tuner list
    """
    from tuner.errors import EnvironmentFailure
    from tuner.loading import load_run
    from tuner.report.terminal import objectives_line, table
    from tuner.results import EXPERIMENT
    from tuner.storage import RunFolder

    rows: list[dict[str, Any]] = []
    root = RunFolder.at(storage)
    for name in root.folders():
        if not (root / name).exists(EXPERIMENT):
            continue
        try:
            results = load_run((root / name).shown)
        except EnvironmentFailure as error:
            rows.append({"run": name, "started": "", "trials": "", "best": "", "metric": "", "note": str(error)})
            continue
        front = [trial.best for trial in results.front if trial.best]
        value = results.value(front[0]) if front else None
        rows.append(
            {
                "run": name,
                "started": str(results.provenance.get("started", ""))[:19],
                "trials": len(results.trials),
                "best": f"front of {len(front)}" if front and results.has_front else value,
                "metric": objectives_line(results),
                "note": textwrap.shorten("; ".join(results.notices), NOTE, placeholder=" …"),
            }
        )
    rows.sort(key=lambda row: str(row["started"]), reverse=True)
    if as_json:
        options.print_json(rows)
    elif rows:
        click.echo(table(rows))
    else:
        click.echo(f"no runs in {storage}", err=True)

"""``list``: the runs in a storage folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.storage.folder import RunFolder


@click.command()
@options.storage
@options.wide
@options.as_json
def command(storage: str, wide: bool, as_json: bool) -> None:
    """List the runs in a storage folder, newest first, each with how it stands.

    \b
    Example:
      tuner list
    """
    from tuner.runs.loading import runs
    from tuner.spec.values import format_number
    from tuner.storage.folder import RunFolder
    from tuner.visualization.text_tables import format_columns, shortened

    rows = [_row(folder) for folder in runs(RunFolder.at(storage))]
    rows.sort(key=lambda row: row["started"], reverse=True)
    if as_json:
        print_json(rows)
        return
    if not rows:
        echo(f"no runs in {storage}", err=True)
        return
    width = None if wide else options.width()
    head = [name for name in rows[0] if name != "note"]
    lines = format_columns([head, *([format_number(row[name]) for name in head] for row in rows)]).splitlines()
    notes = ["", *(row["note"] for row in rows)]
    for line, note in zip(lines, notes, strict=True):
        echo(shortened(line, width))
        if note:
            echo(shortened(f"  {note}", width))


def _row(folder: RunFolder) -> dict[str, Any]:
    from tuner.errors import EnvironmentFailure
    from tuner.runs.diagnose import run_state
    from tuner.runs.loading import load_latest, load_summary
    from tuner.runs.results import REPORTS
    from tuner.visualization.text_tables import objectives_line

    empty = {"state": "damaged", "trials": "", "best": "", "metric": "", "started": ""}
    results = load_summary(folder)
    if results.unreadable:
        try:
            results = load_latest(folder, partial=True)
        except EnvironmentFailure as error:
            return {"run": results.name, **empty, "note": str(error).removeprefix(f"{folder.location}: ")}
    elif not folder.exists(REPORTS):
        results.unreadable.append(f"{REPORTS} is missing: the run folder is damaged")
    state, _ = run_state(results)
    front = [trial.best for trial in results.front if trial.best]
    value = results.value(front[0]) if front else None
    ended_by, interrupted_by = results.provenance.get("ended_by"), results.provenance.get("interrupted_by")
    note = [text.removeprefix(f"{folder.location}: ") for text in results.unreadable]
    if ended_by:
        note.append(f"ended by {ended_by}")
    if interrupted_by and state == "interrupted":
        note.append(f"interrupted: {interrupted_by}")
    return {
        "run": results.name,
        "state": "damaged" if results.unreadable else state,
        "trials": f"{sum(t.has_ended for t in results.trials)}/{results.provenance.get('trials', '?')}",
        "best": f"front of {len(front)}" if front and results.has_front else value,
        "metric": objectives_line(results),
        "started": str(results.provenance.get("started", ""))[:16].replace("T", " "),
        "note": "; ".join([*note, *results.notices]),
    }

"""``compare RUN RUN …``: several runs side by side."""

from __future__ import annotations

from dataclasses import asdict

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete.runs)
@options.option("--target", type=float, metavar="X", help="Value that the runs are timed to (default: all reach it).")
@options.page_file
@options.storage
@options.wide
@options.as_json
def command(
    runs: tuple[str, ...], target: float | None, output: str | None, storage: str, wide: bool, as_json: bool
) -> None:
    """Put runs with the same objective side by side: how good each was when, and what it had spent by then.

    Live, dead and finished runs alike. With -o also a page with the figure: the best value so far over the seconds of
    search, and over the epochs spent.

    \b
    Example:
      tuner compare runs/asha runs/random -o compare.html
    """
    from tuner.runs.loading import find_run, load_latest
    from tuner.visualization.run_comparison import columns, footnotes, page, race
    from tuner.visualization.text_tables import table

    found = race([load_latest(find_run(run, storage), partial=True) for run in runs], target)
    for entrant in found.entrants:
        for notice in (*entrant.results.notices, *entrant.results.unreadable):
            echo(f"NOTICE: {entrant.results.name}: {notice}", err=True)
    if output:
        options.write_output(output, page(found).encode(), "compare.html")
        echo(f"page: {output}", err=True)
    if as_json:
        rows = [asdict(row) for row in found.rows()]
        objective = {"metric": found.objective.metric, "mode": found.objective.mode}
        print_json({"objective": objective, "target": found.target, "unit": found.unit, "runs": rows})
        return
    echo(table(columns(found), *options.fit(wide)))
    for line in footnotes(found):
        echo(line, err=True)

"""``report RUN``: a run as one HTML page."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.page_file
@options.storage
@options.as_json
def command(run_: str, output: str | None, storage: str, as_json: bool) -> None:
    """Write RUN, live, dead or finished, as one HTML page that opens anywhere and loads nothing.

    \b
    Example:
      tuner report runs/quickstart-20260101-120000 -o quickstart.html
    """
    from tuner.runs.loading import find_run, load_latest
    from tuner.runs.results import REPORT
    from tuner.visualization.html import page
    from tuner.visualization.summary import summarize

    results = load_latest(find_run(run_, storage), partial=True)
    target = output or (results.folder / REPORT).location
    for notice in (*results.notices, *results.unreadable):
        echo(f"NOTICE: {notice}", err=True)
    said = summarize(results)
    written = page(results).encode()
    if output:
        options.write_output(output, written)
    else:
        with options.writing(target):
            results.folder.write(REPORT, written)
    echo("\n".join(said), err=True)
    if as_json:
        told = {"run": results.name, "page": target, "verdict": said, "unreadable": results.unreadable}
        print_json(told | {"notices": results.notices})
    else:
        echo(target)

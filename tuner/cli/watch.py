"""``watch RUN``: the live page of a run."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.storage
@options.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of this machine; 0 is one that is free.")
@options.option("--open/--no-open", "opens", default=True, help="Whether to open the page in a browser.")
@options.as_json
def command(run_: str, storage: str, port: int, opens: bool, as_json: bool) -> None:
    """Show a run on a page that follows it, until Ctrl-C or SIGTERM.

    The page has curves, rungs, slots, failures and outputs, and buttons that control the search. The server listens on
    127.0.0.1 only. The printed address holds a token: whoever has it may see and control the run.

    \b
    Example:
      tuner watch runs/quickstart-20260101-120000
    """
    import contextlib
    import signal
    import webbrowser

    from tuner.live.watching import watched
    from tuner.runs.loading import find_run

    for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it starts with & ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    server = watched(find_run(run_, storage), port)
    with contextlib.suppress(KeyboardInterrupt), server.running():
        if as_json:
            print_json({"address": server.address})
        else:
            echo(server.address)
        if opens and not as_json:
            webbrowser.open(server.address)
        server.wait()

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
    import webbrowser

    from tuner.live.http_server import Server, listening, url_of
    from tuner.live.token_door import new_token, watched
    from tuner.runs.loading import find_run

    app, path = watched(find_run(run_, storage), new_token())

    def started() -> None:
        address = url_of(listener) + path
        if as_json:
            print_json({"address": address})
            return
        echo(address)
        if opens:
            webbrowser.open(address)

    with listening("127.0.0.1", port) as listener:
        Server(app, started).run_at(listener)

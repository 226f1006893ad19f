"""``init [DIR]``: a training and its experiment file, to start from."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json

TEMPLATES = ("quickstart",)


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", shell_complete=complete.folders)
@options.option(
    "--from", "template", type=click.Choice(TEMPLATES), default=TEMPLATES[0], show_default=True, help="Which template."
)
@options.as_json
def command(folder: str, template: str, as_json: bool) -> None:
    """Write train.py and search.yaml into DIR, by default here: a search that runs as it is. No file is overwritten.

    \b
    Example:
      tuner init my_search
      tuner run my_search/search.yaml
    """
    from tuner.errors import EnvironmentFailure, InputError
    from tuner.storage.folder import reason

    source = resources.files("tuner.cli") / "templates" / template
    files = {Path(folder, file.name): file.read_bytes() for file in source.iterdir() if file.is_file()}
    if present := sorted(str(path) for path in files if path.exists()):
        raise InputError(f"{', '.join(present)}: already there, and not overwritten: choose another DIR")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            with path.open("xb") as file:
                file.write(content)
    except OSError as error:
        raise EnvironmentFailure(f"{folder}: cannot be written: {reason(error)}; choose another DIR") from None
    if as_json:
        print_json({"files": sorted(map(str, files))})
        return
    for name in sorted(map(str, files)):
        echo(name)
    program = click.get_current_context().find_root().info_name
    echo(f"to search: {program} run {shlex.quote(str(Path(folder, 'search.yaml')))}", err=True)

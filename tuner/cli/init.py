"""``init [DIR]``: a small training and its experiment, a project, or an experiment for a script that is there."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json
from tuner.scaffold.project import TEMPLATES as PROJECTS

if TYPE_CHECKING:
    from tuner.scaffold.script import ScriptProposal

QUICKSTART = "quickstart"
TEMPLATES = (QUICKSTART, *PROJECTS)


class Source(click.ParamType[str]):
    """The name of a template, or the path of a script."""

    name = "source"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The templates, and a script."""
        return f"[{'|'.join(TEMPLATES)}|SCRIPT.py]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The value, if it can name one of the two."""
        from tuner.errors import did_you_mean

        if value not in TEMPLATES and not str(value).endswith(".py"):
            self.fail(f"{value!r} is neither a template nor a script (SCRIPT.py); {did_you_mean(value, TEMPLATES)}")
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """The templates that begin so; else files."""
        begun = [name for name in TEMPLATES if name.startswith(incomplete)]
        return [CompletionItem(name) for name in begun] or complete.files(ctx, param, incomplete)


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, shell_complete=complete.folders)
@options.option(
    "--from",
    "source",
    type=Source(),
    default=QUICKSTART,
    show_default=True,
    help="Which template; or a script, which is read and not run.",
)
@options.as_json
def command(folder: str | None, source: str, as_json: bool) -> None:
    """Write train.py and search.yaml into DIR, by default here: a search that runs as it is. No file is overwritten.

    From another template, it writes a project to keep: also a search space, a test, a CI job, README, .gitignore.

    From a script, it writes search.yaml only, by default beside the script: a search over its hyperparameters, which it
    finds in the script's text (argparse, a dataclass, constants in capitals).

    \b
    Example:
      tuner init my_search
      tuner run my_search/search.yaml
      tuner init my_project --from images
      tuner init --from train.py
    """
    if source in PROJECTS:
        _project(source, Path(folder or "."), as_json)
    elif source.endswith(".py"):
        _for_script(Path(source), Path(source).parent if folder is None else Path(folder), as_json)
    else:
        _quickstart(Path(folder or "."), as_json)


def _quickstart(folder: Path, as_json: bool) -> None:
    from tuner.scaffold.files import write_new

    template = resources.files("tuner.cli") / "templates" / QUICKSTART
    files = {folder / file.name: file.read_bytes() for file in template.iterdir() if file.is_file()}
    write_new(folder, files)
    if as_json:
        print_json({"files": sorted(map(str, files))})
        return
    for name in sorted(map(str, files)):
        echo(name)
    echo(f"to search: {_program()} run {shlex.quote(str(folder / 'search.yaml'))}", err=True)


def _project(template: str, folder: Path, as_json: bool) -> None:
    from tuner.scaffold.files import write_new
    from tuner.scaffold.project import missing, project_files

    name = folder.resolve().name
    files = {folder / path: content for path, content in project_files(PROJECTS[template], name).items()}
    write_new(folder, files)
    lacking, place = missing(PROJECTS[template]), shlex.quote(str(folder))
    install = f"pip install -r {shlex.quote(str(folder / 'requirements.txt'))}" if lacking else None
    is_elsewhere = folder.resolve() != Path.cwd()
    commands = [f"python -m pytest {place}", f"{_program()} run {shlex.quote(str(folder / 'search.yaml'))}"]
    if is_elsewhere and Path("train.py").exists():  # an experiment's trainable is looked for here first
        commands = [f"cd {place} && python -m pytest", f"cd {place} && {_program()} run search.yaml"]
    elif is_elsewhere:
        commands[1] += f" --storage {shlex.quote(str(folder / 'runs'))}"
    if as_json:
        print_json({"files": sorted(map(str, files)), "commands": commands, "install": install})
        return
    for file in sorted(map(str, files)):
        echo(file)
    if install:
        echo(f"{lacking}\nto install: {install}", err=True)
    echo(f"to test:   {commands[0]}\nto search: {commands[1]}", err=True)


def _program() -> str:
    return click.get_current_context().find_root().info_name or "tuner"


def _for_script(script: Path, folder: Path, as_json: bool) -> None:
    from tuner.scaffold.experiment import experiment_text
    from tuner.scaffold.files import write_new
    from tuner.scaffold.script import read, trainable_of

    proposal, file = read(script), folder / "search.yaml"
    trainable = trainable_of(proposal, folder)
    write_new(folder, {file: experiment_text(proposal, trainable, str(file)).encode()})
    commands = [f"{_program()} {verb} {shlex.quote(str(file))}" for verb in ("validate", "run")]
    if as_json:
        print_json({"files": [str(file)], "trainable": trainable, "commands": commands, **_as_json(proposal)})
        return
    echo(f"{script}: {proposal.found}", err=True)
    for line in _described(proposal):
        echo(line, err=True)
    echo(str(file))
    echo(f"to check:  {commands[0]}\nto search: {commands[1]}", err=True)


def _described(proposal: ScriptProposal) -> list[str]:
    """What was found and what was guessed, a line each."""
    lines = [f"  {one.name}: {one.written}  ({one.why})" for one in proposal.of("search")]
    lines += [f"  {one.name}: {one.written}  in a comment: {one.why}" for one in proposal.of("unsure")]
    for words, ones in (("fixed in params", proposal.of("fixed")), ("left alone", proposal.of("left"))):
        if names := ", ".join(one.name for one in ones):
            lines.append(f"  {words}: {names}")
    metric, mode = proposal.reported.objective
    if metric and mode:
        return [*lines, f"  objective: {mode} {metric}  (reported in line {proposal.reported.line})"]
    found = f"the direction of {metric}" if metric else "which metric to compare"
    return [*lines, f"  TODO: the script does not show {found}: complete objective in the file"]


def _as_json(proposal: ScriptProposal) -> dict[str, Any]:
    metric, mode = proposal.reported.objective
    return {
        "search_space": {one.name: one.entry for one in proposal.of("search")},
        "unsure": {one.name: one.entry for one in proposal.of("unsure")},
        "fixed": [one.name for one in proposal.of("fixed")],
        "left": [one.name for one in proposal.of("left")],
        "objective": {"metric": metric, "mode": mode} if metric and mode else None,
    }

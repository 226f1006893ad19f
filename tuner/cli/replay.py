"""``replay RUN TRIAL``: run one recorded trial again, and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.actions.replay_comparison import Difference
    from tuner.runs.trial import Report

DIFFERS = 5
"""Exit status when the trial does not give what was recorded."""


@click.command()
@options.run_argument
@click.argument("trial", metavar="TRIAL", shell_complete=complete.trials)
@options.option("--until", type=int, metavar="N", help="End after report N.")
@options.option("--pdb", "debug", is_flag=True, help="Start the debugger where the trial raises.")
@options.storage
@options.as_json
def command(run_: str, trial: str, until: int | None, debug: bool, storage: str, as_json: bool) -> None:
    """Run trial TRIAL of RUN (its id, or its number) again, in this process and without Ray, and compare each report.

    Configuration, prepared parameters, seed, working directory and number of threads are the same. So on the same
    machine with the same packages every metric is the same to the last bit, if the training itself is deterministic.
    A breakpoint() in the training works.

    \b
    Example:
      tuner replay runs/quickstart-20260101-120000 5

    Exit status: 0 it agrees; 2 the trial cannot be replayed; 5 it differs.
    """
    if debug and as_json:
        raise click.UsageError("--pdb and --json both need stdout: choose one")
    from tuner.actions.replay import fails_by_itself, replay
    from tuner.runs.loading import load_run
    from tuner.runs.named_trial import find_trial
    from tuner.spec.values import metrics_line
    from tuner.visualization.text_tables import config_line

    results = load_run(run_, storage)
    found = find_trial(results, trial)
    echo(f"trial {found.label}, {found.status}: {config_line(found.config)}", err=True)
    if found.status == "failed":
        echo(f"recorded after report {found.steps}: {found.reason}", err=True)

    def show(report: Report, differences: list[Difference]) -> None:
        line = metrics_line({"step": report.step, **report.metrics})
        telling = [f"differs: {difference}" for difference in differences if not difference.measured]
        echo("  ".join([line, *telling]), err=True)

    def on_error(error: BaseException) -> None:
        if not fails_by_itself(error):
            return
        import pdb
        import traceback

        echo("".join(traceback.format_exception(error)), err=True, nl=False)
        if debug:
            pdb.post_mortem(error.__traceback__)

    done = replay(results, found, until=until, show=show, on_error=on_error)
    if as_json:
        print_json(done.as_json())
    else:
        echo("\n".join(done.describe()))
    if not done.agrees:
        click.get_current_context().exit(DIFFERS)

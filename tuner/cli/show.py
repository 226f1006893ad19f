"""``show RUN``: one run and its trials."""

from __future__ import annotations

from dataclasses import asdict

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.storage
@options.option("--brief", is_flag=True, help="Of the trials only the best one, or the front.")
@options.wide
@options.as_json
def command(run_: str, storage: str, brief: bool, wide: bool, as_json: bool) -> None:
    """Show one run: how it stands, its best trial (or its Pareto front), and all trials, best first.

    \b
    Example:
      tuner show runs/quickstart-20260101-120000

    Of a damaged run folder it shows what can be read, and names what cannot. A terminal gets one line a trial, cut to
    its width; elsewhere long lines are folded at 120 columns. --wide does neither.
    """
    from tuner.cli.run import summary
    from tuner.runs.diagnose import run_state
    from tuner.runs.loading import find_run, load_latest
    from tuner.visualization.text_tables import overview

    results = load_latest(find_run(run_, storage), partial=True)
    state, words = run_state(results)
    if as_json:
        trials = [
            {
                "id": t.id,
                "number": t.number,
                "status": t.status,
                "reason": t.reason,
                "steps": t.steps,
                "host": t.host,
                "failures": [asdict(failure) for failure in t.failures],
                "micro_batch": t.micro_batch,
                "consumption": t.consumption.named(),
                "config": t.config,
                "origin": asdict(t.origin) if t.origin else None,
            }
            for t in ([] if brief else results.trials)
        ]
        commands = [asdict(command) | {"trials": list(command.trials)} for command in results.commands]
        told = {"unreadable": results.unreadable, "commands": commands, "all": trials}
        print_json({"state": state} | summary(results) | told)
    else:
        echo(overview(results, words, *options.fit(wide), brief=brief))

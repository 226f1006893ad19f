"""``show RUN``: one run and its trials."""

from __future__ import annotations

from dataclasses import asdict

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.storage
@options.as_json
def command(run_: str, storage: str, as_json: bool) -> None:
    """Show one run: how it stands, its best trial (or its Pareto front), and all trials, best first.

    Example: python -m tuner show runs/quickstart-20260101-120000

    Of a damaged run folder it shows what can be read, and says what cannot. On a terminal, what does not fit is cut.
    """
    from tuner.cli.run import summary
    from tuner.loading import find_run, last_known
    from tuner.report.terminal import overview
    from tuner.why import standing

    results = last_known(find_run(run_, storage), partial=True)
    state, words = standing(results)
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
                "config": t.config,
            }
            for t in results.trials
        ]
        print_json({"state": state} | summary(results) | {"unreadable": results.unreadable, "all": trials})
    else:
        echo(overview(results, words, options.width()))

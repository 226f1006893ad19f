"""``tell RUN TRIAL``: what a trial of a search that you run yourself has reported."""

from __future__ import annotations

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@click.argument("trial", metavar="TRIAL", shell_complete=complete.trials)
@click.argument("metrics", metavar="[METRIC=NUMBER]...", nargs=-1)
@options.option("--finish", is_flag=True, help="The trial has come to its end.")
@options.option("--fail", metavar="REASON", help="The trial has failed, and is not tried again.")
@options.option("--checkpoint", metavar="FOLDER", help="A checkpoint that came with it: ray/ID/NAME of the run folder.")
@options.storage
@options.as_json
def command(
    run_: str,
    trial: str,
    metrics: tuple[str, ...],
    finish: bool,
    fail: str | None,
    checkpoint: str | None,
    storage: str,
    as_json: bool,
) -> None:
    """Tell a search that begin began what an open trial reports; the answer says whether the trial continues.

    The objective is among the metrics, and the scheduler's time_attr if it has one.

    \b
    Example:
      tuner tell laboratory 1 yield_percent=71.2 --finish
      tuner tell laboratory 2 --fail "the flask broke"
    """
    if fail is not None and (metrics or finish):
        raise click.UsageError("--fail ends a trial without a report: leave out --finish and the metrics")
    if not metrics and fail is None and not finish:
        raise click.UsageError("nothing to tell: give METRIC=NUMBER, --finish or --fail REASON")
    from tuner.actions.ask_tell import PATIENCE_S, reopen
    from tuner.runs.loading import find_run
    from tuner.runs.named_trial import find_trial

    reported = dict(map(_metric, metrics))
    folder = find_run(run_, storage)
    with reopen(folder, patience=PATIENCE_S) as loop:
        found = find_trial(loop.results, trial)
        answer: str = loop.tell(found.id, reported, checkpoint=checkpoint) if metrics else "continue"
        if fail is not None:
            loop.fail(found.id, fail)
            answer = "failed"
        elif finish and answer == "continue":
            loop.finish(found.id)
            answer = "finished"
    if as_json:
        print_json({"run": loop.results.name, "trial": found.id, "number": found.number, "answer": answer})
    else:
        echo(answer)


def _metric(text: str) -> tuple[str, float]:
    """The name and the number of ``METRIC=NUMBER``."""
    from tuner.errors import InputError

    name, sign, number = text.partition("=")
    try:
        if name and sign:
            return name, float(number)
    except ValueError:
        pass
    raise InputError(f"{text!r}: give METRIC=NUMBER, such as loss=0.25")

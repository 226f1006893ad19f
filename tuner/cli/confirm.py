"""``confirm RUN``: the best configurations, trained again with fresh seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.actions.confirm import Confirmation, Confirmed
    from tuner.actions.intervals import Interval


@click.command()
@options.run_argument
@options.option(
    "--top",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="How many of the best configurations.",
)
@options.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="With how many fresh seeds each.",
)
@options.option("--test", is_flag=True, help="Score them on the test set too.")
@options.storage
@options.address
@options.as_json
def command(run_: str, top: int, seeds: int, test: bool, storage: str, address: str | None, as_json: bool) -> None:
    """Train the best configurations of a finished RUN again with fresh seeds, in a run of its own: RUN-confirm.

    \b
    Example:
      tuner confirm runs/quickstart-20260101-120000 --top 3 --seeds 5 --test

    Prints how good each is (mean and 95 % interval), how much too good the search's own number was, and which of them
    are tied. To continue after an interruption: resume RUN-confirm, then confirm RUN again.

    Exit status: as of run.
    """
    from tuner.actions.confirm import confirm
    from tuner.actions.retraining import retraining
    from tuner.display.choice import progress_on
    from tuner.display.terminal import TerminalCapture
    from tuner.runs.loading import find_run, load_latest

    results = load_latest(find_run(run_, storage))
    experiment = retraining(results, top, seeds).experiment
    with TerminalCapture() as screen:
        listeners = [progress_on(screen, experiment.spec)]
        found = confirm(results, top=top, seeds=seeds, test=test, address=address, listeners=listeners, say=screen.say)
    if as_json:
        print_json(found.as_json())
    else:
        echo("\n".join(_lines(found)))


def _lines(found: Confirmation) -> Iterator[str]:
    """What a terminal shows."""
    from tuner.actions.confirm import over_seeds
    from tuner.spec.values import format_number
    from tuner.visualization.text_tables import format_columns

    confirmed, seeds = found.configurations, ", ".join(map(str, found.seeds))
    yield f"{found.objective}: mean ± 95 % interval over seeds {seeds}, which the search did not use"
    head = ["trial", "search", "best report", "last report", f"behind #{found.winner.number}"]
    columns = [[_words(over_seeds(values), found) for values in (c.best, c.last)] for c in confirmed]
    rows = zip(confirmed, columns, strict=True)
    yield format_columns(
        [head, *([f"#{c.number}", format_number(c.searched), *means, _standing(c, found)] for c, means in rows)]
    )
    if metrics := list(found.winner.test):
        yield ""
        tested = [[_words(over_seeds(c.test.get(metric, {})), found) for metric in metrics] for c in confirmed]
        rows = zip(confirmed, tested, strict=True)
        yield format_columns([["trial", *metrics], *([f"#{c.number}", *means] for c, means in rows)])
    yield ""
    yield "best report: its epoch is chosen on validation data, as in the search; last report: it is not;"
    yield "test: of the best report; nothing was chosen by it, so that this is the number for new data"
    yield from _verdict(found)


def _words(mean: Interval | None, found: Confirmation) -> str:
    if mean is None:
        return "no result"
    return f"{mean}{f' (n={mean.n})' * (1 < mean.n < len(found.seeds))}"


def _standing(confirmed: Confirmed, found: Confirmation) -> str:
    if confirmed is found.winner or not confirmed.best:
        return ""
    return f"{found.behind(confirmed) or 'no seed in common'}{' (tie)' * found.ties(confirmed)}"


def _verdict(found: Confirmation) -> Iterator[str]:
    from tuner.spec.values import format_number

    searched, winner = found.searched, found.winner
    optimism = found.optimism(searched)
    if optimism is not None:
        way, doubt = ("worse", ": the search was too optimistic") if optimism.mean >= 0 else ("better", "")
        if optimism.holds_zero:
            doubt = ": that may be chance"
        amount = dataclasses.replace(optimism, mean=abs(optimism.mean))
        value, step = format_number(searched.searched), searched.searched_step
        said = f"the search said {value} for trial #{searched.number} (step {step})"
        yield f"optimism: {said}; with fresh seeds it is {amount} {way}{doubt}"
    others = [c for c in found.configurations if c is not winner and c.best]
    ties = [f"#{c.number}" for c in others if found.ties(c)]
    worse = [f"#{c.number}" for c in others if not found.ties(c)]
    if ties:
        told = f"a tie: {', '.join([f'#{winner.number}', *ties])} cannot be told apart with these seeds"
        yield told + (f"; {', '.join(worse)} worse" if worse else "")
    elif worse:
        yield f"#{winner.number} is better than {', '.join(worse)}: no paired interval holds 0"

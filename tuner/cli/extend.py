"""``extend RUN``: make a search longer."""

from __future__ import annotations

import click

from tuner.cli import options


@click.command()
@options.run_argument
@options.option("--trials", metavar="N", help="Number of configurations: a new total, or +20 for 20 more.")
@options.option("--max-t", metavar="N", help="The scheduler's max_t, at which a trial is complete: 50, or +20.")
@options.option("--wall-clock", metavar="TIME", help="The budget's wall_clock: 2h, or +1h.")
@options.overrides
@options.storage
@options.address
@options.trust
@options.as_json
def command(
    run_: str,
    trials: str | None,
    max_t: str | None,
    wall_clock: str | None,
    overrides: tuple[str, ...],
    storage: str,
    address: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Make a finished or interrupted search longer: more trials, more epochs, more time, maybe in another space.

    \b
    Example:
      tuner extend runs/quickstart-20260101-120000 --trials +20 --max-t 50 --set params.epochs=50

    Until the longer search has come to its end, the same command continues it, as resume does, and adds nothing.

    The searcher keeps all it has learned. Trials that were complete, or that the budget ended, continue from their
    checkpoints, if these were kept (checkpoints.keep_trials) and the scheduler lets them. A trainable that counts
    its own epochs needs more of them, too: --set params.epochs=50.

    --set may change the search space or the searcher: then a new searcher learns from the trials that lie in the new
    space, as with --trials +20 --set 'search_space.lr.loguniform=[1e-3, 1e-2]'.
    """
    from tuner.actions.resume import extend
    from tuner.cli.run import on_screen
    from tuner.runs.loading import find_run, load_latest
    from tuner.runs.provenance import experiment_of

    on_screen(
        experiment_of(load_latest(find_run(run_, storage)), trust),
        as_json,
        lambda listeners, say: extend(
            run_,
            trials=trials,
            max_t=max_t,
            wall_clock=wall_clock,
            overrides=overrides,
            storage=storage,
            address=address,
            trust=trust,
            listeners=listeners,
            say=say,
        ),
    )

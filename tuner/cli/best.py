"""``best RUN``: restore the best trial's model and score it."""

from __future__ import annotations

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@click.argument("trial", metavar="[TRIAL]", required=False, shell_complete=complete.trials)
@options.option("--trial", "chosen", metavar="ID", hidden=True, shell_complete=complete.trials)
@options.option("--test", is_flag=True, help="Score it on the test set too.")
@options.option(
    "--output-dir",
    "export",
    old=["--export"],
    metavar="DIR",
    shell_complete=complete.folders,
    help="Write config.json, metrics.json and model.safetensors there.",
)
@options.storage
@options.as_json
def command(
    run_: str, trial: str | None, chosen: str | None, test: bool, export: str | None, storage: str, as_json: bool
) -> None:
    """Rebuild the best trial's model from its checkpoint and score it: on validation, with --test on the test set.

    TRIAL is another trial than the best: its id, or its number. A search with several objectives has a front and no
    single best trial: choose one of the front.

    \b
    Example:
      tuner best runs/quickstart-20260101-120000 --test --output-dir best_model
    """
    if trial is not None and chosen is not None:
        raise click.UsageError(f"TRIAL {trial} and --trial {chosen}: name one trial")
    from tuner.runs.loading import load_run
    from tuner.runs.restore import restore_best
    from tuner.spec.values import metrics_line
    from tuner.visualization.text_tables import config_lines

    results = load_run(run_, storage)
    best = restore_best(results, trial=trial or chosen, test=test, export=export)
    notices = [*results.notices, *best.notices]
    if as_json:
        print_json({"run": results.name, "folder": results.folder.location, **best.as_json(), "notices": notices})
        return
    for notice in notices:
        echo(f"NOTICE: {notice}", err=True)
    echo(f"trial       {best.trial}")
    for line in config_lines(best.config):
        echo(f"            {line}")
    echo(f"recorded    {metrics_line(best.recorded)}")
    echo(f"validation  {metrics_line(best.validation) if best.validation else best.not_validated}")
    if best.test is not None:
        echo(f"test        {metrics_line(best.test)}")
    echo(f"checkpoint  {best.checkpoint}")
    if best.exported:
        echo(f"exported    {best.exported}")

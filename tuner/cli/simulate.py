"""``simulate FILE…``: search tabulated learning curves in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.experiment.reader import Experiment
    from tuner.simulator.comparison import Comparison, Contender, Estimate, Limits, Row


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete.experiments)
@options.option(
    "--table",
    "tables",
    multiple=True,
    required=True,
    metavar="TABLE",
    shell_complete=complete.files,
    help="A parquet file, or a folder of them. Repeatable.",
)
@options.option("--workers", default="8", show_default=True, metavar="N,N", help="Trials that run at once.")
@options.option(
    "--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="Repetitions of each search."
)
@options.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Virtual hours of each search.")
@options.option("--trials", type=click.IntRange(min=1), help="Configurations that each search starts at most.")
@options.option(
    "--fidelity",
    metavar="NAME",
    help="Column of the table that counts progress; by default the schedulers' time_attr, or epoch.",
)
@options.overrides
@options.option(
    "--output-dir",
    "output",
    old=["-o", "--output"],
    metavar="DIR",
    shell_complete=complete.folders,
    help="Folder for the figure and the page; by default below runs/.",
)
@options.as_json
def command(
    files: tuple[str, ...],
    tables: tuple[str, ...],
    workers: str,
    seeds: int,
    hours: float | None,
    trials: int | None,
    fidelity: str | None,
    overrides: tuple[str, ...],
    output: str | None,
    as_json: bool,
) -> None:
    """Search tabulated learning curves in virtual time, with the searcher and scheduler of each FILE.

    \b
    Example:
      tuner simulate experiments/lcbench_asha.yaml experiments/lcbench_random.yaml --table t.parquet

    All searches get the same virtual time: --hours; or else the time in which random search without early stopping
    completes budget.trials trials (of the FILE with the most) on as many workers. How many trials a search starts in
    it is not limited, unless by --trials; with --trials alone a search lasts as long as they take.
    """
    from tuner.errors import InputError
    from tuner.experiment.reader import load_experiment
    from tuner.plan.compatibility import with_chosen_search
    from tuner.runs.results import new_run_name
    from tuner.simulator.comparison import Limits, compare
    from tuner.simulator.figures import page, png
    from tuner.storage.folder import STORAGE, RunFolder
    from tuner.visualization.text_tables import table as aligned

    if hours is not None and not math.isfinite(hours):
        raise InputError(f"--hours {hours:g}: must be a finite number above 0")
    slots = _numbers(workers)
    experiments = [with_chosen_search(load_experiment(file, overrides))[0] for file in files]
    contenders = _contenders(experiments, _files(tables), fidelity)
    full_trials = max(_trials(experiment) for experiment in experiments)
    limits = Limits(None if hours is None else hours * 3600, trials, full_trials)
    folder = RunFolder.at(output or f"{STORAGE}/{new_run_name('simulate')}")
    mode = experiments[0].spec.objective.mode
    with folder.created():
        comparison = compare(contenders, mode, slots, seeds, limits, lambda text: echo(text, err=True))
    shown, notes = aligned([_shown(row, len(contenders)) for row in comparison.rows()]), _notes(comparison, limits)
    picture = png(comparison)
    folder.write("comparison.png", picture)
    folder.write("comparison.html", page(comparison, picture, shown, notes).encode())
    for note in (*notes, f"figure: {folder.location}/comparison.png, page: {folder.location}/comparison.html"):
        echo(note, err=True)
    if as_json:
        print_json(_json(comparison, limits, folder.location))
    else:
        echo(shown)


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} must be whole numbers above 0, such as 1,8,64", param_hint="--workers")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _files(tables: Sequence[str]) -> list[str]:
    """Every table, with those in a folder in place of it. Raises InputError for a folder without one."""
    from tuner.errors import InputError

    files: list[str] = []
    for table in tables:
        inside = sorted(map(str, Path(table).glob("*.parquet"))) if Path(table).is_dir() else [table]
        if not inside:
            raise InputError(f"--table: {table}: there is no *.parquet file in this folder")
        files += inside
    return files


def _trials(experiment: Experiment) -> int:
    spec = experiment.spec
    return spec.budget.trials or spec.search.default_trials(spec.search_space)


def _contenders(experiments: Sequence[Experiment], tables: Sequence[str], fidelity: str | None) -> list[Contender]:
    """Each experiment with every table. Raises InputError if they do not fit together."""
    from tuner.errors import InputError
    from tuner.simulator import Table
    from tuner.simulator.comparison import Contender

    _comparable(experiments)
    specs = [experiment.spec for experiment in experiments]
    column = fidelity or _progress(experiments)
    stems = [Path(table).stem for table in tables]
    if len(set(stems)) < len(stems):
        raise InputError(f"--table: two tables have the same name: {', '.join(sorted(stems))}; rename one of them")
    read: dict[str, list[tuple[Any, Table]]] = {table: [] for table in tables}

    def table_of(path: str, spec: Any) -> Table:
        known = next((table for space, table in read[path] if space == spec.search_space), None)
        if known is None:
            known = Table.read(path, spec.search_space, spec.objective.metric, column)
            read[path].append((spec.search_space, known))
        return known

    return [Contender(s.name, s.search, s.scheduler, tuple(table_of(path, s) for path in tables)) for s in specs]


def _progress(experiments: Sequence[Experiment]) -> str:
    """The column that the schedulers count by. Raises InputError if they do not agree."""
    from tuner.errors import InputError

    counted = {e.spec.scheduler.fidelity[0]: e for e in experiments if e.spec.scheduler.fidelity}
    if len(counted) > 1:
        text = f"schedulers count by {' and '.join(counted)}: choose the column of the table with --fidelity"
        raise InputError([e.problem(("scheduler", "time_attr"), text) for e in counted.values()])
    return next(iter(counted), "epoch")


def _comparable(experiments: Sequence[Experiment]) -> None:
    """Raises InputError unless all can be searched, each has its name, and they have one objective in common."""
    from tuner.errors import InputError
    from tuner.experiment.space_checks import examined
    from tuner.plan.compatibility import pairing_problems, simulation_problem, space_problems

    problems = []
    for i, experiment in enumerate(experiments):
        spec, first = experiment.spec, experiments[0].spec
        problems += [experiment.problem(path, why) for path, why in space_problems(spec.search, spec.search_space)]
        problems += [experiment.problem(path, why) for path, why in pairing_problems(spec)]
        problems += examined(experiment).problems
        if reason := simulation_problem(spec.scheduler):
            problems.append(experiment.problem(("scheduler", "kind"), reason))
        if spec.search.from_runs:
            text = "a simulation learns from no earlier runs: leave it out (--set search.from_runs=[])"
            problems.append(experiment.problem(("search", "from_runs"), text))
        if any(spec.name == other.spec.name for other in experiments[:i]):
            text = f"{spec.name!r} is the name of an earlier experiment too: give one of them another name"
            problems.append(experiment.problem(("name",), text))
        if spec.outcome_constraints:
            text = "a simulation knows one metric, the objective: leave them out (--set outcome_constraints=[])"
            problems.append(experiment.problem(("outcome_constraints",), text))
        if len(spec.objectives) > 1:
            problems.append(experiment.problem(("objective",), "a simulation has one objective: name one"))
        elif str(spec.objective) != str(first.objective):
            text = f"{spec.objective} differs from {first.objective} of {first.name}: only one objective is compared"
            problems.append(experiment.problem(("objective",), text))
    if problems:
        raise InputError(problems)


def _shown(row: Row, contenders: int) -> dict[str, Any]:
    ranks = {"rank at 25 %": f"{row.quarter_rank:.2f}", "rank": f"{row.whole_rank:.2f}"} if contenders > 1 else {}
    return {
        "experiment": row.experiment,
        "workers": row.workers,
        "regret at 25 %": _estimate(row.quarter),
        "regret": _estimate(row.whole),
        **ranks,
        "trials": f"{row.trials:.0f}",
        "evaluations/s": f"{row.reports_per_s:,.0f}",
    }


def _estimate(value: Estimate) -> str:
    error = "" if value.standard_error is None else f" ± {value.standard_error:.4f}"
    return f"{value.mean:.4f}{error}"


def _notes(comparison: Comparison, limits: Limits) -> list[str]:
    """How to read the table."""
    tables, seeds = len(comparison.tables), comparison.seeds
    from tuner.spec.quantities import counted

    over = f"mean over {counted(tables, 'table')}"
    over += f", ± standard error over {seeds} seeds" if seeds > 1 else ", one seed"
    rank = "; rank: mean over both, 1 is the best" if len(comparison.contenders) > 1 else ""
    notes = [f"regret: (best in the table - incumbent) / (best - median of the last values); {over}{rank}"]
    if limits.seconds is None and limits.trials is None:
        notes.append(
            f"virtual time: that in which random search without early stopping completes {limits.full_trials} trials "
            "on as many workers"
        )
    elif limits.seconds is None:
        notes.append(f"virtual time: until the last of the searches has ended its {limits.trials} trials")
    guessed = [table for table in comparison.tables if table.measured < 1]
    notes += [f"{t.name}: {1 - t.measured:.0%} of its rows were not measured, but carried on" for t in guessed]
    return notes + [note for contender in comparison.contenders for note in _short_curves(contender)]


def _short_curves(contender: Contender) -> list[str]:
    """That the trials of some tables end before the scheduler's last rung."""
    _, max_t = contender.scheduler.fidelity or ("", 0)
    short = [table for table in contender.tables if table.fidelities[-1] < max_t]
    if not short:
        return []
    curves = f"the curves of {short[0].name}" + (f" and {len(short) - 1} more" if len(short) > 1 else "")
    last = short[0].fidelities[-1]
    return [
        f"{contender.name}: its scheduler.max_t is {max_t}, but {curves} end at {short[0].fidelity} {last}: trials end "
        f"there, at rungs that were made for {max_t} (--set scheduler.max_t={last} makes them for {last})"
    ]


def _json(comparison: Comparison, limits: Limits, folder: str) -> dict[str, Any]:
    from dataclasses import asdict

    seconds = {
        f"{table.name}, {workers} workers": comparison.cell(comparison.contenders[0], i, workers).seconds
        for workers in comparison.workers
        for i, table in enumerate(comparison.tables)
    }
    return {
        "folder": folder,
        "limits": asdict(limits),
        "seeds": comparison.seeds,
        "virtual_seconds": seconds,
        "results": [asdict(row) for row in comparison.rows()],
        "notes": _notes(comparison, limits),
    }

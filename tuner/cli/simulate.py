"""``simulate FILE…``: search known learning curves in virtual time."""

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
    from tuner.simulator.simulation import Costs


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete.experiments)
@options.option(
    "--table",
    "tables",
    multiple=True,
    metavar="TABLE",
    shell_complete=complete.files,
    help="Learning curves: a parquet file, or a folder of them. Repeatable.",
)
@options.option(
    "--function",
    "functions",
    multiple=True,
    metavar="REFERENCE",
    help="In place of tables: module:function or file.py:function, which takes a list of configurations and returns "
    "their values and their cumulative seconds, arrays with a row each and a column an epoch. Repeatable.",
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
@options.option(
    "--start-cost",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Virtual seconds before a new trial trains: its start, and the suggestion.",
)
@options.option(
    "--resume-cost",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Virtual seconds before a paused trial trains again.",
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
    functions: tuple[str, ...],
    workers: str,
    seeds: int,
    hours: float | None,
    trials: int | None,
    fidelity: str | None,
    start_cost: float,
    resume_cost: float,
    overrides: tuple[str, ...],
    output: str | None,
    as_json: bool,
) -> None:
    """Search known learning curves in virtual time, with the searcher and scheduler of each FILE.

    \b
    Example:
      tuner simulate experiments/lcbench_asha.yaml experiments/lcbench_random.yaml --table t.parquet
      tuner simulate asha.yaml random.yaml --function curves.py:surrogate

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
    from tuner.simulator.simulation import Costs
    from tuner.storage.folder import STORAGE, RunFolder
    from tuner.visualization.text_tables import table as aligned

    numbers = {"--hours": hours, "--start-cost": start_cost, "--resume-cost": resume_cost}
    for option, number in numbers.items():
        if number is not None and not math.isfinite(number):
            raise InputError(f"{option} {number:g}: must be a finite number")
    if bool(tables) == bool(functions):
        raise InputError("learning curves: give --table or --function, one of the two")
    slots = _numbers(workers)
    experiments = [with_chosen_search(load_experiment(file, overrides))[0] for file in files]
    _comparable(experiments)
    contenders = _on_functions(experiments, functions) if functions else _on_tables(experiments, tables, fidelity)
    full_trials = max(_trials(experiment) for experiment in experiments)
    limits = Limits(None if hours is None else hours * 3600, trials, full_trials)
    costs = Costs(start_cost, resume_cost)
    folder = RunFolder.at(output or f"{STORAGE}/{new_run_name('simulate')}")
    mode = experiments[0].spec.objective.mode
    with folder.created():
        comparison = compare(contenders, mode, slots, seeds, limits, lambda text: echo(text, err=True), costs)
    shown = aligned([_shown(row, len(contenders)) for row in comparison.rows()])
    notes = _notes(comparison, limits, costs)
    picture = png(comparison)
    folder.write("comparison.png", picture)
    folder.write("comparison.html", page(comparison, picture, shown, notes).encode())
    for note in (*notes, f"figure: {folder.location}/comparison.png, page: {folder.location}/comparison.html"):
        echo(note, err=True)
    if as_json:
        print_json(_json(comparison, limits, costs, folder.location))
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


def _on_functions(experiments: Sequence[Experiment], references: Sequence[str]) -> list[Contender]:
    """Each experiment with every function. Raises InputError if one cannot be used."""
    from tuner.simulator.comparison import Contender
    from tuner.simulator.functions import curves_of

    _named_once("--function", [reference.rpartition(":")[2] for reference in references])
    found = []
    for experiment in experiments:
        spec = experiment.spec
        column, _ = spec.scheduler.fidelity or ("epoch", 0)
        curves = [curves_of(reference, spec.search_space, spec.objective.metric, column) for reference in references]
        found.append(Contender(spec.name, spec.search, spec.scheduler, tuple(curves)))
    return found


def _named_once(option: str, names: Sequence[str]) -> None:
    from tuner.errors import InputError

    if len(set(names)) < len(names):
        raise InputError(f"{option}: two have the same name: {', '.join(sorted(names))}; rename one of them")


def _on_tables(experiments: Sequence[Experiment], paths: Sequence[str], fidelity: str | None) -> list[Contender]:
    """Each experiment with every table. Raises InputError if they do not fit together."""
    from tuner.simulator import Table
    from tuner.simulator.comparison import Contender

    tables = _files(paths)
    specs = [experiment.spec for experiment in experiments]
    column = fidelity or _progress(experiments)
    _named_once("--table", [Path(table).stem for table in tables])
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


def _notes(comparison: Comparison, limits: Limits, costs: Costs) -> list[str]:
    """How to read the table."""
    from tuner.simulator.simulation import FREE
    from tuner.spec.quantities import counted

    seeds, first = comparison.seeds, comparison.curves[0]
    over = f"mean over {counted(len(comparison.curves), first.what)}"
    over += f", ± standard error over {seeds} seeds" if seeds > 1 else ", one seed"
    rank = "; rank: mean over both, 1 is the best" if len(comparison.contenders) > 1 else ""
    best = "best in the table" if first.what == "table" else "best that a local search finds"
    notes = [f"regret: ({best} - incumbent) / (best - median of the last values); {over}{rank}"]
    if limits.seconds is None and limits.trials is None:
        notes.append(
            f"virtual time: that in which random search without early stopping completes {limits.full_trials} trials "
            "on as many workers"
        )
    elif limits.seconds is None:
        notes.append(f"virtual time: until the last of the searches has ended its {limits.trials} trials")
    if costs != FREE:
        notes.append(f"before it trains, a new trial takes {costs.start:g} s, and a resumed one {costs.resume:g} s")
    guessed = [table for table in comparison.curves if table.measured < 1]
    notes += [f"{t.name}: {1 - t.measured:.0%} of its rows were not measured, but carried on" for t in guessed]
    return notes + [note for contender in comparison.contenders for note in _short_curves(contender)]


def _short_curves(contender: Contender) -> list[str]:
    """That the trials of some tables end before the scheduler's last rung."""
    _, max_t = contender.scheduler.fidelity or ("", 0)
    short = [table for table in contender.curves if table.fidelities[-1] < max_t]
    if not short:
        return []
    curves = f"the curves of {short[0].name}" + (f" and {len(short) - 1} more" if len(short) > 1 else "")
    last = short[0].fidelities[-1]
    return [
        f"{contender.name}: its scheduler.max_t is {max_t}, but {curves} end at {short[0].fidelity} {last}: trials end "
        f"there, at rungs that were made for {max_t} (--set scheduler.max_t={last} makes them for {last})"
    ]


def _json(comparison: Comparison, limits: Limits, costs: Costs, folder: str) -> dict[str, Any]:
    from dataclasses import asdict

    seconds = {
        f"{curves.name}, {workers} workers": comparison.cell(comparison.contenders[0], i, workers).seconds
        for workers in comparison.workers
        for i, curves in enumerate(comparison.curves)
    }
    return {
        "folder": folder,
        "limits": asdict(limits),
        "costs": asdict(costs),
        "seeds": comparison.seeds,
        "virtual_seconds": seconds,
        "results": [asdict(row) for row in comparison.rows()],
        "notes": _notes(comparison, limits, costs),
    }

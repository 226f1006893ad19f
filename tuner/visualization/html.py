"""``report.html``: a run as one page, with all that it takes to judge the result and to have it again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from tuner.plan.cluster import format_resources
from tuner.redaction import redacted_argv
from tuner.runs.consumption import OF_TRIAL
from tuner.runs.feasibility import no_winner, why
from tuner.runs.results import EXPERIMENT, PROVENANCE, RAY, REPORT, TRIAL_LOG, ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import flat
from tuner.spec.quantities import format_duration
from tuner.visualization.axes import Axis, axes_of
from tuner.visualization.by_people import HEAD, command_rows
from tuner.visualization.curves import front, incumbent, learning_curves, timeline
from tuner.visualization.document import Section, bullets, code, document, notices, table
from tuner.visualization.importance import LEAST_TRIALS, Importance, importance
from tuner.visualization.parameters import LEAST_CONTOUR, contour, dotted, importance_bars, pair, parallel, slice_of
from tuner.visualization.style import outside
from tuner.visualization.summary import ranked, state, summarize
from tuner.visualization.text_tables import (
    best_command,
    config_lines,
    consumption_lines,
    failed_attempts,
    learned_lines,
    objectives_line,
    saved,
    savings_line,
    status_line,
)
from tuner.visualization.thinning import MOST_AXES, MOST_CELLS, MOST_TRIALS, cut, left_out, shown, thinned
from tuner.visualization.timeline import Timeline, chronicle
from tuner.visualization.twins import same_curves
from tuner.visualization.use_over_time import Spans, busy_share, spans, use_over_time

SLICES = 12
"""Parameters that have a slice plot at most: those that matter most."""

MOST_FRONT = 100
"""Rows of the table of a Pareto front at most."""

MOST_FAILURES = 500
"""Rows of the table of failed attempts at most."""

_AXIS_WIDTH = 100
"""Pixels between two parallel coordinates at least."""


def write_report(results: ResultSet) -> None:
    """Writes report.html into the run folder."""
    results.folder.write(REPORT, page(results).encode())


def page(results: ResultSet) -> str:
    """The whole page."""
    told, trials = chronicle(results), ranked(results)
    used = spans(results, told)
    axes = axes_of(results, trials)
    found = importance(results, trials)
    sections = [
        _summary(results, told, used),
        _configuration(results),
        _progress(results, told),
        _curves(results),
        _importance(results, found, len(trials)),
        *_parameters(results, trials, axes, found),
        _timeline(results, told),
        *_use(used, told),
        _trials(results),
        *_commands(results),
        _failures(results),
        _provenance(results, told),
        _again(results),
    ]
    said = filter(None, [*results.notices, *results.unreadable, same_curves(results)])
    head = f"<h1>{escape(results.name)}</h1>{notices(said)}"
    return document(results.name, head, sections)


def _summary(results: ResultSet, told: Timeline, used: Mapping[str, Spans]) -> Section:
    elapsed = results.provenance.get("elapsed_s") or told.elapsed
    first, *rest = summarize(results)
    learned = [_saved(results), *learned_lines(results)] if told.is_whole else []
    counts = [status_line(results), failed_attempts(results), *learned]
    busy = busy_share(results, used, told)
    lines = [state(results, elapsed), *filter(None, counts), *consumption_lines(results)]
    if busy is not None:
        lines.append(f"GPUs were busy {busy:.0f}% of the search")
    return Section("summary", "Result", html=bullets([first, *rest], "verdict") + bullets(lines))


def _saved(results: ResultSet) -> str:
    """Epochs and time that early stopping saved."""
    found = saved(results)
    if found is None or found.seconds <= 0:
        return savings_line(results)
    return f"{savings_line(results)}, about {format_duration(found.seconds)} of trial time at the mean pace of this run"


def _configuration(results: ResultSet) -> Section:
    if results.has_front:
        title, front = f"Pareto front of {objectives_line(results)}", results.front
        some = f"The first {MOST_FRONT} of {len(front)} trials." if len(front) > MOST_FRONT else ""
        rows = table(_rows(results, front[:MOST_FRONT]), words=["why it ended"])
        return Section("configuration", title, some, html=rows)
    best = results.best
    if best is None:
        reason = no_winner(results) or "no trial has a result"
        return Section("configuration", "Best configuration", f"There is none: {reason}.")
    return Section("configuration", "Best configuration", html=code("\n".join(config_lines(results.full_config(best)))))


def _progress(results: ResultSet, told: Timeline) -> Section:
    if results.has_front:
        title, nothing = "Pareto front", "Nothing was reported yet."
        drawn = front(results) if results.front else None
    else:
        title, nothing = "Best value over time", "Nothing was reported, or when is not known."
        drawn = incumbent(results, told) if told.incumbents and told.elapsed > 0 else None
    name = "front" if results.has_front else "incumbent"
    return Section(name, title, drawn[1], [drawn[0]]) if drawn else Section(name, title, nothing)


def _curves(results: ResultSet) -> Section:
    trials = shown(results)
    title, drawn = "Learning curves", learning_curves(results, trials)
    if drawn is None:
        return Section("curves", title, "No trial has reported.")
    what = "One line a trial, by the rung that it came to; click a name to hide its lines."
    what += outside(drawn[1]) + left_out(results, len(trials)) + thinned(results, len(trials))
    return Section("curves", title, what, [drawn[0]])


def _importance(results: ResultSet, found: Importance | None, count: int) -> Section:
    title = "Parameter importance"
    if found is None:
        few = f"It takes {LEAST_TRIALS} trials with a result to tell what matters from chance; this run has {count}."
        same = "All trials have the same parameters: there is nothing to compare."
        return Section("importance", title, few if count < LEAST_TRIALS else same)
    of = f" (first objective: {results.metric})" if results.has_front else ""
    some = f", an even choice of {count} by rank" if found.trials < count else ""
    text = (
        f"How much each parameter separates the best {found.top} of {found.trials} trials{some} from all of them{of}: "
        f"PED-ANOVA (Watanabe et al. 2023), as Optuna computes it. Early-stopped trials count with their best value. "
        f"The lines are 90 % intervals over bootstrap samples of the trials. A grey bar is no more than chance: the "
        f"same trials in an order at random often give as much."
    )
    return Section("importance", title, text, [importance_bars(found)])


def _parameters(
    results: ResultSet, trials: Sequence[Trial], axes: Sequence[Axis], found: Importance | None
) -> list[Section]:
    if not axes:
        why = "There is nothing to draw: no two trials with a result differ in a parameter."
        titles = {"parallel": "Parallel coordinates", "slices": "Each parameter", "contour": "Two parameters"}
        return [Section(name, title, why) for name, title in titles.items()]
    by_share = sorted(axes, key=lambda axis: -found.of(axis.name)) if found else list(axes)
    left_out = f" Shown are the {SLICES} that matter most of {len(axes)}." if len(axes) > SLICES else ""
    uprights = [axis for axis in axes if axis in by_share[:MOST_AXES]]
    each = "Blue: trials that completed; hollow orange: trials that were stopped early or have not ended, with the best"
    return [
        Section(
            "parallel",
            "Parallel coordinates",
            f"One line a trial, through its parameters to {results.metric}; click a name to hide its lines."
            f"{_lines(len(trials), len(axes))}",
            [parallel(results, trials, uprights)],
            least_width=_AXIS_WIDTH * (len(uprights) + 1),
        ),
        Section(
            "slices",
            "Each parameter",
            f"{each} value that they reached.{_sampled(len(trials))}{left_out}",
            [slice_of(results, trials, axis) for axis in by_share[:SLICES]],
        ),
        _contour(results, trials, axes, found),
    ]


def _lines(trials: int, axes: int) -> str:
    """The part of it that is not in the parallel coordinates."""
    drawn = len(dotted(trials, MOST_TRIALS))
    caption = ""
    if drawn < trials:
        caption += f" Lines: {drawn} of the {trials} trials, the best and an even choice of the others."
    if axes > MOST_AXES:
        caption += f" Shown are the {MOST_AXES} parameters that matter most of {axes}."
    return caption


def _sampled(count: int) -> str:
    shown = len(dotted(count))
    return f" Dots: {shown} of the {count} trials, the best and an even choice of the others." if shown < count else ""


def _contour(results: ResultSet, trials: Sequence[Trial], axes: Sequence[Axis], found: Importance | None) -> Section:
    title, two = "Two parameters", pair(axes, found)
    if two is None:
        return Section("contour", title, "It takes two parameters that are ranges of numbers.")
    drawn = contour(results, trials, *two)
    if drawn is None:
        few = (
            f"Fewer than {LEAST_CONTOUR} trials have values of both {two[0].name} and {two[1].name}, or all on a line."
        )
        return Section("contour", title, few)
    everywhere = None not in (*two[0].positions, *two[1].positions)
    most = "the two ranges that matter most" + (" among those of all trials" if everywhere else "")
    which = most if found else "the first two ranges; what matters most is not known"
    text = (
        f"{results.metric} over {two[0].name} and {two[1].name}, {which}: interpolated between trials (dots), each "
        f"with its best value; the star is the best. Areas without trials stay empty."
    )
    text += _sampled(len(trials))
    return Section("contour", title, text, [drawn])


def _timeline(results: ResultSet, told: Timeline) -> Section:
    title = "Timeline"
    if not told.stretches or told.elapsed <= 0:
        return Section("timeline", title, "No trial has run, or when is not known.")
    drawn, idle = timeline(results, told)
    return Section("timeline", title, f"Which worker ran what, coloured by what became of the trial. {idle}", [drawn])


def _use(known: Mapping[str, Spans], told: Timeline) -> Iterator[Section]:
    drawn = use_over_time(known, told)
    if drawn is not None:
        what = "What the trials consumed, as the mean between two of their reports: memory and power of all together."
        yield Section("use", "Use over time", what, [drawn])


def _trials(results: ResultSet) -> Section:
    if not results.trials:
        return Section("trials", "Trials", "No trial has started.")
    parameters = {name for trial in results.trials for name, _ in flat(trial.config)}
    trials = shown(results, max(10, min(MOST_TRIALS, MOST_CELLS // (len(parameters) + 10))))
    text = f"Best first; click a heading to sort.{left_out(results, len(trials))}"
    rows = _rows(results, trials)
    return Section("trials", "Trials", text, html=table(rows, id_="trial-table", words=["why it ended"]))


def _rows(results: ResultSet, trials: Sequence[Trial]) -> list[list[object]]:
    configs = {trial.id: dict(flat(trial.config)) for trial in trials}
    longest_first = sorted(configs.values(), key=len, reverse=True)  # conditional parameters in their place
    names = list(dict.fromkeys(name for config in longest_first for name in config))
    metrics = results.compared_metrics
    shown = [f"{'' if results.has_front else 'best '}{metric}" for metric in metrics]
    where = ["host"] if len({trial.host for trial in trials if trial.host}) > 1 else []
    consumed = {trial.id: trial.consumption.named() for trial in trials}
    measured = [name for name in OF_TRIAL if any(name in told for told in consumed.values())]
    middle = ["steps", "seconds", *measured, *where, *names]
    rows: list[list[object]] = [["#", "trial", "status", *shown, *middle, "why it ended"]]
    for trial in trials:
        values = results.values(trial.best) if trial.best else {}
        cells = [_plain(configs[trial.id].get(name)) for name in names]
        fixed = [trial.number, trial.id, trial.status, *(values.get(metric) for metric in metrics)]
        host = [trial.host for _ in where]
        told = [consumed[trial.id].get(name) for name in measured]
        rows.append([*fixed, trial.steps, round(trial.seconds, 2), *told, *host, *cells, why(results, trial)])
    return rows


def _plain(value: object) -> object:
    return value if isinstance(value, (int, float, str)) or value is None else " ".join(config_lines({"": value}))[3:]


def _commands(results: ResultSet) -> Iterator[Section]:
    """What people commanded, where somebody did."""
    if results.commands:
        rows = table([HEAD, *command_rows(results)], words=["command", "what came of it"])
        yield Section("commands", "Commands", "What people changed while the search ran.", html=rows)


def _failures(results: ResultSet) -> Section:
    rows: list[list[object]] = [["#", "trial", "after report", "kind", "what it met", "then", "log"]]
    for trial in results.trials:
        log = f"{results.folder.location}/{RAY}/{trial.id}/{TRIAL_LOG}"
        for i, failure in enumerate(trial.failures):
            last = i == len(trial.failures) - 1
            then = "given up" if failure.final else f"tried again{f': {trial.status}' if last else ''}"
            rows.append([trial.number, trial.id, failure.step, failure.kind, failure.message, then, log])
        if trial.status == "failed" and not trial.failures:
            rows.append([trial.number, trial.id, trial.steps, "", trial.reason, "given up", log])
    head, *failures = rows
    if not failures:
        return Section("failures", "Failures", "No attempt at a trial failed.")
    some = cut(len(failures), MOST_FAILURES)
    made = table([head, *failures[-MOST_FAILURES:]], id_="failure-table", words=["what it met"])
    return Section("failures", "Failures", some, html=made)


def _provenance(results: ResultSet, told: Timeline) -> Section:
    known = results.provenance
    if not known:
        return Section("provenance", "Provenance", f"Not known: {PROVENANCE} cannot be read.")
    git = known.get("git") or {}
    changed = " with uncommitted changes" if git.get("diff_sha256") else ""
    cluster = []
    for node in known.get("cluster", []):
        cluster.append(f"{node['name']}: {format_resources({k: v for k, v in node.items() if k != 'name'})}")
    trial = ", ".join(f"{amount:g} {name}" for name, amount in known.get("trial_resources", {}).items())
    rows = {
        "started": known.get("started"),
        "took": format_duration(known.get("elapsed_s") or told.elapsed),
        "command": " ".join(redacted_argv(known.get("command", []))),
        "in": known.get("working_directory"),
        "experiment": known.get("experiment_file"),
        "git commit": f"{git['commit']}{changed}" if "commit" in git else "none: not in a git checkout",
        "seed": known.get("seed"),
        "host": ", ".join(known[key] for key in ("host", "platform") if key in known),
        "cluster": "; ".join(cluster),
        "a trial takes": trial,
        "at once": known.get("slots"),
        "python": known.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in known.get("packages", {}).items()),
        "page written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    pairs = [[name, str(value)] for name, value in rows.items() if value not in (None, "")]
    return Section("provenance", "Provenance", html=table([["", "value"], *pairs], words=["value"]))


def _again(results: ResultSet) -> Section:
    git, run = results.provenance.get("git") or {}, results.folder.quoted
    lines = [f"git checkout {git['commit']}"] if "commit" in git else []
    lines.append(f"python -m tuner run {(results.folder / EXPERIMENT).quoted}")
    if results.front:
        best = results.front[0]
        lines.append(f"python -m tuner replay {run} {best.number}")
        if best.best and best.best.checkpoint:
            lines.append(best_command(results, best))
    caption = "The search again; one trial again, compared with the record; the best model, restored:"
    return Section("again", "To have it again", caption, html=code("\n".join(lines)))

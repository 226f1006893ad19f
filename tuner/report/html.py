"""``report.html``: a run as one page that opens anywhere, with no script and nothing to load."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tuner.report.terminal import config_line, config_lines, headline, number, objectives_line, trust
from tuner.results import REPORT, ResultSet, Trial

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; }
.notice { border-left: .4rem solid #d55e00; background: #d55e0022; padding: .5rem 1rem; font-weight: 600; }
.scroll { overflow-x: auto; }
code { font-size: .93em; }
"""


def write_report(results: ResultSet) -> None:
    """Writes report.html into the run folder."""
    results.folder.write(REPORT, page(results).encode())


def _row(results: ResultSet, trial: Trial) -> str:
    values = results.values(trial.best) if trial.best else {}
    cells = [
        ("number", str(trial.number)),
        ("", trial.id),
        ("", trial.status),
        *(("number", number(values.get(objective.metric))) for objective in results.objectives),
        ("number", str(trial.steps)),
        ("number", f"{trial.seconds:.1f}"),
        ("", config_line(trial.config)),
        ("", trial.why),
    ]
    return "<tr>" + "".join(f'<td class="{kind}">{escape(text)}</td>' for kind, text in cells) + "</tr>"


def _table(results: ResultSet, trials: Iterable[Trial]) -> str:
    best = "" if results.has_front else "best "
    metrics = [f"{best}{objective.metric}" for objective in results.objectives]
    names = ["#", "trial", "status", *metrics, "steps", "seconds", "configuration", "why it ended"]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(_row(results, trial) for trial in trials)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _result(results: ResultSet) -> str:
    """The best configuration, or the front."""
    if results.has_front:
        title = f"Pareto front of {objectives_line(results)}"
        return f"<h2>{escape(title)}</h2>{_table(results, results.front)}"
    config = "\n".join(line for best in results.front for line in config_lines(results.full_config(best)))
    return f"<h2>Best configuration</h2><pre><code>{escape(config)}</code></pre>"


def page(results: ResultSet) -> str:
    """The whole page."""
    notices = "".join(f'<p class="notice">{escape(text)}</p>' for text in results.notices)
    lines = [line for line in headline(results) if not line.startswith(("NOTICE", " "))]  # the front has its table
    lines += filter(None, [trust(results)])
    points = "".join(f"<li>{escape(line)}</li>" for line in lines)
    ranked = [*results.rank(results.trials), *(t for t in results.trials if t.best is None)]
    title = escape(results.name)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>{_STYLE}</style></head><body>
<h1>{title}</h1>{notices}
<ul>{points}</ul>
{_result(results)}
<h2>Trials</h2>{_table(results, ranked)}
<p>To run it again: <code>python -m tuner run {escape(results.folder.shown)}/experiment.yaml</code></p>
</body></html>
"""

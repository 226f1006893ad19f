"""Figures of simulated searches, and the page that shows them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tuner.simulator.comparison import Comparison, Contender
from tuner.spec.quantities import counted
from tuner.visualization.style import PALETTE

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_STYLES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", "--", "-.", ":", (0, (7, 1)), (0, (3, 1, 1, 1, 1, 1)))
"""Besides the colours, for print in grey."""

_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))

_LEAST = 1e-3
"""Regrets below are drawn here: the axis is logarithmic, and a search may find the very best."""

_POINTS = 400


def png(comparison: Comparison) -> bytes:
    """The picture of `figure`."""
    sink = io.BytesIO()
    figure(comparison).savefig(sink, format="png")
    return sink.getvalue()


def figure(comparison: Comparison) -> Figure:
    """Regret against virtual time, one column for each number of workers; with one table the incumbent above."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    single = len(comparison.curves) == 1
    columns, rows = len(comparison.workers), 2 if single else 1
    drawn = Figure(figsize=(max(4.2 * columns, 6.4), 3.2 * rows + 0.9), dpi=150, layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False, sharey="row")
    for j, workers in enumerate(comparison.workers):
        axes[0, j].set_title(counted(workers, "worker"))
        if single:
            _draw_incumbents(axes[0, j], comparison, workers)
        _draw_regrets(axes[-1, j], comparison, workers)
        axes[-1, j].set_xlabel(_time_axis(comparison, workers)[1])
    if single:
        axes[0, 0].set_ylabel(f"incumbent: {comparison.curves[0].metric}")
    axes[-1, 0].set_ylabel("normalised regret (0: the best there is)")
    handles, labels = axes[-1, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
    drawn.suptitle(_caption(comparison), fontsize=9)
    FigureCanvasAgg(drawn)
    return drawn


def _caption(comparison: Comparison) -> str:
    first = comparison.curves[0]
    over = f"{first.what} {first.name}"
    if len(comparison.curves) > 1:
        over = f"mean of {counted(len(comparison.curves), first.what)}"
    spread = f"line: mean of {comparison.seeds} seeds, band: ± 1 standard error" if comparison.seeds > 1 else "one seed"
    return f"{over}; {spread}\nlines begin where all have reported; regrets below {_LEAST:g} are drawn there"


def _time_axis(comparison: Comparison, workers: int) -> tuple[float, str]:
    """(what the whole virtual time is on the axis, the label of the axis)."""
    if len(comparison.curves) > 1:
        return 100.0, "virtual time (% of the budget)"
    seconds = comparison.cell(comparison.contenders[0], 0, workers).seconds
    factor, unit = next((f, name) for f, name in _UNITS if seconds >= 2 * f or f == 1)
    return seconds / factor, f"virtual time ({unit})"


def _shares() -> NDArray[np.float64]:
    import numpy as np

    return np.linspace(0, 1, _POINTS + 1)


def _draw_regrets(axis: Axes, comparison: Comparison, workers: int) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_yscale("log")
    for i, contender in enumerate(comparison.contenders):
        _draw(axis, comparison, workers, i, regrets_since_reports(comparison, contender, workers, _shares()), _LEAST)
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


def regrets_since_reports(
    comparison: Comparison, contender: Contender, workers: int, shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`Comparison.regrets`, but NaN until every search has reported: a first report may be worse than the 1 before it,
    and a curve that rises would look as if the search had lost something."""
    import numpy as np

    cells = [comparison.cell(contender, i, workers) for i in range(len(comparison.curves))]
    silent = np.isnan([cell.incumbents(shares) for cell in cells]).any(axis=(0, 1))
    return np.where(silent, np.nan, comparison.regrets(contender, workers, shares))


def _draw_incumbents(axis: Axes, comparison: Comparison, workers: int) -> None:
    import numpy as np

    for i, contender in enumerate(comparison.contenders):
        _draw(axis, comparison, workers, i, comparison.cell(contender, 0, workers).incumbents(_shares()), -np.inf)


def _draw(
    axis: Axes, comparison: Comparison, workers: int, number: int, values: NDArray[np.float64], least: float
) -> None:
    """One contender's mean and standard error over seeds, from where all of them have a value."""
    import numpy as np

    known = ~np.isnan(values).any(axis=0)
    times, values = (_shares() * _time_axis(comparison, workers)[0])[known], values[:, known]
    mean = values.mean(axis=0)
    colour = PALETTE[number % len(PALETTE)]
    label = comparison.contenders[number].name
    style = _STYLES[number % len(_STYLES)]
    axis.plot(times, np.maximum(mean, least), color=colour, linestyle=style, linewidth=1.6, label=label)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        low, high = np.maximum(mean - error, least), np.maximum(mean + error, least)
        axis.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set_xlim(0, _time_axis(comparison, workers)[0])
    axis.grid(visible=True, which="major", color="#cccccc", linewidth=0.5)


def page(comparison: Comparison, picture: bytes, table: str, notes: Sequence[str]) -> str:
    """One HTML page with the figure in it, the table as the terminal shows it, and how to read them."""
    title = escape(" · ".join(contender.name for contender in comparison.contenders))
    data = base64.b64encode(picture).decode()
    lines = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body {{ max-width: 76rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }}
img {{ max-width: 100%; }} pre {{ overflow-x: auto; }}</style></head><body>
<h1>{title}</h1><img alt="normalised regret against virtual time" src="data:image/png;base64,{data}">
<pre>{escape(table)}</pre>{lines}</body></html>
"""

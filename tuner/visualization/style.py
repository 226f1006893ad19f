"""How figures look: one palette and one layout for all, legible in light and dark, on a phone and in print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any

from tuner.spec.objective import Objective

if TYPE_CHECKING:
    import plotly.graph_objects as go

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
BLACK, GREY = "#000000", "#8C8C8C"

PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""Okabe and Ito's palette, which colour-blind readers tell apart."""

SCALE = "Cividis"
"""For quantities: Nunez et al. (2018), the same to colour-blind readers."""

STATUS_COLOURS = {
    "completed": BLUE,
    "stopped": ORANGE,
    "failed": VERMILLION,
    "running": GREEN,
    "paused": PURPLE,
    "pending": GREY,
}

HEIGHT = 380
"""Pixels of a figure, unless it says otherwise."""

EXTREME = 8.0
"""An axis leaves out values that are so many times further from the best than nine tenths of them."""


def figure(
    traces: Sequence[Any], x: dict[str, Any], y: dict[str, Any], *, height: int = HEIGHT, **layout: Any
) -> go.Figure:
    """``traces`` on the axes ``x`` and ``y``. The page's script puts in the colours of text and grid."""
    import plotly.graph_objects as go

    base = {
        "template": None,
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 12, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "legend": {
            "orientation": "h",
            "itemsizing": "constant",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
        },
        "xaxis": {"zeroline": False, "exponentformat": "power", **x},
        "yaxis": {"zeroline": False, "exponentformat": "power", **y},
    }
    return go.Figure(list(traces), base | layout)


def is_number(value: object) -> bool:
    """Whether ``value`` can stand on an axis: a finite number that a float can hold, and no boolean."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def label(text: object, longest: int = 40) -> str:
    """``text`` as a figure may show it: Plotly takes ``<`` for the beginning of a tag."""
    shown = str(text)
    return escape(shown if len(shown) <= longest else f"{shown[: longest - 1]}…", quote=False)


def objective_label(objective: Objective) -> str:
    """``val_accuracy (higher is better)``."""
    return f"{label(objective.metric)} ({'higher' if objective.mode == 'max' else 'lower'} is better)"


def view(values: Sequence[float], objective: Objective) -> tuple[list[float] | None, int]:
    """The range of an axis for ``values``, and how many of them lie outside of it.

    None, and 0, if all of them fit: none is further from the best one than `EXTREME` times the distance of the nearest
    nine tenths. Else a single exploded loss would flatten all the others to a line.
    """
    ordered = sorted((v for v in values if math.isfinite(v)), key=lambda v: -objective.sign * v)
    if len(ordered) < 10:
        return None, 0
    best, usual = ordered[0], ordered[int(0.9 * (len(ordered) - 1))]
    inside = [v for v in ordered if abs(v - best) <= EXTREME * abs(usual - best)]
    if len(inside) == len(ordered) or usual == best:
        return None, 0
    margin = 0.05 * abs(inside[-1] - best)
    return [min(best, inside[-1]) - margin, max(best, inside[-1]) + margin], len(ordered) - len(inside)


def outside(count: int) -> str:
    """A caption's words for `view`; empty if nothing is outside."""
    if not count:
        return ""
    verb = "value lies" if count == 1 else "values lie"
    return f" {count} extreme {verb} outside the axis: double-click the figure to see all."

"""An HTML page that opens anywhere: figures, tables and the library that draws them in one file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tuner.spec.values import format_number
from tuner.visualization.style import is_number

if TYPE_CHECKING:
    import plotly.graph_objects as go

_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""What the page may load: nothing from anywhere else, whatever a configuration or an error text holds."""


_LONGEST = 2000
"""Characters of a cell at most."""


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, a caption, figures, and other HTML."""

    id: str
    title: str
    caption: str = ""
    figures: Sequence[go.Figure] = ()
    html: str = ""
    least_width: int = 0
    """Pixels that its figures need: where the screen has less, they scroll."""

    @property
    def names(self) -> list[str]:
        """The ids of its figures."""
        return [self.id if len(self.figures) == 1 else f"{self.id}-{i + 1}" for i in range(len(self.figures))]


def document(title: str, head: str, sections: Sequence[Section]) -> str:
    """The whole page. ``head`` is HTML that comes before the first section."""
    drawn = {
        name: json.loads(drawing.to_json())
        for section in sections
        for name, drawing in zip(section.names, section.figures, strict=True)
    }
    data = json.dumps(drawn, separators=(",", ":")).replace("<", "\\u003c")
    body = head + "".join(map(_section, sections))
    style, rows, script = (
        (files("tuner.visualization") / name).read_text() for name in ("page.css", "rows.js", "page.js")
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><link rel="icon" href="data:,">
<title>{escape(title)}</title><style>{style}</style></head><body>
{body}
<script type="application/json" id="figures">{data}</script>
<script>{_plotly()}</script>
<script>{rows}
{script}</script>
</body></html>
"""


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _section(section: Section) -> str:
    sizes = [f"height:{drawing.layout.height}px;min-width:{section.least_width}px" for drawing in section.figures]
    places = "".join(
        f'<div class="plot" id="{name}" style="{size}"></div>' for name, size in zip(section.names, sizes, strict=True)
    )
    kind = "tiles" if len(section.figures) > 1 else "wide"
    plots = f'<div class="{kind}">{places}</div>' if places else ""
    caption = f'<p class="caption">{escape(section.caption)}</p>' if section.caption else ""
    return (
        f'<section data-part="{section.id}"><h2>{escape(section.title)}</h2>{caption}{plots}{section.html}</section>\n'
    )


def table(rows: Sequence[Sequence[Any]], *, id_: str = "", words: Iterable[str] = ()) -> str:
    """An HTML table; the first row is the heading. With ``id_`` it can be sorted and filtered.

    ``words``: columns of running text, which is broken into lines.
    """
    head, *body = rows
    running = {i for i, name in enumerate(head) if name in set(words)}
    numeric = [any(is_number(row[i]) for row in body) for i in range(len(head))]
    shown = [f"<button>{escape(str(title))}</button>" if id_ else escape(str(title)) for title in head]
    titles = "".join(
        f"<th{' class=format_number' * right}>{text}</th>" for text, right in zip(shown, numeric, strict=True)
    )
    lines = "".join(f"<tr>{''.join(_cell(value, i in running) for i, value in enumerate(row))}</tr>\n" for row in body)
    attributes = f' id="{id_}" class="sortable"' if id_ else ""
    made = f"<table{attributes}><thead><tr>{titles}</tr></thead><tbody>\n{lines}</tbody></table>"
    if not id_:
        return f'<div class="wide">{made}</div>'
    hint = "words, or conditions such as steps&gt;3 status=stopped"
    box = f'<input type="search" data-table="{id_}" placeholder="filter: {hint}" aria-label="filter">'
    return f'<div class="filter">{box}<output></output></div><div class="scroll">{made}</div>'


def _cell(value: Any, words: bool) -> str:
    if is_number(value):
        return f'<td class="number" data-value="{float(value)!r}">{escape(format_number(value))}</td>'
    text = "" if value is None else str(value)
    return f"<td{' class=words' * words}>{escape(text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…')}</td>"


def bullets(lines: Iterable[str], kind: str = "") -> str:
    """A list."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<ul{attribute}>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def notices(lines: Iterable[str]) -> str:
    """What the reader must see first."""
    return "".join(f'<p class="notice">{escape(line)}</p>' for line in lines)


def code(text: str) -> str:
    """Lines to be copied."""
    return f"<pre><code>{escape(text)}</code></pre>"

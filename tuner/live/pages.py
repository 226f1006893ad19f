"""The pages as HTML without any data, and the files that they load."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from tuner.visualization.style import STATUS_COLOURS, VERMILLION

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""What the pages may load, and do: nothing that a name or a message could bring in."""

_STYLES = ("page.css", "live.css")
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_FOREVER = "max-age=31536000, immutable"


@cache
def _assets() -> dict[str, bytes]:
    """The files that pages load, by name: those of the report that fit, and those of the live pages."""
    report, live = files("tuner.visualization"), files("tuner.live") / "static"
    found = {one.name: one.read_bytes() for one in live.iterdir() if one.name.endswith(".js")}
    colours = "".join(f"--{name}: {colour}; " for name, colour in {**STATUS_COLOURS, "best": VERMILLION}.items())
    styles = [f":root {{ {colours}}}\n".encode(), (report / _STYLES[0]).read_bytes(), (live / _STYLES[1]).read_bytes()]
    return found | {"rows.js": (report / "rows.js").read_bytes(), "style.css": b"".join(styles)}


@cache
def _version() -> str:
    return sha256(b"".join(name.encode() + data for name, data in sorted(_assets().items()))).hexdigest()[:16]


def page(title: str, script: str, depth: int, **told: str) -> HTMLResponse:
    """A page whose ``script`` fills it.

    Args:
        title: Of the page.
        script: One of the files.
        depth: Of the page's address: how many folders below that of ``live/`` it lies.
        **told: Attributes ``data-…`` of the body, which the script reads.

    Returns:
        The page.
    """
    live = f"{'../' * depth}live/{_version()}"
    attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in told.items())
    html = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><link rel="icon" href="data:,"><link rel="stylesheet" href="{live}/style.css">
<script src="{live}/rows.js" defer></script><script src="{live}/{script}" type="module"></script></head>
<body{attributes}><main></main><noscript><p class="notice">This page needs JavaScript.</p></noscript></body></html>
"""
    return HTMLResponse(html, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"})


def missing(what: str) -> HTMLResponse:
    """A page that says in one line that there is nothing."""
    html = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>tuner</title><p>{escape(what)}</p></html>'
    return HTMLResponse(html, status_code=404, headers={"Content-Security-Policy": POLICY})


def asset_routes() -> APIRouter:
    """The route of the files that pages load. Their addresses change with what they hold."""
    routes = APIRouter()

    @routes.get("/live/{version}/{name}", include_in_schema=False)
    def asset(request: Request, version: str, name: str) -> Response:
        data = _assets().get(name)
        if data is None:
            return Response(status_code=404)
        kept = _FOREVER if version == _version() else "no-cache"
        headers = {"Cache-Control": kept, "X-Content-Type-Options": "nosniff"}
        return Response(data, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)

    return routes

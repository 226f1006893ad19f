"""Sphinx: `scripts/docs` builds the site into build/docs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import tuner  # noqa: E402

project = "tuner"
author = "the tuner developers"
copyright = f"2026, {author}"
release = version = tuner.__version__

extensions = [
    "experiment_reference",
    "public_names",
    "json_documents",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
]
exclude_patterns = ["_sessions", "_ext"]
default_role = "code"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

linkcheck_timeout = 20
linkcheck_ignore = [r"http://(127\.0\.0\.1|localhost|HEAD:|$)"]  # addresses of examples

html_theme = "furo"
html_title = "tuner"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False


def _escape(app: object, ctx: object, lines: list[str]) -> None:
    """A star in a help text is no emphasis."""
    lines[:] = [line.replace("*", "\\*") for line in lines]


def setup(app: Any) -> None:
    """Makes the help texts of the command line reStructuredText."""
    for part in ("description", "options", "arguments", "epilog"):
        app.connect(f"sphinx-click-process-{part}", _escape)

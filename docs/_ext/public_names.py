"""The directive ``public-names``: a table of all names that `import tuner` offers, with what each is."""

from __future__ import annotations

import inspect

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import tuner


class PublicNames(SphinxDirective):
    """One row for each name of ``tuner.__all__``, so that a new name appears by itself."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        lines = [".. list-table::", "   :header-rows: 1", "", "   * - name", "     - meaning"]
        for name in tuner.__all__:
            lines += [f"   * - ``tuner.{name}``", f"     - {summary(name)}"]
        return self.parse_text_to_nodes(StringList(lines, source="public-names"))


def summary(name: str) -> str:
    """The first sentence of the docstring, as reStructuredText."""
    text = " ".join((inspect.getdoc(getattr(tuner, name)) or "").split("\n\n")[0].split())
    return text.replace("*", "\\*")


def setup(app: Sphinx) -> dict[str, bool]:
    """Makes the directive known."""
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True}

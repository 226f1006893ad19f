"""``algorithms``: which search goes with which scheduler."""

from __future__ import annotations

import math
import re
import textwrap
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.schedulers.base import SchedulerSpec
    from tuner.searchers.base import SearchSpec

WIDTH = 79
"""Columns of a terminal that the text fits in."""


@click.command()
@options.as_json
def command(as_json: bool) -> None:
    """Print which search goes with which scheduler, and why the others do not; and what each search can do.

    \b
    Example:
      tuner algorithms
    """
    from tuner.plan.compatibility import schedulers, searches

    all_searches, all_schedulers = searches(installed=True), schedulers(installed=True)
    if as_json:
        pairs = [_pair(search, scheduler) for search in all_searches for scheduler in all_schedulers]
        print_json({"pairings": pairs, "searches": [_can(search) for search in all_searches]})
    else:
        echo(_pairings(all_searches, all_schedulers))
        echo(_abilities(all_searches))


def _pair(search: SearchSpec, scheduler: SchedulerSpec) -> dict[str, str | bool | None]:
    from tuner.plan.compatibility import kind, label

    reason = scheduler.incompatibility(kind(search))
    return {"search": label(search), "scheduler": label(scheduler), "works": reason is None, "why_not": reason}


def _pairings(searches: list[SearchSpec], schedulers: list[SchedulerSpec]) -> str:
    """A row a search, a column a scheduler, and below them why some do not go together."""
    from tuner.plan.compatibility import kind, label, variant
    from tuner.visualization.text_tables import format_columns

    notes: dict[str, str] = {}
    rows = [["search", *map(kind, schedulers)], ["", *map(variant, schedulers)]]
    for search in searches:
        name, cells = kind(search), []
        for scheduler in schedulers:
            reason = scheduler.incompatibility(name)
            if reason is None:
                cells.append("yes")
                continue
            same = re.sub(rf"\b({name}|{kind(scheduler)})\b", "", reason)  # one note for all that share the reason
            note = f"such as {kind(scheduler)} with {name}: {reason}"
            notes.setdefault(same, f"({chr(ord('a') + len(notes))}) {note}")
            cells.append(notes[same][:3])
        rows.append([label(search), *cells])
    return "\n".join(["Search by scheduler:", "", format_columns(rows), "", *map(_note, notes.values()), ""])


def _note(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _can(search: SearchSpec) -> dict[str, Any]:
    """What a search can do, as plain values; nothing where a class of the user's decides."""
    from tuner.plan.compatibility import abilities, label

    found = abilities(search)
    if found is None:
        return {"search": label(search)}
    return {
        "search": label(search),
        "max_objectives": None if math.isinf(found.objectives) else found.objectives,
        "conditions": found.conditions,
        "priors": found.priors,
        "limits": found.limits,
        "refused_domains": list(found.refused),
    }


def _abilities(searches: list[SearchSpec]) -> str:
    """A row a search, and what it can do."""
    from tuner.plan.compatibility import abilities, label
    from tuner.visualization.text_tables import format_columns

    rows = [["search", "objectives", "when", "prior", "limit", "domains that it refuses"]]
    for search in searches:
        found = abilities(search)
        if found is None:
            rows.append([label(search), "?", "?", "?", "no", "its class decides"])
            continue
        count = "any" if math.isinf(found.objectives) else str(found.objectives)
        yes = ["yes" if able else "no" for able in (found.conditions, found.priors, found.limits)]
        rows.append([label(search), count, *yes, ", ".join(found.refused) or "none"])
    heading = "What each search can do (when: conditions; limit: outcome_constraints):"
    return "\n".join([heading, "", format_columns(rows)])

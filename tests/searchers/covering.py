"""A subset of all cases in which every combination that matters still occurs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Case = TypeVar("Case")


def covering(cases: Sequence[Case], parts: Callable[[Case], frozenset[Hashable]]) -> list[Case]:
    """Some of ``cases``, in their order, that have between them all ``parts`` that any of ``cases`` has.

    Greedy: the next is the one with the most parts that none has so far, the first of several.
    """
    missing = frozenset[Hashable]().union(*map(parts, cases))
    chosen: set[int] = set()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(parts(cases[number]) & missing))
        chosen.add(best)
        missing -= parts(cases[best])
    return [cases[number] for number in sorted(chosen)]

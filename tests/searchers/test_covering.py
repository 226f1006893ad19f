"""The subset of the pairings that runs in CI leaves out nothing but repetitions."""

from __future__ import annotations

import itertools

import pytest
from pydantic import TypeAdapter

from tests.pairings.test_pairings import PAIRINGS, SEARCH_CLASS, block, news, parts
from tests.searchers.covering import covering
from tuner.errors import Problem
from tuner.plan.compatibility import kind, label, schedulers, searches
from tuner.searchers import AnySearch
from tuner.searchers.base import Searcher, SearchSpec
from tuner.spec.document import Document
from tuner.spec.problem import SearchProblem
from tuner.spec.space import read_space

CHOSEN = covering(PAIRINGS, parts)


def test_every_pair_of_values_occurs() -> None:
    cases = list(itertools.product("abc", "xyz", range(3), "uv"))
    chosen = covering(cases, lambda case: frozenset(itertools.combinations(enumerate(case), 2)))
    for one, other in itertools.combinations(range(4), 2):
        assert {(case[one], case[other]) for case in chosen} == {(case[one], case[other]) for case in cases}
    assert len(chosen) <= 12, "9 are the fewest"
    assert chosen == covering(cases, lambda case: frozenset(itertools.combinations(enumerate(case), 2)))


def test_what_only_one_case_has_is_kept_and_repetitions_are_not() -> None:
    assert covering(["ab", "a", "b", "c", "cc"], frozenset) == ["ab", "c"]
    assert covering([], frozenset) == []


def test_every_search_is_there() -> None:
    assert {label(search) for search, _ in CHOSEN} == {label(search) for search in searches()}


def test_every_scheduler_meets_every_kind_of_search_that_suits_it() -> None:
    for scheduler in schedulers():
        suited = {news(one) for one in searches() if scheduler.incompatibility(kind(one)) is None}
        assert {news(search) for search, one in CHOSEN if one == scheduler} == suited, label(scheduler)


@pytest.mark.parametrize("search", [pytest.param(search, id=label(search)) for search in searches()])
def test_a_searcher_listens_to_what_the_pairings_take_it_to(search: SearchSpec) -> None:
    spec = TypeAdapter(AnySearch).validate_python(block(search, SEARCH_CLASS))
    problems: list[Problem] = []
    over = read_space(Document({"x": {"choice": [1, 2]}}, "made up"), (), problems)
    assert over
    built = type(spec.build(SearchProblem(over, ("max",), 6, 4, 0)))
    assert news(search) == {
        name for name in ("on_report", "on_end") if getattr(built, name) is not getattr(Searcher, name)
    }


def test_it_is_about_a_third_of_them() -> None:
    assert len(CHOSEN) <= len(PAIRINGS) / 3

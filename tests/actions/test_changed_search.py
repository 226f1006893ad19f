"""`extend --set search_space…`: a search continues in another space, or with another searcher. Without Ray."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.actions.test_killed_extension import STEPS, killed
from tests.execution.test_crash import TRIALS, begin, quiet, without_ray  # noqa: F401 - the fixture
from tests.journals import read_journal
from tests.tables import space
from tuner import extend, resume
from tuner.errors import InputError
from tuner.runs.results import ResultSet
from tuner.search.snapshot import STATE
from tuner.search.state import SearchState
from tuner.searchers.base import Searcher
from tuner.spec.objective import Objective
from tuner.storage.folder import RunFolder

NARROW = ["search_space.x.uniform=[0, 0.3]"]
GP = {"search": {"kind": "gp", "seed": 1, "n_initial_points": 3}}


def xs(results: ResultSet) -> list[float]:
    return [trial.config["x"] for trial in results.trials]


def changed(trials: str = "+4", overrides: list[str] = NARROW, say: Callable[[str], None] = quiet) -> ResultSet:
    return extend("r", trials=trials, overrides=overrides, say=say)


@pytest.mark.parametrize("keys", [{}, GP, {"search": {"kind": "optuna", "n_startup_trials": 2}}])
def test_new_trials_lie_in_the_new_space(keys: dict[str, Any]) -> None:
    before = xs(begin(**keys))
    said: list[str] = []
    results = changed(say=said.append)
    assert xs(results)[:TRIALS] == before
    assert all(0 <= x <= 0.3 for x in xs(results)[TRIALS:])
    assert len(set(xs(results))) == TRIALS + 4
    inside = sum(x <= 0.3 for x in before)
    outside = next(x for x in before if x > 0.3)
    told = f"the search was changed: {inside} of the {TRIALS} trials so far lie in its space"
    assert any(told in text and f"(x: {outside} is outside uniform [0, 0.3])" in text for text in said)
    assert results.best.number == 1 + max(range(TRIALS), key=before.__getitem__)  # the best of all, wherever it lies


def test_it_continues_in_the_new_space_as_in_any_other() -> None:
    begin()
    changed()
    said: list[str] = []
    results = extend("r", trials="+3", say=said.append)
    assert all(x <= 0.3 for x in xs(results)[TRIALS:])
    assert len(set(xs(results))) == TRIALS + 7
    assert said == [text for text in said if "was changed" not in text and "suggests" not in text]


@pytest.mark.parametrize("step", STEPS[1:])
@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "journal only"])
@pytest.mark.parametrize("keys", [{}, GP])
def test_a_killed_change_draws_what_it_would_have_drawn(
    monkeypatch: pytest.MonkeyPatch, step: str, snapshot: bool, keys: dict[str, Any], tmp_path: Path
) -> None:
    begin(**keys)
    expected = xs(changed())
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other" / "mine.py").write_text("def train(config):\n    pass\n")
    begin(**keys)
    killed(monkeypatch, step, changed)
    if not snapshot:
        (Path("runs/r") / STATE).unlink()
    said: list[str] = []
    assert xs(resume("r", say=said.append)) == expected
    assert not any("suggests" in text for text in said)


@pytest.mark.parametrize("keys", [{}, GP])
def test_a_search_that_was_interrupted_before_draws_the_same(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], tmp_path: Path
) -> None:
    """Though its journal has other events: those of the trials that ran again."""

    def renewed() -> int:
        return next(e["n"] for e in read_journal(RunFolder.at("runs/r")).events if e["what"] == "extended")

    begin(**keys)
    expected, number = xs(changed()), renewed()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other" / "mine.py").write_text("def train(config):\n    pass\n")
    begin(**keys)
    journal = Path("runs/r/journal.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    last = max(k for k, line in enumerate(lines) if b'"reported"' in line)
    journal.write_bytes(b"".join(lines[: last + 1]))
    (Path("runs/r") / STATE).unlink()
    resume("r", say=quiet)
    assert xs(changed()) == expected
    assert renewed() != number


def test_a_damaged_journal_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begin()
    changed()
    journal = Path("runs/r/journal.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    place = next(k for k, line in enumerate(lines) if b'"reported"' in line)
    journal.write_bytes(b"".join([*lines[:place], b"damaged\n", *lines[place + 1 :]]))
    (Path("runs/r") / STATE).unlink()
    said: list[str] = []
    results = extend("r", trials="+3", say=said.append)
    assert len(results.trials) == TRIALS + 7
    assert all(x <= 0.3 for x in xs(results)[TRIALS:])
    assert not any("suggests" in text for text in said)
    assert not read_journal(RunFolder.at("runs/r")).damage


def test_another_searcher_continues() -> None:
    before = xs(begin())
    said: list[str] = []
    results = changed(overrides=["search.kind=gp"], say=said.append)
    assert xs(results)[:TRIALS] == before
    assert any(f"{TRIALS} of the {TRIALS} trials so far lie in its space" in text for text in said)
    assert len(set(xs(results))) == TRIALS + 4
    assert results.spec["search"]["kind"] == "gp"


def test_a_grid_runs_what_is_new_in_it() -> None:
    begin(search={"kind": "grid"}, search_space={"x": {"choice": [0.1, 0.2]}}, budget={"trials": 2})
    results = extend("r", trials="+2", overrides=["search_space.x.choice=[0.4, 0.2, 0.3, 0.1]"], say=quiet)
    assert xs(results) == [0.1, 0.2, 0.4, 0.3]


def test_points_to_evaluate_run_once() -> None:
    points = [{"x": 0.25}, {"x": 0.125}]
    begin(search={"kind": "random", "seed": 1, "points_to_evaluate": points})
    results = changed()
    assert xs(results)[:2] == [0.25, 0.125]
    assert not {0.25, 0.125} & set(xs(results)[2:])


def test_a_parameter_that_is_fixed_keeps_the_trials_that_have_its_value() -> None:
    begin(search_space={"x": {"uniform": [0, 1]}, "opt": {"choice": ["a", "b"]}})
    said: list[str] = []
    results = changed(overrides=["search_space.opt=a"], say=said.append)
    with_a = sum(trial.config["opt"] == "a" for trial in results.trials[:TRIALS])
    assert {trial.config["opt"] for trial in results.trials[TRIALS:]} == {"a"}
    assert any(f"{with_a} of the {TRIALS} trials so far" in text and "opt: b is outside" in text for text in said)
    assert "opt" in json.dumps([axis.name for axis in axes(results)])


def axes(results: ResultSet) -> Any:
    from tuner.visualization.axes import axes_of

    return axes_of(results, results.trials)


def test_without_new_trials_it_changes_nothing() -> None:
    begin()
    with pytest.raises(InputError, match=r"changes nothing, as all of the 6 trials have started: .*--trials \+10"):
        extend("r", overrides=NARROW, say=quiet)
    assert "changed" not in {event["what"] for event in read_journal(RunFolder.at("runs/r")).events}


def test_a_search_that_learned_from_others_keeps_its_space() -> None:
    begin()
    Path("runs/r").rename("runs/first")
    begin(search={**GP["search"], "from_runs": ["runs/first"]})
    with pytest.raises(InputError, match="search_space: cannot change in a search that has from_runs"):
        changed()
    assert len(extend("r", trials="+1", say=quiet).trials) == TRIALS + 1


def test_a_population_keeps_its_space() -> None:
    scheduler = {"kind": "pbt", "max_t": 4, "perturbation_interval": 2}
    begin(scheduler=scheduler)
    with pytest.raises(InputError, match=r"search_space.*cannot change under scheduler pbt"):
        changed()


class Noting(Searcher):
    """Notes of which trials it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": 0.5}

    def register(self, trial_id: str, configuration: dict[str, Any]) -> None:
        self.heard.append((trial_id, "register"))

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        self.heard.append((trial_id, "report"))

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        self.heard.append((trial_id, "end"))


def test_the_searcher_hears_of_trials_in_its_space_alone() -> None:
    searcher, objectives = Noting(), (Objective(metric="score", mode="max"),)
    state = SearchState(searcher, None, space({"x": {"uniform": [0, 1]}}), objectives, "training_iteration")
    for trial_id, configuration in (("in", {"x": 0.5}), ("out", {"x": 2.0}), ("more", {"x": 0.5, "y": 1})):
        state.adopt(trial_id, configuration)
        state.add(trial_id, configuration)
        state.report(trial_id, 1, {"score": 0.0}, 1.0)
        state.end(trial_id, failed=False)
    assert searcher.heard == [(trial, what) for trial in ("in", "more") for what in ("register", "report", "end")]
    assert state.outside == {"out": "x: 2.0 is outside uniform [0, 1]"}

"""A search that people command ends, killed after any event, as it would have. Without Ray, as `test_recovery`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.journals import read_journal
from tests.search.test_recovery import SCHEDULERS, SEARCHES, TRIALS, Search, happened, named, outcome
from tuner.runs.commands import Commanded
from tuner.runs.trial import Origin, Trial
from tuner.search.emitted_events import commanded
from tuner.storage.folder import RunFolder

PAIRS = [(SEARCHES[1], scheduler) for scheduler in SCHEDULERS[:4]]
PAIRS += [(SEARCHES[0], SCHEDULERS[4]), (SEARCHES[3], SCHEDULERS[3]), (SEARCHES[2], SCHEDULERS[1])]

COMMANDS = [
    (6, "keep-trial"),
    (9, "add"),
    (15, "clone"),
    (22, "clone"),
    (24, "stop-trial"),
    (30, "pause"),
    (33, "slots"),
]
"""After how many reports each comes."""


class CommandedSearch(Search):
    """A search to which `COMMANDS` are sent; each is journalled before it has consequences, as the engine does."""

    def next_trial(self) -> str | None:
        for number, (reports, do) in enumerate([] if self._is_cut_off() else COMMANDS):
            done = {command.id for command in self.results.commands}
            if sum(trial.steps for trial in self.results.trials) >= reports and f"c{number}" not in done:
                self.obey(f"c{number}", do)
        for trial_id in sorted(self.state.orders.stopped.keys() & self.state.open):
            self.end(trial_id)
        return super().next_trial()

    def _is_cut_off(self) -> bool:
        """Whether a kill interrupted a trial: it comes to its next halt first, as it would have."""
        trials = [self.results.trial(trial_id) for trial_id in self.state.open - self.state.paused]
        return any(trial.reports or trial.status == "running" or not trial.origin for trial in trials)

    def obey(self, name: str, do: str) -> None:
        trials = list(self._touched(name, do))
        arguments = {"trials": 1} if do == "slots" else {}
        event = commanded(
            Commanded(name, do, "ada", 0.0, arguments, bool(trials) or do in ("pause", "slots"), "", tuple(trials))
        )
        self.write(**event)
        self.history.commanded(event)
        if event["done"]:
            self.state.commanded(event)
        self.happened()

    def _touched(self, name: str, do: str) -> Iterator[str]:
        """The trials that a command touches, of which it makes the new ones."""
        opened = [trial.id for trial in self.results.trials if self.state.runs(trial.id)]
        pbt = self.scheduler.changes_configurations
        if do in ("keep-trial", "stop-trial"):
            yield from [] if pbt and do == "keep-trial" else opened[-1:]
        elif do == "add":
            self._add(name, {"x": 0.31, "shape": (1, 2), "n": 4}, Origin("ada"))
            yield name
        elif do == "clone":
            parent = max(filter(steps_of, self.results.trials), key=lambda trial: (trial.steps < 8, trial.number))
            step = parent.reports[-1].metrics["epoch"]
            half = Origin("ada", parent.id, parent.steps, step) if step < 9 else Origin("ada", parent.id)
            self._add(name, {**parent.config, "n": 5}, half)
            yield name

    def _add(self, name: str, config: dict[str, Any], origin: Origin) -> None:
        if self.results.get(name) is None:  # else it was killed before the command was journalled
            self.state.adopt(name, config)
            self.write("suggested", trial=name, config=config, origin=asdict(origin))
            self.history.suggested(name, config, None, origin)
            self.state.add(name, config, origin.begins_at)
            self.happened()


def steps_of(trial: Trial) -> int:
    return trial.steps


def by_people(results: Any) -> list[Trial]:
    return [trial for trial in results.trials if trial.origin]


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_killed_after_any_event_the_commands_hold_as_without(pair: Any, tmp_path: Path) -> None:
    whole = CommandedSearch(RunFolder.at(tmp_path / "whole"), pair).begin().go_on()
    events = read_journal(whole.folder).events
    assert whole.results.suggested == TRIALS
    assert len(by_people(whole.results)) == 3
    assert [command.do for command in whole.results.commands] == [do for _, do in COMMANDS]
    assert (whole.state.orders.paused, whole.state.orders.limit) == (True, 1)
    for n in [*range(1, len(events), 6), *(e["n"] for e in events if e["what"] == "commanded" or e.get("origin"))]:
        folder = RunFolder.at(tmp_path / "killed")
        CommandedSearch(folder, pair).begin().go_on(until=n, save_after=n - 7 if n % 2 else None)
        again = CommandedSearch(folder, pair).resume()
        assert again.notices == []
        again.go_on()
        assert outcome(again.results) == outcome(whole.results), f"killed after event {n}: {events[n - 1]}"
        assert happened(read_journal(folder).events) == happened(events)
        assert again.results.commands == whole.results.commands
        assert again.state.orders == whole.state.orders
        shutil.rmtree(folder.local_path)


@pytest.mark.parametrize("pair", PAIRS, ids=named)
@pytest.mark.parametrize("save_after", [None, 50])
def test_a_damaged_journal_still_tells_what_was_commanded(pair: Any, save_after: int | None, tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path)
    known = CommandedSearch(folder, pair).begin().go_on(until=75, save_after=save_after)
    assert by_people(known.results)
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    line = next(e["n"] for e in read_journal(folder).events if e["what"] == "reported") - 1
    (tmp_path / "journal.jsonl").write_bytes(b"".join([*lines[:line], b"x" + lines[line], *lines[line + 1 :]]))
    again = CommandedSearch(folder, pair).resume()
    assert "is lost" in again.notices[0]
    assert again.results.commands == known.results.commands
    assert [t.origin for t in again.results.trials if t.origin] == [t.origin for t in known.results.trials if t.origin]
    third = CommandedSearch(folder, pair).resume()  # now from the journal that was written anew
    assert third.results.commands == known.results.commands
    assert third.state.orders == again.state.orders == known.state.orders
    ended = third.go_on().results
    assert ended.suggested == TRIALS
    assert {trial.status for trial in ended.trials} == {"stopped"}


def test_commands_that_the_journal_lost_keep_the_order_in_which_they_were_carried_out(tmp_path: Path) -> None:
    """Ids sort by the clocks of senders, of which one may lag: a pause that was lifted must not hold again."""
    search = Search(RunFolder.at(tmp_path), PAIRS[0]).begin().go_on(until=20)
    told = [Commanded("9", "pause", "ada", 9.0, {}, True), Commanded("3", "continue", "bob", 3.0, {}, True)]
    search.results.commands += told
    search.results.save()  # the tables know of them, and of the journal a line is damaged
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(b"".join([*lines[:9], b"x" + lines[9], *lines[10:]]))
    again = Search(search.folder, PAIRS[0]).resume()
    assert again.results.commands == told
    assert not again.state.orders.paused

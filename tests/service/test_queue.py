"""The queue of a team's searches, on a cluster in memory."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.fake import FakeCluster, FakeSearch
from tuner.errors import EnvironmentFailure, InputError, LockLost
from tuner.jobs.record import Job, Submitter
from tuner.runs.commands import waiting_commands
from tuner.service.cluster import Capacity
from tuner.service.interface import Submission
from tuner.service.queue import SearchQueue
from tuner.service.team import Team
from tuner.storage.folder import RunFolder

MONDAY = 4 * 86_400.0
"""The first Monday of 1970, 0:00 UTC."""


class Clock:
    now = MONDAY

    def __call__(self) -> float:
        return self.now


class Service:
    """A queue, its cluster and its clock."""

    def __init__(self, storage: RunFolder, cluster: FakeCluster, team: Team) -> None:
        self.storage, self.cluster, self.team, self.clock = storage, cluster, team, Clock()
        self._open: list[object] = []

    def __enter__(self) -> Service:
        self._context = SearchQueue.open(self.storage, self.cluster, self.team, self.clock)
        self.queue = self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """The cluster lives on."""
        self._context.__exit__(None, None, None)

    def come_back(self) -> None:
        """As after a kill: only the storage and the cluster are left."""
        self.__exit__()
        self.__enter__()

    def submit(self, user: str, name: str, **changes: object) -> None:
        self.queue.submit(submission(user, name, **changes))
        self.clock.now += 1

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        for _ in range(round(seconds / 10)):
            self.queue.step()
            self.cluster.advance(10)
            self.clock.now += 10
            if until():
                return

    def running(self) -> dict[str, int]:
        return {name: len(one.ages) for name, one in self.cluster.searches.items() if one.state == "running"}

    def states(self) -> dict[str, str]:
        return {entry.name: entry.state for entry in self.queue.entries()}


def submission(user: str, name: str, **changes: object) -> Submission:
    given = Submission(user, name, request=f"r-{name}", file="quickstart", per_trial={"GPU": 1.0}, trials=8)
    return dataclasses.replace(given, **changes)


@pytest.fixture
def storage(tmp_path: Path) -> RunFolder:
    return RunFolder.at(tmp_path / "runs")


@pytest.fixture
def service(storage: RunFolder) -> Iterator[Service]:
    with Service(storage, FakeCluster(), Team()) as found:
        yield found
    found.cluster.lose_head()


def test_a_search_begins_trains_and_ends(service):
    service.submit("ada", "a")
    service.run(2000)

    assert service.states() == {"a": "succeeded"}
    assert service.cluster.starts == ["a"]


def test_the_second_user_gets_half_of_the_cluster_at_the_next_checkpoints(service):
    service.cluster.trials = 200
    service.submit("ada", "a", trials=200)
    service.run(120)
    assert service.running() == {"a": 8}

    service.submit("bob", "b", trials=200)
    service.run(200)

    assert service.running() == {"a": 4, "b": 4}
    assert service.cluster.searches["a"].aside  # paused where they were at a checkpoint, not killed


def test_a_search_grows_again_when_the_other_one_ends(service):
    service.cluster.trials = 200
    service.submit("ada", "a", trials=200)
    service.submit("bob", "b", trials=200)
    service.run(200)

    service.queue.stop("b")
    service.run(200)

    assert service.running() == {"a": 8}
    assert service.states() == {"a": "running", "b": "stopped"}


def test_no_gpu_is_given_away_twice(service):
    service.cluster.trials = 50
    for number in range(6):
        service.submit(f"user{number % 3}", f"s{number}", trials=50)
        service.run(50)
        limits = [one.limit for one in service.cluster.searches.values() if one.state == "running"]
        running = service.running().values()
        assert sum(max(limit, count) for limit, count in zip(limits, running, strict=True)) <= 8


def test_weights_divide_the_cluster(storage):
    team = Team(members={"ada": {"weight": 3}, "bob": {}})
    with Service(storage, FakeCluster(trials=200), team) as service:
        service.submit("ada", "a", trials=200)
        service.submit("bob", "b", trials=200)
        service.run(100)

        assert service.running() == {"a": 6, "b": 2}


def test_a_quota_at_once_holds_and_the_entry_says_so(storage):
    with Service(storage, FakeCluster(trials=20), Team(members={"ada": {"gpus_at_once": 3}})) as service:
        service.submit("ada", "a", trials=20)
        service.submit("ada", "b", trials=20)
        service.run(100)

        assert sum(service.running().values()) == 3
        assert "quota allows at once" in service.queue.entry("a").reason


def test_a_weeks_hours_end_with_the_week(storage):
    with Service(storage, FakeCluster(trials=400), Team(members={"ada": {"gpu_hours_a_week": 1}})) as service:
        service.submit("ada", "a", trials=400)
        service.run(3600)
        assert service.running() == {"a": 0}
        assert service.states() == {"a": "paused"}
        assert "hours of this week" in service.queue.entry("a").reason
        assert service.queue.status().users["ada"].hours == pytest.approx(1, abs=0.2)

        service.clock.now = MONDAY + 7 * 86_400
        service.run(50)
        assert service.running() == {"a": 8}


def test_gpus_are_kept_for_interactive_work(storage):
    with Service(storage, FakeCluster(trials=20), Team(reserved=3)) as service:
        service.submit("ada", "a", trials=20)
        service.run(100)

        assert service.running() == {"a": 5}
        assert service.queue.status().reserved == 3


def test_a_higher_priority_comes_first_whoever_it_belongs_to(service):
    service.cluster.trials = 200
    service.submit("ada", "a", trials=200)
    service.run(100)
    service.submit("bob", "urgent", trials=200, priority=1)
    service.run(200)

    assert service.running() == {"a": 0, "urgent": 8}
    assert service.states()["a"] == "paused"


def test_who_waits_has_a_place_in_the_queue_and_a_reason(service):
    service.cluster.gpus = 1
    for name in "abc":
        service.submit("ada", name)
    service.submit("bob", "first", priority=1)
    service.run(10)

    waiting = {entry.name: entry.position for entry in service.queue.entries() if entry.state == "queued"}
    assert [service.queue.entry(entry.name) for entry in service.queue.entries()] == service.queue.entries()
    assert waiting == {"a": 1, "b": 2, "c": 3}
    assert "shares" in service.queue.entry("b").reason


def test_machines_come_and_go(service):
    service.cluster.trials = 50
    service.submit("ada", "a", trials=50)
    service.run(100)
    service.cluster.gpus = 2
    service.run(100)
    assert service.running() == {"a": 2}

    service.cluster.gpus = 6
    service.run(100)
    assert service.running() == {"a": 6}


def test_a_cluster_that_is_gone_is_waited_for(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.is_gone = True
    with pytest.raises(EnvironmentFailure):
        service.queue.step()

    service.submit("bob", "b")
    assert "nothing answers" in service.queue.status().problem
    assert service.states() == {"a": "running", "b": "queued"}

    service.cluster.is_gone = False
    service.run(3000)
    assert service.states() == {"a": "succeeded", "b": "succeeded"}
    assert service.queue.status().problem == ""


def test_a_cluster_that_lost_its_head_gets_its_searches_again(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.lose_head()
    service.run(50)

    assert service.cluster.starts == ["a", "a"]
    assert "--again" in service.cluster.searches["a"].command


def test_a_failed_search_says_why_and_can_be_resumed(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.end(service.cluster.searches["a"], "failed", "text\nerror: the disk is full\nNOTICE: more")
    service.run(10)
    assert service.states() == {"a": "failed"}
    assert service.queue.entry("a").reason == "the disk is full"

    service.queue.resume("a")
    service.run(2000)
    assert service.states() == {"a": "succeeded"}
    assert service.cluster.starts == ["a", "a~2"]
    assert "--resume" in service.cluster.searches["a~2"].command


def test_what_a_search_left_when_it_ran_last_is_not_how_it_stands(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.lose_head()
    service.queue.step()

    assert service.queue.status().in_use == 0


def test_a_queue_without_searches_proposes_none(service):
    with pytest.raises(InputError, match="no search 'a'; the queue has none yet"):
        service.queue.stop("a")


def test_only_what_has_ended_otherwise_can_be_resumed(service):
    service.submit("ada", "a")
    with pytest.raises(InputError, match="it is queued"):
        service.queue.resume("a")
    service.run(2000)
    with pytest.raises(InputError, match="came to its end"):
        service.queue.resume("a")
    with pytest.raises(InputError, match="no search 'b'"):
        service.queue.resume("b")


def test_what_waits_is_stopped_at_once(service):
    service.submit("ada", "a")
    assert service.queue.stop("a")
    service.run(100)

    assert service.cluster.starts == []
    assert not service.queue.stop("a")


def test_the_same_request_is_one_search_and_another_one_of_its_name_is_refused(service):
    service.submit("ada", "a")
    service.submit("ada", "a")
    assert len(service.queue.entries()) == 1
    with pytest.raises(InputError, match="taken"):
        service.submit("ada", "a", request="other")
    with pytest.raises(InputError, match="taken"):
        service.submit("bob", "a")


def test_a_name_of_an_earlier_run_is_taken(service, storage):
    (Path(storage.path) / "old").mkdir()
    (Path(storage.path) / "old" / "experiment.yaml").write_text("{}")
    with pytest.raises(InputError, match="taken"):
        service.submit("ada", "old")


@pytest.mark.parametrize(
    ("team", "changes", "told"),
    [
        ({"members": {"ada": {"gpus_at_once": 2}}}, {"per_trial": {"GPU": 4.0}}, "ada may use 2 at once"),
        ({"members": {"ada": {"gpu_hours_a_week": 0}}}, {}, "0 GPU hours a week"),
        ({"members": {"bob": {}}}, {}, "not a user"),
        ({"members": {"ada": {"priority": 3}}}, {"priority": 4}, "the highest one that ada may give is 3"),
        ({"largest": 8}, {"per_trial": {"GPU": 16.0}}, "never has more than 8"),
        ({}, {"per_trial": {"GPU": 16.0}}, "never has more than 8"),
        ({"reserved": 8}, {}, "never has more than 0"),
        ({"autoscales_to": 16}, {"per_trial": {"GPU": 17.0}}, "never has more than 16"),
    ],
)
def test_what_can_never_run_is_refused(storage, team, changes, told):
    with Service(storage, FakeCluster(), Team(**team)) as service:
        service.run(10)
        with pytest.raises(InputError, match=told):
            service.submit("ada", "a", **changes)
        assert service.queue.entries() == []


def test_a_cluster_without_gpus_shares_its_cpus(storage):
    with Service(storage, FakeCluster(gpus=0), Team(members={"ada": {"gpus_at_once": 2}})) as service:
        service.run(10)
        with pytest.raises(InputError, match="the cluster has none"):
            service.submit("ada", "a")
        with pytest.raises(InputError, match="takes 4 CPUs, and ada may use 2 at once"):
            service.submit("ada", "b", per_trial={"CPU": 4.0})
        assert service.queue.status().unit == "CPU"


def test_a_search_that_a_person_has_paused_asks_for_nothing(service):
    service.cluster.trials = 50
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(50)
    service.cluster.searches["a"].is_paused = True
    service.run(200)

    assert service.running() == {"a": 0, "b": 8}


def test_gpus_that_a_paused_search_still_holds_are_not_free(service):
    service.cluster.trials = 50
    service.submit("ada", "a", trials=50)
    service.run(50)
    service.cluster.searches["a"].is_paused = True
    service.cluster.searches["a"].tell()
    service.submit("bob", "b", trials=50)
    service.queue.step()

    assert service.queue.status().in_use == 8
    assert service.states()["b"] == "queued"


def test_gpus_of_a_search_that_is_being_stopped_are_not_free(service):
    service.cluster.trials = 50
    service.submit("ada", "a", trials=50)
    service.run(50)
    service.cluster.stop = lambda job_id: None  # its processes take their time
    service.queue.stop("a")
    service.submit("bob", "b", trials=50)
    service.queue.step()

    assert service.states() == {"a": "stopping", "b": "queued"}


def test_a_search_asks_for_no_more_trials_than_it_runs_at_once(service):
    service.cluster.trials, service.cluster.slots = 50, 2
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(20)
    service.cluster.searches["b"].slots = 99
    service.run(200)

    assert service.running() == {"a": 2, "b": 6}


def test_a_failed_job_whose_output_is_gone_holds_up_nobody(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.end(service.cluster.searches["a"], "failed")
    service.cluster.searches["a"].message = "its node is gone"
    service.cluster.lost_logs.add("a")
    service.submit("bob", "b")
    service.run(20)

    assert service.states() == {"a": "failed", "b": "running"}
    assert service.queue.entry("a").reason == "its node is gone"


def test_a_run_folder_that_cannot_be_written_holds_up_nobody(service, storage):
    service.cluster.gpus = 2
    (Path(storage.path) / "a").mkdir(parents=True)
    (Path(storage.path) / "a" / "commands").write_text("no folder")
    service.submit("ada", "a")
    service.submit("bob", "b")
    for _ in range(3):
        with pytest.raises(OSError, match="directory"):
            service.queue.step()

    assert service.states()["b"] == "running"
    assert "directory" in service.queue.status().problem


def test_what_is_stopped_before_its_job_began_is_not_stopped_on_the_cluster(service):
    service.submit("ada", "a")
    start = service.cluster.start

    def gone(*given: object) -> None:
        service.queue.stop("a")
        raise EnvironmentFailure("nothing answers")

    service.cluster.start = gone
    with pytest.raises(EnvironmentFailure):
        service.queue.step()
    service.cluster.start = start
    service.run(20)

    assert service.states() == {"a": "stopped"}
    assert service.cluster.starts == []


def test_a_search_whose_job_has_not_begun_has_no_output(service):
    service.submit("ada", "a")
    service.submit("ada", "b")
    told = []

    def gone(*given: object) -> None:
        told.append(service.queue.log("a"))
        raise EnvironmentFailure("nothing answers")

    service.cluster.start = gone
    service.queue.stop("b")
    with pytest.raises(EnvironmentFailure):
        service.queue.step()

    assert service.states() == {"a": "starting", "b": "stopped"}
    assert [*told, service.queue.log("a"), service.queue.log("b")] == ["", "", ""]


def test_a_person_who_resumes_an_ended_search_by_hand_is_not_bound_by_the_queues_limit(service, storage):
    service.submit("ada", "a")
    service.run(50)
    service.queue.stop("a")
    service.run(20)
    waiting = waiting_commands(storage / "a")[0]
    assert [(one.do, one.arguments) for one in waiting] == [("slots", {"trials": None})]

    service.queue.resume("a")
    service.run(50)
    assert service.cluster.searches["a~2"].limit == 8


def test_a_queue_that_has_lost_its_storage_promises_nothing(service, storage, monkeypatch):
    service.submit("ada", "a")
    (Path(storage.path) / ".service" / "service.lock").unlink()
    monkeypatch.setattr("tuner.storage.lock.CHECK_EVERY_S", 0.0)

    with pytest.raises(LockLost):
        service.submit("bob", "b")
    assert service.states() == {"a": "queued"}


def test_spot_machines_that_are_all_gone_do_not_make_it_a_cluster_without_gpus(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.gpus = 0
    service.run(50)
    assert service.queue.status().unit == "GPU"
    service.submit("bob", "b")
    with pytest.raises(InputError, match="never has more than 8"):
        service.submit("bob", "c", per_trial={"GPU": 16.0})

    service.come_back()
    assert service.queue.status().unit == "GPU"
    service.cluster.gpus = 8
    service.run(3000)
    assert service.states() == {"a": "succeeded", "b": "succeeded"}


def test_gpus_that_come_after_the_head_are_what_is_shared(service):
    service.cluster.gpus = 0
    service.run(50)
    assert service.queue.status().unit == "CPU"
    service.cluster.gpus = 8
    service.run(50)

    assert service.queue.status().unit == "GPU"
    with pytest.raises(InputError, match="never has more than 8"):
        service.submit("ada", "a", per_trial={"GPU": 16.0})


@pytest.mark.parametrize(
    ("known", "team"),
    [(None, Team(autoscales_to=6)), (Capacity(6, 24), Team()), (Capacity(64, 256), Team(autoscales_to=6))],
    ids=["of the team", "of the autoscaler", "of both"],
)
def test_an_autoscaler_gets_trials_to_start_machines_for(storage, known, team):
    cluster = FakeCluster(gpus=0, trials=50)
    cluster.autoscaled = known
    with Service(storage, cluster, team) as service:
        service.run(10)
        with pytest.raises(InputError, match="never has more than 6"):
            service.submit("ada", "too large", per_trial={"GPU": 7.0})
        service.submit("ada", "a", trials=50)
        service.run(20)
        assert service.cluster.searches["a"].limit == 6

        service.cluster.gpus = 6
        service.submit("bob", "b", trials=50)
        service.run(200)
        assert service.running() == {"a": 3, "b": 3}


def test_another_team_holds_from_the_next_pass_on(service):
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(200)
    assert service.running() == {"a": 4, "b": 4}
    service.queue.set_team(Team(members={"ada": {}, "bob": {"weight": 7.0}}))
    service.run(400)
    assert service.running() == {"a": 1, "b": 7}
    with pytest.raises(InputError, match="'eve' is not a user"):
        service.submit("eve", "e")


def test_the_team_can_name_what_is_shared(storage):
    with Service(storage, FakeCluster(gpus=0), Team(unit="GPU")) as service:
        service.run(10)
        service.submit("ada", "a")
        assert service.queue.status().unit == "GPU"


def test_a_job_of_somebody_else_is_left_alone(service, tmp_path):
    other = FakeSearch(RunFolder.at(tmp_path / "elsewhere") / "a", "python other.py")
    other.begin()
    service.cluster.searches["a"] = other
    service.submit("ada", "a")
    service.run(30)
    assert service.queue.entry("a").state == "failed"
    assert "the cluster has a job 'a' of somebody else" in service.queue.entry("a").reason
    service.queue.stop("a")
    service.run(10)
    assert other.state == "running"
    service.queue.resume("a")
    service.run(10)
    assert service.cluster.starts == ["a~2"]


@pytest.mark.parametrize("end", ["stopped", "failed"])
def test_a_job_of_an_ended_search_that_comes_back_is_ended(service, storage, end):
    service.submit("ada", "a", trials=50)
    service.run(30)
    Job("a", storage.location, "x", Submitter()).folder.create()
    service.cluster.end(service.cluster.searches["a"], end)
    service.run(10)
    assert service.queue.entry("a").state == end
    assert not (storage / ".jobs/a").exists()
    again = service.cluster.searches["a"] = FakeSearch(storage / "a", "python -m tuner.jobs.driver")
    service.run(10)
    assert (again.state, service.queue.entry("a").state) == ("stopped", end)


def test_who_is_no_member_any_more_gets_nothing_and_resumes_nothing(service):
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(100)
    service.queue.set_team(Team(members={"bob": {}}))
    service.run(300)
    assert service.running() == {"a": 0, "b": 8}
    service.queue.stop("a")
    service.run(30)
    with pytest.raises(InputError, match="'ada' is not a user"):
        service.queue.resume("a")


def test_a_search_that_fills_the_disk_can_be_stopped(service, storage, monkeypatch):
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(30)
    service.queue.stop("b")

    def full(*arguments: object, **keys: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunFolder, "write", full)
    assert service.queue.stop("a")
    assert service.cluster.searches["a"].state == "stopped"
    with pytest.raises(OSError, match="No space"):
        service.queue.step()
    assert service.cluster.searches["b"].state == "stopped"
    monkeypatch.undo()
    service.run(10)
    assert {entry.name: entry.state for entry in service.queue.entries()} == {"a": "stopped", "b": "stopped"}


@pytest.mark.parametrize(("request_", "workers", "trials"), [(0.25, 1, 16), (1.0, 2, 2)])
def test_what_a_trial_really_holds_counts_once_its_search_has_begun(service, request_, workers, trials):
    service.cluster.trials = 64
    for user, name in (("ada", "a"), ("bob", "b")):
        service.submit(user, name, trials=64)
    service.run(10)
    for one in service.cluster.searches.values():
        one.request, one.workers, one.gpus = request_, workers, request_ * workers
    service.run(400)
    assert service.running() == {"a": trials, "b": trials}
    assert service.queue.status().in_use == 8.0


def test_an_experiment_that_could_not_be_read_again_is_refused(service):
    with pytest.raises(InputError, match="shorten the experiment"):
        service.submit("ada", "a", file=None, experiment="# " + "ы" * 2_000_000)
    assert [*service.queue.entries()] == []


def test_a_second_queue_on_the_storage_is_refused(service):
    with pytest.raises(EnvironmentFailure, match="another service works on the storage"):
        Service(service.storage, FakeCluster(), Team()).__enter__()


def test_a_damaged_record_is_named_and_hides_no_other(service, storage):
    service.submit("ada", "a")
    service.submit("ada", "b")
    (Path(storage.path) / ".service" / "searches" / "a.json").write_text('{"half')
    service.come_back()

    assert [entry.name for entry in service.queue.entries()] == ["b"]
    assert len(service.queue.unreadable) == 1
    assert "a.json cannot be read" in service.queue.unreadable[0]
    with pytest.raises(InputError, match="taken"):
        service.submit("ada", "a")


def test_a_damaged_account_is_begun_anew(service, storage):
    service.submit("ada", "a")
    service.run(50)
    (Path(storage.path) / ".service" / "account.json").write_text("[")
    service.come_back()

    assert "counted anew" in service.queue.unreadable[0]
    service.run(2000)
    assert service.states() == {"a": "succeeded"}


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal:
    """Ends the process at the ``last`` one of what it does to the storage and to the cluster."""

    def __init__(self, last: int) -> None:
        self.left = last

    def lives(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Killed

    def bind(self, monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
        write = RunFolder.write

        def mortal(folder: RunFolder, name: str, data: bytes, private: bool = False) -> None:
            if name != "live.json":  # that one is the search's
                self.lives()
            write(folder, name, data, private)

        monkeypatch.setattr(RunFolder, "write", mortal)
        for name in ("start", "stop"):
            monkeypatch.setattr(cluster, name, self.around(getattr(cluster, name)))

    def around(self, do: Callable[..., None]) -> Callable[..., None]:
        def mortal(*arguments: object) -> None:
            self.lives()
            do(*arguments)
            self.lives()

        return mortal


def test_a_process_that_dies_at_any_moment_neither_loses_nor_doubles_a_search(storage, monkeypatch):
    """Of a whole day of a queue each write, and each call of the cluster, is once the last one of the process."""
    deaths = 0
    for last in range(300):
        mortal, promised = Mortal(last), []
        with Service(storage / f"n{last}", FakeCluster(trials=2, trial_s=60, checkpoint_s=20), Team()) as service:
            with monkeypatch.context() as patched:
                mortal.bind(patched, service.cluster)
                try:
                    for user in ("ada", "bob"):
                        service.submit(user, user, trials=2)
                        promised.append(user)
                    service.run(20)
                    service.queue.stop("bob")
                    promised.remove("bob")
                    service.run(20)
                    service.queue.resume("bob")
                    promised.append("bob")
                    service.run(100)
                except Killed:
                    deaths += 1
            service.come_back()
            service.run(250, until=lambda: all(one.has_ended for one in service.queue.entries()))
            states = service.states()
            assert {states[name] for name in promised} <= {"succeeded"}, last
            assert len(service.cluster.starts) == len(set(service.cluster.starts)), last
        if mortal.left >= 0:
            break
    assert deaths > 30, "the day has that many moments"


def test_a_full_disk_is_told_and_nothing_is_lost(service, monkeypatch):
    service.submit("ada", "a")
    write = RunFolder.write

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(RunFolder, "write", full)
    with pytest.raises(OSError, match="full"):
        service.submit("bob", "b")
    with pytest.raises(OSError, match="full"):
        service.queue.step()
    assert "No space left" in service.queue.status().problem
    assert service.states() == {"a": "queued"}

    monkeypatch.setattr(RunFolder, "write", write)
    service.run(2000)
    assert service.states() == {"a": "succeeded"}


KILLED = """
import sys
from tests.service.test_queue import submission
from tests.service.fake import FakeCluster
from tuner.service.queue import SearchQueue
from tuner.service.team import Team
from tuner.storage.folder import RunFolder
with SearchQueue.open(RunFolder.at(sys.argv[1]), FakeCluster(), Team()) as queue:
    for number in range(int(sys.argv[2]), 1_000_000):
        queue.submit(submission("ada", f"s{number}"))
        print(number, flush=True)
        queue.step()
"""


def test_what_submit_has_promised_outlives_kill_9(storage):
    begun = 0
    for _ in range(3):
        command = [sys.executable, "-c", KILLED, storage.location, str(begun)]
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout is not None
            promised = [int(child.stdout.readline()) for _ in range(5)]
            child.send_signal(signal.SIGKILL)
            promised += [int(line) for line in child.stdout.read().splitlines()]
        with SearchQueue.open(storage, FakeCluster(), Team()) as queue:
            names = {entry.name for entry in queue.entries()}
        assert {f"s{number}" for number in promised} <= names
        begun = promised[-1] + 2


def test_records_hold_no_more_than_they_need_and_others_cannot_read_them(service, storage):
    service.submit("ada", "a")
    file = Path(storage.path) / ".service" / "searches" / "a.json"

    assert file.stat().st_mode & 0o077 == 0
    assert set(json.loads(file.read_text())) >= {"submission", "state", "attempt"}

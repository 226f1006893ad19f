"""The queue of a team's searches when its cluster, its disk or its process fails."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.fake import FakeCluster, FakeSearch
from tests.service.queued import Service
from tuner.errors import EnvironmentFailure, InputError, LockLost
from tuner.jobs.record import Job, Submitter
from tuner.runs.commands import waiting_commands
from tuner.service.cluster import JobView
from tuner.service.queue import SearchQueue
from tuner.service.team import Team
from tuner.storage.folder import RunFolder


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


def test_what_a_search_left_when_it_ran_last_is_not_how_it_stands(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.lose_head()
    service.queue.step()

    assert service.queue.status().in_use == 0


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
        assert service.queue.step() == {"a": f"{storage.location}/a: Not a directory"}

    assert service.states()["b"] == "running"
    assert service.queue.status().problem == ""
    assert service.queue.entry("a").reason.endswith("/a: Not a directory")


@pytest.mark.parametrize("file", ["live.json", "run.lock"])
def test_a_run_folder_that_cannot_be_read_holds_up_nobody_and_gives_nothing_away(service, storage, file, monkeypatch):
    service.cluster.trials = 50
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(100)
    assert service.running() == {"a": 4, "b": 4}

    opened, locked = RunFolder._opened, fcntl.flock

    def unreadable(folder: RunFolder, name: str) -> object:
        if folder.path.endswith("/a") and name == file:
            raise OSError(errno.EIO, "Input/output error")
        return opened(folder, name)

    def unlockable(descriptor: int, how: int) -> None:
        if file == "run.lock" and Path(f"/proc/self/fd/{descriptor}").readlink() == Path(storage.path, "a/run.lock"):
            raise OSError(errno.EIO, "Input/output error")
        locked(descriptor, how)

    monkeypatch.setattr(RunFolder, "_opened", unreadable)
    monkeypatch.setattr(fcntl, "flock", unlockable)
    service.queue.stop("b", "ada")
    for turn in range(20):
        if turn == 10:  # there was room for "a" to grow into, but nobody would see it
            assert service.running() == {"a": 4}
            service.submit("eve", "e", trials=50)
        assert service.queue.step() == {"a": f"{storage.location}/a: Input/output error"}
        assert waiting_commands(storage / "a")[0] == []
        service.cluster.advance(10)
        service.clock.now += 10

    assert service.states() == {"a": "running", "b": "stopped", "e": "running"}
    assert service.running() == {"a": 4, "e": 4}
    assert service.queue.status().problem == ""
    assert service.queue.entry("a").reason.endswith("/a: Input/output error")
    monkeypatch.undo()
    service.run(10)
    assert "Input/output" not in service.queue.entry("a").reason


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of searches whose live.json cannot be read."""
    names, opened = set[str](), RunFolder._opened

    def failing(folder: RunFolder, name: str) -> object:
        if name == "live.json" and Path(folder.path).name in names:
            raise OSError(errno.EIO, "Input/output error")
        return opened(folder, name)

    monkeypatch.setattr(RunFolder, "_opened", failing)
    return names


@pytest.mark.parametrize("seen", [0, 1])
def test_a_search_that_cannot_be_read_before_it_has_begun_keeps_what_it_was_promised(service, unreadable, seen):
    service.cluster.trials = 50
    service.queue.set_team(Team(members={"ada": {"priority": 1}, "bob": {}}))
    service.submit("ada", "a", trials=50, priority=1)
    service.submit("bob", "b", trials=50)
    for _ in range(1 + seen):
        assert service.queue.step() == {}
    assert service.states() == {"a": "running", "b": "queued"}
    unreadable.add("a")
    for _ in range(3):
        assert list(service.queue.step()) == ["a"]
    assert service.states() == {"a": "running", "b": "queued"}
    unreadable.clear()
    service.run(100)
    assert service.running() == {"a": 8}


def test_no_search_starts_without_a_limit(service, storage, unreadable):
    commands = Path(storage.path) / "a" / "commands"
    commands.parent.mkdir(parents=True)
    commands.write_text("no folder")
    service.submit("ada", "a", trials=50)
    assert list(service.queue.step()) == ["a"]
    commands.unlink()
    unreadable.add("a")
    assert list(service.queue.step()) == ["a"]
    assert service.cluster.starts == []
    unreadable.clear()
    assert service.queue.step() == {}
    assert service.cluster.starts == ["a"]
    assert [one.arguments for one in waiting_commands(storage / "a")[0]] == [{"trials": 8}]


def test_a_limit_that_was_not_read_yet_is_taken_back(service, storage):
    service.cluster.trials = 50
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(100)
    assert service.running() == {"a": 4, "b": 4}
    service.queue.stop("b", "ada")
    assert service.queue.step() == {}
    assert service.queue.step() == {}
    assert [one.arguments for one in waiting_commands(storage / "a")[0]] == [{"trials": 8}]
    service.submit("eve", "e", trials=50)
    assert service.queue.step() == {}
    service.cluster.advance(10)
    assert service.running() == {"a": 4, "e": 4}


def test_what_is_stopped_before_its_job_began_is_not_stopped_on_the_cluster(service):
    service.submit("ada", "a")
    start = service.cluster.start

    def gone(*given: object) -> None:
        service.queue.stop("a", "ada")
        raise EnvironmentFailure("nothing answers")

    service.cluster.start = gone
    assert service.queue.step() == {"a": "nothing answers"}
    service.cluster.start = start
    service.run(20)

    assert service.states() == {"a": "stopped"}
    assert service.cluster.starts == []


def test_a_queue_that_has_lost_its_storage_promises_nothing(service, storage, monkeypatch):
    service.submit("ada", "a")
    (Path(storage.path) / ".service" / "service.lock").unlink()
    monkeypatch.setattr("tuner.storage.lock.CHECK_EVERY_S", 0.0)

    with pytest.raises(LockLost):
        service.submit("bob", "b")
    assert service.states() == {"a": "queued"}


def test_a_job_whose_storage_cannot_be_read_here_is_somebody_elses(service, monkeypatch):
    job = JobView("running", storage="s3://ada:secret@bucket/runs")
    jobs = service.cluster.jobs
    monkeypatch.setattr(service.cluster, "jobs", lambda: {**jobs(), "a": job})
    service.submit("ada", "a")
    service.submit("ada", "b")
    service.run(30)
    assert service.states() == {"a": "failed", "b": "running"}


def test_a_job_of_somebody_else_is_left_alone(service, tmp_path):
    other = FakeSearch(RunFolder.at(tmp_path / "elsewhere") / "a", "python other.py")
    other.begin()
    service.cluster.searches["a"] = other
    service.submit("ada", "a")
    service.run(30)
    assert service.queue.entry("a").state == "failed"
    assert "the cluster has a job 'a' of somebody else" in service.queue.entry("a").reason
    service.queue.stop("a", "ada")
    service.run(10)
    assert other.state == "running"
    service.queue.resume("a", "ada")
    service.run(10)
    assert service.cluster.starts == ["a~2"]


def test_a_job_of_somebody_else_that_comes_first_is_left_alone(service, tmp_path):
    other = FakeSearch(RunFolder.at(tmp_path / "elsewhere") / "a", "python other.py", log="a secret")
    other.begin()
    jobs = service.cluster.jobs

    def meanwhile() -> dict[str, JobView]:
        found = jobs()
        service.cluster.searches.setdefault("a", other)
        return found

    service.cluster.jobs = meanwhile
    service.submit("ada", "a")
    service.queue.step()
    assert service.states() == {"a": "starting"}
    service.cluster.jobs = jobs
    assert service.queue.log("a") == ""
    service.queue.stop("a", "ada")
    service.run(20)
    assert other.state == "running"
    assert service.states() == {"a": "stopped"}
    assert "somebody else" in service.queue.entry("a").reason


def test_a_resumed_search_that_ends_with_the_head_has_ended(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.end(service.cluster.searches["a"], "failed")
    service.run(10)
    service.queue.resume("a", "ada")
    service.run(10)
    assert "--resume" in service.cluster.searches["a~2"].command
    service.cluster.lose_head()
    service.run(20)
    again = service.cluster.searches["a"].command.split()
    assert "--again" in again  # such a job succeeds if the run has come to its end, which `--resume` refuses
    assert "--resume" not in again


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


def test_a_search_that_fills_the_disk_can_be_stopped(service, storage, monkeypatch):
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(30)
    service.queue.stop("b", "ada")

    def full(*arguments: object, **keys: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunFolder, "write", full)
    assert service.queue.stop("a", "ada")
    assert service.cluster.searches["a"].state == "stopped"
    with pytest.raises(OSError, match="No space"):
        service.queue.step()
    assert service.cluster.searches["b"].state == "stopped"
    monkeypatch.undo()
    service.run(10)
    assert {entry.name: entry.state for entry in service.queue.entries()} == {"a": "stopped", "b": "stopped"}


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
                    service.queue.stop("bob", "ada")
                    promised.remove("bob")
                    service.run(20)
                    service.queue.resume("bob", "ada")
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
from tests.service.queued import submission
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

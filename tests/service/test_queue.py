"""The life of a search in the queue of a team, on a cluster in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.service.fake import FakeCluster, FakeSearch
from tests.service.queued import Service
from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.commands import waiting_commands
from tuner.runs.file_shapes import MAX_CONFIG_BYTES
from tuner.service.team import Team


def test_a_search_begins_trains_and_ends(service):
    service.submit("ada", "a")
    service.run(2000)

    assert service.states() == {"a": "succeeded"}
    assert service.cluster.starts == ["a"]


def test_who_waits_has_a_place_in_the_queue_and_a_reason(service):
    service.cluster.gpus = 1
    for name in "abc":
        service.submit("ada", name)
    service.submit("bob", "first", priority=1)
    service.run(10)

    waiting = {entry.name: entry.position for entry in service.queue.entries() if entry.state == "queued"}
    assert [service.queue.entry(entry.name) for entry in service.queue.entries()] == list(service.queue.entries())
    assert waiting == {"a": 1, "b": 2, "c": 3}
    assert "shares" in service.queue.entry("b").reason


def test_the_entries_are_the_same_object_until_one_of_them_changes(service):
    for name in "ab":
        service.submit("ada", name)
    queued = service.queue.entries()
    assert service.queue.entries() is queued

    seen = [queued]
    for _ in range(400):
        service.run(10)
        now = service.queue.entries()
        assert list(now) == [service.queue.entry(entry.name) for entry in now]
        if now is not seen[-1]:
            assert now != seen[-1]
            seen.append(now)
    assert service.states() == {"a": "succeeded", "b": "succeeded"}
    assert 2 < len(seen) < 20


def test_a_failed_search_says_why_and_can_be_resumed(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.end(service.cluster.searches["a"], "failed", "text\nerror: the disk is full\nNOTICE: more")
    service.run(10)
    assert service.states() == {"a": "failed"}
    assert service.queue.entry("a").reason == "the disk is full"

    service.queue.resume("a", "ada")
    service.run(2000)
    assert service.states() == {"a": "succeeded"}
    assert service.cluster.starts == ["a", "a~2"]
    assert "--resume" in service.cluster.searches["a~2"].command


def test_a_queue_without_searches_proposes_none(service):
    with pytest.raises(InputError, match="no search 'a'; the queue has none yet"):
        service.queue.stop("a", "ada")


def test_only_what_has_ended_otherwise_can_be_resumed(service):
    service.submit("ada", "a")
    with pytest.raises(InputError, match="it is queued"):
        service.queue.resume("a", "ada")
    service.run(2000)
    with pytest.raises(InputError, match="came to its end"):
        service.queue.resume("a", "ada")
    with pytest.raises(InputError, match="no search 'b'"):
        service.queue.resume("b", "ada")


def test_who_stopped_and_resumed_a_search_is_kept(service):
    service.submit("ada", "a")
    service.run(50)
    service.queue.stop("a", "root")
    service.queue.stop("a", "ada")  # it stops already
    assert service.queue.entry("a").reason == "stopped by root"
    service.run(50)
    service.come_back()
    assert (service.queue.entry("a").state, service.queue.entry("a").reason) == ("stopped", "stopped by root")
    service.queue.resume("a", "root")
    service.run(50)
    assert (service.queue.entry("a").state, service.queue.entry("a").reason) == ("running", "resumed by root")


def test_a_resumed_search_also_tells_why_it_waits(service):
    service.cluster.gpus = 1
    for name in "ab":
        service.submit("ada", name)
    service.queue.stop("b", "ada")
    service.queue.resume("b", "root")
    service.run(50)
    assert service.queue.entry("b").state == "queued"
    assert "shares" in service.queue.entry("b").reason
    assert service.queue.entry("b").reason.endswith("; resumed by root")
    service.run(20_000)
    assert (service.queue.entry("b").state, service.queue.entry("b").reason) == ("succeeded", "")


def test_a_search_that_ends_before_it_is_stopped_has_succeeded(service):
    service.submit("ada", "a")
    service.run(50)
    service.queue.stop("a", "ada")
    service.cluster.end(service.cluster.searches["a"], "succeeded")
    service.queue.step()
    assert (service.queue.entry("a").state, service.queue.entry("a").reason) == ("succeeded", "")


def test_what_waits_is_stopped_at_once(service):
    service.submit("ada", "a")
    assert service.queue.stop("a", "ada")
    assert service.queue.entry("a").reason == "taken out of the queue by ada"
    service.run(100)

    assert service.cluster.starts == []
    assert not service.queue.stop("a", "ada")


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
        assert not service.queue.entries()


def test_a_search_whose_job_has_not_begun_has_no_output(service):
    service.submit("ada", "a")
    service.submit("ada", "b")
    told = []

    def gone(*given: object) -> None:
        told.append(service.queue.log("a"))
        raise EnvironmentFailure("nothing answers")

    service.cluster.start = gone
    service.queue.stop("b", "ada")
    assert service.queue.step() == {"a": "nothing answers"}

    assert service.states() == {"a": "starting", "b": "stopped"}
    assert [*told, service.queue.log("a"), service.queue.log("b")] == ["", "", ""]


def test_the_output_is_that_of_the_last_job_that_there_was(service):
    service.submit("ada", "a")
    service.run(50)
    service.cluster.end(service.cluster.searches["a"], "failed", "the first\n")
    service.run(10)
    for _ in range(2):
        service.queue.resume("a", "ada")
        service.queue.stop("a", "ada")
    assert service.queue.log("a") == "the first\n"
    service.cluster.lose_head()
    assert service.queue.log("a") == ""


@pytest.mark.parametrize("state", ["failed", "stopped", "succeeded"])
def test_an_ended_job_of_its_name_is_not_the_search(service, storage, state):
    by_hand = FakeSearch(storage / "a", "python -m tuner.jobs.driver")
    service.cluster.searches["a"] = by_hand
    service.cluster.end(by_hand, state, "error: of another day\n")
    service.submit("ada", "a")
    service.run(2000)
    assert service.states() == {"a": "succeeded"}
    assert service.cluster.starts == ["a~2"]


def test_a_search_whose_record_has_no_room_to_grow_is_refused(service):
    with pytest.raises(InputError, match=r"its record has .* bytes, and may have .*: shorten the experiment"):
        service.submit("ada", "a", experiment="#" * (MAX_CONFIG_BYTES - 20_000))
    service.submit("ada", "b", experiment="#" * (MAX_CONFIG_BYTES - 40_000))
    service.run(50)
    service.cluster.end(service.cluster.searches["b"], "failed", "error: " + "\U0001f525" * 2000)
    service.run(10)
    service.come_back()
    assert service.states() == {"b": "failed"}
    assert len(service.queue.entry("b").reason) == 1000


def test_a_person_who_resumes_an_ended_search_by_hand_is_not_bound_by_the_queues_limit(service, storage):
    service.submit("ada", "a")
    service.run(50)
    service.queue.stop("a", "ada")
    service.run(20)
    waiting = waiting_commands(storage / "a")[0]
    assert [(one.do, one.arguments) for one in waiting] == [("slots", {"trials": None})]

    service.queue.resume("a", "ada")
    service.run(50)
    assert service.cluster.searches["a~2"].limit == 8


def test_who_is_no_member_any_more_gets_nothing_and_resumes_nothing(service):
    service.submit("ada", "a", trials=50)
    service.submit("bob", "b", trials=50)
    service.run(100)
    service.queue.set_team(Team(members={"bob": {}}))
    service.run(300)
    assert service.running() == {"a": 0, "b": 8}
    service.queue.stop("a", "ada")
    service.run(30)
    with pytest.raises(InputError, match="'ada' is not a user"):
        service.queue.resume("a", "ada")


@pytest.mark.parametrize(("highest", "resumed"), [(10, 5), (3, 3), (0, 0), (-2, -2)])
def test_a_resumed_search_has_the_highest_priority_that_its_owner_may_give_now(service, highest, resumed):
    service.queue.set_team(Team(members={"ada": {"priority": 10}}))
    service.submit("ada", "a", priority=5)
    service.queue.stop("a", "ada")
    service.queue.set_team(Team(members={"ada": {"priority": highest}}))
    assert service.queue.resume("a", "ada").priority == resumed
    service.come_back()
    assert service.queue.entry("a").priority == resumed


def test_an_experiment_that_could_not_be_read_again_is_refused(service):
    with pytest.raises(InputError, match="shorten the experiment"):
        service.submit("ada", "a", file=None, experiment="# " + "ы" * 2_000_000)
    assert [*service.queue.entries()] == []


def test_records_hold_no_more_than_they_need_and_others_cannot_read_them(service, storage):
    service.submit("ada", "a")
    file = Path(storage.path) / ".service" / "searches" / "a.json"

    assert file.stat().st_mode & 0o077 == 0
    assert set(json.loads(file.read_text())) >= {"submission", "state", "attempt"}

"""Which search of a team gets how many GPUs, on a cluster in memory."""

from __future__ import annotations

import math

import pytest

from tests.service.fake import FakeCluster
from tests.service.queued import MONDAY, Service
from tuner.errors import InputError
from tuner.service.cluster import Capacity
from tuner.service.interface import Submission
from tuner.service.standing import places
from tuner.service.team import Team


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

    service.queue.stop("b", "ada")
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


def test_a_clock_that_is_set_back_over_a_monday_gives_no_hours_back(storage):
    with Service(storage, FakeCluster(trials=400), Team(members={"ada": {"gpu_hours_a_week": 1}})) as service:
        service.submit("ada", "a", trials=400)
        service.run(3600)
        for now in (MONDAY - 86_400, MONDAY + 2 * 86_400):
            service.clock.now = now
            service.run(50)
            assert service.running() == {"a": 0}
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
    service.queue.stop("a", "ada")
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


@pytest.mark.parametrize(("gpus", "trials"), [(0.2, 5), (0.1, 10), (0.3, 3)])
def test_small_trials_fill_a_gpu(storage, gpus, trials):
    submission = Submission("ada", "a", "r", per_trial={"GPU": gpus})
    assert places(submission, Capacity(1.0, 64.0)) == trials
    assert places(submission, Capacity(math.inf, math.inf)) == 10_000


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

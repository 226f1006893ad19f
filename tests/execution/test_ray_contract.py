"""What tuner relies on in Ray, and Ray does not promise, is as we read it: `tests.execution.ray_contract`."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path

import pytest
import ray
from packaging.requirements import Requirement
from packaging.version import Version

from tests.execution.ray_contract import RECORDS, ROOT, Users, fingerprint, fingerprints, members, recorded
from tuner.execution.auth import MODE
from tuner.execution.connect import _QUESTION
from tuner.execution.local_cluster import METRICS
from tuner.execution.session import _RAY_SETTINGS

RAY = Path(ray.__file__).parent
WRITE = "python -m tests.execution.ray_contract"


@pytest.fixture(scope="module")
def found() -> tuple[Users, Users]:
    return members()


def differences(was: dict[str, str], now: dict[str, str], users: Users) -> list[str]:
    """A line for each member that is not as it was read, with our functions that rely on it."""
    return [
        f"{member}: was {was.get(member, 'not recorded')}, is {now.get(member, 'not relied upon')}"
        + "".join(f"\n    read again: {user}" for user in sorted(users.get(member, ())))
        for member in sorted(was.keys() | now.keys())
        if was.get(member) != now.get(member)
    ]


def test_what_we_rely_on_is_as_we_read_it(found: tuple[Users, Users]) -> None:
    users = found[0]
    changed = differences(recorded(ray.__version__), fingerprints(users), users)
    assert not changed, "\n".join(
        [f"of Ray {ray.__version__}, {len(changed)} members differ; read them, then: {WRITE}", *changed]
    )


def test_of_every_private_name_it_is_known_whose_it_is(found: tuple[Users, Users]) -> None:
    assert not found[1], (
        "say of which class these are in tests/execution/ray_contract.py (ATTRIBUTES, RETURNS, UNTYPED)"
    )


def test_the_declared_range_of_ray_is_the_one_that_was_read() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].split()
    declared = next(Requirement(line) for line in lines if line.startswith("ray"))
    read = sorted(Version(file.stem) for file in RECORDS.glob("*.json"))
    oldest, newest = read[0], read[-1]
    assert str(declared.specifier) == f"<{newest.major}.{newest.minor + 1},>={oldest.major}.{oldest.minor}"
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert Version(pinned[1]) == newest


TUNE = "ray.tune.execution.tune_controller:TuneController"


@pytest.mark.parametrize(
    ("member", "user"),
    [
        (f"{TUNE}._maybe_update_trial_queue", "execution.controller.Controller._maybe_update_trial_queue"),
        (f"{TUNE}._actor_failed", "execution.controller.Controller._actor_failed"),
        (f"{TUNE}._trial_to_actor", "execution.controller.Controller._state_of"),
        (f"{TUNE}._cached_trial_decisions", "execution.scheduler_adapter.SchedulerAdapter.fill"),
        ("ray.tune.utils.object_cache:_ObjectCache._cached_objects", "execution.controller.Controller"),
        ("ray.tune.search.search_generator:SearchGenerator._counter", "execution.controller.Controller._go_on"),
        (
            "ray.train._internal.checkpoint_manager:_CheckpointManager._latest_checkpoint_result",
            "execution.restore_trials",
        ),
        (
            "ray.tune.experiment.trial:_TemporaryTrialState.saving_to",
            "execution.retrying_controller.RetryingController",
        ),
        (
            "ray.train._internal.session:_TrainSession.continue_lock",
            "execution.trial_process.TrialProcess._wait_for_report",
        ),
        ("ray.train._internal.session:_session", "execution.stand_in_session.in_place_of_rays"),
        ("ray._private.parameter:RayParams", "execution.local_cluster.minimal_services"),
        ("ray._private.node:Node.dead_processes", "execution.local_cluster.RayWatchdog.run"),
        (
            "ray.air.execution.resources.placement_group:PlacementGroupResourceManager.__del__",
            "local_cluster.force_shutdown",
        ),
        ("ray.air.execution._internal.actor_manager:RayActorManager", "execution.controller.replaces_rays"),
        ("ray._raylet:AuthenticationTokenLoader.reset_cache", "execution.auth._set"),
        ("ray.actor:ActorHandle._actor_id", "execution.hang_detector.HungTrialKiller.look"),
        ("ray.dashboard.modules.dashboard_sdk:SubmissionClient._server_ray_version", "jobs.client._check_ray"),
    ],
)
def test_what_is_overridden_replaced_read_or_called_is_found(
    found: tuple[Users, Users], member: str, user: str
) -> None:
    assert any(user in one for one in found[0][member]), found[0].get(member)


def test_a_change_names_what_changed_and_what_to_read_again() -> None:
    was = {"ray.a:A._same": "(self) 1", "ray.a:A._gone": "(self) 2", "ray.a:A._changed": "(self) 3"}
    now = {"ray.a:A._same": "(self) 1", "ray.a:A._gone": "gone", "ray.a:A._changed": "(self, x) 3", "ray.a:A._new": "1"}
    users = {"ray.a:A._changed": {"tuner.b.B.f"}, "ray.a:A._gone": {"tuner.b.B.g"}, "ray.a:A._new": {"tuner.b.B.h"}}
    assert differences(was, now, users) == [
        "ray.a:A._changed: was (self) 3, is (self, x) 3\n    read again: tuner.b.B.f",
        "ray.a:A._gone: was (self) 2, is gone\n    read again: tuner.b.B.g",
        "ray.a:A._new: was not recorded, is 1\n    read again: tuner.b.B.h",
    ]


def test_a_version_that_nobody_has_read_is_compared_with_the_latest_that_was() -> None:
    latest = max(RECORDS.glob("*.json"), key=lambda file: Version(file.stem))
    assert recorded("999.0.0") == json.loads(latest.read_text())


def test_a_fingerprint_tells_signature_source_value_and_absence() -> None:
    signature, _, source = fingerprint(f"{TUNE}._actor_failed").rpartition(" ")
    assert signature.startswith("(self, tracked_actor: TrackedActor")
    assert re.fullmatch("[0-9a-f]{16}", source)
    assert fingerprint(f"{TUNE}._actor_to_trial") == "attribute"
    assert fingerprint(f"{TUNE}._never_there") == "gone"
    assert fingerprint("ray.tune.result:TRAINING_ITERATION") == "value 'training_iteration'"


def test_what_ray_is_told_through_the_environment_is_what_it_reads() -> None:
    """A variable that Ray no longer reads is silently without effect."""
    places = [RAY / name for name in ("tune", "train", "air", "_private")]
    python = "".join(file.read_text(errors="replace") for place in places for file in place.rglob("*.py"))
    assert [name for name in _RAY_SETTINGS if name not in python] == []
    compiled = (RAY / "_raylet.so").read_bytes()
    for name in (MODE, METRICS):  # settings of its C++ are named there without the prefix
        assert name.encode() in compiled or name.removeprefix("RAY_").encode() in compiled


def test_the_question_to_a_cluster_is_one_that_ray_serves() -> None:
    from ray.core.generated import gcs_service_pb2

    service, _, method = _QUESTION.removeprefix("/ray.rpc.").partition("/")
    methods = gcs_service_pb2.DESCRIPTOR.services_by_name[service].methods_by_name
    assert methods[method].input_type.full_name.startswith("ray.rpc.GetClusterId")

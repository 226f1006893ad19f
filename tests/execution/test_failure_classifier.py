"""What failures are, and what follows from them: the rules, without Ray and without waiting."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.exceptions import (
    ActorDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    UnserializableException,
)

from tests.tables import space
from tuner.execution import memory_monitor
from tuner.execution.failure_classifier import (
    PREEMPTED,
    BadReport,
    DamagedCheckpoint,
    NotFinite,
    ProcessGroupNotFormed,
    ProcessLost,
    Unreachable,
    classify,
    user_error,
)
from tuner.execution.hang_detector import FACTOR, FIRST_TRIALS_S, LEAST_BEFORE_S, LEAST_S, LONGEST_TICK_S, HangDetector
from tuner.execution.memory_monitor import REMEMBER_S, MemoryMonitor, OutOfMemoryKills
from tuner.execution.retry_policy import (
    MICRO_BATCH,
    FailureStopper,
    RetryDecision,
    back_off,
    decide_retry,
    is_hopeless,
    with_micro_batch,
)
from tuner.experiment.failures import Failures
from tuner.runs.failure import Failure
from tuner.runs.history import EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_run
from tuner.runs.results import EXPERIMENT, PROVENANCE, ResultSet, write_json
from tuner.runs.trial import Report, Trial
from tuner.search.control import SearchControl
from tuner.search.emitted_events import events_of, failed_attempt
from tuner.search.recovery import read_stored_search, recover
from tuner.search.state import SearchState
from tuner.search.usage import UsageTracker
from tuner.searchers.build import build_searcher
from tuner.searchers.random import Random
from tuner.spec.objective import Objective
from tuner.spec.problem import SearchProblem
from tuner.storage.folder import RunFolder
from tuner.trainable.trainable import load_trainable
from tuner.training.reporting import NotOneGroup

# ------------------------------------------------------------------------------- what it died of


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("lr is\nnegative"), "exception", "ValueError: lr is"),
        (KeyError("x"), "exception", "KeyError: 'x'"),
        (AssertionError(), "exception", "AssertionError"),
        (RuntimeError("shapes do not fit"), "exception", "RuntimeError: shapes do not fit"),
        (torch.OutOfMemoryError("whatever"), "GPU memory", "OutOfMemoryError: whatever"),
        (RuntimeError("CUDA out of memory. Tried"), "GPU memory", "RuntimeError: CUDA out of memory. Tried"),
        (RuntimeError("CUDA error: out of memory"), "GPU memory", "RuntimeError: CUDA error: out of memory"),
        (RuntimeError("HIP out of memory."), "GPU memory", "RuntimeError: HIP out of memory."),
        (RuntimeError("MPS backend out of memory (x)"), "GPU memory", "RuntimeError: MPS backend out of memory (x)"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "GPU memory",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
        (ValueError("CUDA out of memory"), "exception", "ValueError: CUDA out of memory"),
        (MemoryError(), "host memory", "MemoryError"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            "host memory",
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
        ),
        (OSError(12, "Cannot allocate memory"), "host memory", "OSError: [Errno 12] Cannot allocate memory"),
        (FileNotFoundError(2, "No such file"), "data", "FileNotFoundError: [Errno 2] No such file"),
        (ConnectionResetError("peer"), "data", "ConnectionResetError: peer"),
        (
            chained(RuntimeError("the epoch failed"), torch.OutOfMemoryError("CUDA out of memory.")),
            "GPU memory",
            "OutOfMemoryError: CUDA out of memory.",
        ),
        (chained(RuntimeError("no"), ValueError("why")), "exception", "RuntimeError: no"),
    ],
)
def test_what_the_users_code_raises(error: BaseException, kind: str, message: str) -> None:
    told = user_error(error)
    assert (told.kind, told.message) == (kind, message)
    assert classify(RayTaskError("train", "traceback", told), 7) == Failure(kind, message, 7)  # type: ignore[arg-type]


DIED = (
    "The actor died unexpectedly before finishing this task.\n\tpid: 1\nThe actor is dead because its worker process "
    "has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
)
BY_SIGNAL = DIED + (
    "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the "
    "process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker "
    "crashed unexpectedly due to SIGSEGV or another unexpected error. If the process was killed by the kernel OOM "
    "killer, consider enabling resource isolation via --enable-resource-isolation to prevent node deaths by resource "
    "contention."
)


def died(text: str, preempted: bool = False) -> ActorDiedError:
    error = ActorDiedError()
    error.error_msg, error._preempted = text, preempted
    return error


UNKNOWN = "its process died (killed by a signal, out of memory, or os._exit) [SYSTEM_ERROR]"
FULL = "its process died while the node's memory was nearly full"


@pytest.mark.parametrize(
    ("error", "known", "kind", "message"),
    [
        (died(BY_SIGNAL), {}, "process died", UNKNOWN),
        (died(BY_SIGNAL), {"memory_was_full": True}, "host memory", FULL),
        (
            died(BY_SIGNAL),
            {"log": "epoch 1\nFatal Python error: Segmentation fault\n\nThread 1:\n", "memory_was_full": True},
            "process died",
            "its process died: Segmentation fault",
        ),
        (
            died(DIED + "Worker exits unexpectedly. Worker exits with an exit code 3."),
            {},
            "process died",
            "its process exited with code 3",
        ),
        (
            died(DIED + "Worker exits with an exit code 1. The process receives a SIGTERM."),
            {},
            "process died",
            "its process died: SIGTERM",
        ),
        (died("The actor died because its node has died. Node Id: 5d3e"), {}, "node lost", "its node died"),
        (died("Node was forcibly preempted", True), {}, "node lost", "its node was taken back (preempted)"),
        (NodeDiedError("gone"), {}, "node lost", "its node died"),
        (Unreachable("a", 'message: "The actor died because its node has died."'), {}, "node lost", "its node died"),
        (Unreachable("a", ""), {}, "node lost", "its node could not be reached any more"),
        (Unreachable("a", "all references were removed"), {}, "node lost", "its node could not be reached any more"),
        (Unreachable("a", DIED + "exit code 3"), {}, "process died", "its process exited with code 3"),
        (
            Unreachable("a", "node_death_info { reason: AUTOSCALER_DRAIN_PREEMPTED }"),
            {},
            "node lost",
            "its node was taken back (preempted)",
        ),
        (OutOfMemoryError("x"), {}, "host memory", "killed by Ray: the node's memory was nearly full"),
        (died(DIED), {"hung": "no report for 70.0s"}, "hung", "no report for 70.0s"),
        (
            DamagedCheckpoint("state is missing"),
            {},
            "data",
            "its node reads a damaged checkpoint, which is whole elsewhere: state is missing",
        ),
        (NotFinite("report 2: loss is nan"), {}, "NaN", "report 2: loss is nan"),
        (BadReport("report 2: loss is None"), {}, "bad report", "report 2: loss is None"),
        (UnserializableException("RayTaskError: ...\n  File x\nMine: text\n"), {}, "exception", "Mine: text"),
    ],
)
def test_what_ray_says(error: BaseException, known: dict[str, Any], kind: str, message: str) -> None:
    assert classify(error, 3, **known) == Failure(kind, message, 3)  # type: ignore[arg-type]
    if not isinstance(error, RayActorError):
        assert classify(ProcessLost(error), 3, **known) == Failure(kind, message, 3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- what follows

RAISED, NEW = Failure("exception", "ValueError: x", 3), Failure("exception", "ValueError: y", 3)
DEAD, LOST, HUNG = Failure("process died", "m", 1), Failure("node lost", "m"), Failure("hung", "m", 2)
GPU, REDUCED = Failure("GPU memory", "m", 1), Failure("GPU memory", "m", 1, 1)
NAN, BAD = Failure("NaN", "m", 2), Failure("bad report", "m", 2)
RETRY, FAIL, STOP = RetryDecision("retry"), RetryDecision("fail"), RetryDecision("stop")


@pytest.mark.parametrize(
    ("rules", "failure", "before", "micro_batch", "expected"),
    [
        ({}, DEAD, [], None, RETRY),
        ({}, DEAD, [DEAD], None, RETRY),
        ({}, DEAD, [DEAD, DEAD], None, FAIL),
        ({"retries": 0}, DEAD, [], None, FAIL),
        ({"retries": 1}, DEAD, [RAISED], None, FAIL),
        ({"retries": 1}, DEAD, [LOST, LOST, HUNG], None, RETRY),  # neither is counted
        ({}, RAISED, [], None, RETRY),
        ({}, RAISED, [RAISED], None, FAIL),  # it is the code
        ({}, NEW, [RAISED], None, RETRY),
        ({}, Failure("exception", "ValueError: x", 4), [RAISED], None, RETRY),  # it came further
        ({"retries": 0}, LOST, [LOST] * 9, None, RETRY),
        ({}, HUNG, [], None, RETRY),
        ({}, HUNG, [DEAD, DEAD], None, RETRY),
        ({}, HUNG, [HUNG], None, FAIL),
        ({"retries": 0}, HUNG, [], None, FAIL),
        ({}, NAN, [], None, FAIL),
        ({"on_nan": "stop"}, NAN, [], None, STOP),
        ({"on_nan": "stop"}, Failure("NaN", "m"), [], None, FAIL),  # there is no finite value
        ({"retries": 9}, BAD, [], None, FAIL),
        ({}, GPU, [], 64, RETRY),
        ({}, GPU, [GPU, GPU], 64, FAIL),
        ({"on_oom": "reduce_batch"}, GPU, [], None, RETRY),  # declares none: tried again as it was
        ({"on_oom": "reduce_batch"}, GPU, [GPU, GPU], None, FAIL),
        ({"on_oom": "reduce_batch"}, GPU, [], 64, RetryDecision("retry", 32)),
        ({"on_oom": "reduce_batch", "retries": 0}, GPU, [], 3, RetryDecision("retry", 1)),
        ({"on_oom": "reduce_batch"}, GPU, [REDUCED], 1, RETRY),
        ({"on_oom": "reduce_batch"}, GPU, [REDUCED, GPU], 1, FAIL),  # twice the same
        ({"on_oom": "reduce_batch"}, DEAD, [REDUCED, REDUCED, DEAD], 1, RETRY),  # reductions are not counted
        ({}, RAISED, [RAISED, replace(RAISED, final=True)], None, RETRY),  # it was reopened
        ({"retries": 1}, DEAD, [DEAD, replace(DEAD, final=True), DEAD], None, FAIL),
    ],
)
def test_whether_a_trial_is_tried_again(
    rules: dict[str, Any], failure: Failure, before: list[Failure], micro_batch: int | None, expected: RetryDecision
) -> None:
    assert decide_retry(Failures(**rules), failure, before, micro_batch) == expected


PREEMPTION = Failure("node lost", PREEMPTED)


@pytest.mark.parametrize(
    ("failures", "alone", "seconds"),
    [
        ([LOST], RETRY, 0),
        ([LOST, LOST], RETRY, 30),
        ([LOST, LOST, LOST], FAIL, 60),
        ([LOST] * 9, FAIL, 600),
        ([LOST, LOST, replace(LOST, step=1)], RETRY, 0),  # it came further
        ([LOST, LOST, DEAD, LOST], RETRY, 0),
        ([PREEMPTION] * 9, RETRY, 0),
        ([LOST, LOST, PREEMPTION], RETRY, 30),
    ],
)
def test_a_trial_that_takes_nodes_with_it_waits_and_then_fails(
    failures: list[Failure], alone: RetryDecision, seconds: float
) -> None:
    *before, failure = failures
    assert decide_retry(Failures(), failure, before, None, alone=True) == alone
    assert decide_retry(Failures(), failure, before, None, alone=False) == RETRY
    assert back_off(failures) == seconds


def test_a_batch_is_halved_down_to_one() -> None:
    rules, size, before = Failures(on_oom="reduce_batch"), 100, []
    sizes = []
    while (found := decide_retry(rules, GPU, before, size)).micro_batch:
        size = found.micro_batch
        before.append(Failure("GPU memory", "m", 1, size))
        sizes.append(size)
    assert sizes == [50, 25, 12, 6, 3, 1]


def test_the_reduced_micro_batch_is_not_part_of_the_configuration() -> None:
    assert with_micro_batch({"lr": 1}, None) == {"lr": 1}
    assert with_micro_batch({"lr": 1}, 8) == {"lr": 1, MICRO_BATCH: 8}


@pytest.mark.parametrize(
    ("stop_after", "failed", "ended", "reason"),
    [
        (None, 99, 99, ""),
        ("auto", 99, 99, ""),
        (3, 2, 50, ""),
        (3, 3, 3, "failures.stop_after 3 is reached: 3 trials failed"),
        ("50%", 9, 9, ""),  # too few to say
        ("50%", 5, 10, "failures.stop_after 50% is reached: 5 of 10 ended trials failed"),
        ("50%", 5, 11, ""),
        ("12.5%", 2, 16, "failures.stop_after 12.5% is reached: 2 of 16 ended trials failed"),
    ],
)
def test_when_failures_end_the_search(stop_after: int | str | None, failed: int, ended: int, reason: str) -> None:
    usage = UsageTracker((Objective(metric="score", mode="max"),))
    for i in range(ended):
        status = "failed" if i < failed else ("completed", "stopped")[i % 2]
        usage.apply({"what": "ended", "trial": str(i), "status": status})
    control = SearchControl()
    stopper = FailureStopper(Failures(stop_after=stop_after), usage, control)
    assert (stopper.stop_all(), control.stop_reason) == (bool(reason), reason)


@pytest.mark.parametrize(
    "reopened", [{"what": "extended", "spec": {}, "reopened": ["a"]}, {"what": "reopened", "trial": "a"}]
)
def test_a_trial_that_is_reopened_has_neither_failed_nor_ended(reopened: dict[str, Any]) -> None:
    usage = UsageTracker((Objective(metric="score", mode="max"),))
    for status in ("failed", "completed"):
        usage.apply({"what": "ended", "trial": "a", "status": status})
        assert (usage.failed, usage.ended) == (int(status == "failed"), 1)
        usage.apply(reopened)
        assert (usage.failed, usage.ended) == (0, 0)


def failed(number: int, *failures: Failure, reports: int = 0) -> Trial:
    made = [Report(f"t{number}", k + 1, 1.0, 1.0, {"score": 1.0}) for k in range(reports)]
    return Trial(f"t{number}", number, {}, failures=list(failures), reports=made)


def broken(number: int, **fields: Any) -> Failure:
    return Failure(**({"kind": "exception", "message": f"ValueError: lr {number / 7}", "final": True} | fields))


HOPELESS: list[tuple[str, list[Trial], int, bool]] = [
    ("four fail alike", [failed(k, broken(k)) for k in range(4)], 2, True),
    ("three", [failed(k, broken(k)) for k in range(3)], 1, False),
    ("a fifth waits", [*(failed(k, broken(k)) for k in range(4)), failed(4)], 2, True),
    ("one of as many as run at once still runs", [*(failed(k, broken(k)) for k in range(4)), failed(4)], 8, False),
    ("the second is tried again", [failed(k, broken(k, final=k != 1)) for k in range(4)], 2, False),
    ("one reported", [*(failed(k, broken(k)) for k in range(4)), failed(4, reports=1)], 2, False),
    ("one failed otherwise", [failed(k, broken(k, message=f"KeyError: {'ab'[k == 2]}")) for k in range(4)], 2, False),
    ("a file is missing", [failed(k, broken(k, kind="data", message="no file")) for k in range(4)], 2, True),
    ("memory", [failed(k, broken(k, kind="GPU memory")) for k in range(4)], 2, False),
    (
        "it failed later, too",
        [failed(k, broken(k, message="other", final=False), broken(k)) for k in range(4)],
        2,
        True,
    ),
]


@pytest.mark.parametrize(("trials", "slots", "ends"), [case[1:] for case in HOPELESS], ids=[c[0] for c in HOPELESS])
def test_first_trials_that_fail_alike_end_the_search(trials: list[Trial], slots: int, ends: bool) -> None:
    assert is_hopeless(trials[3 if len(trials) > 3 else -1].failures[-1], trials, slots) is ends


def test_processes_that_train_alone_are_a_matter_of_the_search() -> None:
    error = user_error(NotOneGroup("resources.workers: 2, but XGBoost trains this model in 1"))
    assert isinstance(error, ProcessGroupNotFormed)
    assert decide_retry(Failures(), classify(error), [], None).action == "fail"


def test_an_exception_that_another_trial_had_is_not_tried_again() -> None:
    assert decide_retry(Failures(), broken(1), [], None, common=True).action == "fail"
    assert decide_retry(Failures(), broken(1), [], None).action == "retry"
    assert decide_retry(Failures(), broken(1, kind="data"), [], None, common=True).action == "retry"


@pytest.mark.parametrize("value", [0, -1, "0.5", "101%", "50 %", "%", True, 2.5])
def test_stop_after_is_a_number_or_a_share(value: Any) -> None:
    with pytest.raises(ValueError, match="stop_after"):
        Failures(stop_after=value)


@pytest.mark.parametrize(
    ("value", "seconds"), [("90s", 90.0), ("5m", 300.0), (20, 20.0), ("auto", "auto"), (None, None)]
)
def test_hang_after_is_a_duration_or_auto_or_never(value: Any, seconds: Any) -> None:
    assert Failures(hang_after=value).hang_after == seconds


def test_the_plan_tells_what_will_be_done() -> None:
    assert Failures().described(True) == "retries 2 a trial, hang_after auto, on_nan fail, on_oom retry"
    rules = Failures(retries=0, hang_after=None, on_oom="reduce_batch", stop_after="50%")
    assert rules.described(False) == (
        "retries 0 a trial, hang_after never, on_nan fail, on_oom reduce_batch; of no use, as the trainable has no "
        "micro_batch: such trials are tried again as they were; the search ends when 50% of the trials have failed"
    )
    assert Failures(hang_after="5m").described(True).split(", ")[1] == "hang_after 5m00s"


# ------------------------------------------------------------------------------- who hangs


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch of one trial whose time passes in small steps."""

    def __init__(self, hang_after: Any) -> None:
        self.clock = Clock()
        self.watch = HangDetector(hang_after, self.clock)
        self.watch.started("a", 0)

    def wait(self, seconds: float) -> dict[str, str]:
        while seconds > 0:
            self.clock.now += min(seconds, 0.5)
            seconds -= 0.5
            self.watch.tick()
        return self.watch.hung(["a"])

    def reports(self, *after: float) -> None:
        for step, seconds in enumerate(after, start=self.watch.step("a") + 1):
            assert not self.wait(seconds)
            self.watch.reported("a", step)


def test_auto_is_ten_times_the_median_from_the_third_report_on() -> None:
    watched = Watched("auto")
    watched.reports(2000, 20, 20, 20)
    assert not watched.wait(FACTOR * 20)
    (why,) = watched.wait(1).values()
    assert why == "no report for 3m21s; failures.hang_after auto is 3m20s, 10 times what this trial needs"


SET = "set failures.hang_after where a trial may be silent for longer"


def test_the_first_trials_have_an_hour_to_each_of_their_first_reports() -> None:
    watched = Watched("auto")
    assert not watched.wait(FIRST_TRIALS_S)
    rule = f"failures.hang_after auto is 1h00m00s to its first report while no trial has come further; {SET}"
    assert watched.wait(1) == {"a": f"no report for 1h00m01s; {rule}"}
    watched.watch.reported("a", 1)
    assert not watched.wait(FIRST_TRIALS_S)
    rule = f"failures.hang_after auto is 1h00m00s between its first reports while no trial has come further; {SET}"
    assert watched.wait(1) == {"a": f"no report for 1h00m01s; {rule}"}


@pytest.mark.parametrize(("took", "limit"), [(1.0, LEAST_BEFORE_S), (100.0, 1000.0)])
def test_later_trials_have_ten_times_what_the_others_took_so_far(took: float, limit: float) -> None:
    watched = Watched("auto")
    for other, half in (("b", took), ("c", took / 2)):
        watched.watch.started(other, 0)
        for step in (1, 2):
            watched.wait(half)
            watched.watch.reported(other, step)
    for step, what in enumerate(("to its first report", "between its first reports")):
        watched.watch.reported("a", step) if step else watched.watch.started("a", 0)
        assert not watched.wait(limit)
        (why,) = watched.wait(1).values()
        assert why.endswith(
            f"auto is 10m00s {what} at least"
            if took == 1
            else f"auto is 16m40s, 10 times the longest that a trial of this search took {what}"
        )


def test_auto_is_patient_for_a_minute_at_least() -> None:
    watched = Watched("auto")
    watched.reports(0.5, 0.5, 0.5)
    assert not watched.wait(LEAST_S)
    assert watched.wait(1) == {
        "a": "no report for 1m01s; failures.hang_after auto is 1m00s for trials that report so often"
    }


def test_a_trial_that_starts_again_gets_the_time_that_a_start_takes() -> None:
    watched = Watched("auto")
    watched.reports(100, 1, 1)
    watched.watch.started("a", 3)
    assert not watched.wait(FACTOR * 100)
    assert watched.wait(1)
    watched.watch.started("a", 3)
    assert not watched.wait(1)
    assert watched.watch.step("a") == 3


def test_a_duration_counts_from_the_start_and_never_is_never() -> None:
    watched = Watched(30.0)
    assert not watched.wait(30)
    assert watched.wait(1) == {"a": "no report for 31.0s; failures.hang_after is 30.0s"}
    watched.reports()
    assert not Watched(None).wait(100_000)


def test_time_in_which_the_driver_stood_still_is_nobodys_fault() -> None:
    watched = Watched(30.0)
    watched.clock.now += 10_000
    watched.watch.tick()
    assert not watched.watch.hung(["a"])
    assert not watched.wait(30 - LONGEST_TICK_S)
    assert watched.wait(1)


def test_memory_that_was_nearly_full_is_remembered_for_a_while() -> None:
    clock, share, kills = Clock(), [0.97], [4]
    gauge = MemoryMonitor(lambda: share[0], lambda: kills[0], clock)
    gauge.look()
    share[0] = 0.3
    for _ in range(3):
        clock.now += 1
        gauge.look()
    assert gauge.was_full()
    for _ in range(int(REMEMBER_S) + 1):
        clock.now += 1
        gauge.look()
    assert not gauge.was_full()
    kills[0] += 1
    assert gauge.was_full()
    assert not gauge.was_full()


def test_a_kernel_that_killed_on_another_node_is_known_when_that_node_answers() -> None:
    counts, asked = {"n": 4, "m": 0}, []
    answered: list[bool] = []

    def count(node: str) -> int:
        asked.append(node)
        return counts[node]

    found = OutOfMemoryKills(count, lambda both: both[1] > both[0] if answered else None)
    for _ in range(2):
        found.started("n")
        found.started("m")
    counts["n"] += 1
    first = found.died("n")
    assert first() is None
    answered.append(True)
    assert first()
    assert not found.died("n")()  # the kernel has not killed again
    assert not found.died("m")()
    assert asked == ["n", "m", "n", "n", "m"]


def test_the_kernels_count_is_that_of_the_control_group_or_else_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_monitor, "_GROUP", tmp_path)
    machine = int(Path("/proc/vmstat").read_text().partition("\noom_kill ")[2].splitlines()[0])
    assert memory_monitor.kills() == machine
    (tmp_path / "memory.events").write_text("oom 9\noom_kill 7\n")
    assert memory_monitor.kills() == 7


# ------------------------------------------------------------------------------- what is kept


def test_failures_survive_a_kill_of_the_driver(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path)
    spec = {"objective": {"metric": "score", "mode": "max"}}
    folder.write(EXPERIMENT, b"objective: {metric: score, mode: max}\n")
    write_json(folder, PROVENANCE, {})
    results = ResultSet(folder, spec, {})
    journal, history = JournalWriter(folder), EventApplier(results)
    journal.append("began", spec=spec, provenance={})

    def new_state() -> SearchState:
        task = SearchProblem(space({"x": {"uniform": [0, 1]}}), ("max",), 5, 9, 3)
        return SearchState(
            build_searcher(Random(), task),
            None,
            task.space,
            (Objective(metric="score", mode="max"),),
            "training_iteration",
        )

    config = new_state().suggest("a")
    assert config is not None
    journal.append("suggested", trial="a", config=config)
    history.suggested("a", config)
    results.save()
    for failure in (DEAD, Failure("GPU memory", "m", 2, 16)):
        journal.append("failed attempt", **failed_attempt("a", failure))
        history.failed_attempt("a", failure)
    journal.close()

    found = recover(read_stored_search(ResultSet(folder, spec, {})), new_state).results.trial("a")
    assert found.failures == [DEAD, Failure("GPU memory", "m", 2, 16)]
    assert found.micro_batch == 16
    results.trial("a").reports.append(Report("a", 1, 1.0, 1.0, {"score": 1.0}))
    results.save()
    assert load_run(folder).trials[0].failures == results.trials[0].failures
    assert load_run(folder).trials[0].micro_batch == 16
    assert [e["kind"] for e in events_of(results.trials) if e["what"] == "failed attempt"] == [
        "process died",
        "GPU memory",
    ]


def test_the_table_has_no_column_for_failures_where_there_are_none(tmp_path: Path) -> None:
    results = ResultSet(RunFolder.at(tmp_path), {"objective": {"metric": "score", "mode": "max"}}, {})
    results.add(Trial("a", 1, {"x": 1}, "completed"))
    assert results._trials_csv().splitlines()[0].endswith(",checkpoint,log")
    assert results.trials[0].why == ""


def test_why_tells_of_the_last_failed_attempt() -> None:
    trial = Trial("a", 1, {}, "completed", failures=[DEAD, REDUCED])
    last = "GPU memory: m, after report 1; it continues with micro_batch 1"
    assert trial.why == f"2 failed attempts, the last: {last}"
    assert Trial("a", 1, {}, "failed", "m", failures=[DEAD, DEAD]).why == "m (2 attempts)"
    assert Trial("a", 1, {}, "failed", "m", failures=[DEAD]).why == "m"


# ------------------------------------------------------------------------------- micro-batches

TRAINABLES = """
import dataclasses
from pydantic import BaseModel

@dataclasses.dataclass
class Declared:
    lr: float = 0.1
    batch_size: int = 128
    micro_batch: int | None = None

class Model(BaseModel):
    batch_size: int = 32
    micro_batch: int | None = 8

@dataclasses.dataclass
class Bare:
    batch_size: int = 128

def declared(config: Declared): ...
def model(config: Model): ...
def bare(config: Bare): ...
def plain(config: dict): ...
"""


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        ("declared", {}, 128),
        ("declared", {"batch_size": 64}, 64),
        ("declared", {"batch_size": 64, "micro_batch": 16}, 16),
        ("declared", {"batch_size": 64, "micro_batch": 256}, 64),
        ("model", {}, 8),
        ("bare", {"batch_size": 64}, None),
        ("plain", {"batch_size": 64}, None),
        ("plain", {"batch_size": 64, "micro_batch": None}, 64),
        ("plain", {"micro_batch": 4}, 4),
        ("plain", {"micro_batch": None}, None),  # half of nothing known
    ],
)
def test_the_micro_batch_of_a_trial(
    user_folder: Path, function: str, values: dict[str, Any], expected: int | None
) -> None:
    (user_folder / "t_micro.py").write_text(TRAINABLES)
    assert load_trainable(f"t_micro.py:{function}", (user_folder,)).micro_batch(values) == expected


# --- full disks ---


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "/tmp/tmpabc/model.pt"),
        RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos 704 vs 598"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    ],
)
def test_a_full_disk_of_a_node_is_a_failure_that_names_the_node(error: Exception) -> None:
    found = user_error(error)
    assert found.kind == "data"
    assert found.message.endswith(f"(on node {platform.node()}: a disk there is full)")

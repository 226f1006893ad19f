"""What failures are, and what follows from them: the rules, without Ray and without waiting."""

from __future__ import annotations

import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray._private.thirdparty import pynvml
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
    BadReport,
    DamagedCheckpoint,
    NotFinite,
    ProcessLost,
    Unreachable,
    classify,
    is_of_broken_gpu,
    user_error,
)
from tuner.execution.hang_detector import FACTOR, FIRST_TRIALS_S, LEAST_BEFORE_S, LEAST_S, LONGEST_TICK_S, HangDetector
from tuner.execution.memory_monitor import REMEMBER_S, MemoryMonitor, OutOfMemoryKills
from tuner.execution.retrying_controller import RetryingController
from tuner.runs.failure import Failure
from tuner.runs.history import EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_run
from tuner.runs.results import EXPERIMENT, PROVENANCE, ResultSet, write_json
from tuner.runs.trial import Report, Trial
from tuner.search.emitted_events import events_of, failed_attempt
from tuner.search.recovery import read_stored_search, recover
from tuner.search.state import SearchState
from tuner.searchers.build import build_searcher
from tuner.searchers.random import Random
from tuner.spec.objective import Objective
from tuner.spec.problem import SearchProblem
from tuner.storage.folder import RunFolder
from tuner.trainable.trainable import load_trainable

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
        (
            RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
            "GPU memory",
            "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        ),
        (ValueError("CUDA out of memory"), "exception", "ValueError: CUDA out of memory"),
        (
            torch.AcceleratorError("CUDA error: device-side assert triggered\nCUDA kernel errors might be"),
            "exception",
            "AcceleratorError: CUDA error: device-side assert triggered (an index or a label out of range, mostly: "
            "replay the trial on the CPU to see the line)",
        ),
        (
            RuntimeError("CUDA error: an illegal memory access was encountered"),
            "exception",
            "RuntimeError: CUDA error: an illegal memory access was encountered (a kernel's own mistake, or a tensor "
            "that was freed: run with CUDA_LAUNCH_BLOCKING=1)",
        ),
        (
            torch.distributed.DistBackendError("NCCL error in: a.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for)"),
            "exception",
            "DistBackendError: NCCL error in: a.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for) (NCCL refuses two "
            "ranks on one GPU: give each worker a GPU of its own, or none)",
        ),
        (
            RuntimeError("CUDA error: uncorrectable ECC error encountered"),
            "GPU",
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        ),
        (
            chained(ValueError("no"), RuntimeError("CUDA error: unknown error")),
            "GPU",
            "RuntimeError: CUDA error: unknown error",
        ),
        (pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST), "GPU", "NVMLError_GpuIsLost: GPU is lost"),
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


# ------------------------------------------------------------------------------- who hangs


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch of one trial whose time passes in small steps."""

    def __init__(self, hang_after: Any, may_wait: bool = False) -> None:
        self.clock = Clock()
        self.watch = HangDetector(hang_after, self.clock, may_wait=may_wait)
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


@pytest.mark.parametrize("hang_after", ["auto", 30.0])
def test_a_trial_that_may_wait_for_others_is_judged_from_its_first_report_on(hang_after: Any) -> None:
    watched = Watched(hang_after, may_wait=True)
    assert not watched.wait(2 * FIRST_TRIALS_S)
    watched.watch.reported("a", 1)
    assert watched.wait(FIRST_TRIALS_S + 1)


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

DEAD, REDUCED = Failure("process died", "m", 1), Failure("GPU memory", "m", 1, 1)


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


def test_a_configuration_that_the_trainable_refuses_has_no_micro_batch(user_folder: Path) -> None:
    (user_folder / "t_micro.py").write_text(TRAINABLES)
    plan = SimpleNamespace(
        trainable=load_trainable("t_micro.py:declared", (user_folder,)), spec=SimpleNamespace(params={})
    )
    ours = SimpleNamespace(plan=plan)
    assert RetryingController._size(ours, {"batch_size": 64}) == 64  # type: ignore[arg-type]
    assert RetryingController._size(ours, {"batch_size": "many"}) is None  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("message", "kind", "broken"),
    [
        ("CUDA error: uncorrectable ECC error encountered", "GPU", True),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus", "GPU", True),
        ("CUDA error: unknown error", "GPU", False),
        ("column taxid not found", "exception", False),
    ],
)
def test_only_a_gpu_that_is_broken_is_put_aside(message: str, kind: Any, broken: bool) -> None:
    told = user_error(RuntimeError(message))
    assert told.kind == kind  # type: ignore[union-attr]
    assert is_of_broken_gpu(Failure(kind, message, 0)) == broken

"""What a failed attempt at a trial died of."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import traceback
from pathlib import Path

import ray
from ray.exceptions import (
    ActorDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    UnserializableException,
)

from tuner.errors import TunerError
from tuner.runs.failure import Failure, FailureKind
from tuner.search.storage_patience import chain, is_of_a_full_disk
from tuner.training.reporting import ProcessGroupNotFormed


class BadReport(TunerError):
    """A report that cannot be compared: the trial fails, the search continues."""


class NotFinite(BadReport):
    """A report in which something that is compared is NaN or infinite."""


class MissingMetric(TunerError):
    """A trial's first report lacks what the experiment compares; where no other had it, no trial can succeed."""


class StorageUnseen(TunerError):
    """The node that a trial was placed on does not see the run folder, and no trial can run there."""


class StorageFails(TunerError):
    """The node that a trial runs on cannot write the run folder: the driver finds out who can."""


class DamagedCheckpoint(TunerError):
    """The checkpoint from which a trial is to continue is not what was written."""


class UserError(TunerError):
    """What the user's code raised, in words: the driver may have neither its class nor the libraries that define it."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(kind, message)
        self.kind, self.message = kind, message


class ProcessLost(RayActorError):  # type: ignore[misc]
    """An error in place of a result that is neither the task's nor, to Ray, the process's: its ``__cause__``."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(error_msg=str(cause))
        self.__cause__ = cause


class Unreachable(RayActorError):  # type: ignore[misc]
    """A process that could not be reached any more, and what was learned of it then (empty: nothing)."""

    def __init__(self, actor_id: str, cause: str) -> None:
        super().__init__(actor_id, cause)


_GPU_WORDS = re.compile(
    r"(CUDA|HIP|XPU|MPS|GPU|device)[^.]{0,40} out of memory|CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)"
    r"|CUDNN_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|cudaErrorMemoryAllocation"
    r"|RESOURCE_EXHAUSTED: Out of memory",
    re.IGNORECASE,
)
_BROKEN_GPU = (
    r"GPU is lost|fallen off the bus|uncorrectable (NVLink|ECC)|unrecoverable error|(?-i:\bXid\b)|hardware stack error"
    r"|nvml.*Lost"
)
"""Messages of CUDA and NVML after which a GPU is of no use until somebody looks at it."""
_LOST_GPU = re.compile(
    _BROKEN_GPU
    + r"|CUDA error: (unknown error|no CUDA-capable device|device\(s\) is/are busy|system not yet initialized)"
    + r"|\bMPS (client|server|control daemon)\b",
    re.IGNORECASE,
)
"""Messages of CUDA, cuDNN and NVML of which the device or its driver is the cause, and no code."""
_HINTS = (
    ("device-side assert", "an index or a label out of range, mostly: replay the trial on the CPU to see the line"),
    ("illegal memory access", "a kernel's own mistake, or a tensor that was freed: run with CUDA_LAUNCH_BLOCKING=1"),
    ("misaligned address", "a kernel's own mistake: run with CUDA_LAUNCH_BLOCKING=1"),
    ("unspecified launch failure", "a kernel crashed: run with CUDA_LAUNCH_BLOCKING=1"),
    ("invalid usage (run with NCCL", "NCCL refuses two ranks on one GPU: give each worker a GPU of its own, or none"),
    ("no kernel image", "the package was not built for this GPU: install the build of its CUDA version"),
    ("Watchdog caught collective operation timeout", "a rank did not come to it: see the stacks in each rank's log"),
)
"""Words of a message, and what to do about them."""
_HOST_WORDS = re.compile(
    r"DefaultCPUAllocator: (can't|not enough)|[Cc]annot allocate memory|DataLoader.*out of.*memory"
)
PREEMPTED = "its node was taken back (preempted)"
_DIED = "its process died (killed by a signal, out of memory, or os._exit)"


def is_of_broken_gpu(failure: Failure) -> bool:
    """Whether no other trial should get the GPU on which a trial failed so."""
    return failure.kind == "GPU" and re.search(_BROKEN_GPU, failure.message, re.IGNORECASE) is not None


def raised_in_trial(error: BaseException, *kinds: type[Exception]) -> BaseException | None:
    """The exception of a trial's process, if it is one of ``kinds``."""
    cause = _cause(error)
    return cause if cause is not error and isinstance(cause, kinds) else None


def user_error(error: BaseException) -> UserError | ProcessGroupNotFormed:
    """``error``, raised by the user's code, with what it is a sign of; as it is if the driver must know its class.

    The first of the chain ``raise ... from ...`` that tells of memory or of a broken GPU counts, else the last one that
    was raised.
    """
    if isinstance(error, ProcessGroupNotFormed):
        return error
    for link in chain(error):
        if kind := _of_memory(link) or _of_device(link):
            return UserError(kind, summarize(link))
    if is_of_a_full_disk(error):
        return UserError("data", f"{summarize(error)} (on node {platform.node()}: a disk there is full)")
    return UserError("data" if isinstance(error, OSError) else "exception", summarize(error))


def print_traceback(error: BaseException) -> None:
    """As Python does at the end of a program, from the user's first line on: how Ray and we came there is no help."""
    ours = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(ray.__file__).parent))
    trace = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    with contextlib.suppress(OSError):  # the disk of the log is full
        traceback.print_exception(type(error), error, trace)


def summarize(error: BaseException) -> str:
    """The last line of its traceback, ``ValueError: lr is negative``, and for some errors what to do."""
    text = str(error).strip()
    name = type(error).__name__
    hint = next((f" ({hint})" for words, hint in _HINTS if words in text), "")
    return f"{name}: {text.splitlines()[0].strip()}{hint}" if text else name


def _of_memory(error: BaseException) -> FailureKind | None:
    names = {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(error).__mro__}
    if "torch.OutOfMemoryError" in names or (isinstance(error, RuntimeError) and _GPU_WORDS.search(str(error))):
        return "GPU memory"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError | OSError) and _HOST_WORDS.search(str(error))):
        return "host memory"
    return None


def _of_device(error: BaseException) -> FailureKind | None:
    names = {cls.__name__ for cls in type(error).__mro__}
    told = isinstance(error, RuntimeError) or "NVMLError" in names
    return "GPU" if told and _LOST_GPU.search(str(error)) else None


def classify(
    error: BaseException, step: int = 0, *, hung: str = "", memory_was_full: bool = False, log: str = ""
) -> Failure:
    """What the error that Ray gives for an attempt means.

    ``step``: the attempt's latest report. ``hung``: why it was killed, where it was silent for too long.
    ``memory_was_full``: whether its node's memory was nearly full when it ended. ``log``: the end of what it printed.
    """
    if hung:
        return Failure("hung", hung, step)
    cause = _cause(error)
    kind: FailureKind = "exception"
    match cause:
        case UserError():
            return Failure(cause.kind, cause.message, step)
        case NotFinite():
            return Failure("NaN", str(cause), step)
        case StorageFails():
            return Failure("data", str(cause), step)
        case BadReport() | MissingMetric() | ProcessGroupNotFormed():
            return Failure("bad report", str(cause), step)
        case DamagedCheckpoint():
            return Failure("data", f"its node reads a damaged checkpoint, which is whole elsewhere: {cause}", step)
        case OutOfMemoryError():
            return Failure("host memory", "killed by Ray: the node's memory was nearly full", step)
        case UnserializableException():
            return Failure("exception", _last_line(str(cause)), step)
        case NodeDiedError() | ObjectLostError():
            return Failure("node lost", "its node died", step)
        case RayActorError():
            kind, message = _of_process(cause, memory_was_full, log)
            return Failure(kind, message, step)
    kind = _of_memory(cause) or _of_device(cause) or kind
    return Failure(kind, summarize(cause), step)


def _cause(error: BaseException) -> BaseException:
    """What is behind Ray's wrappings."""
    while True:
        inner = error.cause if isinstance(error, RayTaskError) else error.__cause__
        wrapped = isinstance(error, RayTaskError | ProcessLost) or type(error).__name__ == "StartTraceback"
        if not wrapped or not isinstance(inner, BaseException):
            return error
        error = inner


def _of_process(error: RayActorError, memory_was_full: bool, log: str) -> tuple[FailureKind, str]:
    text = " ".join(str(error).split())
    if error.preempted or "DRAIN_PREEMPTED" in text:
        return "node lost", PREEMPTED
    if re.search(r"\bnode (has )?died|node was (terminated|drained|removed)|raylet.* died", text):
        return "node lost", "its node died"
    if isinstance(error, Unreachable) and "worker process has died" not in text:
        return "node lost", "its node could not be reached any more"
    if error.actor_init_failed:
        return "exception", _last_line(str(error))
    if fatal := re.findall(r"^Fatal Python error: (.+)$", log, re.MULTILINE):
        return "process died", f"its process died: {fatal[-1]}"
    if "SIGTERM" in text:
        return "process died", "its process died: SIGTERM"
    if code := re.search(r"exit code[ =:]*(-?\d+)", text):
        return "process died", f"its process exited with code {code[1]}"
    if memory_was_full:
        return "host memory", "its process died while the node's memory was nearly full"
    kind = re.search(r"Worker exit type: (\w+)", text) if isinstance(error, ActorDiedError) else None
    return "process died", f"{_DIED} [{kind[1]}]" if kind else _DIED


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""

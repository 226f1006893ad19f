"""Makes one process fit to run trial after trial, each as if it were the first.

Starting a process and importing torch takes seconds, a trial's own start-up milliseconds, so a process is handed from
trial to trial (the numbers stand in tests/benchmarks/overhead.py). `reset` undoes what a trial can leave behind
before the next; `find_leaks` finds what cannot be undone, and then a new process replaces this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import json
import multiprocessing
import os
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from tuner.execution.host_memory import own_memory
from tuner.execution.library_state import reset_libraries
from tuner.execution.process_globals import TORCH_START, ProcessGlobals, set_torch_switches
from tuner.execution.user_modules import Imported, forget, user_modules, uses
from tuner.spec.user_imports import search_path
from tuner.training import keeping

MAX_GROWTH_BYTES = 512 * 2**20
"""Host memory a process may keep above what it held after its first trial."""
MAX_GPU_BYTES = 16 * 2**20
"""GPU memory that may stay allocated (not cached) after a trial."""
MAX_WORKSPACE_BYTES = 64 * 2**20
"""GPU memory that cuBLAS may hold besides, if something is kept."""
MAX_OPEN_FILES = 32
"""Files a process may hold open above what it held after its first trial."""

TORCH_START_SEED = 67280421310721
"""Of torch's default generator while the user's modules are imported (the default in c10/core/GeneratorImpl.h)."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def thread_environment(cpu: float) -> dict[str, str]:
    """Environment variables that give numeric libraries one thread a CPU (at least one)."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads(cpu)))


def threads(cpu: float) -> int:
    """Threads of a trial that holds ``cpu`` cores."""
    return max(1, int(cpu))


def seed_of(run_seed: int, config: dict[str, Any]) -> int:
    """A trial's seed in [0, 2**32), from the run's seed and its configuration: the same in any process and any run."""
    text = json.dumps([run_seed, config], sort_keys=True, default=repr)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


@dataclass
class ProcessState:
    """What this process was like before and after its first trial."""

    new: ProcessGlobals = field(default_factory=ProcessGlobals)
    threads: frozenset[int | None] = field(default_factory=lambda: frozenset(t.ident for t in threading.enumerate()))
    memory_bytes: int | None = None
    """Memory after the first trial, without what is kept and without pages of files; None before."""
    open_files: int | None = None
    """Open files after the first trial; None before."""

    _loaded: bool = False
    _keeps: bool = False
    """Whether a trial has kept anything."""
    _imported: Imported | None = None
    """What the import of the user's modules left behind, if they may stay."""
    _noticed: bool = False

    def loaded(self, roots: Sequence[Path]) -> None:
        """Call it when the user's module is imported: what libraries set at import belongs to a new process."""
        if not self._loaded:
            now = ProcessGlobals()
            self.new.environment, self.new.filters = now.environment, now.filters
            self.new.log_level, self.new.log_handlers = now.log_level, now.log_handlers
        if self._keeps or (not self._loaded and uses(user_modules(roots), keeping.keep)):
            self._imported = self._imported or Imported(roots)
        self._loaded = True

    def reset(
        self, working_directory: Path, roots: Sequence[Path], seed: int, *, cpu: float, gpu: float, may_keep: bool
    ) -> None:
        """Brings everything that a trial may have changed back to how a new process has it.

        User code (modules under ``roots``) is forgotten, so that its module-level state starts anew with it. If the
        trials keep something, and that state is as it was, it stays, with all else that its import has set.
        ``seed`` is for the import; ``gpu`` is the share of each of its GPUs that a trial holds. ``may_keep``: whether
        the import is the same as for the trial before.
        """
        reset_libraries()
        threadpool_limits(threads(cpu))  # of libraries that are loaded, as numpy's: they read the environment before
        if not may_keep:
            self._imported = None
        self._drop_kept(cpu, gpu)
        switches = TORCH_START | {"threads": threads(cpu)}
        if self._imported is not None:
            self._imported.globals.put_back()
            switches = self._imported.torch or switches
        else:
            forget(user_modules(roots))
            self.new.put_back()
            os.environ.update(thread_environment(cpu))
            if working_directory.is_dir():
                os.chdir(working_directory)
            front, back = search_path(roots)
            sys.path[:] = [*front, *(folder for folder in self.new.path if folder not in front + back), *back]
        if "torch" in sys.modules:
            torch: Any = sys.modules["torch"]
            set_torch_switches(switches)
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            torch.manual_seed(TORCH_START_SEED)
        seed_all(seed, torch=False)

    def _drop_kept(self, cpu: float, gpu: float) -> None:
        """Drops what is kept, and the user's modules with it, unless both are as they were."""
        imported, self._imported = self._imported, None
        if not keeping.holds():
            return
        self._keeps = True
        if imported is None:
            keeping.drop_all()
        elif why := imported.changed():
            if not self._noticed:
                print(f"NOTICE: {why}: what tuner.training.keep holds is made anew for each trial", file=sys.stderr)
            self._noticed = True
            keeping.drop_all()
        else:
            self._imported = imported
            for key in keeping.begin_trial(*_limits(cpu, gpu)):
                print(f"NOTICE: the trial before changed what is kept as {key!r}: it is made anew", file=sys.stderr)

    def find_leaks(self) -> list[str]:
        """Why this process must not run another trial, in words; empty when it may.

        Call it after a trial's thread has ended.
        """
        for child in multiprocessing.active_children():
            child.terminate()
            child.join(timeout=5)
        gc.collect()
        found = []
        alive = [t.name for t in threading.enumerate() if t.ident not in self.threads and not _is_of_tuner(t)]
        if alive:
            found.append(f"threads still running: {', '.join(sorted(alive))}")
        found += _torch_leaks()
        _trim_heap()
        memory, files = own_memory().held - keeping.held().host, _open_files()
        if self.memory_bytes is None or self.open_files is None:
            self.memory_bytes, self.open_files = memory, files
            gc.freeze()  # libraries hold a million objects: walking them again would cost each trial 60 ms
        if memory - self.memory_bytes > MAX_GROWTH_BYTES:
            found.append(f"memory grew by {(memory - self.memory_bytes) / 2**20:.0f} MiB")
        if files - self.open_files > MAX_OPEN_FILES:
            found.append(f"{files - self.open_files} more open files")
        return found


def seed_all(seed: int, *, torch: bool = True) -> None:
    """Seeds Python's, numpy's and (where it is loaded) torch's global random number generators."""
    random.seed(seed)
    np.random.seed(seed)
    if torch and "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


@contextlib.contextmanager
def output_to(file: Path) -> Iterator[None]:
    """Appends all that this process writes, from C code and child processes too, to ``file``."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        with contextlib.suppress(OSError):  # the disk of ``file`` is full
            sys.stdout.flush()
            sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (target, *saved):
            os.close(descriptor)


def _limits(cpu: float, gpu: float) -> tuple[float, float]:
    """Bytes of host and GPU memory that values may need which the last trial did not use: a quarter of its share."""
    torch: Any = sys.modules.get("torch")
    host = psutil.virtual_memory().total * min(1.0, cpu / (os.cpu_count() or 1))
    on_gpu = (
        torch.cuda.get_device_properties(0).total_memory * min(1.0, gpu) if torch and torch.cuda.is_initialized() else 0
    )
    return host / 4, on_gpu / 4


def _torch_leaks() -> list[str]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return []
    found = []
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        found.append("a torch.distributed process group is still open")
    hooks = torch.nn.modules.module
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks or hooks._global_backward_hooks:
        found.append("global torch.nn hooks are still registered")
    if torch.cuda.is_initialized():
        if not keeping.holds():  # what is kept may be a CUDA graph, which uses the workspaces of cuBLAS
            torch._C._cuda_clearCublasWorkspaces()  # 32 MiB of each stream on an H100
        torch.cuda.empty_cache()
        held = keeping.gpu_bytes() - keeping.held().gpu
        if held > MAX_GPU_BYTES + (MAX_WORKSPACE_BYTES if keeping.holds() else 0):
            found.append(f"{held / 2**20:.0f} MiB of GPU memory still allocated")
    return found


def _is_of_tuner(thread: threading.Thread) -> bool:
    """Threads of Ray and of libraries that keep a pool for ever belong to the process, not to a trial."""
    if isinstance(thread, threading._DummyThread):  # a thread of C++ code, such as torch's autograd
        return True
    module = type(thread).__module__
    return module.startswith(("ray.", "grpc.", "tqdm.")) or thread.name.startswith(("ray_", "Tune", "pydevd"))


def _open_files() -> int:
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.is_dir() else 0


def _trim_heap() -> None:
    """Gives freed heap back, so that what is still resident is really held (glibc only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)

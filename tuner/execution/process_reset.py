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
import logging
import multiprocessing
import os
import random
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tuner import examples
from tuner.execution.library_state import reset_libraries
from tuner.spec.user_imports import search_path

MAX_GROWTH_BYTES = 512 * 2**20
"""Host memory a process may keep above what it held after its first trial."""
MAX_GPU_BYTES = 16 * 2**20
"""GPU memory that may stay allocated (not cached) after a trial."""
MAX_OPEN_FILES = 32
"""Files a process may hold open above what it held after its first trial."""

TORCH_START_SEED = 67280421310721
"""The seed of torch's default generator in a process that never seeded it (c10/core/GeneratorImpl.h)."""

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

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    directory: str = field(default_factory=os.getcwd)
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    arguments: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    filters: list[Any] = field(default_factory=lambda: list(warnings.filters))
    log_level: int = field(default_factory=lambda: logging.getLogger().level)
    log_handlers: tuple[logging.Handler, ...] = field(default_factory=lambda: tuple(logging.getLogger().handlers))
    threads: frozenset[int | None] = field(default_factory=lambda: frozenset(t.ident for t in threading.enumerate()))
    memory_bytes: int | None = None
    """Resident memory after the first trial; None before."""
    open_files: int | None = None
    """Open files after the first trial; None before."""

    _loaded: bool = False

    def loaded(self) -> None:
        """Call it when the user's module is imported: what libraries set at import belongs to a new process."""
        if not self._loaded:
            self.environment = dict(os.environ)
            self.filters = list(warnings.filters)
            self.log_level = logging.getLogger().level
            self.log_handlers = tuple(logging.getLogger().handlers)
            self._loaded = True

    def reset(self, working_directory: Path, roots: Sequence[Path], seed: int, cpu: float) -> None:
        """Brings everything that a trial may have changed back to how a new process has it.

        User code (modules under ``roots``) is forgotten, so that its module-level state starts anew with it.
        """
        reset_libraries()
        _forget_modules(roots)
        for name in set(os.environ) - set(self.environment):
            del os.environ[name]
        os.environ.update(self.environment | thread_environment(cpu))
        threadpool_limits(threads(cpu))  # of libraries that are loaded, as numpy's: they read the environment before
        os.chdir(working_directory if working_directory.is_dir() else self.directory)
        front, back = search_path(roots)
        sys.path[:] = [*front, *(folder for folder in self.path if folder not in front + back), *back]
        sys.argv[:] = self.arguments
        warnings.filters[:] = self.filters  # type: ignore[index]
        root = logging.getLogger()
        root.setLevel(self.log_level)
        root.handlers[:] = self.log_handlers
        np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
        if "torch" in sys.modules:
            _reset_torch(threads(cpu))
            sys.modules["torch"].manual_seed(TORCH_START_SEED)
        seed_all(seed, torch=False)

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
        memory, files = _resident_bytes(), _open_files()
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


def _forget_modules(roots: Sequence[Path]) -> None:
    """Removes the user's modules, those under ``roots`` outside of any installation, from ``sys.modules``.

    A shipped trainable is one of them, also if tuner is installed.
    """
    folders = tuple(str(root.resolve()) + os.sep for root in roots)
    shipped = str(examples.FOLDER.resolve() / "trainables") + os.sep
    # all places before any removal: a package without __init__.py finds its own by its parent
    loaded = list(sys.modules.items())
    places = {name: getattr(module, "__file__", None) or _folder_of(module) for name, module in loaded}
    for name, file in places.items():
        if name.partition(".")[0] in ("tuner", "__main__") or file.endswith(".so"):
            continue
        if file.startswith(shipped) or (file.startswith(folders) and "site-packages" not in file):
            del sys.modules[name]


def _folder_of(module: ModuleType) -> str:
    """Of a package without ``__init__.py``; "" if the module is none."""
    spec = getattr(module, "__spec__", None)
    folders = getattr(spec, "submodule_search_locations", None)
    return next(iter(folders), "") + os.sep if folders else ""


def _reset_torch(thread_count: int) -> None:
    """Sets torch's global switches to what a new process has (a test compares them with one)."""
    torch: Any = sys.modules["torch"]
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    if torch.are_deterministic_algorithms_enabled():  # the setter imports torch's compiler, half a second
        torch.use_deterministic_algorithms(False)
    torch.autograd.set_detect_anomaly(False)
    torch.set_flush_denormal(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.enabled = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(thread_count)
    torch.set_grad_enabled(True)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


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
        torch.cuda.empty_cache()
        held = max(torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count()))
        if held > MAX_GPU_BYTES:
            found.append(f"{held / 2**20:.0f} MiB of GPU memory still allocated")
    return found


def _is_of_tuner(thread: threading.Thread) -> bool:
    """Threads of Ray and of libraries that keep a pool for ever belong to the process, not to a trial."""
    if isinstance(thread, threading._DummyThread):  # a thread of C++ code, such as torch's autograd
        return True
    module = type(thread).__module__
    return module.startswith(("ray.", "grpc.", "tqdm.")) or thread.name.startswith(("ray_", "Tune", "pydevd"))


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:  # no /proc: macOS, Windows
        import psutil

        return int(psutil.Process().memory_info().rss)


def _open_files() -> int:
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.is_dir() else 0


def _trim_heap() -> None:
    """Gives freed heap back, so that what is still resident is really held (glibc only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)

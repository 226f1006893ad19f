"""The number of worker processes that loads fastest: measured once a node and data set, and remembered in a file."""

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ENOUGH_SECONDS = 0.5  # of measurement for each number of workers, after the workers' start
ENOUGH_BATCHES = 100
WORTH_A_WORKER = 1.05  # more workers must be faster by this factor


def batches_per_second(batches: Iterable[Any], workers: int, warm: int) -> float:
    """The steady rate: the first batches contain the start of the workers, and what they loaded meanwhile."""
    iterator = iter(batches)
    for _ in range(warm):
        next(iterator)
    count, started = 0, time.perf_counter()
    while True:
        next(iterator)
        count += 1
        seconds = time.perf_counter() - started
        if count >= max(3, 2 * workers) and (seconds >= ENOUGH_SECONDS or count >= ENOUGH_BATCHES):
            return count / seconds


def _candidates(limit: int) -> list[int]:
    """0, 1, 2, 4, ... and the limit itself."""
    limit = min(limit, len(os.sched_getaffinity(0)))
    return sorted({0, limit} | {2**k for k in range(limit.bit_length())})


def _measured(limit: int, rate: Callable[[int], float]) -> tuple[dict[int, float], str]:
    """Samples a second for each number of workers, and why larger numbers are missing."""
    rates = {0: rate(0)}
    problem = ""
    for workers in _candidates(limit)[1:]:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Got pickle error")  # the line that is printed has it
                rates[workers] = rate(workers)
        except (RuntimeError, OSError, AttributeError, TypeError, pickle.PicklingError) as error:
            # 0 workers could load it: so it is the way to the workers (pickle, /dev/shm), not the data set.
            problem = f"; {workers} failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            break
    if len(rates) > 1:
        rates[0] = max(rates[0], rate(0))  # the first one also read files that the disk cache did not have
    return rates, problem


def _fastest(rates: dict[int, float]) -> int:
    """The number of workers with the best rate, the smaller one of two that are nearly equal."""
    best = max(rates.values())
    return min(workers for workers, rate in rates.items() if rate * WORTH_A_WORKER >= best)


def choose_workers(key: dict[str, Any], limit: int, rate: Callable[[int], float], folder: Path) -> int:
    """Measures `rate`, the samples a second, for 0, 1, 2, 4, ... workers; prints and remembers the fastest number.

    Args:
        key: What the result depends on; with "class" and "batch_size", which the printed line names.
        limit: The largest number of workers.
        rate: Measures a number of workers.
        folder: The folder of the results.

    Returns:
        The number of workers with the best rate.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from tuner.training.worker_count import choose_workers
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     choose_workers({"class": "Images", "batch_size": 64}, 0, lambda workers: 1.0, Path(folder))
        loader: 0 workers for Images, batch 64: less than one CPU
        0
    """
    what = f"{key['class'].rpartition('.')[2]}, batch {key['batch_size']}"

    def told(workers: int) -> str:
        return f"loader: {workers} worker{'' if workers == 1 else 's'} for {what}"

    if _candidates(limit) == [0]:
        print(f"{told(0)}: less than one CPU", flush=True)
        return 0
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    file = folder / f"{digest}.json"
    with contextlib.ExitStack() as stack:
        found = _remembered(file, key, limit)
        if found is None:
            # One measurement at a time on a node. A folder that cannot be written is not remembered.
            with contextlib.suppress(OSError):
                stack.enter_context(_locked(folder))
            found = _remembered(file, key, limit)
        if found is not None:
            print(f"{told(found)}, as measured before (delete {file} to measure again)", flush=True)
            return found
        rates, problem = _measured(limit, rate)
        found = _fastest(rates)
        with contextlib.suppress(OSError):
            _write(file, {"key": key, "num_workers": found, "samples_per_second": rates})
    table = ", ".join(f"{workers}: {rate:.0f}" for workers, rate in rates.items())
    print(f"{told(found)} (samples a second: {table}{problem})", flush=True)
    return found


def measurements_folder(cache_dir: Path | str | None) -> Path:
    """The folder of the results: `cache_dir`, or the one that all trials of a node share."""
    if cache_dir is None:
        cache_dir = Path(os.environ.get("TUNER_DATA") or "~/.cache/tuner") / "loading"
    return Path(cache_dir).expanduser()


def _remembered(file: Path, key: dict[str, Any], limit: int) -> int | None:
    try:
        content = json.loads(file.read_text())
        workers = content["num_workers"]
        valid = content["key"] == key and type(workers) is int and 0 <= workers <= limit
    except (OSError, ValueError, LookupError, TypeError):  # missing, damaged or foreign: measure again
        return None
    return workers if valid else None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "measuring.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the system releases it if this process dies
        yield


def _write(file: Path, content: dict[str, Any]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(content, stream)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

"""A process that trains one configuration again and again, and writes when it reports: see `tuner.execution.sharing`.

It reads a pickled trial from its standard input, and ends when that is closed: when its parent is gone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from tuner.execution.host_memory import memory_of_children, own_memory
from tuner.execution.in_process import run_in_process
from tuner.spec.user_imports import innermost


def main() -> None:
    """Until it is killed, its parent is gone, or a training fails."""
    from ray import cloudpickle

    source, place = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)  # whatever else is printed, at an import too
    task, config = cloudpickle.loads(source.read(int.from_bytes(source.read(8), "big")))
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    with os.fdopen(place, "w", buffering=1) as told:

        def take(number: int, metrics: dict[str, Any]) -> bool:
            print(time.monotonic(), own_memory().resident + memory_of_children(), file=told)
            return True

        while (error := run_in_process(task, config, take, trial_id="share")) is None:
            pass
        print("error", " ".join(innermost(error).split()), file=told)


def _end_with(source: Any) -> None:
    source.read()
    os._exit(1)


if __name__ == "__main__":
    main()

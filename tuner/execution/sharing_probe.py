"""A process that trains one configuration again and again, and writes when it reports: see `tuner.execution.sharing`.

Its argument is the file of a pickled trial, whose own files go into that file's folder. It ends when its standard input
is closed: when its parent is gone.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tuner.execution import mps
from tuner.execution.host_memory import memory_of_children, own_memory
from tuner.execution.in_process import run_in_process
from tuner.spec.user_imports import innermost


def main() -> None:
    """Until it is killed, its parent is gone, or a training fails."""
    from ray import cloudpickle

    place = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed, at an import too
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    file = Path(sys.argv[1])
    task, config = cloudpickle.loads(file.read_bytes())
    mps.join(task)  # its daemon is in the machine's folder for temporary files
    os.environ["TMPDIR"] = tempfile.tempdir = str(file.parent)
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

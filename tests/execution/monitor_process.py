"""A process with a command line like that of Ray's autoscaler."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def monitor_process(folder: Path, configuration: str, name: str = "monitor.py") -> Iterator[None]:
    """Within: it runs, for the Ray at port 61234. ``configuration``: the text of its file."""
    program, file = folder / "autoscaler/v2" / name, folder / "bootstrap.yaml"
    program.parent.mkdir(parents=True)
    program.write_text("print('up', flush=True); import time; time.sleep(60)")
    file.write_text(configuration)
    words = [sys.executable, "-u", program, "--gcs-address=10.0.0.1:61234", f"--autoscaling-config={file}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()

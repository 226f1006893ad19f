"""A script with a Ray cluster of its own, in a process that exits with it: Ray shuts none down whose driver it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def found_by(script: str, *arguments: str, environment: dict[str, str] | None = None) -> list[Any]:
    """What the script printed, a line each, after "FOUND" as JSON."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    lines = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    return [json.loads(line) for line in lines]

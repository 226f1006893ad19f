"""What a job runs on the cluster: the search, and the search again where its process was killed.

    python -m tuner.jobs.driver --storage S --name N FILE [--set KEY=VALUE …]

The environment variable ``TUNER_EXPECTS`` holds as JSON the versions of who submitted it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from types import FrameType

from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.loading import begun, last_known
from tuner.storage import RunFolder

EXPECTS = "TUNER_EXPECTS"
READY = "tuner: the cluster has what is needed"
PYTHON, MUST_AGREE, SHOULD_AGREE = "Python", ("ray",), ("torch", "torchvision", "optuna", "tuner")

MAX_DEATHS = 10
"""How often in a row a search is taken up that dies without a new event in its journal."""


def versions() -> dict[str, str]:
    """Of this environment: what a trial's process and the one that submits should agree in."""
    found = {PYTHON: ".".join(platform.python_version_tuple()[:2])}
    for name in (*MUST_AGREE, *SHOULD_AGREE):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def disagreements(here: dict[str, str], there: dict[str, str]) -> tuple[list[str], list[str]]:
    """What must agree and does not, and what should; ``here``: the cluster, ``there``: who submitted."""
    differing = [f"{name} {here.get(name, 'none')} here, {there[name]} there" for name in there]
    wrong = [line for line, name in zip(differing, there, strict=True) if here.get(name) != there[name]]
    hard = [line for line in wrong if line.split()[0] in (PYTHON, *MUST_AGREE)]
    return hard, [line for line in wrong if line not in hard]


def drive(file: str, overrides: Sequence[str], storage: str, name: str) -> int:
    """Runs the search, and resumes it as often as its process is killed; its exit status."""
    folder = RunFolder.at(storage) / name
    address = os.environ.get("RAY_ADDRESS", "auto")  # a job is told its cluster's
    last_size, deaths = -1, 0
    while True:
        common = ["--storage", storage, "--address", address]
        sets = [word for text in overrides for word in ("--set", text)]
        if begun(folder) and last_known(folder).provenance.get("interrupted") is False:
            return 0  # killed after its end
        verb = ["resume", name, *common] if begun(folder) else ["run", file, "--name", name, *common, *sets]
        status = _call([sys.executable, "-m", "tuner", *verb])
        if status >= 0 or status in (-signal.SIGINT, -signal.SIGTERM):
            return abs(status)
        size = _size(folder)
        deaths = deaths + 1 if size == last_size else 1
        last_size = size
        if deaths > MAX_DEATHS:
            raise EnvironmentFailure(f"{folder.shown}: killed {deaths} times without going on (signal {-status})")
        print(f"NOTICE: the search was killed (signal {-status}); it goes on from its journal", file=sys.stderr)


def _call(command: list[str]) -> int:
    """Runs it and passes signals on."""
    child = subprocess.Popen(command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _size(folder: RunFolder) -> int:
    from tuner.journal import JournalReader

    reader = JournalReader(folder)
    return sum(1 for _ in reader.new())


def main() -> None:
    """Searches as the command line says, and goes on where the search is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--storage", required=True)
    parser.add_argument("--name", required=True)
    given = parser.parse_args()
    try:
        hard, soft = disagreements(versions(), json.loads(os.environ.get(EXPECTS, "{}")))
        if hard:
            remedy = "install on the cluster what you have, or the other way round"
            raise InputError(f"the cluster and you differ: {'; '.join(hard)}; {remedy}")
        if soft:
            print(f"NOTICE: the cluster and you differ: {'; '.join(soft)}", file=sys.stderr)
        print(READY, file=sys.stderr, flush=True)
        sys.exit(drive(given.file, given.overrides, given.storage, given.name))
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

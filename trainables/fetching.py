"""Data fetched once on a node, by the first of the processes that need it.

    folder = fetched("~/.cache/mine/images", download)

Trials that start together on a node would download the same files at the same time, into the same
place. Here one of them calls `download` and the others wait; the folder appears whole, so that a
process that is killed in mid-download leaves nothing that another one could take for the data.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def missing(folder: Path) -> str:
    """What is wrong with a folder that is not there."""
    return "" if folder.is_dir() else "it is missing"


def fetched(
    folder: str | Path,
    fetch: Callable[[Path], object],
    problem: Callable[[Path], str] = missing,
) -> Path:
    """`folder`, filled by `fetch` where no process of this node has done so yet.

    `fetch` gets an empty folder beside it, which is renamed to `folder` when `fetch` returns.
    `problem` says in words why a folder that is there must be fetched again, and is empty where it
    need not. A lock file beside the folder, which the system lets go of when its holder dies, has
    one process at a time look and fetch. What `fetch` raises is raised, and the next one tries.
    """
    folder = Path(folder).expanduser()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if problem(folder):
            staging = folder.with_name(f".{folder.name}.new")
            shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
            staging.mkdir()
            try:
                fetch(staging)
                if folder.exists():  # processes that have its files open keep them
                    shutil.rmtree(folder)
                staging.rename(folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return folder

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
    """Says what is wrong with a folder that is not there.

    Args:
        folder: The folder that should be there.

    Returns:
        "it is missing", or an empty text if the folder exists.
    """
    return "" if folder.is_dir() else "it is missing"


def fetched(
    folder: str | Path,
    fetch: Callable[[Path], object],
    problem: Callable[[Path], str] = missing,
) -> Path:
    """Returns `folder`, which `fetch` fills if no process of this node has done so yet.

    One process at a time looks and fetches; the others wait. The lock is a file beside the folder, which the operating
    system releases if its holder dies. An exception of `fetch` is raised here, and the next process tries again.

    Args:
        folder: Where the data belongs; `~` is expanded, and the parents are made.
        fetch: Gets an empty folder beside `folder` and fills it; when it returns, that folder becomes `folder`.
        problem: Says in words why an existing folder must be fetched again; an empty text if it need not.

    Returns:
        The path of `folder`, which is complete.

    Raises:
        OSError: If the folder cannot be written.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from tuner.training.fetching import fetched
        >>> def download(empty):
        ...     print("downloading")
        ...     (empty / "data.txt").write_text("1 2 3")
        >>> with tempfile.TemporaryDirectory() as cache:
        ...     first = fetched(Path(cache, "numbers"), download)
        ...     again = fetched(Path(cache, "numbers"), download)
        ...     (again / "data.txt").read_text()
        downloading
        '1 2 3'
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

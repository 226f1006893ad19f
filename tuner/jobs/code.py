"""The code of a project that travels with a job: what git would track, and no data."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.errors import InputError
from tuner.spec.quantities import size

MAX_BYTES = 50 * 2**20
"""More than this is hardly code: it would be sent with each change, and unpacked on every node."""

_SHOWN = 10
_NEVER = ("runs/*", ".git/*", "*/__pycache__/*", "__pycache__/*", ".venv/*")


def code_of(project: Path, exclude: Sequence[str] = ()) -> list[Path]:
    """Files of ``project`` that travel, relative to it: those that its .gitignore files let through.

    Never run folders, nor what matches one of the patterns ``exclude`` (``data/*``). Raises InputError where they are
    more than `MAX_BYTES` together.
    """
    names = (name for name in sorted(set(_listed(project))) if not _matches(name, [*_NEVER, *exclude]))
    files = [Path(name) for name in names if (project / name).is_file()]
    sizes = {file: (project / file).stat().st_size for file in files}
    total = sum(sizes.values())
    if total > MAX_BYTES:
        largest = sorted(sizes, key=lambda file: -sizes[file])[:_SHOWN]
        shown = ", ".join(f"{file} ({size(sizes[file])})" for file in largest)
        raise InputError(
            f"{project}: its code is {size(total)}, more than {size(MAX_BYTES)}: is there data in it? The largest: "
            f"{shown}; put what is not code into .gitignore, or leave it out with --exclude 'data/*'"
        )
    return files


def copied(project: Path, files: Sequence[Path], target: Path) -> None:
    """Puts the files below ``target``, with their folders."""
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(project / file, target / file)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _listed(project: Path) -> Iterator[str]:
    """All files that .gitignore does not name; without git, all outside of hidden folders."""
    if shutil.which("git") is None:
        for folder, below, files in os.walk(project):
            below[:] = [name for name in below if not name.startswith(".")]
            yield from (str(Path(folder, name).relative_to(project)) for name in files)
        return
    command = ["git", "-C", str(project), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode != 0:  # it is no repository: the rules of .gitignore hold all the same
        with tempfile.TemporaryDirectory() as empty:
            subprocess.run(["git", "init", "-q", "--bare", empty], check=True)
            place = [f"--git-dir={empty}", f"--work-tree={project}"]
            listing = subprocess.run(["git", *place, *command[1:]], capture_output=True, text=True, check=True)
    yield from (name for name in listing.stdout.split("\0") if name)

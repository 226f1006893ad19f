"""New files, all of them or none. A file that is there is never replaced."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import EnvironmentFailure, InputError
from tuner.storage.folder import reason


def write_new(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Writes ``files`` by their path, and the folders that they need; none if one is there or cannot be written.

    ``folder``: what the user chose, for messages. Raises InputError and EnvironmentFailure.
    """
    if present := sorted(str(path) for path in files if path.exists() or path.is_symlink()):
        raise InputError(f"{', '.join(present)}: already there, and not overwritten: choose another DIR")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                written.append(path)
                file.write(content)
    except OSError as error:
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink()
        raise EnvironmentFailure(f"{folder}: cannot be written: {reason(error)}; choose another DIR") from None

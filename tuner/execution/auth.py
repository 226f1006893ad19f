"""Ray's token: who does not know it gets nothing from a session or a cluster."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Any

MODE = "RAY_AUTH_MODE"

TOKEN = "~/.ray/auth_token"

_SOURCES = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Environment variables that take the place of the file."""


def require_token() -> None:
    """From now on Ray asks for the token, and shows it, in this process and those that it starts."""
    _set("token")


def send_no_token() -> None:
    """From now on Ray asks for none, and shows none, in this process and those that it starts."""
    _set("disabled")


def send_token() -> None:
    """Shows it to clusters where there is one here, unless the environment says otherwise.

    Ray 2.60 asks for it by default, and its clients show none by default.
    """
    if MODE not in os.environ and (any(map(os.environ.get, _SOURCES)) or Path(TOKEN).expanduser().exists()):
        require_token()


def make_token() -> str:
    """Makes the token where there is none, and closes one of this user that others may read; returns a notice of that.

    Ray 2.60 would make it readable for all, and who reads it runs code as its user. Raises OSError.
    """
    if any(map(os.environ.get, _SOURCES)):
        return ""
    file = Path(TOKEN).expanduser()
    file.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _closed(file)
    with open(descriptor, "w") as stream:
        stream.write(secrets.token_hex(32))
    return ""


def open_to_others() -> list[Path]:
    """Of the token and its folder those that others can read or write (the folder: write) and that are this user's."""
    file = Path(TOKEN).expanduser()
    return [path for path, bits in ((file.parent, 0o022), (file, 0o077)) if path.exists() and _is_open(path, bits)]


def _is_open(path: Path, bits: int) -> bool:
    found = path.stat()
    return bool(stat.S_IMODE(found.st_mode) & bits) and found.st_uid == os.geteuid()


def _closed(file: Path) -> str:
    found = open_to_others()
    for path in found:
        path.chmod(0o700 if path.is_dir() else 0o600)
    if not found:
        return ""
    return (
        f"{' and '.join(map(str, found))} was open to others on this machine, and is closed to them now; if you do not "
        f"trust them, delete {file}: the next search makes another token"
    )


def token_header() -> dict[str, str]:
    """The header that shows a server the token it requires; empty if there is no token here or it cannot be read."""
    from ray.exceptions import AuthenticationError

    try:
        return dict(core().AuthenticationTokenLoader.instance().get_token_for_http_header())
    except AuthenticationError:
        return {}


def _set(mode: str) -> None:
    os.environ[MODE] = mode
    core().Config.initialize("")  # the environment was read when Ray was imported
    core().AuthenticationTokenLoader.instance().reset_cache()


def core() -> Any:
    """Ray's compiled part, which has no annotations."""
    import ray._raylet

    return ray._raylet

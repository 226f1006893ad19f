"""A signature by which a user knows what this user wrote: pickles are opened only where it is there.

The key is made at its first use, for this user alone: ``~/.config/tuner/key`` (below ``$XDG_CONFIG_HOME`` where that is
set), mode 0600.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

_BYTES = 32


def signature(data: bytes) -> str:
    """Of ``data`` by this user's key (HMAC-SHA-256, hexadecimal); empty if the user can have no key."""
    key, _ = _key()
    return hmac.new(key, data, hashlib.sha256).hexdigest() if key else ""


def is_ours(data: bytes, signed: str) -> bool:
    """Whether ``signed`` is this user's signature of ``data``."""
    return bool(signed) and hmac.compare_digest(signature(data).encode(), signed.encode())


def key_file() -> Path:
    """The path of this user's key."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "tuner" / "key"


def why_unused() -> str:
    """Why this user's key is not used; empty if it is."""
    return _key()[1]


def _key() -> tuple[bytes, str]:
    """This user's key; where it is not used nothing, and why."""
    path = key_file()
    try:
        if not path.exists():
            _make(path)
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return b"", f"{path}: {error.strerror}"
    with os.fdopen(file, "rb") as stream:
        known = os.fstat(file)
        key = stream.read(_BYTES + 1) if stat.S_ISREG(known.st_mode) else b""
    if len(key) != _BYTES:
        return b"", f"{path} is not a key of tuner: delete it"
    if known.st_uid != os.getuid():
        return b"", f"{path} is another user's"
    if known.st_mode & 0o077:
        mode = stat.S_IMODE(known.st_mode)
        return (
            b"",
            f"{path} has mode {mode:04o}, so that others can sign too: chmod 600 it if nobody has, else delete it",
        )
    return key, ""


def _make(path: Path) -> None:
    """Writes a new key, unless another process is quicker: its key stands then, and is whole."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged = path.with_name(f".key.{secrets.token_hex(8)}")
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(secrets.token_bytes(_BYTES))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(staged, path)
    finally:
        staged.unlink()

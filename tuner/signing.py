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
from pathlib import Path

_BYTES = 32


def signature(data: bytes) -> str:
    """Of ``data`` by this user's key (HMAC-SHA-256, hexadecimal); empty where the user can have no key."""
    key = _key()
    return hmac.new(key, data, hashlib.sha256).hexdigest() if key else ""


def is_ours(data: bytes, signed: str) -> bool:
    """Whether ``signed`` is this user's signature of ``data``."""
    return bool(signed) and hmac.compare_digest(signature(data).encode(), signed.encode())


def key_file() -> Path:
    """Where this user's key lies."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "tuner" / "key"


def _key() -> bytes:
    """This user's key; empty where none can be made, or where another user could read or write it."""
    path = key_file()
    try:
        if not path.exists():
            _make(path)
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return b""
    with os.fdopen(file, "rb") as stream:
        known = os.fstat(file)
        private = known.st_uid == os.getuid() and not known.st_mode & 0o077
        key = stream.read(_BYTES + 1)
    return key if private and len(key) == _BYTES else b""


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

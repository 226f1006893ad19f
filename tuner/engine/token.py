"""Ray's token: who does not know it gets nothing from a session or a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

MODE = "RAY_AUTH_MODE"


def require_token() -> None:
    """From now on Ray asks for the token, and shows it, in this process and those that it starts."""
    _set("token")


def show_none() -> None:
    """From now on Ray asks for none, and shows none, in this process and those that it starts."""
    _set("disabled")


def show_token() -> None:
    """Shows it to clusters where there is one here, unless the environment says otherwise.

    Ray 2.60 asks for it by default, and its clients show none by default.
    """
    sources = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
    if MODE not in os.environ and (
        any(map(os.environ.get, sources)) or Path("~/.ray/auth_token").expanduser().exists()
    ):
        require_token()


def token_header() -> dict[str, str]:
    """What shows the token that is required to a server; empty where there is none here."""
    loader = _core().AuthenticationTokenLoader.instance()
    return dict(loader.get_token_for_http_header()) if loader.has_token(True) else {}


def _set(mode: str) -> None:
    os.environ[MODE] = mode
    _core().Config.initialize("")  # the environment was read when Ray was imported
    _core().AuthenticationTokenLoader.instance().reset_cache()


def _core() -> Any:
    import ray._raylet

    return ray._raylet

"""Ray's token: who does not know it gets nothing from a session or a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

MODE = "RAY_AUTH_MODE"


def require_token() -> None:
    """From now on Ray asks for the token, and shows it, in this process and those that it starts."""
    import ray._raylet

    core: Any = ray._raylet
    os.environ[MODE] = "token"
    core.Config.initialize("")  # the environment was read when Ray was imported
    core.AuthenticationTokenLoader.instance().reset_cache()


def show_token() -> None:
    """Shows it to clusters where there is one here, unless the environment says otherwise.

    Ray 2.60 asks for it by default, and its clients show none by default.
    """
    sources = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
    if MODE not in os.environ and (
        any(map(os.environ.get, sources)) or Path("~/.ray/auth_token").expanduser().exists()
    ):
        require_token()


def has_token() -> bool:
    """Whether Ray has one to show here."""
    import ray._raylet

    core: Any = ray._raylet
    return bool(core.AuthenticationTokenLoader.instance().has_token())

"""One run, watched by whoever started the server."""

from __future__ import annotations

import getpass
import socket
from urllib.parse import quote

from tuner.live.server import Server, local_app, new_token
from tuner.storage.folder import RunFolder


def watched(folder: RunFolder, port: int) -> Server:
    """A server of the live page of the run in ``folder``. Raises InputError if the port is taken."""
    name, token = folder.path.rstrip("/").rpartition("/")[2], new_token()

    def find(asked: str) -> RunFolder | None:
        return folder if asked == name and folder.exists() else None

    app = local_app(find, lambda: [folder], _user(), token)
    return Server(app, port, f"runs/{quote(name, safe='')}?token={token}")


def _user() -> str:
    """This user on this host, as commands of the command line name them."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in this container
        user = "somebody"
    return f"{user}@{socket.gethostname()}"

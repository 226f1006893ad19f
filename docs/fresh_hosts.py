"""Hosts of tests/cluster as machines are before anything is installed: they have Python, and reach the package index.

Their network has no way out. Two addresses of its switch stand for the two servers of the index; this process forwards
what comes there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

from tests.cluster.hosts import HOME, NETWORK, PATH, Hosts

INDEX = ("pypi.org", "files.pythonhosted.org")
HTTPS = 443

_LISTEN = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
socket.send_fds(socket.socket(fileno=int(sys.argv[3])), [b"."], [listener.fileno()])
"""


class FreshHosts(Hosts):
    """See the module. They have this machine's configuration of pip."""

    def _environment(self) -> dict[str, str]:
        pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        return {"PATH": f"{Path(sys.base_prefix, 'bin')}:{PATH}", **pip}

    def _make(self) -> None:
        super()._make()
        for number, server in enumerate(INDEX, 250):
            address = f"{NETWORK}.{number}"
            self.switch.enter("ip", "address", "add", f"{address}/24", "dev", "switch")
            threading.Thread(target=_forward, args=(self._listener(address), server), daemon=True).start()
            with (self.folder / "etc_hosts").open("a") as file:
                file.write(f"{address} {server}\n")
        configuration = HOME / ".config/pip/pip.conf"
        for host in self.hosts.values():
            if configuration.exists():
                (host.home / ".config/pip").mkdir(parents=True)
                shutil.copy(configuration, host.home / ".config/pip")

    def _listener(self, address: str) -> socket.socket:
        """A socket in the network of the switch, for this process."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            network = f"--net=/proc/{self.switch.first}/ns/net"
            listen = [sys.executable, "-c", _LISTEN, address, str(HTTPS), str(theirs.fileno())]
            subprocess.run(["nsenter", network, *listen], pass_fds=[theirs.fileno()], check=True)
            _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=descriptor)


def _forward(listener: socket.socket, server: str) -> None:
    """Connects whoever comes to ``listener`` with ``server``, for as long as this process lives."""

    async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        try:
            while some := await source.read(1 << 18):
                to.write(some)
                await to.drain()
        except ConnectionError:  # pip closes what it needs no longer
            pass
        finally:
            to.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(server, HTTPS)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def serve() -> None:
        await (await asyncio.start_server(connect, sock=listener)).serve_forever()

    asyncio.run(serve())

"""An object store on the hosts' network: an S3 server (moto's) at the switch, with one bucket."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
import urllib.parse
from types import TracebackType

from tests.cluster.hosts import NETWORK, Hosts
from tests.cluster.namespaces import END_WITH_PARENT

PORT = 9000
AT = f"{NETWORK}.1:{PORT}"
STORAGE = "s3://bucket/runs?" + urllib.parse.urlencode(
    {"scheme": "http", "endpoint_override": AT, "region": "us-east-1"}, safe=":"
)
"""As a user writes a bucket that is not Amazon's; all that knows it, knows where it is."""

MAKE = f"""if True:
    from urllib.request import Request, urlopen
    print(urlopen(Request("http://{AT}/bucket", method="PUT")).status)"""

CREDENTIALS = "[default]\naws_access_key_id = anybody\naws_secret_access_key = anything\n"


class Store:
    """The server, as a context manager, and on each host that it was given to what a client needs: credentials."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts

    def __enter__(self) -> Store:
        for host in self.hosts.hosts.values():
            (host.home / ".aws").mkdir(exist_ok=True)
            (host.home / ".aws/credentials").write_text(CREDENTIALS)
        inside = ["nsenter", f"--net=/proc/{self.hosts.switch.first}/ns/net"]
        server = [sys.executable, "-m", "moto.server", "-H", f"{NETWORK}.1", "-p", str(PORT)]
        self._server = subprocess.Popen(
            [*END_WITH_PARENT, *inside, *server],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while "200" not in (said := self.hosts["laptop"].run(f"python -c {shlex.quote(MAKE)}", check=False)):
            assert time.monotonic() < deadline, f"the object store did not come up: {said}"
            time.sleep(0.5)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()
        self._server.wait()

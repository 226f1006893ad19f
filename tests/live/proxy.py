"""The proxy with TLS of docs/how-to/serve-a-team.md: a real nginx."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.servers import free_port, wait_for

_PAGE = Path(__file__).parents[2] / "docs/how-to/serve-a-team.md"
_SETTINGS = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root; events {{}}
http {{
    access_log off; client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {server}
}}
"""


@contextlib.contextmanager
def proxied(address: str, folder: Path) -> Iterator[str]:
    """Within: this address passes requests on to ``address``, by TLS."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.fail("nginx is missing") if "CI" in os.environ else pytest.skip("there is no nginx")
    folder.mkdir()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"]
    subprocess.run(["openssl", "req", "-x509", *made], check=True, capture_output=True)
    port = free_port()
    (server,) = re.findall(r"^```nginx\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for written, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("tuner.example.org", "localhost"),
        ("/etc/ssl/tuner.pem", str(certificate)),
        ("/etc/ssl/tuner.key", str(key)),
        ("http://127.0.0.1:8380", address),
    ):
        assert server.count(written) == 1, written
        server = server.replace(written, here)
    settings = folder / "nginx.conf"
    settings.write_text(_SETTINGS.format(folder=folder, server=server))
    process = subprocess.Popen([program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(settings)])

    def answers() -> bool:
        assert process.poll() is None, (folder / "error.log").read_text()
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        wait_for(answers, "nginx")
        yield f"https://localhost:{port}"
    finally:
        process.terminate()
        process.wait()

"""The MLflow UI on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from tuner.errors import EnvironmentFailure, InputError
from tuner.redaction import with_password
from tuner.runs.loading import find_run, load_latest
from tuner.storage.folder import RunFolder
from tuner.storage.lock import holder
from tuner.tracking.backends.mlflow import DATABASE, MlflowBackend, default_uri
from tuner.tracking.preflight import check_mlflow
from tuner.tracking.sync import tracking_of

_HOST = "127.0.0.1"
_STARTS_WITHIN_S = 120.0


@dataclass
class Page:
    """A page of the MLflow UI."""

    uri: str
    path: str
    """Of the page, below the server's address."""
    _server: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @contextlib.contextmanager
    def served(self, port: int | None) -> Iterator[str]:
        """Within: the page's address answers.

        Raises InputError if ``port`` is taken, EnvironmentFailure where the server does not come up.
        """
        if self.uri.startswith(("http://", "https://")):
            yield f"{self.uri.rstrip('/')}/{self.path}"
            return
        chosen = _free(port)
        command = [sys.executable, "-m", "mlflow", "server"]
        command += ["--host", _HOST, "--port", str(chosen), "--workers", "1"]
        environment = os.environ | {
            "MLFLOW_BACKEND_STORE_URI": with_password(self.uri),  # a command line can be read by all users
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # processes that nothing here uses and that any user may ask
        }
        with tempfile.TemporaryFile() as log:
            self._server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            try:
                _wait_until_it_answers(f"http://{_HOST}:{chosen}/health", self._server, log)
                yield f"http://{_HOST}:{chosen}/{self.path}"
            finally:
                self._server.terminate()
                self._server.wait()

    def wait(self) -> None:
        """Until the server ends, or Ctrl-C; not at all for a server that is not ours."""
        if self._server is not None:
            with contextlib.suppress(KeyboardInterrupt):
                self._server.wait()


def page_of_run(run: str, storage: str) -> Page:
    """The page of a search's trials, which are sent first if MLflow does not hold all of them."""
    results = load_latest(find_run(run, storage))
    options = tracking_of(results).mlflow
    if options is None:
        raise InputError(f"{results.folder.location} is not tracked by MLflow: python -m tuner sync {run} --mlflow URI")
    check_mlflow(options.uri, results.folder.parent)
    backend = MlflowBackend(options, results)
    backend.open(results)
    if holder(results.folder) is None:
        backend.close(results)
    return Page(backend.uri, backend.page(results))


def page_of_storage(storage: str) -> Page:
    """The page of all searches beside whose folders the database lies."""
    folder = RunFolder.at(storage)
    uri = default_uri(folder)
    if not folder.exists(DATABASE):
        raise InputError(
            f"{folder.location} holds no {DATABASE}: no search there was tracked in it; "
            f"python -m tuner ui RUN sends one there and shows it"
        )
    return Page(uri, "")


def _free(port: int | None) -> int:
    """``port``, or one that is free. Raises InputError if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port or 0))
        except OSError as error:
            raise InputError(f"--port {port}: {error.strerror}; choose another, or none: a free one is taken") from None
        return int(probe.getsockname()[1])


def _wait_until_it_answers(address: str, server: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        if server.poll() is not None:
            break
        time.sleep(0.2)
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    raise EnvironmentFailure(f"the MLflow server did not come up: {lines[-1] if lines else 'it said nothing'}")

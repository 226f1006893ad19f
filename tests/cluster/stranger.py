"""What TCP ports answer to a client: ``python stranger.py ADDRESS TOKEN PORT...``, with an empty TOKEN for none.

Without being told what a port is for, it asks each as HTTP and then as gRPC, there with
every method that Ray has. Prints JSON.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import socket
import sys
import urllib.error
import urllib.request

import grpc
import ray.core.generated

PATHS = ("/", "/api/jobs/", "/api/job_agent/jobs/", "/logs", "/get_or_create_runtime_env")

NOT_IN_PYTHON = {
    "/ray.rpc.ObjectManagerService/Push": (False, False),
    "/ray.rpc.ObjectManagerService/Pull": (False, False),
    "/ray.rpc.syncer.RaySyncer/StartSync": (True, True),
}

NODE = ("node_id", "f" * 56)
"""Ray 2.60's gcs_server and raylet die of a StartSync without it, before they look at the token."""


def methods() -> dict[str, tuple[bool, bool]]:
    """Of all of Ray's services: whether the client streams, whether the server does."""
    found = dict(NOT_IN_PYTHON)
    for module in pkgutil.walk_packages(ray.core.generated.__path__, "ray.core.generated."):
        if module.name.endswith("_pb2"):
            for service in importlib.import_module(module.name).DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    streams = method.client_streaming, method.server_streaming
                    found[f"/{service.full_name}/{method.name}"] = streams
    return found


def greeting(address: str, port: int) -> str:
    """What comes back first, after a request for HTTP."""
    with socket.create_connection((address, port), 60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection.recv(64).decode(errors="replace")


def over_http(address: str, port: int, token: str) -> dict[str, str]:
    """By path, the status of a GET; of what is not refused also the first words."""
    answers = {}
    for path in PATHS:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"http://{address}:{port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answers[path] = f"{answer.status} {answer.read(60).decode(errors='replace')}"
        except urllib.error.HTTPError as error:
            answers[path] = str(error.code)
    return answers


def over_grpc(address: str, port: int, token: str, only: str = "") -> dict[str, list[str]]:
    """The methods by the status of their answer, but for those that are not served at this port."""
    answers: dict[str, list[str]] = {}
    metadata = [NODE, ("authorization", f"Bearer {token}")] if token else [NODE]
    with grpc.insecure_channel(f"{address}:{port}") as channel:
        for method, (sends, receives) in methods().items():
            if only not in method:
                continue
            kind = f"{'stream' if sends else 'unary'}_{'stream' if receives else 'unary'}"
            try:
                answer = getattr(channel, kind)(method)(iter([b""]) if sends else b"", timeout=60, metadata=metadata)
                if receives:
                    next(iter(answer), None)
                status = "OK"
            except grpc.RpcError as error:
                status = error.code().name
            if status != "UNIMPLEMENTED":
                answers.setdefault(status, []).append(method)
    return answers


def ask(address: str, port: int, token: str) -> dict[str, object]:
    said = greeting(address, port)
    if said.startswith("SSH-"):
        return {"ssh": said.strip()}
    if said.startswith("HTTP/"):
        return {"http": over_http(address, port, token)}
    return {"grpc": over_grpc(address, port, token)}


if __name__ == "__main__":
    print(json.dumps({port: ask(sys.argv[1], int(port), sys.argv[2]) for port in sys.argv[3:]}))

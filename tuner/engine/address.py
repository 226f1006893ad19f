"""Whether a Ray that lets us in answers at an address.

Ray's own client is patient: with 2.60 it tries for four minutes where nothing listens, for two where a web server or an
sshd does, and for 20 s with a wrong token. Here one question is asked first, with what Ray's own channels are made of.
"""

from __future__ import annotations

import socket

from tuner.engine.token import has_token
from tuner.errors import EnvironmentFailure

CONNECT_S, ANSWER_S = 5.0, 8.0

_QUESTION = "/ray.rpc.NodeInfoGcsService/GetClusterId"


def check_address(address: str) -> None:
    """Raises EnvironmentFailure, with what was tried, where ``host:port`` is no cluster's or it refuses our token.

    Addresses of other forms (``auto``, ``ray://…``) are left to Ray.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in address:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        message = f"no Ray cluster at --address {address}: {error}; is it running, and is this its address?"
        raise EnvironmentFailure(message) from None
    _ask(address)


def _ask(address: str) -> None:
    import grpc
    from ray._private.grpc_utils import init_grpc_channel

    try:
        with init_grpc_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
            channel.unary_unary(_QUESTION)(b"", timeout=ANSWER_S)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            why = (
                "it knows another token than the one here"
                if has_token()
                else "it asks for a token, and there is none here"
            )
            remedy = "put the cluster's (`ray get-auth-token` there) into ~/.ray/auth_token here"
            raise EnvironmentFailure(f"the Ray cluster at --address {address} refuses us: {why}; {remedy}") from None
        said = " ".join(f"{error.code().name} {error.details()}".split())
        raise EnvironmentFailure(
            f"no Ray cluster at --address {address}: something listens there, and does not answer as Ray's head does "
            f"({said}); it is the address that `ray start --head` prints, usually with port 6379"
        ) from None

"""Whether a Ray that lets us in answers at an address.

Ray's own client is patient: with 2.60 it tries for four minutes where nothing listens, for two where a web server or an
sshd does, and for 20 s with a wrong token. And with a token it cannot use a cluster that asks for none: a process that
shows one asks for it too, also the cluster's control store, which has none to show. Refused when it asks a driver
whether its actors are still wanted, the store takes that for a no, and every trial dies before it starts.
"""

from __future__ import annotations

import socket

from tuner.errors import EnvironmentFailure
from tuner.execution.auth import require_token, send_no_token, token_header

CONNECT_S, ANSWER_S = 5.0, 8.0

_QUESTION = "/ray.rpc.NodeInfoGcsService/GetClusterId"


def check_address(address: str) -> None:
    """Shows our token to the cluster at ``address``, from now on, if it asks for one, and not if it does not.

    Raises EnvironmentFailure, with what was tried, where there is no cluster or it refuses our token. ``auto`` is the
    cluster that Ray finds here; other forms than it and ``host:port`` are left to Ray.
    """
    from ray._private.services import canonicalize_bootstrap_address

    try:
        store = canonicalize_bootstrap_address(address) if address == "auto" else address
        given = address if store == address else f"{address} ({store})"
        host, colon, port = store.rpartition(":")
        if not colon or not port.isdigit() or "/" in store:
            return
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError, ValueError) as error:
        message = f"no Ray cluster at --ray-address {address}: {error}; is it running, and is this its address?"
        raise EnvironmentFailure(message) from None
    if _accepts(store, {}, given):
        send_no_token()
        return
    require_token()
    header = token_header()
    if not header or not _accepts(store, header, given):
        why = "it knows another token than the one here" if header else "it asks for a token, and there is none here"
        remedy = "put the cluster's (`ray get-auth-token` there) into ~/.ray/auth_token here"
        raise EnvironmentFailure(f"the Ray cluster at --ray-address {given} refuses us: {why}; {remedy}")


def _accepts(store: str, header: dict[str, str], given: str) -> bool:
    """Whether the control store at ``store``, which the user knows as ``given``, answers to who shows ``header``."""
    import grpc

    try:
        with grpc.insecure_channel(store, [("grpc.enable_http_proxy", 0)]) as channel:
            channel.unary_unary(_QUESTION)(b"", timeout=ANSWER_S, metadata=list(header.items()))
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return False
        said = " ".join(f"{error.code().name} {error.details()}".split())
        raise EnvironmentFailure(
            f"no Ray cluster at --ray-address {given}: something listens there, and does not answer as Ray's head does "
            f"({said}); it is the address that `ray start --head` prints, usually with port 6379"
        ) from None
    return True

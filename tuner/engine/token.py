"""Ray's token: who does not know it gets nothing from a session or a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentFailure

MODE = "RAY_AUTH_MODE"

ANSWER_WITHIN_S = 5.0
"""What a control store has for its answer; Ray itself would try for 40 s, or minutes."""


def require_token() -> None:
    """From now on Ray asks for the token, and shows it, in this process and those that it starts."""
    _set("token")


def show_token() -> None:
    """Shows it to clusters where there is one here, unless the environment says otherwise.

    Ray 2.60 asks for it by default, and its clients show none by default.
    """
    sources = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
    if MODE not in os.environ and (
        any(map(os.environ.get, sources)) or Path("~/.ray/auth_token").expanduser().exists()
    ):
        require_token()


def do_as(address: str) -> None:
    """Shows the token to the cluster whose control store is at ``address`` if it asks for one, and not if it does not.

    A process that shows one asks for it too. In a cluster without, the control store has none to show: it is refused
    when it asks a driver whether its actors are still wanted, takes that for a no, and every trial dies before it
    starts (Ray 2.60). Raises EnvironmentFailure where no control store answers, or asks for a token that is not here.
    """
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(address)
    except (ConnectionError, OSError, ValueError) as error:
        raise EnvironmentFailure(f"no Ray cluster at --address {address}: {error}") from None
    if found is None:
        raise EnvironmentFailure(f"--address {address}: names no cluster; leave it out to search on this machine")
    if _lets_in(found, {}, address):
        _set("disabled")
        return
    core = _set("token")
    token = core.AuthenticationTokenLoader.instance()
    if not token.has_token(True):
        lacks = "there is none here"
    elif not _lets_in(found, token.get_token_for_http_header(), address):
        lacks = "the one here is not the cluster's"
    else:
        return
    remedy = "put what `ray get-auth-token` says there into ~/.ray/auth_token here"
    raise EnvironmentFailure(f"--address {address}: the cluster asks for a token, and {lacks}; {remedy}")


def _lets_in(store: str, header: dict[str, str], given: str) -> bool:
    """Whether the control store at ``store``, which the user knows as ``given``, answers to who shows ``header``."""
    import grpc
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

    with grpc.insecure_channel(store) as channel:
        check = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel).CheckAlive
        try:
            check(gcs_service_pb2.CheckAliveRequest(), timeout=ANSWER_WITHIN_S, metadata=list(header.items()))
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                return False
            remedy = "is it running, and is this the address of its control store (HEAD:6379)?"
            raise EnvironmentFailure(f"no Ray cluster at --address {given}: {error.details()}; {remedy}") from None
    return True


def _set(mode: str) -> Any:
    """Ray's C++ core, which has it now."""
    import ray._raylet

    core: Any = ray._raylet
    os.environ[MODE] = mode
    core.Config.initialize("")  # the environment was read when Ray was imported
    core.AuthenticationTokenLoader.instance().reset_cache()
    return core

"""Where the daemon is, and how it is reached."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio

from steprail.client._credentials import Tls, require_private, with_token
from steprail.errors import from_rpc

T = TypeVar("T")

#: Seconds that a call may take unless it is told otherwise.
CALL_SECONDS = 30.0

# Only UNAVAILABLE is tried again: what was refused for another reason would be refused again. What makes a session or
# a run is never tried again by itself: a daemon remembers request ids for as long as it lives, so that one which died
# after it had acted, and came back, would act twice. The other calls that change something find it changed.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": "steprail.v1.SessionService", "method": "CreateSession"},
                {"service": "steprail.v1.RunService", "method": "StartRun"},
                {"service": "steprail.v1.RunService", "method": "ContinueRun"},
                {"service": "steprail.v1.RunService", "method": "ControlRun"},
            ],
        },
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        },
    ]
}

_OPTIONS = (
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.max_receive_message_length", 8 * 1024 * 1024),
    ("grpc.max_send_message_length", 20 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Tells a dead peer from a silent one. Daemons take pings every 10 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


def default_address() -> str:
    """Give $STEPRAIL_ADDRESS, or the socket of the user's own daemon."""
    named = os.environ.get("STEPRAIL_ADDRESS")
    if named:
        return named
    user = os.geteuid()
    if user == 0:
        return "unix:/run/steprail/steprail.sock"
    directory = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    return f"unix:{directory}/steprail/steprail.sock"


def open_channel(address: str, token: Callable[[], str] | None = None, tls: Tls | None = None) -> grpc.aio.Channel:
    """Open a channel; nothing is connected before the first call. A Unix socket is never encrypted.

    Raises:
        CredentialsUnusable: a file cannot be used, or a token would be sent where others can read it.
    """
    if tls is None or address.startswith("unix:"):
        channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
    else:
        name = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()
        channel = grpc.aio.secure_channel(address, tls.credentials(), options=(*_OPTIONS, *name))
    if token is None:
        return channel
    require_private(address, encrypted=tls is not None)
    return with_token(channel, token)


def new_request_id() -> str:
    """Give a key by which one life of a daemon knows a request again."""
    return uuid.uuid4().hex


async def answer(call: Awaitable[T], address: str) -> T:
    """Wait for the answer of a call.

    Raises:
        StepRailError: there was none, or it was an error.
    """
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error, address) from None

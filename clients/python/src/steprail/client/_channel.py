"""Where the daemon is, and how it is reached."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from steprail.client._credentials import Tls, require_private, with_token
from steprail.errors import from_rpc

T = TypeVar("T")

#: Seconds that a call may take unless it is told otherwise.
CALL_SECONDS = 30.0

#: What gRPC tries again by itself: only what ended with UNAVAILABLE, since what was refused for another reason would be
#: refused again. What makes a session or a run is not in it: a daemon knows request ids again for 24 hours and over
#: restarts, but from its journal alone, so that one which died after it had acted, and came back with another journal,
#: would act twice. The other calls that change something find it changed. Streams of events are not in it either: the
#: client takes them up where they ended.
SERVICE_CONFIG = (resources.files("steprail.client") / "service_config.json").read_text("utf-8")

_OPTIONS = (
    ("grpc.service_config", SERVICE_CONFIG),
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
    return f"unix:{_socket_directory(user)}/steprail.sock"


def _socket_directory(user: int) -> Path:
    """Give where a daemon of this user has its socket: the same places as the daemon's own defaults."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    if os.environ.get("XDG_RUNTIME_DIR") or runtime.is_dir():
        return runtime / "steprail"
    state = os.environ.get("STEPRAIL_STATE_DIR")
    if state:
        return Path(state).absolute()
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser().absolute() / "steprail"


def open_channel(address: str, token: Callable[[], str] | None = None, tls: Tls | None = None) -> grpc.aio.Channel:
    """Open a channel; nothing is connected before the first call. A Unix socket is never encrypted.

    Raises:
        CredentialsUnusable: a file cannot be used, or a token would be sent where others can read it.
    """
    return with_credentials(_open(grpc.aio, address, tls), address, token, tls)


def open_blocking_channel(address: str, tls: Tls | None = None) -> grpc.Channel:
    """Open a channel of gRPC's blocking form; see `open_channel`."""
    channel: grpc.Channel = _open(grpc, address, tls)
    return channel


def with_credentials(
    channel: grpc.aio.Channel, address: str, token: Callable[[], str] | None, tls: Tls | None
) -> grpc.aio.Channel:
    """Give a channel whose calls carry the token, if there is one; see `open_channel`."""
    if token is None:
        return channel
    require_private(address, encrypted=tls is not None)
    return with_token(channel, token)


def _open(module: Any, address: str, tls: Tls | None) -> Any:
    if tls is None or address.startswith("unix:"):
        return module.insecure_channel(address, options=_OPTIONS)
    name = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()
    return module.secure_channel(address, tls.credentials(), options=(*_OPTIONS, *name))


def new_request_id() -> str:
    """Give a key by which a daemon knows a request again."""
    return uuid.uuid4().hex


async def answer(call: Awaitable[T], address: str) -> T:
    """Wait for the answer of a call.

    Raises:
        StepRailError: there was none, or it was an error.
    """
    try:
        if isinstance(call, grpc.aio.Call):
            await _done(call)
        return await call
    except grpc.RpcError as error:
        raise from_rpc(error, address) from None


async def _done(call: grpc.aio.Call) -> None:
    """Wait until a call is over, by a future: a cancellation that passes through the call itself loses its message.

    By that message anyio tells its own cancellations from others (grpc/grpc#43502).
    """
    over = asyncio.get_running_loop().create_future()
    call.add_done_callback(lambda _: None if over.done() else over.set_result(None))
    try:
        await over
    except asyncio.CancelledError:
        call.cancel()
        raise

"""What a refused call carries: the status of a call, or the answer to a refused message, read into one form."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from steprail.v1 import runs_pb2

#: gRPC refuses to hand on longer trailing metadata.
TRAILER_BYTES = 8192
_DETAILS = "grpc-status-details-bin"
_KINDS: Mapping[str, type[Message]] = {
    name: getattr(error_details_pb2, name)
    for name in ("ErrorInfo", "BadRequest", "ResourceInfo", "QuotaFailure", "PreconditionFailure", "RetryInfo")
}


@dataclass(frozen=True)
class Refused:
    """A refused call, or a refused message of a stream: its code, its text, and its details by their kinds."""

    code: grpc.StatusCode
    message: str
    reason: str
    domain: str
    metadata: Mapping[str, str]
    details: Mapping[str, Any]

    @property
    def retry_after(self) -> float:
        """Seconds to wait."""
        nanoseconds: int = self.details["RetryInfo"].retry_delay.ToNanoseconds()
        return nanoseconds / 1e9


async def refused(call: Awaitable[object]) -> Refused:
    """Give what a call is refused with; it must be refused."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError(f"it was not refused: {answer}")


async def stream_refused(call: grpc.aio.UnaryStreamCall[Any, Any]) -> Refused:
    """Give what a stream is refused with, whatever came before."""
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError("it was not refused")


def refusal_of(error: grpc.aio.AioRpcError) -> Refused:
    """Read the status of a call."""
    trailers = error.trailing_metadata()
    found = None if trailers is None else trailers.get(_DETAILS)
    assert isinstance(found, bytes), f"without details: {error}"
    assert len(found) < TRAILER_BYTES
    status = status_pb2.Status.FromString(found)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    details = _by_kind(status.details)
    info = details.pop("ErrorInfo")
    return Refused(error.code(), status.message, info.reason, info.domain, dict(info.metadata), details)


def rejection_of(rejected: runs_pb2.ControlRejected) -> Refused:
    """Read the answer to a message of an open stream; the domain is understood."""
    code = next(code for code in grpc.StatusCode if code.value[0] == rejected.code)
    details = _by_kind(rejected.details)
    return Refused(code, rejected.message, rejected.reason, "steprail", dict(rejected.metadata), details)


def _by_kind(packed: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    for one in packed:
        assert isinstance(one, any_pb2.Any)
        kind = one.type_url.rpartition(".")[2]
        detail = _KINDS[kind]()
        assert one.Unpack(detail)
        assert kind not in details
        details[kind] = detail
    return details

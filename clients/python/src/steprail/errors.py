"""What a call can fail with: whose fault it is, and what can be done.

    StepRailError
     ├─ ConnectionFailed          nobody answers at the address
     ├─ CredentialsUnusable       a file of tokens or certificates cannot be used; nothing was sent
     ├─ CallTimeout               the call's own time ran out; what it asked for may have happened
     └─ Refused                   the daemon answered with an error: `reason`, `metadata`, `fields`, `retry_after`
         ├─ InvalidArgument       a field of the request is wrong
         ├─ NotFound              no such session, run, step or blob
         ├─ AlreadyExists         the request id was used for something else
         ├─ FailedPrecondition    the request does not fit the state things are in
         ├─ ResourceExhausted     a limit is reached
         ├─ OutOfRange            a cursor that is no more, or not yet
         ├─ PermissionDenied      not allowed
         ├─ Unauthenticated       no credentials, or wrong ones
         └─ Unavailable           not now: the daemon goes down, or cannot record anything

New reasons may come with a newer daemon: fall back on the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.rpc import error_details_pb2
from grpc_status import rpc_status

_DOMAIN = "steprail"


class StepRailError(Exception):
    """Any error of this client."""


class ConnectionFailed(StepRailError):
    """Nobody answers at `address`."""

    def __init__(self, address: str, detail: str) -> None:
        super().__init__(
            f"no daemon answers at {address} ({detail}); start one with `steprail serve`, or set STEPRAIL_ADDRESS"
        )
        self.address = address
        self.detail = detail


class CredentialsUnusable(StepRailError):
    """A file of tokens or certificates cannot be used, or a token would be sent where others can read it."""


class CallTimeout(StepRailError):
    """The call's time ran out before an answer came. What it asked for may have happened all the same."""


@dataclass(frozen=True)
class Refusal:
    """What the daemon said. `retry_after` is in seconds, None where waiting does not help."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    retry_after: float | None = None


class Refused(StepRailError):
    """The daemon answered with an error."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.reason}: {refusal.message}" if refusal.reason else refusal.message)
        self.code = refusal.code
        self.reason = refusal.reason
        self.message = refusal.message
        self.metadata = refusal.metadata
        self.fields = refusal.fields
        self.retry_after = refusal.retry_after


class InvalidArgument(Refused):
    """A field of the request is wrong; `fields` names it."""


class NotFound(Refused):
    """No such session, run, step or blob."""


class AlreadyExists(Refused):
    """The request id was used for something else."""


class FailedPrecondition(Refused):
    """The request does not fit the state things are in."""


class ResourceExhausted(Refused):
    """A limit is reached."""


class OutOfRange(Refused):
    """A cursor that is no more, or not yet."""


class PermissionDenied(Refused):
    """Not allowed."""


class Unauthenticated(Refused):
    """No credentials, or wrong ones."""


class Unavailable(Refused):
    """Not now: the daemon goes down, or cannot record anything."""


_CLASSES: Mapping[grpc.StatusCode, type[Refused]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
}


def from_rpc(error: grpc.aio.AioRpcError, address: str) -> StepRailError:
    """Give the error of this client for one of gRPC's."""
    refusal = _refusal(error)
    if not refusal.reason:
        if refusal.code is grpc.StatusCode.UNAVAILABLE:
            return ConnectionFailed(address, refusal.message)
        if refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return CallTimeout(f"the daemon at {address} did not answer in time")
    return _CLASSES.get(refusal.code, Refused)(refusal)


def _refusal(error: grpc.aio.AioRpcError) -> Refusal:
    code, message = error.code(), error.details() or error.code().name
    try:
        status = rpc_status.from_call(error)
    except ValueError:
        # What stands between us and the daemon changed the code or the message; the details are not of this error.
        status = None
    reason, metadata, fields, retry_after = "", {}, {}, None
    for packed in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if packed.Unpack(info) and info.domain == _DOMAIN:
            reason, metadata = info.reason, dict(info.metadata)
        elif packed.Unpack(bad):
            fields = {violation.field: violation.description for violation in bad.field_violations}
        elif packed.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    return Refusal(code, message, reason, metadata, fields, retry_after)

"""What a call can fail with: whose fault it is, and what can be done.

    StepRailError
     ├─ ConnectionFailed          nobody answers at the address
     ├─ CredentialsUnusable       a file of tokens or certificates cannot be used; nothing was sent
     ├─ CallTimeout               the call's own time ran out; what it asked for may have happened
     ├─ CallbackFailed            a callable given to `run` raised; it is the `__cause__`, and `run` how the run ended
     └─ Refused                   the daemon answered with an error: `reason`, `metadata`, `fields`, `retry_after`
         ├─ InvalidArgument       a field of the request is wrong
         ├─ NotFound              no such session, run, step or blob
         ├─ AlreadyExists         the request id was used for something else
         ├─ FailedPrecondition    the request does not fit the state things are in
         ├─ ResourceExhausted     a limit is reached
         ├─ OutOfRange            a number beyond what there is
         │   └─ CursorInvalid     a place in a sequence that is no more, or not yet: `earliest_seq`, `last_seq`, `epoch`
         ├─ PermissionDenied      not allowed
         ├─ Unauthenticated       no credentials, or wrong ones
         ├─ Unimplemented         this daemon does not serve the call
         └─ Unavailable           not now: the daemon goes down, or cannot record anything

`retryable` tells whether the same request may succeed later without any change; `retry_after` how long to wait, in
seconds, where the daemon said. New reasons may come with a newer daemon: fall back on the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from steprail._reach import why_unreachable

if TYPE_CHECKING:
    from steprail.v1 import runs_pb2

_DOMAIN = "steprail"


class StepRailError(Exception):
    """Any error of this client."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without any change."""
        return False

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next try, None where nobody said."""
        return None


class ConnectionFailed(StepRailError):
    """Nobody answers at `address`. `detail` is gRPC's own word for it."""

    def __init__(self, address: str, detail: str) -> None:
        super().__init__(why_unreachable(address, detail))
        self.address = address
        self.detail = detail

    @property
    def retryable(self) -> bool:
        """True: the daemon may come, or come back."""
        return True


class CredentialsUnusable(StepRailError):
    """A file of tokens or certificates cannot be used, or a token would be sent where others can read it."""


class CallTimeout(StepRailError):
    """The call's time ran out before an answer came. What it asked for may have happened all the same."""

    @property
    def retryable(self) -> bool:
        """True, for a request with the same request id."""
        return True


class CallbackFailed(StepRailError):
    """A callable that was to decide, allow or answer raised, or gave what is no answer; that error is the `__cause__`.

    `callback` names it: decide, permissions or questions. `run` is the run as it ended: FAILED with DECIDER_ERROR after
    an error of `decide`, unless somebody else was faster; a permission was denied, a question declined.
    """

    def __init__(self, callback: str, run: runs_pb2.Run) -> None:
        super().__init__(f"`{callback}` failed in run {run.run_id}")
        self.callback = callback
        self.run = run


@dataclass(frozen=True)
class Refusal:
    """What the daemon said. `retry_after` is in seconds, None where waiting does not help."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    details: tuple[any_pb2.Any, ...] = ()


class Refused(StepRailError):
    """The daemon answered with an error.

    `code` is gRPC's, `reason` one of those at the head of `errors.proto`, empty where there is none; `metadata` goes
    with it. `fields` says of each wrong field what is wrong. `details` has all details as they came, packed.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.reason}: {refusal.message}" if refusal.reason else refusal.message)
        self.code = refusal.code
        self.reason = refusal.reason
        self.message = refusal.message
        self.metadata = refusal.metadata
        self.fields = refusal.fields
        self.details = refusal.details
        self._retry_after = refusal.retry_after

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the daemon advises to try again, None where waiting does not help or nobody said."""
        return self._retry_after

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later: the daemon said when, or is unavailable."""
        return self._retry_after is not None or self.code is grpc.StatusCode.UNAVAILABLE


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
    """A number beyond what there is."""


class CursorInvalid(OutOfRange):
    """A place in a session's sequence that was removed, is yet to come, or is of another epoch.

    Begin anew after `earliest_seq` - 1 in `epoch`, and take note that events may be missing.
    """

    @property
    def earliest_seq(self) -> int | None:
        """The first event that is kept, None if the daemon did not say."""
        return _number(self.metadata.get("earliest_seq"))

    @property
    def last_seq(self) -> int | None:
        """The last event that was recorded, None if the daemon did not say."""
        return _number(self.metadata.get("last_seq"))

    @property
    def epoch(self) -> str:
        """The epoch of the sequence now."""
        return self.metadata.get("epoch", "")


class PermissionDenied(Refused):
    """Not allowed."""


class Unauthenticated(Refused):
    """No credentials, or wrong ones."""

    def __str__(self) -> str:
        """Give the daemon's sentence, and where the client takes a token from."""
        return f"{super().__str__()}; a token is given by token=, token_file= or $STEPRAIL_TOKEN_FILE"


class Unimplemented(Refused):
    """This daemon does not serve the call: it is older than the client, or was built without it."""


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
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
}
_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
#: Reasons that have a class of their own.
_REASON_CLASSES: Mapping[str, type[Refused]] = {"CURSOR_INVALID": CursorInvalid}


class RpcError(Protocol):
    """What is read of an error of gRPC, in its asynchronous form and in the other."""

    def code(self) -> grpc.StatusCode:
        """Give the status."""

    def details(self) -> str | None:
        """Give the message."""

    def trailing_metadata(self) -> Any:
        """Give the metadata that carries the details."""


def from_rpc(error: RpcError | grpc.RpcError, address: str) -> StepRailError:
    """Give the error of this client for one of gRPC's."""
    refusal = _refusal(error)
    if not refusal.reason:
        # A daemon that is killed may cut a stream as if it had been cancelled; who cancels here gets no error of gRPC.
        if refusal.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            return ConnectionFailed(address, refusal.message)
        if refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return CallTimeout(f"the daemon at {address} did not answer in time")
    return refused(refusal)


def refused(refusal: Refusal) -> Refused:
    """Give the error of a refusal in the class that its reason or its code has."""
    return (_REASON_CLASSES.get(refusal.reason) or _CLASSES.get(refusal.code, Refused))(refusal)


def from_rejected(rejected: runs_pb2.ControlRejected) -> Refused:
    """Give the error for a message on a control stream that the daemon refused."""
    fields, retry_after = _advice(rejected.details)
    return refused(
        Refusal(
            code=_CODES.get(rejected.code, grpc.StatusCode.UNKNOWN),
            message=rejected.message,
            reason=rejected.reason,
            metadata=dict(rejected.metadata),
            fields=fields,
            retry_after=retry_after,
            details=tuple(rejected.details),
        )
    )


def _refusal(error: Any) -> Refusal:
    code, message = error.code(), error.details() or error.code().name
    try:
        status = rpc_status.from_call(error)
    except ValueError:
        # What stands between us and the daemon changed the code or the message; the details are not of this error.
        status = None
    details = tuple(status.details) if status is not None else ()
    reason, metadata = _info(details)
    fields, retry_after = _advice(details)
    return Refusal(code, message, reason, metadata, fields, retry_after, details)


def _info(details: Iterable[any_pb2.Any]) -> tuple[str, dict[str, str]]:
    for packed in details:
        info = error_details_pb2.ErrorInfo()
        if packed.Unpack(info) and info.domain == _DOMAIN:
            return info.reason, dict(info.metadata)
    return "", {}


def _advice(details: Iterable[any_pb2.Any]) -> tuple[dict[str, str], float | None]:
    """Give which fields are wrong, and how long to wait in seconds."""
    fields: dict[str, str] = {}
    retry_after = None
    for packed in details:
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if packed.Unpack(bad):
            fields |= {violation.field: violation.description for violation in bad.field_violations}
        elif packed.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    return fields, retry_after


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None

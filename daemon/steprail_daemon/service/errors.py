"""What a refused call carries: tables from the core's errors to gRPC status codes and to the details beside.

Every status has `google.rpc.ErrorInfo` with domain "steprail", a reason and metadata. Which further detail applies
follows from the class and the reason: whose fault it is, and what can be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import grpc
import msgspec
from google.protobuf import any_pb2, message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from steprail.v1 import runs_pb2
from steprail_daemon.core.errors import (
    AlreadyExists,
    Denied,
    Exhausted,
    Invalid,
    NotFound,
    OutOfRange,
    StepRailError,
    Unauthenticated,
    Unavailable,
    WrongState,
)
from steprail_daemon.service.bounds import NAME, TITLE
from steprail_daemon.service.fields import short

DOMAIN: Final = "steprail"

STATUS_CODES: Final[Mapping[type[StepRailError], grpc.StatusCode]] = MappingProxyType(
    {
        NotFound: grpc.StatusCode.NOT_FOUND,
        Invalid: grpc.StatusCode.INVALID_ARGUMENT,
        AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
        WrongState: grpc.StatusCode.FAILED_PRECONDITION,
        Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
        Unavailable: grpc.StatusCode.UNAVAILABLE,
        OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
        Denied: grpc.StatusCode.PERMISSION_DENIED,
        Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    }
)


class Row(msgspec.Struct, frozen=True):
    """What a reason is refused with: the class of its error, and what its details name.

    `resource` is the kind of what was not found, whose id is in the metadata as that kind with `_id` behind it; `quota`
    is what there is not enough of.
    """

    error: type[StepRailError]
    resource: str = ""
    quota: str = ""


#: Every reason of a refused call; the comment at the head of `errors.proto` tells what they mean.
REASONS: Final[Mapping[str, Row]] = MappingProxyType(
    {
        "SESSION_NOT_FOUND": Row(NotFound, resource="session"),
        "RUN_NOT_FOUND": Row(NotFound, resource="run"),
        "STEP_NOT_FOUND": Row(NotFound, resource="step"),
        "BLOB_NOT_FOUND": Row(NotFound, resource="blob"),
        "BUDGET_NOT_FOUND": Row(NotFound, resource="budget"),
        "RESUME_UNKNOWN": Row(NotFound, resource="agent_session"),
        "AGENT_UNKNOWN": Row(Invalid),
        "RULE_INVALID": Row(Invalid),
        "PROMPT_INVALID": Row(Invalid),
        "PROMPT_TOO_LARGE": Row(Invalid),
        "CWD_INVALID": Row(Invalid),
        "PAGE_TOKEN_INVALID": Row(Invalid),
        "FIELD_INVALID": Row(Invalid),
        "REQUEST_ID_REUSED": Row(AlreadyExists),
        "SESSION_BUSY": Row(WrongState),
        "SESSION_CLOSED": Row(WrongState),
        "SESSION_BROKEN": Row(WrongState),
        "NOT_LATEST_RUN": Row(WrongState),
        "RULE_ALREADY_MET": Row(WrongState),
        "DECISION_NOT_PENDING": Row(WrongState),
        "PERMISSION_NOT_PENDING": Row(WrongState),
        "QUESTION_NOT_PENDING": Row(WrongState),
        "STEER_NOT_POSSIBLE": Row(WrongState),
        "CAPABILITY_MISSING": Row(WrongState),
        "AGENT_UNAVAILABLE": Row(WrongState),
        "AGENT_SESSION_IN_USE": Row(WrongState),
        "QUEUE_FULL": Row(Exhausted, quota="queued runs of the session"),
        "TOO_MANY_SESSIONS": Row(Exhausted, quota="sessions"),
        "BUDGET_EXHAUSTED": Row(Exhausted, quota="budget"),
        "RATE_LIMITED": Row(Exhausted),
        "READER_STALLED": Row(Exhausted),
        "DRAINING": Row(Unavailable),
        "JOURNAL_UNAVAILABLE": Row(Unavailable),
        "AGENT_STARTING": Row(Unavailable),
        "CURSOR_INVALID": Row(OutOfRange),
        "CWD_NOT_ALLOWED": Row(Denied),
        "FORBIDDEN": Row(Denied),
        "TOKEN_MISSING": Row(Unauthenticated),
        "TOKEN_INVALID": Row(Unauthenticated),
    }
)
_NO_ROW: Final = Row(StepRailError)

#: What an uncaught exception looks like from outside: nothing of it.
INTERNAL: Final = status_pb2.Status(code=grpc.StatusCode.INTERNAL.value[0], message="internal error; see the log")


class PlainStatus(Exception):
    """Ends a call with a status code and a message alone, where a protocol that is not ours prescribes it."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def code_of(error: StepRailError) -> grpc.StatusCode:
    """Give the status code of an error."""
    return STATUS_CODES[type(error)]


def status_of(error: StepRailError) -> status_pb2.Status:
    """Give the status with its details. Texts are kept short: all of it travels in one header of at most 8 KiB."""
    return status_pb2.Status(
        code=code_of(error).value[0],
        message=short(error.message, TITLE),
        details=[_packed(_info(error)), *further_details(error)],
    )


def grpc_status(status: status_pb2.Status) -> grpc.Status:
    """Give the status in the form that a handler's context takes."""
    converted: grpc.Status = rpc_status.to_status(status)
    return converted


def rejection(error: StepRailError, request_id: str) -> runs_pb2.ControlRejected:
    """Give the answer to a message on an open stream that is refused."""
    return runs_pb2.ControlRejected(
        code=code_of(error).value[0],
        reason=error.reason,
        message=short(error.message, TITLE),
        metadata=_metadata(error),
        details=further_details(error),
        request_id=request_id,
    )


def further_details(error: StepRailError) -> list[any_pb2.Any]:
    """Give the details beside `ErrorInfo`."""
    details: list[message.Message] = []
    # The status has the message; here it is only repeated.
    description = short(error.message, NAME)
    if error.field:
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=short(error.field, NAME), description=description, reason=error.reason)
        details.append(bad)
    row = REASONS.get(error.reason, _NO_ROW)
    if row.resource:
        name = short(error.metadata.get(f"{row.resource}_id", ""), NAME)
        details.append(
            error_details_pb2.ResourceInfo(resource_type=row.resource, resource_name=name, description=description)
        )
    if row.quota:
        quota = error_details_pb2.QuotaFailure()
        quota.violations.add(subject=_subject(error) or row.quota, description=description)
        details.append(quota)
    if isinstance(error, WrongState):
        failed = error_details_pb2.PreconditionFailure()
        failed.violations.add(type=error.reason, subject=_subject(error), description=description)
        details.append(failed)
    if error.retry_after_ns is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(error.retry_after_ns)
        details.append(retry)
    return [_packed(detail) for detail in details]


def _info(error: StepRailError) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=_metadata(error))


def _metadata(error: StepRailError) -> dict[str, str]:
    return {key: short(value, NAME) for key, value in error.metadata.items()}


def _subject(error: StepRailError) -> str:
    return next((short(value, NAME) for value in error.metadata.values()), "")


def _packed(detail: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed

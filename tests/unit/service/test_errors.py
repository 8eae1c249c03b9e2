"""Errors of the core as statuses with details."""

import inspect
from typing import TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from steprail_daemon.core import errors
from steprail_daemon.core.errors import Exhausted, Invalid, NotFound, OutOfRange, StepRailError, WrongState
from steprail_daemon.service.errors import INTERNAL, STATUS_CODES, code_of, grpc_status, rejection, status_of

M = TypeVar("M", bound=Message)


def details(status: status_pb2.Status, kind: type[M]) -> list[M]:
    found: list[M] = []
    for packed in status.details:
        message = kind()
        if packed.Unpack(message):
            found.append(message)
    return found


def test_every_class_of_the_core_has_a_row_and_no_code_is_used_twice() -> None:
    classes = {
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, StepRailError) and member is not StepRailError
    }

    assert set(STATUS_CODES) == classes
    assert len(set(STATUS_CODES.values())) == len(classes)


@pytest.mark.parametrize("error_class", list(STATUS_CODES), ids=lambda error_class: str(error_class.__name__))
def test_every_status_carries_domain_reason_and_metadata(error_class: type[StepRailError]) -> None:
    status = status_of(error_class("SOME_REASON", "what happened", key="value"))

    (info,) = details(status, error_details_pb2.ErrorInfo)
    assert (info.domain, info.reason, dict(info.metadata)) == ("steprail", "SOME_REASON", {"key": "value"})
    assert (status.code, status.message) == (STATUS_CODES[error_class].value[0], "what happened")
    assert code_of(error_class("R", "m")) is STATUS_CODES[error_class]


def test_a_bad_field_is_a_violation() -> None:
    status = status_of(Invalid("RULE_INVALID", "at_least is 0", field="stop_rules[1].step_count.at_least"))

    (bad,) = details(status, error_details_pb2.BadRequest)
    assert [(v.field, v.description, v.reason) for v in bad.field_violations] == [
        ("stop_rules[1].step_count.at_least", "at_least is 0", "RULE_INVALID")
    ]


def test_what_is_not_found_is_named_by_kind_and_id() -> None:
    (resource,) = details(
        status_of(NotFound("RUN_NOT_FOUND", "there is no run", run_id="run_1")), error_details_pb2.ResourceInfo
    )

    assert (resource.resource_type, resource.resource_name) == ("run", "run_1")


def test_a_state_that_does_not_fit_is_a_failed_precondition() -> None:
    (failed,) = details(
        status_of(WrongState("SESSION_BUSY", "a run is live", active_run_id="run_1")),
        error_details_pb2.PreconditionFailure,
    )

    assert [(v.type, v.subject, v.description) for v in failed.violations] == [
        ("SESSION_BUSY", "run_1", "a run is live")
    ]


def test_a_time_to_wait_is_retry_info_and_absent_where_waiting_does_not_help() -> None:
    waits = status_of(Exhausted("TOO_MANY_SESSIONS", "m", retry_after_ns=1_500_000_000))

    (retry,) = details(waits, error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToNanoseconds() == 1_500_000_000
    assert details(status_of(OutOfRange("CURSOR_INVALID", "m")), error_details_pb2.RetryInfo) == []


@pytest.mark.parametrize("text", ["x" * 100_000, "é☃" * 50_000, "\ud800" * 50_000])
def test_whatever_a_caller_sent_the_status_fits_into_a_header(text: str) -> None:
    status = status_of(NotFound("RUN_NOT_FOUND", text, field=text, run_id=text, more=text))

    # The message travels twice, once percent-encoded, which triples what is not ASCII.
    assert len(status.SerializeToString()) * 4 / 3 + len(status.message.encode()) * 3 < 8 * 1024
    assert grpc_status(status).code is grpc.StatusCode.NOT_FOUND


def test_a_refused_message_of_a_stream_carries_the_same() -> None:
    error = Invalid("FIELD_INVALID", "m", field="run_id", key="value")

    rejected = rejection(error, "key-1")

    assert (rejected.code, rejected.reason, rejected.message, rejected.request_id) == (3, "FIELD_INVALID", "m", "key-1")
    assert dict(rejected.metadata) == {"key": "value"}
    assert [packed.TypeName() for packed in rejected.details] == ["google.rpc.BadRequest"]


def test_an_exception_of_ours_tells_nothing() -> None:
    assert grpc_status(INTERNAL).code is grpc.StatusCode.INTERNAL
    assert not INTERNAL.details

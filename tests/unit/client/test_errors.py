"""Statuses of gRPC as errors of the client."""

import socket
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from tests.unit.client.statuses import rpc_error

import steprail
from steprail import errors
from steprail.errors import from_rpc
from steprail.v1 import runs_pb2

ADDRESS = "unix:/run/x.sock"

CLASSES = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    grpc.StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.Refused,
    grpc.StatusCode.INTERNAL: errors.Refused,
}


@pytest.mark.parametrize(("code", "error_class"), CLASSES.items(), ids=[code.name for code in CLASSES])
def test_each_code_has_its_class_and_carries_reason_and_metadata(
    code: grpc.StatusCode, error_class: type[errors.Refused]
) -> None:
    error = from_rpc(rpc_error(code, "what happened", reason="SOME_REASON"), ADDRESS)

    assert type(error) is error_class
    assert isinstance(error, errors.Refused)
    assert (error.code, error.reason, error.message) == (code, "SOME_REASON", "what happened")
    assert error.metadata == {"key": "value"}
    assert str(error).startswith("SOME_REASON: what happened")


def test_fields_and_the_time_to_wait_are_read() -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="cwd", description="must be absolute")
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1500)

    error = from_rpc(rpc_error(grpc.StatusCode.INVALID_ARGUMENT, "m", reason="R", details=(bad, retry)), ADDRESS)

    assert isinstance(error, errors.InvalidArgument)
    assert (error.fields, error.retry_after) == ({"cwd": "must be absolute"}, 1.5)


def test_a_stream_that_the_other_side_cut_is_a_lost_connection() -> None:
    error = from_rpc(rpc_error(grpc.StatusCode.CANCELLED, "CANCELLED"), ADDRESS)

    assert isinstance(error, errors.ConnectionFailed)


def test_nobody_at_the_address_is_told_with_what_to_do() -> None:
    error = from_rpc(rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused"), ADDRESS)

    assert isinstance(error, errors.ConnectionFailed)
    assert ADDRESS in str(error)
    assert "`steprail serve`" in str(error)


def test_a_call_that_ran_out_of_time_says_so() -> None:
    assert isinstance(from_rpc(rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "m"), ADDRESS), errors.CallTimeout)


def test_a_reason_of_another_domain_is_not_ours() -> None:
    error = from_rpc(rpc_error(grpc.StatusCode.NOT_FOUND, "m", reason="X", domain="example.com"), ADDRESS)

    assert isinstance(error, errors.NotFound)
    assert error.reason == ""


def test_details_of_another_status_are_left_alone() -> None:
    changed = rpc_error(grpc.StatusCode.NOT_FOUND, "m", reason="X")
    mixed = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL, changed.initial_metadata(), changed.trailing_metadata(), "a proxy failed"
    )

    error = from_rpc(mixed, ADDRESS)

    assert isinstance(error, errors.Refused)
    assert (error.reason, error.message) == ("", "a proxy failed")


def test_the_package_gives_every_error() -> None:
    classes = {
        name
        for name, member in vars(errors).items()
        if isinstance(member, type) and issubclass(member, errors.StepRailError)
    }

    assert set(steprail.__all__) == classes


def test_a_place_that_is_no_more_tells_what_is_kept() -> None:
    facts = {"earliest_seq": "40", "last_seq": "99", "epoch": "e2"}
    gone = rpc_error(grpc.StatusCode.OUT_OF_RANGE, "removed", reason="CURSOR_INVALID", metadata=facts)

    error = from_rpc(gone, ADDRESS)

    assert isinstance(error, errors.CursorInvalid)
    assert isinstance(error, errors.OutOfRange)
    assert (error.earliest_seq, error.last_seq, error.epoch) == (40, 99, "e2")
    bare = from_rpc(rpc_error(grpc.StatusCode.OUT_OF_RANGE, "m", reason="CURSOR_INVALID"), ADDRESS)
    assert isinstance(bare, errors.CursorInvalid)
    assert (bare.earliest_seq, bare.last_seq, bare.epoch) == (None, None, "")


def test_an_error_tells_whether_the_same_request_may_succeed_later() -> None:
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromSeconds(3)
    limited = from_rpc(
        rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "m", reason="RATE_LIMITED", details=(retry,)), ADDRESS
    )
    full = from_rpc(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "m", reason="QUEUE_FULL"), ADDRESS)
    draining = from_rpc(rpc_error(grpc.StatusCode.UNAVAILABLE, "m", reason="DRAINING"), ADDRESS)
    absent = from_rpc(rpc_error(grpc.StatusCode.UNAVAILABLE, "refused"), ADDRESS)
    late = from_rpc(rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "m"), ADDRESS)

    found = [(error.retryable, error.retry_after) for error in (limited, full, draining, absent, late)]
    assert found == [(True, 3.0), (False, None), (True, None), (True, None), (True, None)]


def test_details_that_the_client_has_no_name_for_are_there_as_they_came() -> None:
    quota = error_details_pb2.QuotaFailure()
    quota.violations.add(subject="team", description="used up")
    error = from_rpc(
        rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "m", reason="BUDGET_EXHAUSTED", details=(quota,)), ADDRESS
    )

    assert isinstance(error, errors.ResourceExhausted)
    found = error_details_pb2.QuotaFailure()
    assert error.details[1].Unpack(found)
    assert found == quota


def test_a_reason_of_a_newer_daemon_falls_back_on_the_class_of_its_code() -> None:
    error = from_rpc(rpc_error(grpc.StatusCode.FAILED_PRECONDITION, "m", reason="INVENTED_LATER"), ADDRESS)

    assert type(error) is errors.FailedPrecondition
    assert error.reason == "INVENTED_LATER"


def test_a_call_that_an_older_daemon_does_not_serve_has_a_class() -> None:
    assert isinstance(
        from_rpc(rpc_error(grpc.StatusCode.UNIMPLEMENTED, "unknown method"), ADDRESS), errors.Unimplemented
    )


def test_a_message_that_was_rejected_on_a_stream_is_the_error_of_the_matching_call() -> None:
    rejected = runs_pb2.ControlRejected(
        code=grpc.StatusCode.FAILED_PRECONDITION.value[0],
        reason="DECISION_NOT_PENDING",
        message="late",
        metadata={"step_id": "s"},
    )

    error = errors.from_rejected(rejected)

    assert isinstance(error, errors.FailedPrecondition)
    assert (error.reason, error.message, error.metadata) == ("DECISION_NOT_PENDING", "late", {"step_id": "s"})


def test_why_nobody_answers_is_said_in_words(tmp_path: Path) -> None:
    def said(address: str, detail: str = "connection refused") -> str:
        return str(errors.ConnectionFailed(address, detail))

    (tmp_path / "file").write_text("")
    assert "there is no such socket" in said(f"unix:{tmp_path}/none.sock")
    assert "not a socket" in said(f"unix:{tmp_path}/file")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        assert "connection refused" in said(f"unix:{tmp_path}/s")
    assert "TLS handshake failed" in said("127.0.0.1:1", "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED")
    assert "does not speak gRPC" in said("127.0.0.1:1", "Failed parsing HTTP/2: Expected SETTINGS frame")
    for address in (f"unix:{tmp_path}/none.sock", "127.0.0.1:1"):
        assert address in said(address)
        assert "`steprail serve`" in said(address)


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed", "what listens there ended the connection: where it wants TLS"),
        ("Tls handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER", "what listens there speaks no TLS"),
        ("UNKNOWN: Failed to create security handshaker.", "no certificate was found in the roots"),
        ("Tls handshake failed: CERTIFICATE_VERIFY_FAILED", "the TLS handshake failed"),
        ("UNAUTHENTICATED: Hostname Verification Check failed.", "the TLS handshake failed"),
        ("Connection refused", "(Connection refused)"),
    ],
)
def test_what_encryption_has_to_do_with_it_is_said(detail: str, said: str) -> None:
    assert said in str(errors.ConnectionFailed("127.0.0.1:1", detail))

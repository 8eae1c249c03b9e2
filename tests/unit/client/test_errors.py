"""Statuses of gRPC as errors of the client."""

import grpc
import pytest
from google.rpc import error_details_pb2
from tests.unit.client.statuses import rpc_error

import steprail
from steprail import errors
from steprail.errors import from_rpc

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
    assert str(error) == "SOME_REASON: what happened"


def test_fields_and_the_time_to_wait_are_read() -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="cwd", description="must be absolute")
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1500)

    error = from_rpc(rpc_error(grpc.StatusCode.INVALID_ARGUMENT, "m", reason="R", details=(bad, retry)), ADDRESS)

    assert isinstance(error, errors.InvalidArgument)
    assert (error.fields, error.retry_after) == ({"cwd": "must be absolute"}, 1.5)


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

"""Every reason that is promised has a row, a code and its details, and nothing else is ever raised."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from steprail_daemon.core.errors import (
    Exhausted,
    Invalid,
    NotFound,
    StepRailError,
    Unavailable,
    WrongState,
)
from steprail_daemon.service.errors import REASONS, STATUS_CODES, status_of

ROOT = Path(__file__).resolve().parents[3]
PROTO = (ROOT / "protos/steprail/v1/errors.proto").read_text()
SOURCES = sorted((ROOT / "daemon/steprail_daemon").rglob("*.py"))
CLASSES = {error_class.__name__: error_class for error_class in STATUS_CODES}
SECOND = 1_000_000_000

M = TypeVar("M", bound=Message)


def promised() -> dict[str, grpc.StatusCode]:
    """Read the list at the head of the file: codes, and below each its reasons, further in."""
    found: dict[str, grpc.StatusCode] = {}
    code = None
    for line in PROTO[: PROTO.index("// Any call can be refused")].splitlines():
        if matched := re.match(r"//   ([A-Z_]+)( |$)", line):
            code = grpc.StatusCode[matched[1]]
        elif matched := re.match(r"//     ([A-Z_]+) ", line):
            assert code is not None
            found[matched[1]] = code
    return found


def raised() -> Iterator[tuple[str, str, str]]:
    """Give where the daemon makes an error, its class and its reason, as far as the source names both."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.func.id, str(first.value)


def error(reason: str) -> StepRailError:
    """Give an error as the daemon would make it."""
    row = REASONS[reason]
    metadata = {f"{row.resource}_id": "the-one"} if row.resource else {}
    field = "the.field" if row.error is Invalid else ""
    retry_after_ns = 3 * SECOND if row.error is Unavailable or reason in ("RATE_LIMITED", "BUDGET_EXHAUSTED") else None
    return row.error(reason, "what happened", field=field, retry_after_ns=retry_after_ns, **metadata)


def details(status: status_pb2.Status, kind: type[M]) -> list[M]:
    found: list[M] = []
    for packed in status.details:
        message = kind()
        if packed.Unpack(message):
            found.append(message)
    return found


def test_the_reasons_that_are_promised_are_those_that_have_a_row_with_that_code() -> None:
    assert {reason: STATUS_CODES[row.error] for reason, row in REASONS.items()} == promised()
    assert len(REASONS) == 39


def test_what_the_daemon_raises_is_a_reason_of_that_class() -> None:
    found = list(raised())

    assert [one for one in found if one[2] not in REASONS or REASONS[one[2]].error is not CLASSES[one[1]]] == []
    assert len(found) > 50


@pytest.mark.parametrize("reason", list(REASONS))
def test_every_reason_carries_what_applies_to_it(reason: str) -> None:
    made = error(reason)
    status = status_of(made)

    (info,) = details(status, error_details_pb2.ErrorInfo)
    assert (info.domain, info.reason, dict(info.metadata)) == ("steprail", reason, made.metadata)
    found = {packed.TypeName().rpartition(".")[2] for packed in status.details} - {"ErrorInfo"}
    expected = {
        NotFound: {"ResourceInfo"},
        Invalid: {"BadRequest"},
        WrongState: {"PreconditionFailure"},
        Unavailable: {"RetryInfo"},
        Exhausted: {
            "QUEUE_FULL": {"QuotaFailure"},
            "TOO_MANY_SESSIONS": {"QuotaFailure"},
            "BUDGET_EXHAUSTED": {"QuotaFailure", "RetryInfo"},
            "RATE_LIMITED": {"RetryInfo"},
        }.get(reason, set()),
    }
    assert found == expected.get(type(made), set())


@pytest.mark.parametrize("reason", [reason for reason, row in REASONS.items() if row.error is NotFound])
def test_what_is_not_found_is_named_by_kind_and_id(reason: str) -> None:
    (resource,) = details(status_of(error(reason)), error_details_pb2.ResourceInfo)

    assert resource.resource_name == "the-one"
    assert resource.resource_type == (
        "agent_session" if reason == "RESUME_UNKNOWN" else reason.split("_", maxsplit=1)[0].lower()
    )


@pytest.mark.parametrize("reason", [reason for reason, row in REASONS.items() if row.quota])
def test_what_there_is_not_enough_of_is_named(reason: str) -> None:
    (plain,) = details(status_of(error(reason)), error_details_pb2.QuotaFailure)
    (named,) = details(status_of(Exhausted(reason, "m", budget="daily")), error_details_pb2.QuotaFailure)

    assert [(violation.subject, violation.description) for violation in plain.violations] == [
        (REASONS[reason].quota, "what happened")
    ]
    assert [violation.subject for violation in named.violations] == ["daily"]

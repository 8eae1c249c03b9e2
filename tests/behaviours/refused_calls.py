"""The form of a case: a call that is refused, and with what it must be refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
import grpc.aio
from tests.behaviours.refusal_status import Refused
from tests.behaviours.scene import Scene

Code = grpc.StatusCode
Play = Callable[[Scene], Awaitable[Refused]]


@dataclass(frozen=True)
class Case:
    """A refused call. `metadata` are the keys of ErrorInfo, `field` is the path in BadRequest, if there is one."""

    reason: str
    code: grpc.StatusCode
    play: Play
    metadata: frozenset[str]
    field: str
    resource: str
    quota: bool
    retry: bool

    @property
    def kinds(self) -> set[str]:
        """The kinds of details beside ErrorInfo."""
        applies = {
            "BadRequest": bool(self.field),
            "ResourceInfo": bool(self.resource),
            "QuotaFailure": self.quota,
            "PreconditionFailure": self.code is Code.FAILED_PRECONDITION,
            "RetryInfo": self.retry,
        }
        return {kind for kind, does in applies.items() if does}


def case(
    reason: str,
    code: grpc.StatusCode,
    *metadata: str,
    field: str = "",
    resource: str = "",
    quota: bool = False,
    retry: bool = False,
    table: dict[str, Case],
) -> Callable[[Play], Play]:
    """Enter a case into a table."""

    def enter(play: Play) -> Play:
        name = f"{reason}-{play.__name__}"
        assert name not in table
        table[name] = Case(reason, code, play, frozenset(metadata), field, resource, quota, retry)
        return play

    return enter


def check(found: Refused, case: Case) -> None:
    """See that a refusal carries what its reason promises."""
    assert (found.code, found.domain, found.reason) == (case.code, "steprail", case.reason)
    assert found.message
    assert found.metadata.keys() == case.metadata
    assert all(found.metadata.values())
    assert found.details.keys() == case.kinds
    if case.field:
        (violation,) = found.details["BadRequest"].field_violations
        assert (violation.field, violation.reason) == (case.field, case.reason)
        assert violation.description
    if case.resource:
        named = found.details["ResourceInfo"]
        assert (named.resource_type, named.resource_name) == (
            case.resource,
            found.metadata[f"{case.resource}_id"],
        )
    if case.quota:
        (short,) = found.details["QuotaFailure"].violations
        assert short.subject
        assert short.description
    if "PreconditionFailure" in found.details:
        (failed,) = found.details["PreconditionFailure"].violations
        assert (failed.type, failed.subject in {"", *found.metadata.values()}) == (case.reason, True)
    if case.retry:
        assert found.retry_after > 0

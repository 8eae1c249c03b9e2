"""Errors of the domain: what a caller is refused with.

    StepRailError                 reason, message, metadata; what `service.errors` maps to a gRPC status
     ├─ NotFound                  no such session, run, step, blob
     ├─ Invalid                   a field of the request is wrong; `field` names it
     ├─ AlreadyExists             a request id was used before with another body
     ├─ WrongState                the request does not fit the state things are in
     ├─ Exhausted                 a limit is reached
     ├─ Unavailable               not now
     ├─ OutOfRange                a cursor that is no more, or not yet
     ├─ Denied                    not allowed
     └─ Unauthenticated           who calls is not known

One class per gRPC status, one `reason` per row of the API's table: few classes, data on them. Each constructor takes
the reason first, so that a search for a reason finds where it is raised.
"""

from __future__ import annotations


class StepRailError(Exception):
    """A request that is refused. `retry_after_ns` says when it may succeed, None where waiting does not help."""

    def __init__(
        self, reason: str, message: str, *, field: str = "", retry_after_ns: int | None = None, **metadata: str
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.field = field
        self.retry_after_ns = retry_after_ns
        self.metadata = metadata


class NotFound(StepRailError):
    """SESSION_NOT_FOUND, RUN_NOT_FOUND, STEP_NOT_FOUND, BLOB_NOT_FOUND."""


class Invalid(StepRailError):
    """AGENT_UNKNOWN, RULE_INVALID, PROMPT_INVALID, PROMPT_TOO_LARGE, CWD_INVALID, FIELD_INVALID."""


class AlreadyExists(StepRailError):
    """REQUEST_ID_REUSED."""


class WrongState(StepRailError):
    """SESSION_BUSY, SESSION_CLOSED, NOT_LATEST_RUN, DECISION_NOT_PENDING, CAPABILITY_MISSING, AGENT_UNAVAILABLE."""


class Exhausted(StepRailError):
    """QUEUE_FULL, TOO_MANY_SESSIONS, READER_STALLED."""


class Unavailable(StepRailError):
    """DRAINING, JOURNAL_UNAVAILABLE."""


class OutOfRange(StepRailError):
    """CURSOR_INVALID."""


class Denied(StepRailError):
    """CWD_NOT_ALLOWED, FORBIDDEN."""


class Unauthenticated(StepRailError):
    """TOKEN_MISSING, TOKEN_INVALID."""


class IllegalTransition(RuntimeError):
    """A bug of ours: the state machine was handed an event that cannot happen in its state."""

"""The end of a turn: what Claude Code's `result` line says, and whose fault a failure is."""

from __future__ import annotations

import msgspec

from steprail_daemon.core.events import TurnEnded
from steprail_daemon.core.model import Failure, FailureFault, TurnEndReason, Usage
from steprail_daemon.drivers.claude.refusals import BUSY
from steprail_daemon.drivers.claude.usage import NOTHING, Totals, totals_of, usage_of
from steprail_daemon.drivers.claude.wire import ResultLine

#: A request to stop is confirmed by this word alone.
_HOOK_STOPPED = "hook_stopped"
_ABORTED = frozenset({"aborted_streaming", "aborted_tools"})
_TOO_LONG = frozenset({"prompt_too_long", "blocking_limit"})
_WINDOW_FULL = "model_context_window_exceeded"

#: How 2.1.332 begins its error for an id that `--resume` does not find; the process exits after it.
_UNKNOWN_SESSION = "No conversation found"


class Course(msgspec.Struct, frozen=True):
    """What the turn showed before its result: the last message's text and why it ended, and what went wrong.

    `error_code` is the CLI's own word for the last error that it showed, `quota_json` a limit of the account that is
    used up, `retry_after_ns` how long the provider last told to wait. `beside` is what sub-agents and side requests
    used, as far as it was told.
    """

    last_text: str = ""
    last_stop_reason: str = ""
    error_code: str = ""
    quota_json: str = ""
    retry_after_ns: int | None = None
    beside: Totals = NOTHING


class TurnReader:
    """Reads the results of one process; the sums of the session that they carry make it remember the last."""

    def __init__(self, *, resumed: bool) -> None:
        self._resumed = resumed
        self._before = None if resumed else Totals()

    @property
    def sums(self) -> Totals | None:
        """The session's sums at the last result; None if it had none that mean anything."""
        return self._before

    def read(self, line: ResultLine, spent: Totals | None, course: Course, *, ready: bool) -> TurnEnded:
        """Translate a result. `spent` is as `spent` gave it; `ready`: the handshake was answered before.

        The usage is of the main loop, cut off messages included, which the CLI's own sum of it leaves out.
        """
        own = None if spent is None else spent.minus(course.beside)
        if own is not None:
            usage: Usage | None = own.usage
        else:
            usage = usage_of(line.usage) if line.model_usage else None
        cost = None if spent is None else spent.cost
        reason = _reason(line)
        failure = None
        if reason is TurnEndReason.ERROR:
            failure = _failure(line, course) if ready else self._start_failure(line)
        text = line.result if reason is TurnEndReason.COMPLETED and line.result is not None else course.last_text
        return TurnEnded(reason, line.terminal_reason or line.subtype, text, failure, usage, cost)

    def spent(self, line: ResultLine) -> Totals | None:
        """Give what the turn used in all, None if it is not known. To be asked once for each result."""
        since = line.model_usage_since_last_result
        # After a crash the sums are zero and mean nothing; after a resume they count what was before.
        now = totals_of(line.model_usage.values()) if line.model_usage else None
        before, self._before = self._before, now
        if isinstance(since, dict):
            return totals_of(since.values())
        return None if before is None or now is None else now.minus(before)

    def _start_failure(self, line: ResultLine) -> Failure:
        message = _message(line)
        if self._resumed and _UNKNOWN_SESSION in message:
            return Failure(reason="RESUME_FAILED", message=message, fault=FailureFault.ENVIRONMENT)
        return Failure(reason="AGENT_START_FAILED", message=message, fault=FailureFault.AGENT)


def _reason(line: ResultLine) -> TurnEndReason:
    # A failed API call is `subtype: success` with `is_error: true`, so the subtype alone says nothing.
    if line.terminal_reason == _HOOK_STOPPED:
        return TurnEndReason.STOP_CONDITION
    if line.terminal_reason in _ABORTED:
        return TurnEndReason.ABORTED
    if line.is_error or line.subtype != "success":
        return TurnEndReason.ERROR
    return TurnEndReason.COMPLETED


def _message(line: ResultLine) -> str:
    errors = "; ".join(str(error) for error in line.errors if error)
    return errors or line.result or line.terminal_reason or line.subtype


def _failure(line: ResultLine, course: Course) -> Failure:
    message = _message(line)
    limit = _limit_failure(line, course)
    if limit is not None:
        reason, fault = limit
        return Failure(reason=reason, message=message, fault=fault, detail_json=course.quota_json)
    status = line.api_error_status
    if status in BUSY or course.error_code == "rate_limit":
        return Failure(
            reason="RATE_LIMITED",
            message=message,
            fault=FailureFault.PROVIDER,
            retryable=True,
            retry_after_ns=course.retry_after_ns,
        )
    if status in (401, 403) or course.error_code == "authentication_failed":
        return Failure(reason="AUTH_FAILED", message=message, fault=FailureFault.ENVIRONMENT)
    if status is not None or line.terminal_reason in ("api_error", "model_error"):
        retryable = status is None or status >= 500
        return Failure(reason="AGENT_ERROR", message=message, fault=FailureFault.PROVIDER, retryable=retryable)
    return Failure(reason="AGENT_ERROR", message=message, fault=FailureFault.AGENT)


def _limit_failure(line: ResultLine, course: Course) -> tuple[str, FailureFault] | None:
    """Tell what waiting does not help against."""
    if line.subtype == "error_max_turns":
        return "MAX_ITERATIONS", FailureFault.CLIENT
    if line.subtype == "error_max_budget_usd":
        return "QUOTA_EXHAUSTED", FailureFault.CLIENT
    if course.quota_json or line.api_error_status == 402 or course.error_code == "billing_error":
        return "QUOTA_EXHAUSTED", FailureFault.PROVIDER
    # 413: what was sent is over the size of a request, whatever the CLI takes it for.
    if line.terminal_reason in _TOO_LONG or course.last_stop_reason == _WINDOW_FULL or line.api_error_status == 413:
        return "CONTEXT_OVERFLOW", FailureFault.AGENT
    if line.stop_reason == "refusal":
        return "MODEL_REFUSED", FailureFault.PROVIDER
    return None

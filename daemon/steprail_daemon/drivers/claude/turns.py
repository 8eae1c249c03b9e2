"""The end of a turn: what Claude Code's `result` line says, and whose fault a failure is."""

from __future__ import annotations

from steprail_daemon.core.events import TurnEnded
from steprail_daemon.core.model import Cost, Failure, FailureFault, TurnEndReason, Usage
from steprail_daemon.drivers.claude.usage import Totals, totals_of, usage_of
from steprail_daemon.drivers.claude.wire import ResultLine

#: A request to stop is confirmed by this word alone.
_HOOK_STOPPED = "hook_stopped"
_ABORTED = frozenset({"aborted_streaming", "aborted_tools"})
_TOO_LONG = frozenset({"prompt_too_long", "blocking_limit"})

#: How 2.1.332 begins its error for an id that `--resume` does not find; the process exits after it.
_UNKNOWN_SESSION = "No conversation found"


class TurnReader:
    """Reads the results of one process; the sums of the session that they carry make it remember the last."""

    def __init__(self, *, resumed: bool) -> None:
        self._resumed = resumed
        self._before = None if resumed else Totals()

    def read(self, line: ResultLine, *, ready: bool, error_code: str, last_text: str) -> TurnEnded:
        """Translate a result. `error_code` is the CLI's own word for the last error that it showed in this turn."""
        usage, cost = self._spent(line)
        reason = _reason(line)
        failure = None
        if reason is TurnEndReason.ERROR:
            failure = _failure(line, error_code) if ready else self._start_failure(line)
        text = line.result if reason is TurnEndReason.COMPLETED and line.result is not None else last_text
        return TurnEnded(reason, line.terminal_reason or line.subtype, text, failure, usage, cost)

    def _spent(self, line: ResultLine) -> tuple[Usage | None, Cost | None]:
        since = line.model_usage_since_last_result
        now = totals_of((line.model_usage or {}).values())
        before, self._before = self._before, now
        if isinstance(since, dict):
            spent = totals_of(since.values())
            return spent.usage, spent.cost
        # After a crash the sums are zero and mean nothing; after a resume they count what was before.
        spent_since = None if before is None or not line.model_usage else now.minus(before)
        if spent_since is not None:
            return spent_since.usage, spent_since.cost
        return (usage_of(line.usage) if line.model_usage else None), None

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


def _failure(line: ResultLine, error_code: str) -> Failure:
    limit = _limit_failure(line)
    if limit is not None:
        reason, fault = limit
        return Failure(reason=reason, message=_message(line), fault=fault)
    reason, fault, retryable = _api_failure(line, error_code)
    return Failure(reason=reason, message=_message(line), fault=fault, retryable=retryable)


def _limit_failure(line: ResultLine) -> tuple[str, FailureFault] | None:
    if line.subtype == "error_max_turns":
        return "MAX_ITERATIONS", FailureFault.CLIENT
    if line.subtype == "error_max_budget_usd":
        return "QUOTA_EXHAUSTED", FailureFault.CLIENT
    if line.terminal_reason in _TOO_LONG:
        return "CONTEXT_OVERFLOW", FailureFault.AGENT
    if line.stop_reason == "refusal":
        return "MODEL_REFUSED", FailureFault.PROVIDER
    return None


def _api_failure(line: ResultLine, error_code: str) -> tuple[str, FailureFault, bool]:
    status = line.api_error_status
    if status == 402 or error_code == "billing_error":
        return "QUOTA_EXHAUSTED", FailureFault.PROVIDER, False
    if status == 429 or error_code == "rate_limit":
        return "RATE_LIMITED", FailureFault.PROVIDER, True
    if status in (401, 403) or error_code == "authentication_failed":
        return "AUTH_FAILED", FailureFault.ENVIRONMENT, False
    if status is not None or line.terminal_reason in ("api_error", "model_error"):
        return "AGENT_ERROR", FailureFault.PROVIDER, status is None or status >= 500
    return "AGENT_ERROR", FailureFault.AGENT, False

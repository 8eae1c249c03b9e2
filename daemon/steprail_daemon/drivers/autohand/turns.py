"""One turn: its message, what went wrong in it, and how it ended.

The CLI's `reason` is `completed` for nearly everything: a rate limit, a refused key, a failed git pull before the model
was asked. What an error was is told by other lines, in the order `hook.sessionError`, `hook.rateLimit`, the error's
text as if it were the message, `error`. An error after which the model still answered did not end the turn.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    MessageEnded,
    MessageStarted,
    RateLimited,
)
from steprail_daemon.core.model import (
    MILLISECOND,
    Failure,
    FailureFault,
    MessageKind,
    RateLimitKind,
    TurnEndReason,
)
from steprail_daemon.drivers.autohand import wire
from steprail_daemon.drivers.base import add_deltas

_QUOTA: Final = re.compile(
    r"insufficient[_ ]quota|exceeded your current quota|quota[_ ](exceeded|exhausted)|payment required|billing",
    re.IGNORECASE,
)
_OVERFLOW: Final = re.compile(r"context[_ ](length|window|overflow)|maximum context", re.IGNORECASE)
_ITERATIONS: Final = re.compile(r"max(imum)?[_ ](number of )?iterations?", re.IGNORECASE)

_REASONS: Final = {
    "completed": TurnEndReason.COMPLETED,
    "aborted": TurnEndReason.ABORTED,
    "stop_condition": TurnEndReason.STOP_CONDITION,
}

#: What is said of a turn that came to nothing without a word, by whether the model was asked.
_SILENT_BEFORE: Final = (
    "the turn ended without a text, a tool or an error, and no tokens were used: what the CLI does before it asks the "
    "model (git fetch, git pull, installing packages) failed most likely"
)
_SILENT_AFTER: Final = "the turn ended without a text, a tool or an error: the model gave empty replies"


class _Trouble(msgspec.Struct):
    """What is known of an error."""

    message: str = ""
    code: str = ""
    status: int = 0
    kind: str = ""
    limited: bool = False
    retry_after_ns: int | None = None
    told: bool = False


class Turn:
    """Collects what one turn says."""

    def __init__(self) -> None:
        self._trouble: _Trouble | None = None
        self._message_id = ""
        self._parts: list[str] = []
        self.text = ""

    # --- the message ---------------------------------------------------------------------------------------------

    def shows_error(self, text: str) -> bool:
        """Whether a text is that of the error which was told before, behind its icon."""
        trouble = self._trouble
        return trouble is not None and bool(trouble.message) and text.endswith(trouble.message)

    def add_text(self, update: wire.MessageUpdateParams, events: list[AgentEvent]) -> None:
        """Take a part of the message; the text of an error is none."""
        text = update.delta
        if not text or self.shows_error(text):
            return
        # The model answered after all.
        self._trouble = None
        self._open(update.message_id, events)
        self._parts.append(text)
        add_deltas(self._message_id, text, events)

    def end_text(self, ended: wire.MessageEndParams, events: list[AgentEvent]) -> None:
        """Take the end of the message; there is none where nothing was said."""
        if not self._parts:
            if not ended.content or self.shows_error(ended.content):
                return
            self._open(ended.message_id, events)
        self.text = "".join(self._parts) or ended.content
        events.append(MessageEnded(self._message_id, MessageKind.TEXT, self.text))
        self._message_id = ""
        self._parts.clear()

    def cut_text(self, events: list[AgentEvent]) -> None:
        """End a message that the turn's end left open."""
        if self._message_id:
            self.end_text(wire.MessageEndParams(), events)

    def _open(self, message_id: str, events: list[AgentEvent]) -> None:
        if not self._message_id:
            self._message_id = message_id or "message"
            events.append(MessageStarted(self._message_id, MessageKind.TEXT))

    # --- errors --------------------------------------------------------------------------------------------------

    def session_error(self, error: wire.SessionErrorParams) -> None:
        """Take an error's first words; the second time they have no code."""
        trouble = self._known(error.error)
        trouble.code = error.code or trouble.code

    def rate_limit(self, limit: wire.RateLimitParams, events: list[AgentEvent]) -> None:
        """Take a refusal of the provider."""
        trouble = self._known(limit.error)
        trouble.limited = True
        trouble.code = limit.code or trouble.code
        trouble.status = limit.http_status or trouble.status
        wait = limit.retry_after_ms
        trouble.retry_after_ns = None if wait is None or wait < 0 else round(wait * MILLISECOND)
        events.append(
            RateLimited(
                RateLimitKind.QUOTA if _is_quota(trouble) else RateLimitKind.TRANSIENT,
                limit.provider,
                limit.model,
                limit.http_status or 0,
                trouble.retry_after_ns,
            )
        )

    def error(self, error: wire.ErrorParams, events: list[AgentEvent]) -> None:
        """Take an error in its last words."""
        trouble = self._known(error.message)
        trouble.kind = error.error_type
        if isinstance(error.code, int) and error.code > 0:
            trouble.status = error.code
        trouble.code = trouble.code or error.error_type or str(error.code)
        self._tell(trouble, events)

    def _known(self, message: str) -> _Trouble:
        if self._trouble is None or (message and message != self._trouble.message):
            self._trouble = _Trouble(message)
        return self._trouble

    def _tell(self, trouble: _Trouble, events: list[AgentEvent]) -> None:
        if not trouble.told:
            trouble.told = True
            events.append(AgentErrorReported(trouble.code or "error", trouble.message, will_retry=False))

    # --- the end -------------------------------------------------------------------------------------------------

    def close(
        self, word: str, events: list[AgentEvent], *, worked: bool, tokens: int | None
    ) -> tuple[TurnEndReason, Failure | None]:
        """Say how the turn ended. `worked`: a step was complete, or a tool ran; `tokens` are what it used, if known."""
        trouble = self._trouble
        if trouble is not None:
            self._tell(trouble, events)
        reason = _REASONS.get(word, TurnEndReason.ERROR)
        if reason in (TurnEndReason.ABORTED, TurnEndReason.STOP_CONDITION):
            return reason, None
        if trouble is not None:
            return TurnEndReason.ERROR, _failure(trouble)
        if reason is TurnEndReason.ERROR:
            return reason, None
        if not self.text and not worked:
            return TurnEndReason.ERROR, _silent(tokens)
        return reason, None


def _silent(tokens: int | None) -> Failure:
    asked = tokens is None or tokens > 0
    return Failure(
        reason="AGENT_ERROR",
        message=_SILENT_AFTER if asked else _SILENT_BEFORE,
        fault=FailureFault.AGENT if asked else FailureFault.ENVIRONMENT,
    )


def _is_quota(trouble: _Trouble) -> bool:
    return trouble.status == 402 or bool(_QUOTA.search(trouble.code) or _QUOTA.search(trouble.message))


def _failure(trouble: _Trouble) -> Failure:
    if _is_quota(trouble):
        return Failure(reason="QUOTA_EXHAUSTED", message=trouble.message, fault=FailureFault.PROVIDER)
    if trouble.limited or trouble.status == 429 or trouble.kind == "rate_limit":
        return Failure(
            reason="RATE_LIMITED",
            message=trouble.message,
            fault=FailureFault.PROVIDER,
            retryable=True,
            retry_after_ns=trouble.retry_after_ns,
        )
    reason, fault, retryable = _other(trouble)
    return Failure(reason=reason, message=trouble.message, fault=fault, retryable=retryable)


def _other(trouble: _Trouble) -> tuple[str, FailureFault, bool]:
    if trouble.status in (401, 403) or trouble.kind == "auth" or trouble.code == "auth_failed":
        return "AUTH_FAILED", FailureFault.ENVIRONMENT, False
    words = f"{trouble.code} {trouble.kind} {trouble.message}"
    if _ITERATIONS.search(words):
        return "MAX_ITERATIONS", FailureFault.CLIENT, False
    if _OVERFLOW.search(words):
        return "CONTEXT_OVERFLOW", FailureFault.AGENT, False
    if trouble.code in ("server_error", "network_error", "timeout") or trouble.status >= 500:
        return "AGENT_ERROR", FailureFault.PROVIDER, True
    return "AGENT_ERROR", FailureFault.AGENT, False

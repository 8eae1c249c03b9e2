"""What the provider refuses: retries that the CLI announces, limits of the account, and the refusal that ends a turn.

`rate_limit_event` comes with a claude.ai login only, and on nearly every request; it is a refusal with the status
`rejected` alone. `api_retry` comes with every login, before each pause; the last refusal of a turn has no such line and
shows in the result.
"""

from __future__ import annotations

from typing import Final

import msgspec

from steprail_daemon.core.events import AgentErrorReported, AgentEvent, RateLimited
from steprail_daemon.core.model import MILLISECOND, RateLimitKind
from steprail_daemon.drivers.claude import wire

#: Too many requests, and overloaded.
BUSY: Final = frozenset({429, 529})

_REJECTED: Final = "rejected"


class Refusals:
    """The refusals of one turn."""

    def __init__(self) -> None:
        self.model = ""
        #: How long the provider last told to wait.
        self.retry_after_ns: int | None = None
        #: A limit of the account that is used up, as JSON; empty if none is.
        self.quota_json = ""

    def begin_turn(self) -> None:
        """Forget the last turn's."""
        self.retry_after_ns = None
        self.quota_json = ""

    def retried(self, line: wire.SystemLine, events: list[AgentEvent]) -> None:
        """Take an `api_retry` line."""
        delay = None if line.retry_delay_ms is None else round(line.retry_delay_ms * MILLISECOND)
        if line.error_status is not None and line.error_status in BUSY:
            self.retry_after_ns = delay
            events.append(
                RateLimited(
                    RateLimitKind.TRANSIENT, model=self.model, http_status=line.error_status, retry_after_ns=delay
                )
            )
        else:
            events.append(AgentErrorReported(line.error or "api_error", _retry_message(line), will_retry=True))

    def limited(self, line: wire.RateLimitLine, events: list[AgentEvent]) -> bool:
        """Take a `rate_limit_event`; false if it refuses nothing."""
        if line.rate_limit_info.status != _REJECTED:
            return False
        self.quota_json = msgspec.json.encode(line.rate_limit_info).decode()
        # It names a time, and a codec has no clock.
        events.append(RateLimited(RateLimitKind.QUOTA, model=self.model, http_status=429))
        return True

    def ended(self, line: wire.ResultLine, events: list[AgentEvent]) -> None:
        """Tell the refusal that ended a turn."""
        status = line.api_error_status
        if status is not None and status in BUSY and not self.quota_json:
            events.append(RateLimited(RateLimitKind.TRANSIENT, model=self.model, http_status=status))


def _retry_message(line: wire.SystemLine) -> str:
    status = "no connection" if line.error_status is None else f"HTTP {line.error_status}"
    return f"{status}; attempt {line.attempt} of {line.max_retries}, the next in {line.retry_delay_ms} ms"

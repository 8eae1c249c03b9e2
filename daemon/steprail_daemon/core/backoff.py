"""How long to keep away from a provider that refuses requests. Shared by all that use the same account.

What the provider says counts; where it says nothing the wait doubles each time. A quota that is used up is no reason
to wait: waiting a little does not help, so nothing is tried again.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.model import SECOND, RateLimitKind

#: What is added to a wait at most, as a part of it, so that not everybody comes back at the same moment.
JITTER = 0.1
_DOUBLINGS = 20


class BackoffSettings(msgspec.Struct, frozen=True):
    """Spans in nanoseconds: the first wait where nothing was said, and the longest whatever was."""

    fallback_ns: int = 20 * SECOND
    longest_ns: int = 900 * SECOND


class Backoff(msgspec.Struct, frozen=True):
    """Until when (Unix nanoseconds) nothing is to be started, and how many refusals came in a row."""

    until_at: int = 0
    refusals: int = 0

    def remaining_ns(self, now: int) -> int:
        """Give how long it lasts; zero if it is over."""
        return max(0, self.until_at - now)


def refused(
    backoff: Backoff,
    kind: RateLimitKind,
    retry_after_ns: int | None,
    now: int,
    *,
    settings: BackoffSettings,
    chance: float,
) -> Backoff:
    """Give the back-off after another refusal. `chance`, from 0 to 1, spreads the moment at which it is over.

    Refusals while it lasts belong to requests that were under way: they may lengthen it, and do not count again.
    """
    if kind is RateLimitKind.QUOTA:
        return backoff
    lasting = backoff.until_at > now
    refusals = backoff.refusals if lasting and backoff.refusals else backoff.refusals + 1
    doubled = settings.fallback_ns << min(refusals - 1, _DOUBLINGS)
    wait = doubled if retry_after_ns is None else max(0, retry_after_ns)
    wait = min(wait, settings.longest_ns)
    until_at = now + wait + int(wait * JITTER * chance)
    return Backoff(max(until_at, backoff.until_at), refusals)


def accepted(backoff: Backoff, now: int) -> Backoff:
    """Give the back-off after a request that was served: once it is over, the count begins anew."""
    return Backoff() if backoff.until_at <= now else backoff

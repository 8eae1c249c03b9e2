"""Figures in words of people, within the bounds of a verdict."""

from __future__ import annotations

from collections.abc import Callable

from steprail_daemon.core.model import RuleScope, StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops.tally import Sum

#: Bounds of a verdict's texts in bytes of UTF-8.
MAX_VALUE_BYTES = 256
MAX_MESSAGE_BYTES = 1024

_CUT = "…"
_NANOSECONDS_DIGITS = 9


def clipped(text: str, limit: int) -> str:
    """Give a text that fits into `limit` bytes of UTF-8 and can be encoded: halves of surrogate pairs are replaced."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def seconds(nanoseconds: int) -> str:
    """Write a span in seconds, exactly."""
    return _decimal(nanoseconds, _NANOSECONDS_DIGITS)


def elapsed(nanoseconds: int) -> str:
    """Write a measured span in seconds, to the millisecond below it, so that what is short of a limit shows it."""
    return _decimal(nanoseconds // 1_000_000, 3)


def dollars(micro_usd: int) -> str:
    """Write an amount of money in dollars, exactly."""
    return _decimal(micro_usd, 6)


def where(scope: RuleScope) -> str:
    """Say what was summed over."""
    return "of the session" if scope is RuleScope.SESSION else "of the run"


def verdict_on_sum(
    rule_id: str,
    kind: StopKind,
    total: Sum,
    limit: int,
    *,
    what: str,
    write: Callable[[int], str] | None = None,
    unit: str = "",
) -> Verdict:
    """Judge a cumulative figure: it matches if what is known reaches the limit, and is UNKNOWN below it with a gap.

    `what` says what is summed. `write` puts a figure into words, and `unit` follows it; without `write` it is a count.
    """
    known, whole = total
    if write is None:
        seen, most = str(known), str(limit)
        said_seen, said_most = f"{known:,}", f"{limit:,}"
    else:
        seen, most = said_seen, said_most = write(known) + unit, write(limit) + unit
    ratio: float | None = known / limit
    if known >= limit:
        outcome = VerdictOutcome.MATCHED
    elif whole:
        outcome = VerdictOutcome.NOT_MATCHED
    else:
        outcome, ratio = VerdictOutcome.UNKNOWN, None
    if whole:
        observed, message = seen, f"{what}: {said_seen} of {said_most}."
    elif known:
        observed, message = f"at least {seen}", f"{what}: {said_seen} of {said_most} (at least; not all is known)."
    else:
        observed, message = "", f"{what}: unknown, limit {said_most}."
    return Verdict(rule_id, kind, outcome, observed, most, ratio, message)


def _decimal(value: int, digits: int) -> str:
    whole, fraction = divmod(value, 10**digits)
    text = f"{fraction:0{digits}d}".rstrip("0")
    return f"{whole}.{text}" if text else str(whole)

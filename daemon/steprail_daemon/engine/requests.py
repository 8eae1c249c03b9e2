"""What is known of requests that were carried out, so that a retry does not carry one out again, also after a restart.

A request travels with its caller to where what it does is committed, and is committed with it. One that had nothing to
commit is kept alone. Refusals are never kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from steprail_daemon.engine.facade import REQUEST_RETENTION_NS, Caller
from steprail_daemon.journal.store import RequestRow

#: Requests that are remembered at most. Where more come within 24 hours, the oldest are forgotten earlier.
MAX_REQUESTS: Final = 100_000


class Requests:
    """An index of what the journal has of them, the newest last."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], RequestRow] = {}

    def load(self, rows: Iterable[RequestRow]) -> None:
        """Take what the journal has, at the start."""
        for row in rows:
            self.add(row)

    def add(self, row: RequestRow) -> None:
        """Take a request that was just committed."""
        rows = self._rows
        key = (row.tenant, row.caller, row.request_id)
        rows.pop(key, None)
        rows[key] = row
        if len(rows) > MAX_REQUESTS:
            del rows[next(iter(rows))]

    def find(self, caller: Caller, request_id: str, now: int) -> RequestRow | None:
        """Find what a caller's request did in the last 24 hours."""
        row = self._rows.get((caller.tenant, caller.name, request_id))
        if row is None or row.at < now - REQUEST_RETENTION_NS:
            return None
        return row


def row_of(caller: Caller, result: str, at: int) -> RequestRow | None:
    """Give what is kept of the request that a caller makes, which made or meant `result`; None if it has no id."""
    key = caller.request
    if key is None:
        return None
    return RequestRow(
        tenant=caller.tenant,
        caller=caller.name,
        request_id=key.request_id,
        method=key.method,
        digest=key.digest,
        result=result,
        at=at,
    )

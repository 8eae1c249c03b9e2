"""Makes retries safe: a request that was carried out is not carried out again under the same id.

Kept in memory for 24 hours, and not over a restart. Refusals are not remembered. Callers at the same time wait for the
first; if that is refused, the next one tries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
from google.protobuf.message import Message

from steprail_daemon.core.errors import AlreadyExists
from steprail_daemon.engine.facade import Caller

RETENTION_NS: Final = 24 * 3600 * 1_000_000_000
MAX_ENTRIES: Final = 100_000
#: Bodies up to this size, in bytes, are kept as they are, longer ones as their SHA-256.
_SHORT: Final = 128

#: Tenant, name, request id.
_Key: TypeAlias = tuple[str, str, str]


class _Entry:
    __slots__ = ("at", "digest", "lock", "result", "users")

    def __init__(self, digest: tuple[str, bytes], at: int) -> None:
        self.digest = digest
        self.at = at
        self.lock: anyio.Lock | None = anyio.Lock(fast_acquire=True)
        self.result = ""
        self.users = 0


class RequestIds:
    """Remembers by request id and caller, which is a tenant and a name in it.

    What is remembered of a request is the id of what it made or meant.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._entries: dict[_Key, _Entry] = {}

    async def once(self, caller: Caller, request_id: str, request: Message, act: Callable[[], Awaitable[str]]) -> str:
        """Give what `act` gave, now or when this request came before. Without a request id it always acts.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED.
        """
        if not request_id:
            return await act()
        key = (caller.tenant, caller.name, request_id)
        entry = self._entry(key, request)
        if entry.lock is None:
            return entry.result
        entry.users += 1
        try:
            async with entry.lock:
                if entry.result:
                    return entry.result
                entry.result = await act()
        finally:
            entry.users -= 1
            if not entry.result and not entry.users:
                del self._entries[key]
        entry.lock = None
        return entry.result

    def once_now(self, caller: Caller, request_id: str, request: Message, act: Callable[[], str]) -> str:
        """Do the same for what takes no time, which nobody can ask for meanwhile.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED.
        """
        if not request_id:
            return act()
        key = (caller.tenant, caller.name, request_id)
        entry = self._entry(key, request)
        if not entry.result:
            try:
                entry.result = act()
            except BaseException:
                del self._entries[key]
                raise
            entry.lock = None
        return entry.result

    def _entry(self, key: _Key, request: Message) -> _Entry:
        self._forget_old()
        body = request.SerializeToString(deterministic=True)
        digest = (request.DESCRIPTOR.full_name, body if len(body) <= _SHORT else hashlib.sha256(body).digest())
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(digest, self._now())
        elif entry.digest != digest:
            raise AlreadyExists(
                "REQUEST_ID_REUSED",
                f"request_id {key[-1]!r} came within 24 hours with another body; make up a new one for each request",
                field="request_id",
                request_id=key[-1],
            )
        return entry

    def _forget_old(self) -> None:
        before = self._now() - RETENTION_NS
        while self._entries:
            key, oldest = next(iter(self._entries.items()))
            if oldest.users or (oldest.at >= before and len(self._entries) < MAX_ENTRIES):
                return
            del self._entries[key]

"""Makes retries safe: a request that was carried out is not carried out again under the same id.

What was done is remembered by the engine, for 24 hours and over restarts. Here callers at the same time wait for the
first; if that is refused, the next one tries. Refusals are not remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import anyio
from google.protobuf.message import Message
from msgspec.structs import replace

from steprail_daemon.core.errors import AlreadyExists
from steprail_daemon.engine.facade import REQUEST_RETENTION_NS, Caller, Request, RequestKey

RETENTION_NS: Final = REQUEST_RETENTION_NS

#: Tenant, name, request id.
_Address: TypeAlias = tuple[str, str, str]


class Memory(Protocol):
    """Who remembers; see `engine.facade.Facade`."""

    def remembered(self, caller: Caller, request_id: str) -> Request | None:
        """Give what a request did."""

    def remember(self, caller: Caller, result: str) -> None:
        """See that `caller.request` is remembered."""


class _UnderWay:
    __slots__ = ("key", "lock", "users")

    def __init__(self, key: RequestKey) -> None:
        self.key = key
        self.lock = anyio.Lock(fast_acquire=True)
        self.users = 0


class RequestIds:
    """Sees to it that each request is carried out once, by its id and caller, which is a tenant and a name in it.

    What is remembered of a request is the id of what it made or meant. Whoever acts is given the caller with the
    request, so that it is committed with what is done.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._under_way: dict[_Address, _UnderWay] = {}

    async def once(
        self, caller: Caller, request_id: str, request: Message, act: Callable[[Caller], Awaitable[str]]
    ) -> str:
        """Give what `act` gave, now or when this request came before. Without a request id it always acts.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED.
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        if not request_id:
            return await act(caller)
        key = _key(request_id, request)
        done = self._done(caller, key)
        if done is not None:
            return done
        address = (caller.tenant, caller.name, request_id)
        entry = self._under_way.setdefault(address, _UnderWay(key))
        if entry.key != key:
            raise _reused(request_id)
        entry.users += 1
        try:
            async with entry.lock:
                done = self._done(caller, key)
                if done is not None:
                    return done
                acting = replace(caller, request=key)
                result = await act(acting)
                self._memory.remember(acting, result)
                return result
        finally:
            entry.users -= 1
            if not entry.users:
                del self._under_way[address]

    def once_now(self, caller: Caller, request_id: str, request: Message, act: Callable[[Caller], str]) -> str:
        """Do the same for what takes no time, which nobody can ask for meanwhile.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED.
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        if not request_id:
            return act(caller)
        key = _key(request_id, request)
        done = self._done(caller, key)
        if done is not None:
            return done
        if (caller.tenant, caller.name, request_id) in self._under_way:
            # Another call, which takes time; this kind is never found under way.
            raise _reused(request_id)
        acting = replace(caller, request=key)
        result = act(acting)
        self._memory.remember(acting, result)
        return result

    def _done(self, caller: Caller, key: RequestKey) -> str | None:
        found = self._memory.remembered(caller, key.request_id)
        if found is None:
            return None
        if (found.method, found.digest) != (key.method, key.digest):
            raise _reused(key.request_id)
        return found.result


def _key(request_id: str, request: Message) -> RequestKey:
    # Bodies hold prompts and secrets; what is kept tells them apart and no more.
    body = request.SerializeToString(deterministic=True)
    return RequestKey(request_id, request.DESCRIPTOR.full_name, hashlib.sha256(body).digest())


def _reused(request_id: str) -> AlreadyExists:
    return AlreadyExists(
        "REQUEST_ID_REUSED",
        f"request_id {request_id!r} came within 24 hours with another body; make up a new one for each request",
        field="request_id",
        request_id=request_id,
    )

"""The blocking client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import cast

import grpc
import grpc.aio

from steprail.client._backoff import PATIENCE_SECONDS, Lost, Retry
from steprail.client._blocking.calls_answers import SyncAnswerCalls
from steprail.client._blocking.calls_client import SyncClientCalls
from steprail.client._blocking.calls_runs import SyncRunCalls
from steprail.client._blocking.calls_sessions import SyncSessionCalls
from steprail.client._blocking.calls_streams import SyncStreamCalls
from steprail.client._blocking.channel import ThreadChannel
from steprail.client._blocking.portal import Portal
from steprail.client._channel import CALL_SECONDS, open_blocking_channel, with_credentials
from steprail.client._client import Client
from steprail.client._connection import NOT_OPEN
from steprail.client._credentials import Tls


class SyncClient(SyncClientCalls, SyncRunCalls, SyncAnswerCalls, SyncStreamCalls, SyncSessionCalls):
    """`Client` for programs without asyncio: the same methods, which block. Use it with `with`.

    It may be used by several threads at once. The callables of `run` may be plain functions, which run on threads, or
    coroutine functions, which run on the client's own loop and must not call this client. `channel` is for tests: an
    open `grpc.Channel` to use. See `Client` for the rest.
    """

    _opened: Portal | None = None

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        tls: Tls | None = None,
        timeout: float = CALL_SECONDS,
        wait_for_ready: float = 0.0,
        patience: float = PATIENCE_SECONDS,
        on_lost: Callable[[Lost], None] | None = None,
        retry: Retry | None = None,
        channel: grpc.Channel | None = None,
    ) -> None:
        self._calls = _ThreadedClient(
            address,
            token=token,
            token_file=token_file,
            tls=tls,
            timeout=timeout,
            wait_for_ready=wait_for_ready,
            patience=patience,
            on_lost=on_lost,
            retry=retry,
        )
        self._calls.given = channel

    @property
    def address(self) -> str:
        """Of the daemon."""
        return self._calls.address

    @property
    def _portal(self) -> Portal:
        """The way to `_calls`, which is there once the client was opened."""
        if self._opened is None:
            raise RuntimeError(NOT_OPEN)
        return self._opened

    @_portal.setter
    def _portal(self, portal: Portal) -> None:
        self._opened = portal

    def __enter__(self) -> SyncClient:
        """Open the channel; the first call connects."""
        self._portal = Portal()
        try:
            self._portal.wait(self._calls.__aenter__())
        except BaseException:
            self._portal.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel."""
        try:
            self._portal.wait(self._calls.__aexit__(None, None, None))
        finally:
            self._portal.close()

    def with_options(self, *, timeout: float | None = None, retry: Retry | None = None) -> SyncClient:
        """Give a client on the same connection with other options; it lives as long as this one is open."""
        other = SyncClient.__new__(SyncClient)
        other._calls = self._calls.with_options(timeout=timeout, retry=retry)  # noqa: SLF001 - of its own kind
        other._portal = self._portal  # noqa: SLF001 - likewise
        return other


class _ThreadedClient(Client):
    """A client whose channel runs on threads."""

    given: grpc.Channel | None = None

    def _open(self) -> grpc.aio.Channel:
        channel = ThreadChannel(self.given or open_blocking_channel(self.address, self._tls))
        return with_credentials(cast(grpc.aio.Channel, channel), self.address, self._token, self._tls)

"""Runs what a command wants of a daemon: finds it, connects, and turns every end into a sentence and a status."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import click

from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.configuration import find_address, load, named_address, own_address
from steprail_daemon.cli.nearly import meant
from steprail_daemon.cli.own_daemon import daemon_for_a_command
from steprail_daemon.cli.problems import Refused
from steprail_daemon.config.load import LoadedConfig

T = TypeVar("T")

Connect = Callable[[str], AbstractAsyncContextManager[Daemon]]


def connect(address: str) -> AbstractAsyncContextManager[Daemon]:
    """Connect by what the command line was given as its object, which by default is nothing: with the Python client."""
    given: Connect | None = click.get_current_context().obj
    if given is not None:
        return given(address)
    # Here and not above: it brings gRPC with it, which no help and no usage error needs.
    # What goes wrong is told by its errors; lines of its own, which it is asked for when it comes, would say it again.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from steprail_daemon.cli.connection import open_daemon  # noqa: PLC0415

    return open_daemon(address)


def call(address: str | None, use: Callable[[Daemon], Awaitable[T]]) -> T:
    """Use the daemon that listens.

    Raises:
        Problem: nothing listens, or it refused.
    """
    found = find_address(address)

    async def do() -> T:
        async with connect(found) as daemon:
            return await _told(use, daemon)

    return run_async(do)


def call_with_daemon(
    address: str | None, use: Callable[[Daemon], Awaitable[T]], *, root: Path | None = None, looks: bool = False
) -> T:
    """Use the daemon that listens, or one that is started for it where the default address has none.

    `root` is where the run works: a daemon that is started allows it, unless the configuration names the roots.
    `looks`: nothing is started on it.

    Raises:
        Problem: no daemon can be had, or it refused.
    """
    if named_address(address):
        return call(address, use)
    loaded = load(serves=False)
    found = own_address(loaded)

    async def do() -> T:
        # What takes long to load is loaded first: a daemon that is found may be another command's, and go.
        connect(found)
        started = daemon_for_a_command(found, loaded, _allow(root, loaded), looks=looks)
        async with started as own, connect(own.address) as daemon:
            result = await _told(use, daemon)
            own.done()
            return result

    return run_async(do)


def _allow(root: Path | None, loaded: LoadedConfig) -> list[str]:
    if loaded.sources["server.workspace_roots"] != "default":
        return []
    if root is None and loaded.config.server.workspace_roots == ("/",):
        # A daemon refuses to be started there; this one is only looked at.
        root = loaded.state_directory
    return ["--set", f"server.workspace_roots={root}"] if root is not None else []


def run_async(do: Callable[[], Awaitable[T]]) -> T:
    """Run what is asynchronous; Ctrl-C cancels it and is status 130.

    Raises:
        UsageError: what was typed cannot be sent, as it is no text in UTF-8.
    """
    try:
        return anyio.run(partial(_alone, do))
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":
            raise
        raise click.UsageError(f"{error.object!r} is no text in UTF-8, which is what a daemon is sent") from None


async def _told(use: Callable[[Daemon], Awaitable[T]], daemon: Daemon) -> T:
    """Use the daemon; an id that it does not know is told with those that are like it."""
    try:
        return await use(daemon)
    except Refused as refused:
        raise await meant(daemon, refused) from None


async def _alone(do: Callable[[], Awaitable[T]]) -> T:
    """Take an error that came alone out of the groups that tasks put it in."""
    try:
        return await do()
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None

"""`steprail drain`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import click

from steprail_daemon.cli.asked import span_words
from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.configuration import find_address
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json, shorten
from steprail_daemon.cli.problems import Problem, Unanswered
from steprail_daemon.cli.reach import listens
from steprail_daemon.config.values import duration

_NOT_DRAINING = "NOT_DRAINING"
_PHASES = {
    "STOPPING_RUNS": "runs stop at their next boundary",
    "ABORTING_RUNS": "what is left is aborted",
    "SHUTTING_DOWN": "no run is live, the daemon ends",
}
#: The daemon tells nobody how far it is, so it is asked again.
_BETWEEN_LOOKS = 0.2
#: What may pass after the deadline until the daemon is gone: aborts, the end of processes, the journal.
_BEYOND_DEADLINE = timedelta(minutes=5)


def _now() -> datetime:
    return datetime.now(UTC)


class _Window(click.ParamType[float]):
    """A span of time, in seconds."""

    name = "SPAN"
    _span = duration(low="0s")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it as the configuration does."""
        if isinstance(value, float):
            return value
        try:
            return self._span.read(value) / 1e9
        except ValueError as error:
            self.fail(f"{error}; accepted: {self._span.accepted}", param, ctx)


@click.command()
@click.option("--wait", is_flag=True, help="Show how far it is, until the daemon is gone.")
@click.option(
    "--window",
    type=_Window(),
    help="Time for runs to reach a boundary, such as 20s; at most, and by default, the daemon's.",
)
@click.option("--reason", default="", help="Why, for people.")
@address_option
@json_option
def command(*, wait: bool, window: float | None, reason: str, address: str | None, as_json: bool) -> None:
    """Take the daemon out of service: no new runs, then its end.

    Live runs stop at their next step boundary, what is left after the window is aborted, and the daemon exits. Queued
    runs stay for the next start. It cannot be taken back. It is for admins, as whoever opens the daemon's socket is.
    """
    found = find_address(address)

    async def drain(daemon: Daemon) -> None:
        before = await daemon.drain_status()
        begun = _phase(before) == _NOT_DRAINING
        status = await daemon.drain(window, reason) if begun else before
        if not as_json:
            click.echo(_begun_words(status) if begun else _already_words(status))
        _say(status, as_json=as_json)
        if wait:
            await wait_until_gone(daemon, found, status, as_json=as_json)

    call(address, drain)


async def wait_until_gone(
    daemon: Daemon,
    address: str,
    status: Message,
    *,
    as_json: bool,
    clock: Callable[[], datetime] = _now,
    pause: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> None:
    """Show each change until the daemon is gone. `pause` waits for so many seconds between two looks.

    Raises:
        Problem: it is still there long after its deadline.
    """
    last = (_time(status, "deadline") or clock()) + _BEYOND_DEADLINE
    while clock() < last:
        await pause(_BETWEEN_LOOKS)
        try:
            now = await daemon.drain_status()
        except Problem as problem:
            # What it was asked while it closed may have been refused in any way.
            if await listens(address):
                if isinstance(problem, Unanswered):
                    continue
                raise
            _end("the daemon has drained and is gone", {"drained": {"address": address}}, as_json=as_json)
            return
        if _phase(now) == _NOT_DRAINING:
            said = "the daemon has drained, and another one listens there by now"
            _end(said, {"drained": {"address": address, "restarted": True}}, as_json=as_json)
            return
        if now != status:
            _say(now, as_json=as_json)
        status = now
    minutes = _BEYOND_DEADLINE.total_seconds() / 60
    raise Problem(f"the daemon is still there {minutes:g} minutes after its deadline; its log tells what it waits for")


def _say(status: Message, *, as_json: bool) -> None:
    if as_json:
        say_json({"drain_status": status})
    else:
        click.echo(f"  {_words(status)}")


def _end(words: str, content: Message, *, as_json: bool) -> None:
    if as_json:
        say_json(content)
    else:
        click.echo(words)


def _begun_words(status: Message) -> str:
    start, deadline = _time(status, "start_time"), _time(status, "deadline")
    window = deadline - start if start and deadline else timedelta()
    return f"draining: no new runs are taken; what is live in {span_words(f'{window.total_seconds()}s')} is aborted"


def _already_words(status: Message) -> str:
    who = shorten(status["identity"]) if status.get("identity") else "a signal"
    why = f", {shorten(status['reason'])}" if status.get("reason") else ""
    start = _time(status, "start_time")
    since = f", since {start.astimezone():%H:%M:%S}" if start else ""
    return f"it is draining already{since} by {who}{why}; this changes nothing"


def _words(status: Message) -> str:
    """Give how far it is in one line."""
    phase = _phase(status)
    parts = [_PHASES.get(phase, phase.lower().replace("_", " "))]
    live, queued = _count(status, "live_runs") - _count(status, "queued_runs"), _count(status, "queued_runs")
    waiting = _count(status, "awaiting_decision_runs") + _count(status, "awaiting_permission_runs")
    parts.append(f"{live} live" + (f", {waiting} of them waiting for somebody" if waiting else ""))
    parts += [f"{queued} queued, which stay"] if queued else []
    parts += [
        f"{_count(status, f'{word}_runs')} {word}" for word in ("stopped", "aborted") if _count(status, f"{word}_runs")
    ]
    processes = _count(status, "processes")
    return ", ".join([*parts, f"{processes} agent process{'' if processes == 1 else 'es'}"])


def _phase(status: Message) -> str:
    return str(status.get("phase", "UNSPECIFIED")).removeprefix("DRAIN_PHASE_")


def _count(status: Message, field: str) -> int:
    return int(status.get(field, 0))


def _time(status: Message, field: str) -> datetime | None:
    """Give a time of a status; None from a daemon that does not tell it."""
    text = str(status.get(field, ""))
    # RFC 3339 may have nanoseconds, of which Python reads six digits.
    return datetime.fromisoformat(text) if text else None

"""Follows one run to its end: what it shows, what Ctrl-C does, and who is asked at a boundary."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

import anyio
import anyio.abc
import click

from steprail_daemon.cli.ask import Person, Terminal
from steprail_daemon.cli.attend import Attendant
from steprail_daemon.cli.client import Control, Daemon
from steprail_daemon.cli.live import EXIT_STATUS, LiveView, Message, end_lines, has_ended, is_latest, state_of
from steprail_daemon.cli.output import say_json
from steprail_daemon.cli.problems import LEFT, Problem
from steprail_daemon.cli.progress import Progress
from steprail_daemon.cli.status_line import TICK, StatusLine

_OVER = ("SESSION_STATE_CLOSED", "SESSION_STATE_BROKEN")
_BY_USER = "Ctrl-C on the command line"


class Output(Protocol):
    """Where a run is shown."""

    def began(self, run: Message) -> None:
        """The run is recorded."""

    def happened(self, event: Message) -> None:
        """An event of it."""

    def ended(self, run: Message, *, goes_on: bool = True) -> None:
        """It has ended. `goes_on`: it can be continued."""

    def denied(self) -> int:
        """How many denied tool calls were shown to somebody who may want to know how to allow them."""

    def note(self, text: str) -> None:
        """Something about this command, not about the run."""

    def shown(self) -> AbstractAsyncContextManager[None]:
        """While the run goes on: say within what it does just now, where that can be seen."""


class Lines:
    """Lines for people, and below them what the run does just now, where stderr is a terminal.

    `descriptor` is where a person answers, on the `terminal` that is made for that: what is printed while a question is
    open there comes before it. With `late` events may come long after they happened.
    `permissions` is as for `LiveView`, `clock` and `tick` as for `StatusLine`.
    """

    def __init__(
        self,
        descriptor: int = 0,
        *,
        late: bool = False,
        permissions: str = "ask",
        clock: Callable[[], float] = time.monotonic,
        tick: float = TICK,
    ) -> None:
        self._view = LiveView(permissions)
        self._progress = Progress()
        self._clock = clock
        self._line = StatusLine(self._progress.words, clock, tick)
        self._late = late
        self._denied = 0
        self.terminal = Terminal(descriptor, self._line.gone)

    def began(self, run: Message) -> None:
        """Say the ids."""
        self._progress.began(run, self._clock())
        with self.terminal.aside():
            click.secho(f"run {run['run_id']} of session {run['session_id']}", dim=True)

    def happened(self, event: Message) -> None:
        """Print the event's lines."""
        self._denied += _denials(event)
        self._progress.happened(event, self._clock() - (_age(event) if self._late else 0))
        if lines := self._view.lines(event):
            with self.terminal.aside():
                click.echo("\n".join(lines))
        else:
            self._line.refresh()

    def ended(self, run: Message, *, goes_on: bool = True) -> None:
        """Print how it ended."""
        with self.terminal.aside():
            for line in end_lines(run, goes_on=goes_on):
                click.echo(line)

    def denied(self) -> int:
        """Give the number so far, but for calls that somebody denied."""
        return max(0, self._denied)

    def note(self, text: str) -> None:
        """Print it apart from the run."""
        with self.terminal.aside():
            click.secho(text, dim=True, err=True)

    def shown(self) -> AbstractAsyncContextManager[None]:
        """Show it on the last line of the terminal."""
        return self._line.shown()


def _age(event: Message) -> float:
    """Give how many seconds ago an event was recorded, by our clock; 0 if it does not say."""
    try:
        return max(0.0, time.time() - datetime.fromisoformat(event["time"]).timestamp())
    except (KeyError, ValueError):
        return 0.0


def _denials(event: Message) -> int:
    """Give what an event adds to the denied calls whose reason may not be known: not those that a person denied."""
    resolved = event.get("permission_resolved", {})
    if resolved.get("source") == "RESOLUTION_SOURCE_CLIENT" and resolved.get("answer") == "PERMISSION_ANSWER_DENY":
        return -1
    return int(event.get("tool_end", {}).get("result", {}).get("outcome") == "TOOL_OUTCOME_DENIED")


class JsonLines:
    """One object a line: `run` at the beginning and at the end, `event` between."""

    def began(self, run: Message) -> None:
        """Print the run."""
        say_json({"run": run})

    def happened(self, event: Message) -> None:
        """Print the event."""
        say_json({"event": event})

    def ended(self, run: Message, *, goes_on: bool = True) -> None:
        """Print the run."""
        del goes_on
        say_json({"run": run})

    def denied(self) -> int:
        """Give none: a program reads the events."""
        return 0

    def note(self, text: str) -> None:
        """Keep stdout to objects."""
        click.echo(text, err=True)

    def shown(self) -> AbstractAsyncContextManager[None]:
        """Show nothing: a program reads the events."""
        return nullcontext()


def output_for(*, as_json: bool) -> Output:
    """Give the output that was asked for, where nobody is asked anything and what has happened is shown first."""
    return JsonLines() if as_json else Lines(late=True)


@dataclass(frozen=True)
class Following:
    """How a run is followed: where it is shown, who is asked at a boundary, who attends to what the agent asks."""

    daemon: Daemon
    output: Output
    person: Person
    attendant: Attendant

    @classmethod
    def by(cls, daemon: Daemon, *, permissions: str, as_json: bool, descriptor: int = 0) -> Following:
        """Give the way of the flags `--permissions` and `--json`. A terminal is asked unless a program reads."""
        if as_json:
            objects = JsonLines()
            return cls(daemon, objects, Terminal(descriptor), Attendant(daemon, objects.note, permissions, None))
        lines = Lines(descriptor, permissions=permissions)
        return cls(daemon, lines, lines.terminal, Attendant(daemon, lines.note, permissions, lines.terminal))

    async def happened(self, event: Message) -> None:
        """Show an event and see to it."""
        await self.attendant.settle(event)
        self.output.happened(event)
        self.attendant.heed(event)


class Interrupts:
    """What Ctrl-C does: first it asks for a stop at the next boundary, then it aborts, then it leaves the run alone.

    Before there is a run, it leaves at once; once the run has ended, there is nothing left to interrupt.
    """

    def __init__(self, daemon: Daemon, output: Output) -> None:
        self._daemon = daemon
        self._output = output
        self._presses = 0
        self._scope = anyio.CancelScope()
        self.run_id: str | None = None
        self.ended = False

    @property
    def pressed(self) -> bool:
        """Whether it was pressed."""
        return self._presses > 0

    @asynccontextmanager
    async def heeded(self) -> AsyncIterator[None]:
        """Heed Ctrl-C within.

        Raises:
            click.exceptions.Exit: left; status 130.
        """
        with anyio.open_signal_receiver(signal.SIGINT) as signals, self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._serve, signals, tasks)
                yield
                tasks.cancel_scope.cancel()
        if self._scope.cancelled_caught:
            raise click.exceptions.Exit(LEFT)

    async def _serve(self, signals: AsyncIterator[signal.Signals], tasks: anyio.abc.TaskGroup) -> None:
        async for _ in signals:
            self._press(tasks)

    def _press(self, tasks: anyio.abc.TaskGroup) -> None:
        """Do what Ctrl-C does now. What is sent has a task of its own: the next press must not wait for its answer."""
        if self.ended:
            return
        self._presses += 1
        if self.run_id is None or self._presses > 2:
            self._scope.cancel()
        elif self._presses == 1:
            self._output.note("stopping at the next step boundary; Ctrl-C again aborts")
            tasks.start_soon(self._send, "stop", partial(self._daemon.stop_run, self.run_id, reason=_BY_USER))
        else:
            self._output.note("aborting; Ctrl-C again leaves the run to the daemon")
            tasks.start_soon(self._send, "abort", partial(self._daemon.abort_run, self.run_id, reason=_BY_USER))

    async def _send(self, what: str, ask: Callable[[], Awaitable[Message]]) -> None:
        try:
            await ask()
        except Problem as problem:
            self._output.note(f"the {what} came to nothing: {problem.format_message()}")


async def follow_new(following: Following, start: Callable[[], Awaitable[Message]]) -> int:
    """Start a run and show it to its end; gives the exit status."""
    daemon, output = following.daemon, following.output
    interrupts = Interrupts(daemon, output)
    run: Message = {}
    async with interrupts.heeded():
        run = await start()
        interrupts.run_id = run["run_id"]
        output.began(run)
        async with output.shown(), following.attendant.attending():
            async for event in daemon.watch_run(run["run_id"]):
                await following.happened(event)
        interrupts.ended = True
        run = await daemon.get_run(run["run_id"])
        await show_end(daemon, run, output)
    return status_of(run)


async def follow_asking(following: Following, start: Callable[[], AbstractAsyncContextManager[Control]]) -> int:
    """Start a run, show it to its end, and ask a person at each boundary; gives the exit status."""
    daemon, output = following.daemon, following.output
    interrupts = Interrupts(daemon, output)
    run: Message = {}
    async with (
        interrupts.heeded(),
        start() as control,
        output.shown(),
        following.attendant.attending(),
        anyio.create_task_group() as tasks,
    ):
        asking: anyio.CancelScope | None = None
        async for kind, message in control:
            if kind == "opened":
                run = message["run"]
                interrupts.run_id = run["run_id"]
                output.began(run)
            elif kind == "event":
                await following.happened(message)
            elif kind == "decision_requested":
                asking = anyio.CancelScope()
                tasks.start_soon(_ask, control, message, following, interrupts, asking)
            elif kind == "decision_recorded" and asking is not None:
                asking.cancel()
            elif kind == "rejected":
                output.note(f"refused: {message.get('reason', '')}: {message.get('message', '')}")
            elif kind == "finished":
                interrupts.ended = True
                run = message["run"]
        tasks.cancel_scope.cancel()
        if not has_ended(run):
            run = await daemon.get_run(run["run_id"])
        await show_end(daemon, run, output)
    return status_of(run)


async def _ask(
    control: Control, request: Message, following: Following, interrupts: Interrupts, scope: anyio.CancelScope
) -> None:
    """Ask about one step, until an answer comes or somebody else decided."""
    step = request["step"]
    with scope:
        go_on = await following.person.goes_on(step.get("number", "?"))
        if go_on is None:
            following.output.note("there is no more input, so this step is where it stops")
        await control.decide(step["step_id"], go_on=bool(go_on))
    if scope.cancelled_caught and not interrupts.pressed:
        following.output.note("decided elsewhere")


async def can_go_on(daemon: Daemon, run: Message) -> bool:
    """Whether a run that ended some time ago can be continued still: it is the last of a session that is open."""
    try:
        session = await daemon.get_session(run["session_id"])
        return session.get("state") not in _OVER and is_latest(run, await daemon.list_runs(run["session_id"]))
    except Problem:
        return False


async def show_end(daemon: Daemon, run: Message, output: Output, *, goes_on: bool = True) -> None:
    """Show how a run ended, and what allows more where its tools were denied."""
    output.ended(run, goes_on=goes_on)
    if not (count := output.denied()):
        return
    try:
        session = await daemon.get_session(run["session_id"])
    except Problem:
        # The run has been shown to its end, and advice is not worth another status.
        return
    if session.get("permission_mode") != "PERMISSION_MODE_BYPASS":
        were = "call was" if count == 1 else "calls were"
        allows = "--permission-mode accept_edits allows edits, bypass everything"
        output.note(f"{count} tool {were} denied; {allows}")


def status_of(run: Message) -> int:
    """Give the exit status of a run that has ended."""
    return EXIT_STATUS.get(state_of(run), 1)

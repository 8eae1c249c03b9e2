"""The daemon that the command line sees, made of the published Python client.

Imported only by what calls a daemon: it brings gRPC with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any, Final

import anyio

from steprail import client as stop
from steprail import errors
from steprail.client import Client
from steprail.client import Control as ClientControl
from steprail.plain import action, decider, on_unknown, permission_answer, permission_mode, question_answers, to_plain
from steprail_daemon.cli.client import Control, Daemon, Message
from steprail_daemon.cli.problems import NobodyListens, Problem, Refused, Unanswered
from steprail_daemon.cli.reach import why_silent
from steprail_daemon.cli.rules import ShortRule

_VERSION_LIMIT: Final = 2.0
_DISCARD_LIMIT: Final = 5.0

#: What to do, where the daemon's own words are not about the command line.
_ADVICE: Final = {
    "TOKEN_MISSING": "; $STEPRAIL_TOKEN_FILE is to name a file with a token",
    "DRAINING": "; it takes no new runs, and is there again once it is started anew",
    "CWD_NOT_ALLOWED": "; a daemon started above that directory, or with --set server.workspace_roots=DIR, allows it",
}

#: What becomes of a short rule, by its word.
MESSAGES: Final[dict[str, Callable[[Any], Any]]] = {
    "steps": stop.steps,
    "tool": stop.tool,
    "tokens": stop.tokens,
    "cost": stop.cost,
    "duration": lambda nanoseconds: stop.duration(nanoseconds / 1e9),
    "finish": lambda reasons: stop.finish(*reasons),
    "failures": stop.failures,
    "repeats": stop.repeats,
    "expr": stop.expression,
}


def messages(rules: Sequence[ShortRule]) -> list[Any]:
    """Give the public messages of short rules."""
    return [_message(rule) for rule in rules]


def _message(rule: ShortRule) -> Any:
    message = MESSAGES[rule.kind](rule.value)
    if rule.on_unknown:
        message.on_unknown = on_unknown(rule.on_unknown)
    return message


@asynccontextmanager
async def _translated(client: Client) -> AsyncIterator[None]:
    """Turn the client's errors into sentences with a status."""
    try:
        yield
    except errors.Unimplemented as error:
        raise Refused(error.reason, f"{await _whose_version(client)} does not serve this: {error.message}") from None
    except errors.Refused as error:
        fields = "".join(f"; {name}: {text}" for name, text in error.fields.items() if text not in error.message)
        said = error.message + fields + _ADVICE.get(error.reason, "")
        raise Refused(error.reason, said, error.metadata) from None
    except errors.ConnectionFailed as error:
        raise Unanswered(str(error)) from None
    except errors.StepRailError as error:
        raise Problem(str(error)) from None


async def _whose_version(client: Client) -> str:
    """Name the daemon by its version, and say if it is older or newer than this program, where it tells."""
    ours = version("steprail-daemon")
    try:
        theirs = (await client.get_server_info(timeout=_VERSION_LIMIT)).version
    except errors.StepRailError:
        theirs = ""
    if not theirs:
        return f"the daemon, whose version is not known (this program is {ours}),"
    if theirs == ours:
        return f"the daemon {theirs}"
    return f"the daemon is of version {theirs}, this program of {ours}: it"


@asynccontextmanager
async def open_daemon(address: str, token: str | None = None) -> AsyncIterator[Daemon]:
    """Connect to a daemon, by a token, or else by what the environment says.

    Raises:
        NobodyListens: nothing listens there.
        Problem: a file of tokens or certificates cannot be used.
    """
    if silence := await why_silent(address):
        advice = "start one with `steprail serve`, or name another address with --address or $STEPRAIL_ADDRESS"
        raise NobodyListens(address, silence.why, advice)
    try:
        client = Client(address, token=token)
        async with client:
            yield ClientDaemon(client)
    except errors.StepRailError as error:
        raise Problem(str(error)) from None


class ClientDaemon(Daemon):
    """A daemon behind a client. Every method raises `Refused`, or `Problem` if there is no answer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def server_info(self) -> Message:
        """Give the server."""
        async with _translated(self._client):
            return to_plain(await self._client.get_server_info())

    async def drain(self, window: float | None, reason: str) -> Message:
        """Begin a drain."""
        async with _translated(self._client):
            return to_plain(await self._client.drain(window, reason=reason))

    async def drain_status(self) -> Message:
        """Tell how far a drain is."""
        async with _translated(self._client):
            return to_plain(await self._client.get_drain_status())

    async def list_agents(self) -> list[Message]:
        """Give the configured agents."""
        async with _translated(self._client):
            return [to_plain(agent) for agent in await self._client.list_agents()]

    async def create_session(self, agent: str, cwd: str, mode: str) -> Message:
        """Make a session."""
        async with _translated(self._client):
            return to_plain(await self._client.create_session(agent, cwd, permission_mode=permission_mode(mode)))

    async def list_sessions(self) -> list[Message]:
        """Give all sessions."""
        async with _translated(self._client):
            return [to_plain(session) for session in await self._client.list_sessions()]

    async def get_session(self, session_id: str) -> Message:
        """Give a session."""
        async with _translated(self._client):
            return to_plain(await self._client.get_session(session_id))

    async def close_session(self, session_id: str, *, force: bool) -> Message:
        """End a session."""
        async with _translated(self._client):
            return to_plain(await self._client.close_session(session_id, force=force))

    async def discard_session(self, session_id: str) -> None:
        """Close the session and delete it."""
        with anyio.move_on_after(_DISCARD_LIMIT, shield=True), suppress(errors.StepRailError):
            await self._client.close_session(session_id)
            await self._client.delete_session(session_id)

    async def start_run(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> Message:
        """Start a run."""
        async with _translated(self._client):
            return to_plain(await self._client.start_run(session_id, prompt, stop_rules=messages(rules)))

    async def continue_run(self, run_id: str, prompt: str, rules: Sequence[ShortRule] | None) -> Message:
        """Go on after a run; nobody is asked, also if somebody was before."""
        stop_rules = None if rules is None else messages(rules)
        async with _translated(self._client):
            run = await self._client.continue_run(
                run_id, prompt or None, stop_rules=stop_rules, decider=decider(asks=False)
            )
            return to_plain(run)

    @asynccontextmanager
    async def control_new(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> AsyncIterator[Control]:
        """Start a run whose every step is asked about."""
        request = self._client.start_request(session_id, prompt, stop_rules=messages(rules), decider=decider(asks=True))
        async with _translated(self._client), self._client.control(start=request, decide=True) as control:
            yield _Control(self._client, control)

    @asynccontextmanager
    async def control_continued(
        self, run_id: str, prompt: str, rules: Sequence[ShortRule] | None
    ) -> AsyncIterator[Control]:
        """Go on after a run, and be asked about every step."""
        stop_rules = None if rules is None else messages(rules)
        request = self._client.continue_request(
            run_id, prompt or None, stop_rules=stop_rules, decider=decider(asks=True)
        )
        async with (
            _translated(self._client),
            self._client.control(continue_run=request, decide=True) as control,
        ):
            yield _Control(self._client, control)

    async def get_run(self, run_id: str) -> Message:
        """Give a run."""
        async with _translated(self._client):
            return to_plain(await self._client.get_run(run_id))

    async def list_runs(self, session_id: str) -> list[Message]:
        """Give runs."""
        async with _translated(self._client):
            return [to_plain(run) for run in await self._client.list_runs(session_id)]

    async def list_steps(self, run_id: str) -> list[Message]:
        """Give the completed steps of a run."""
        async with _translated(self._client):
            return [to_plain(step) for step in await self._client.list_steps(run_id)]

    async def watch_run(self, run_id: str) -> AsyncIterator[Message]:
        """Give the events of a run."""
        async with _translated(self._client):
            async for event in self._client.watch_run(run_id):
                yield to_plain(event)

    async def watch_session(self, session_id: str) -> AsyncIterator[Message]:
        """Give the events of a session."""
        async with _translated(self._client):
            async for event in self._client.watch_session(session_id):
                yield to_plain(event)

    async def stop_run(self, run_id: str, reason: str) -> Message:
        """Ask for a stop."""
        async with _translated(self._client):
            return to_plain(await self._client.stop_run(run_id, reason))

    async def abort_run(self, run_id: str, reason: str) -> Message:
        """Cut a run off."""
        async with _translated(self._client):
            return to_plain(await self._client.abort_run(run_id, reason))

    async def decide(self, run_id: str, step_id: str, *, go_on: bool, reason: str) -> Message:
        """Decide about a step."""
        async with _translated(self._client):
            return to_plain(await self._client.submit_decision(run_id, step_id, action(go_on=go_on), reason=reason))

    async def list_pending(self) -> list[Message]:
        """Give what waits."""
        async with _translated(self._client):
            return [to_plain(item) for item in await self._client.list_pending()]

    async def answer_permission(
        self, run_id: str, permission_id: str, answer: str, *, instead: Mapping[str, str] | None = None, reason: str
    ) -> Message:
        """Answer a permission."""
        given = None if instead else permission_answer(answer)
        async with _translated(self._client):
            resolved = await self._client.answer_permission(
                run_id, permission_id, given, **(instead or {}), reason=reason
            )
            return to_plain(resolved)

    async def answer_question(self, run_id: str, question_id: str, answers: Sequence[Message]) -> Message:
        """Answer a question, or decline it."""
        async with _translated(self._client):
            return to_plain(await self._client.answer_question(run_id, question_id, question_answers(answers)))

    async def steer_run(self, run_id: str, text: str) -> str:
        """Give text to a running turn."""
        async with _translated(self._client):
            return await self._client.steer_run(run_id, text)


class _Control(Control):
    """A conversation as kinds and plain objects; batches of events come one by one."""

    def __init__(self, client: Client, control: ClientControl) -> None:
        self._client = client
        self._control = control

    async def __aiter__(self) -> AsyncIterator[tuple[str, Message]]:
        """Give what the daemon sends, `opened` first."""
        yield "opened", to_plain(self._control.opened)
        async with _translated(self._client):
            async for message in self._control:
                kind = message.WhichOneof("body")
                if kind == "events":
                    for event in message.events.events:
                        yield "event", to_plain(event)
                elif kind is not None:
                    yield kind, to_plain(getattr(message, kind))

    async def decide(self, step_id: str, *, go_on: bool) -> None:
        """Send a decision."""
        async with _translated(self._client):
            await self._control.decide(step_id, action(go_on=go_on))

"""How a process of the CLI becomes ready: it says that it is up, takes its permission mode, and its session is found.

The id that `agentStart` names is not the one under which the session is saved. A new session's saved id is looked up in
the history; an old session is attached by it. Nothing is sent before `agentStart`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from steprail_daemon.core.events import AgentErrorReported, AgentEvent, AgentReady, TurnEnded
from steprail_daemon.core.model import Failure, FailureFault, PermissionMode, TurnEndReason
from steprail_daemon.drivers.autohand.launch import cli_mode
from steprail_daemon.drivers.autohand.notices import refusal
from steprail_daemon.drivers.autohand.reading import (
    Answer,
    RpcError,
    SavedSession,
    decode_attached,
    decode_history,
)
from steprail_daemon.drivers.autohand.wire import AgentStartParams
from steprail_daemon.drivers.base import CodecSettings

#: Sends a request whose answer the function takes.
Ask = Callable[[str, dict[str, Any] | None, Callable[[Answer, list[AgentEvent]], None]], None]

_METHOD_NOT_FOUND: Final = -32601
_NOT_AUTHENTICATED: Final = -32011
_ACTIVE: Final = "active"
#: Seen: 40 and 45 ms from the saved session to `agentStart`, on an idle machine.
_START_MS: Final = 10_000
_HISTORY: Final = {"page": 1, "pageSize": 50}


class Handshake:
    """Brings one process up. `saved_id` is empty as long as it is not known for certain."""

    def __init__(self, settings: CodecSettings, ask: Ask) -> None:
        self._settings = settings
        self._ask = ask
        self._process_id = ""
        self._owed = 0
        self._failed = False
        self.begun = False
        self.ready = False
        self.model = ""
        self.saved_id = settings.agent_session_id if settings.resume else ""

    def begin(self, started: AgentStartParams) -> None:
        """Take `agentStart` and send what is to be asked."""
        self.begun = True
        self._process_id, self.model = started.session_id, started.model
        if self._settings.resume:
            self._request("session.attach", {"sessionId": self.saved_id}, self._on_attached)
        elif started.saved_session_id:
            self.saved_id = started.saved_session_id
        else:
            self._request("getHistory", dict(_HISTORY), self._on_history)
        # A mode of the user's own configuration must not let tools pass unasked.
        self._request("permissionModeSet", {"mode": cli_mode(self._settings.permission_mode)}, self._on_mode)
        if self._settings.plan_mode:
            self._request("planModeSet", {"enabled": True}, self._on_plan_mode)

    def refused(self, error: RpcError, events: list[AgentEvent]) -> None:
        """Take an error about the start itself."""
        if error.code == _NOT_AUTHENTICATED:
            self._fail("AUTH_FAILED", error.message, events)
        else:
            self._fail("AGENT_START_FAILED", error.message, events)

    def _request(self, method: str, params: dict[str, Any], take: Callable[[Answer, list[AgentEvent]], None]) -> None:
        self._owed += 1
        self._ask(method, params, partial(self._answered, take))

    def _answered(
        self, take: Callable[[Answer, list[AgentEvent]], None], answer: Answer, events: list[AgentEvent]
    ) -> None:
        self._owed -= 1
        take(answer, events)
        if self._owed == 0 and not self._failed:
            self.ready = True
            # Nothing on the wire says that the gate works; the version that was probed does.
            events.append(AgentReady("", self.saved_id, self.model, gate_held=True))

    def _on_attached(self, answer: Answer, events: list[AgentEvent]) -> None:
        wanted = self._settings.agent_session_id
        if answer.error is not None:
            self._fail("RESUME_FAILED", f"session {wanted} was not attached: {answer.error.message}", events)
            return
        try:
            attached = decode_attached(answer.result)
        except msgspec.DecodeError as error:
            self._fail("RESUME_FAILED", f"the answer to session.attach has an unknown shape: {error}", events)
            return
        if not attached.success or attached.session_id != wanted:
            self._fail("RESUME_FAILED", f"session {wanted} was asked for, {attached.session_id!r} was attached", events)
        elif not attached.message_count:
            self._fail("RESUME_FAILED", f"session {wanted} was attached and has no messages", events)

    def _on_history(self, answer: Answer, events: list[AgentEvent]) -> None:
        if answer.error is not None:
            events.append(AgentErrorReported("history", _unknown(answer.error.message), will_retry=False))
            return
        try:
            self.saved_id = own_session(decode_history(answer.result).sessions, self._process_id)
        except msgspec.DecodeError as error:
            events.append(AgentErrorReported("history", _unknown(str(error)), will_retry=False))

    def _on_mode(self, answer: Answer, events: list[AgentEvent]) -> None:
        refused = refusal(answer)
        if refused is None:
            return
        is_unknown = answer.error is not None and answer.error.code == _METHOD_NOT_FOUND
        if is_unknown and self._settings.permission_mode is not PermissionMode.READ_ONLY:
            events.append(AgentErrorReported("permission_mode", refused, will_retry=False))
        else:
            self._fail("AGENT_START_FAILED", f"the permission mode was refused: {refused}", events)

    def _on_plan_mode(self, answer: Answer, events: list[AgentEvent]) -> None:
        refused = refusal(answer)
        if refused is not None:
            self._fail("AGENT_START_FAILED", f"the plan mode was refused: {refused}", events)

    def _fail(self, reason: str, message: str, events: list[AgentEvent]) -> None:
        if self._failed:
            return
        self._failed = True
        failure = Failure(reason=reason, message=message, fault=FailureFault.ENVIRONMENT)
        events.append(TurnEnded(TurnEndReason.ERROR, "start", failure=failure))


def own_session(sessions: list[SavedSession], process_id: str) -> str:
    """Find the session that a process which just started has made; empty if it cannot be told from others.

    Ids end with the time they were made at, in milliseconds. A process makes its session shortly before it is ready,
    without messages; others that start in the same home at the same time make theirs. To take up another's conversation
    would be worse than none, so of two that are possible none is taken.
    """
    empty = [session.session_id for session in sessions if session.status == _ACTIVE and not session.message_count]
    ready = _made_at(process_id)
    possible = [name for name in empty if ready is None or _near(_made_at(name), ready)]
    return possible[0] if len(possible) == 1 else ""


def _near(made: int | None, ready: int) -> bool:
    return made is None or 0 <= ready - made <= _START_MS


def _made_at(name: str) -> int | None:
    digits = name.replace("_", "-").rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _unknown(why: str) -> str:
    return f"the id under which the session is saved is not known, so it cannot be resumed: {why}"

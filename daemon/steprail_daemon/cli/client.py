"""What commands need of a running daemon, as plain objects: proto JSON with the proto field names.

`Daemon` is the whole of it, so that everything else here can be tried without one. `connection` has the
real thing, made of the published Python client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from steprail_daemon.cli.rules import ShortRule

Message = dict[str, Any]


class Control(Protocol):
    """A run that is controlled. Iterating gives the kind of each message and its content, until the run has ended.

    Kinds are those of ControlRunResponse; of a batch, its events one by one as `event`.
    """

    def __aiter__(self) -> AsyncIterator[tuple[str, Message]]:
        """Give the messages."""

    async def decide(self, step_id: str, *, go_on: bool) -> None:
        """Decide about a step. A refusal comes as a message."""


class Daemon(Protocol):
    """A running daemon."""

    async def server_info(self) -> Message:
        """Give version, limits, agents, and whether it drains."""

    async def drain(self, window: float | None, reason: str) -> Message:
        """Begin a drain and give how far it is. The window is in seconds; None is the configuration's."""

    async def drain_status(self) -> Message:
        """Tell how far a drain is."""

    async def list_agents(self) -> list[Message]:
        """Give the configured agents."""

    async def create_session(self, agent: str, cwd: str, mode: str) -> Message:
        """Make a session. An empty permission mode is the configuration's."""

    async def list_sessions(self) -> list[Message]:
        """Give all sessions, newest first."""

    async def get_session(self, session_id: str) -> Message:
        """Give a session."""

    async def close_session(self, session_id: str, *, force: bool) -> Message:
        """End a session."""

    async def discard_session(self, session_id: str) -> None:
        """Throw away a session on which no run began, as far as the caller may; it fails with nothing."""

    async def start_run(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> Message:
        """Start a run that stops by any of these rules."""

    async def continue_run(self, run_id: str, prompt: str, rules: Sequence[ShortRule] | None) -> Message:
        """Go on after a run. An empty prompt is the daemon's; None inherits the rules."""

    def control_new(
        self, session_id: str, prompt: str, rules: Sequence[ShortRule]
    ) -> AbstractAsyncContextManager[Control]:
        """Start a run whose every step is asked about."""

    def control_continued(
        self, run_id: str, prompt: str, rules: Sequence[ShortRule] | None
    ) -> AbstractAsyncContextManager[Control]:
        """Go on after a run, and be asked about every step."""

    async def get_run(self, run_id: str) -> Message:
        """Give a run."""

    async def list_runs(self, session_id: str) -> list[Message]:
        """Give the runs of a session, or of all with an empty id, newest first."""

    async def list_steps(self, run_id: str) -> list[Message]:
        """Give the completed steps of a run."""

    def watch_run(self, run_id: str) -> AsyncIterator[Message]:
        """Give the events of a run until it has ended."""

    def watch_session(self, session_id: str) -> AsyncIterator[Message]:
        """Give the events of a session until it is closed."""

    async def stop_run(self, run_id: str, reason: str) -> Message:
        """Ask for a stop at the next boundary."""

    async def abort_run(self, run_id: str, reason: str) -> Message:
        """Cut a run off."""

    async def decide(self, run_id: str, step_id: str, *, go_on: bool, reason: str) -> Message:
        """Decide about a step that waits."""

    async def list_pending(self) -> list[Message]:
        """Give what waits for somebody in all sessions, nearest deadline first."""

    async def answer_permission(
        self, run_id: str, permission_id: str, answer: str, *, instead: Mapping[str, str] | None = None, reason: str
    ) -> Message:
        """Answer by `allow_once`, `allow_session` or `deny`, or say what is done `instead`; gives how it was resolved.

        `instead` has one of `command` and `arguments_json`, and makes `answer` count for nothing.
        """

    async def answer_question(self, run_id: str, question_id: str, answers: Sequence[Message]) -> Message:
        """Answer each item of a question, or decline it with no answers; gives how it was resolved.

        Answers have `item_id`, and `option_ids` or `text`.
        """

    async def steer_run(self, run_id: str, text: str) -> str:
        """Give text to a running turn; gives the id that events about it carry."""

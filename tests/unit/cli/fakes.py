"""A daemon and a person that follow a script."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from steprail_daemon.cli.client import Control, Daemon, Message
from steprail_daemon.cli.problems import Refused, Unanswered
from steprail_daemon.cli.rules import ShortRule

RUN = {"run_id": "run_1", "session_id": "ses_1", "state": "RUN_STATE_RUNNING"}


def ended(state: str) -> Message:
    return {**RUN, "state": f"RUN_STATE_{state}", "step_count": "1"}


@dataclass
class FakeControl(Control):
    """Gives messages, each once `decisions` has as many entries as it wants; ends with the run."""

    messages: list[tuple[str, Message]]
    decisions: list[tuple[str, bool]] = field(default_factory=list)
    decided: anyio.Event = field(default_factory=anyio.Event)

    def __aiter__(self) -> AsyncIterator[tuple[str, Message]]:
        return self._give()

    async def _give(self) -> AsyncIterator[tuple[str, Message]]:
        for kind, message in self.messages:
            if kind == "(wait)":
                with anyio.fail_after(5):
                    await self.decided.wait()
                self.decided = anyio.Event()
            else:
                yield kind, message

    async def decide(self, step_id: str, *, go_on: bool) -> None:
        self.decisions.append((step_id, go_on))
        self.decided.set()


@dataclass
class FakeDaemon(Daemon):
    """Gives `events`, calls `during` after each, and ends its one run as `ends_as`. Notes what it is asked to do."""

    events: list[Message] = field(default_factory=list)
    ends_as: Message = field(default_factory=lambda: ended("COMPLETED"))
    during: Callable[[int], None] = lambda number: None
    wait_for: str = ""
    asked: list[str] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)
    agents: list[Message] = field(default_factory=list)
    steps: list[Message] = field(default_factory=list)
    control: FakeControl | None = None
    mode: str = "ASK"
    pending: list[Message] = field(default_factory=list)
    refuses: Refused | None = None
    info: Message = field(default_factory=dict)
    drains: list[Message | None] = field(default_factory=list)

    def _note(self, what: str) -> None:
        self.asked.append(what)
        self.changed.set()
        self.changed = anyio.Event()

    async def server_info(self) -> Message:
        return self.info

    async def drain(self, window: float | None, reason: str) -> Message:
        self._note(f"drain {window} {reason}".strip())
        if self.refuses is not None:
            raise self.refuses
        return await self.drain_status()

    async def drain_status(self) -> Message:
        """Give the next status; None is a daemon that is gone."""
        status = self.drains.pop(0)
        if status is None:
            raise Unanswered("no daemon answers")
        return status

    async def list_agents(self) -> list[Message]:
        return self.agents

    async def create_session(self, agent: str, cwd: str, mode: str) -> Message:
        self._note(f"session of {agent} in {cwd} {mode}".strip())
        return {"session_id": "ses_1"}

    async def list_sessions(self) -> list[Message]:
        return [{"session_id": "ses_1", "agent": "claude", "state": "SESSION_STATE_IDLE", "cwd": "/w"}]

    async def get_session(self, session_id: str) -> Message:
        return {"session_id": session_id, "permission_mode": f"PERMISSION_MODE_{self.mode}"}

    async def close_session(self, session_id: str, *, force: bool) -> Message:
        self._note(f"close {session_id} force={force}")
        return {"session_id": session_id, "state": "SESSION_STATE_CLOSED"}

    async def discard_session(self, session_id: str) -> None:
        self._note(f"discard {session_id}")

    async def start_run(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> Message:
        self._note(f"start {prompt!r} on {session_id} until {list(rules)}")
        return dict(RUN)

    async def continue_run(self, run_id: str, prompt: str, rules: Sequence[ShortRule] | None) -> Message:
        self._note(f"continue {run_id} {prompt!r} until {rules if rules is None else list(rules)}")
        return dict(RUN)

    @asynccontextmanager
    async def control_new(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> AsyncIterator[Control]:
        self._note(f"control {prompt!r} on {session_id} until {list(rules)}")
        assert self.control is not None
        yield self.control

    @asynccontextmanager
    async def control_continued(
        self, run_id: str, prompt: str, rules: Sequence[ShortRule] | None
    ) -> AsyncIterator[Control]:
        self._note(f"control after {run_id}")
        assert self.control is not None
        yield self.control

    async def get_run(self, run_id: str) -> Message:
        return self.ends_as

    async def list_runs(self, session_id: str) -> list[Message]:
        return [self.ends_as]

    async def list_steps(self, run_id: str) -> list[Message]:
        return self.steps

    async def watch_run(self, run_id: str) -> AsyncIterator[Message]:
        for number, event in enumerate(self.events):
            yield event
            self.during(number)
        with anyio.fail_after(5):
            while self.wait_for and self.wait_for not in self.asked:
                await self.changed.wait()

    async def watch_session(self, session_id: str) -> AsyncIterator[Message]:
        for event in self.events:
            yield event

    async def stop_run(self, run_id: str, reason: str) -> Message:
        self._note(f"stop {run_id}")
        return dict(RUN)

    async def abort_run(self, run_id: str, reason: str) -> Message:
        self._note(f"abort {run_id}")
        return dict(RUN)

    async def decide(self, run_id: str, step_id: str, *, go_on: bool, reason: str) -> Message:
        self._note(f"decide {step_id} {go_on} {reason}".strip())
        return {"action": f"DECISION_ACTION_{'CONTINUE' if go_on else 'STOP'}", "source": "DECISION_SOURCE_CLIENT"}

    async def list_pending(self) -> list[Message]:
        return self.pending

    async def answer_permission(
        self, run_id: str, permission_id: str, answer: str, *, instead: Mapping[str, str] | None = None, reason: str
    ) -> Message:
        given = dict(instead) if instead else answer
        self._note(f"{permission_id} of {run_id}: {given} {reason}".strip())
        if self.refuses is not None:
            raise self.refuses
        client = {"permission_id": permission_id, "source": "RESOLUTION_SOURCE_CLIENT", "identity": "me"}
        if instead:
            return {**client, "alternative": given}
        return {**client, "answer": f"PERMISSION_ANSWER_{answer.upper()}", "reason": reason}

    async def answer_question(self, run_id: str, question_id: str, answers: Sequence[Message]) -> Message:
        self._note(f"{question_id} of {run_id}: {list(answers)}")
        if self.refuses is not None:
            raise self.refuses
        return {"source": "RESOLUTION_SOURCE_CLIENT", "identity": "me", "declined": not answers}

    async def steer_run(self, run_id: str, text: str) -> str:
        self._note(f"steer {run_id} {text!r}")
        return "str_1"

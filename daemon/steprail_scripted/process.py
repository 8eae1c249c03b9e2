"""What the turns and the methods of one process share: settings, conversation, what waits for the host."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from steprail_scripted.asking import Permissions, Questions
from steprail_scripted.script import Cursor, Script
from steprail_scripted.sessions import SessionFile, Store
from steprail_scripted.staging import Staging
from steprail_scripted.tally import CHARACTERS_PER_TOKEN, INSTRUCTION_TOKENS, SessionTally
from steprail_scripted.wire import Wire, now_ms, timestamp


class Options(NamedTuple):
    """What command line and environment say. `interactive` is off with `AUTOHAND_NON_INTERACTIVE` or `--yes`."""

    workspace: Path
    home: Path
    model: str
    permission_mode: str = "interactive"
    interactive: bool = True
    debug: bool = False
    extra_roots: tuple[Path, ...] = ()


class Conversation:
    """The messages of the current session, in memory and on disk."""

    def __init__(self, file: SessionFile) -> None:
        self.file = file
        self.messages: list[dict[str, Any]] = []
        self.notes = 2  # the CLI counts its system prompt and its note on the workspace
        self.sent = 0  # characters that the last request to the model held

    def add(self, role: str, content: str, **more: Any) -> None:
        """Append a message; it is on disk when this returns."""
        message = {"role": role, "content": content, "timestamp": timestamp(), **more}
        self.messages.append(message)
        self.file.append("message", message=message)

    def clear(self) -> None:
        """Forget everything but the system prompt. The file goes on with both conversations, as the CLI's does."""
        self.messages = []
        self.notes = 1
        self.sent = 0

    def attach(self, file: SessionFile, messages: list[dict[str, Any]]) -> None:
        """Go on with a saved session."""
        self.file = file
        self.messages = list(messages)
        self.notes = 2
        self.sent = 0

    @property
    def count(self) -> int:
        """Messages with the system notes."""
        return len(self.messages) + self.notes

    def as_text(self) -> str:
        """Give what a model would be sent, without the instructions."""
        return "\n".join(f"{message['content']}{message.get('toolCalls', '')}" for message in self.messages)

    def first_prompt(self) -> str:
        """Give what the user asked first."""
        return next((str(message["content"]) for message in self.messages if message["role"] == "user"), "")


class Process:
    """The state of one process; making it begins a saved session.

    `condition` is the one lock of everything that a request can change for a turn. `wake` interrupts the wait for
    input.
    """

    def __init__(self, options: Options, script: Script, wire: Wire) -> None:
        timers = script.timers
        self.options = options
        self.script = script
        self.wire = wire
        self.store = Store(options.home)
        self.conversation = Conversation(self.store.create(options.workspace, options.model))
        self.condition = threading.Condition()
        self.questions = Questions(self.condition, timers.permission_unacknowledged, timers.permission_acknowledged)
        self.permissions = Permissions(options.permission_mode)
        self.staging = Staging(self.condition)
        self.tally = SessionTally()
        self.cursor = Cursor(script)
        self.session_id = wire.new_id("session")
        self.started_ms = now_ms()
        self.roots = [options.workspace, *options.extra_roots]
        self.plan_mode = False
        self.turns = 0
        self.frozen = threading.Event()
        self.wake: Callable[[], None] = lambda: None
        self._calls = 0

    @property
    def workspace(self) -> Path:
        """The folder that the agent works in."""
        return self.options.workspace

    def write_raw(self, line: str) -> None:
        """Put a line on stdout as it is."""
        self.wire.write_raw(line)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self.wire.notify(method, params)

    def flush(self) -> None:
        """Wait until what was written has left the process."""
        self.wire.flush()

    def freeze(self) -> None:
        """Stop serving requests, and signals that can be ignored."""
        self.frozen.set()
        self.wake()

    def new_call_id(self) -> str:
        """Number a tool call."""
        self._calls += 1
        return f"call_{self._calls}"

    def context_percent(self) -> int:
        """Percent of the context window that is left."""
        used = INSTRUCTION_TOKENS + len(self.conversation.as_text()) // CHARACTERS_PER_TOKEN
        return max(0, 100 - 100 * used // self.script.context_window)

    def send_agent_start(self, *, with_context: bool) -> None:
        """Say that the process is ready; after a reset the CLI leaves the context out.

        The saved id is an extension: of sessions that begin in one home at one time no host can tell which is whose.
        """
        context = {"contextPercent": self.context_percent()} if with_context else {}
        self.wire.notify(
            "agentStart",
            {
                "sessionId": self.session_id,
                "model": self.options.model,
                "workspace": str(self.options.workspace),
                "savedSessionId": self.conversation.file.session_id,
                **context,
            },
        )

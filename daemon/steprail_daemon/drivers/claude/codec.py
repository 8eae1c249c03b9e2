"""Claude Code's bytes to core events and back: one JSON object a line, and a control protocol in both directions.

The gate is the hook `PostToolBatch`, which the CLI runs once after a model message's tools and before its next request
to the model. As a callback it is a `control_request` that the CLI waits at. `{}` lets it go on, `continue: false` ends
the turn with every result kept. What opens the gate and is avoided here: the callback's timeout (a day instead of ten
minutes), an answer that is an error (`onFailure: block`), and an EOF while the callback is pending (`eof_is_safe`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    Interrupt,
    SendPrompt,
    SetModel,
    SetPermissionMode,
)
from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    AgentReady,
    BoundaryCancelled,
    BoundaryReached,
    ContextWindowChanged,
    PromptConfirmed,
    ProtocolFailed,
    ToolUpdated,
)
from steprail_daemon.core.model import ContextWindowKind, DecisionAction
from steprail_daemon.drivers.base import CodecSettings
from steprail_daemon.drivers.claude import answers, handshake, wire
from steprail_daemon.drivers.claude.answers import DELEGATION, GATE
from steprail_daemon.drivers.claude.asks import Asks
from steprail_daemon.drivers.claude.controls import SUCCESS, Controls
from steprail_daemon.drivers.claude.edits import EDITING, Edits
from steprail_daemon.drivers.claude.messages import MainMessages, add_subagent_text
from steprail_daemon.drivers.claude.meter import Meter
from steprail_daemon.drivers.claude.reading import LineReader
from steprail_daemon.drivers.claude.refusals import Refusals
from steprail_daemon.drivers.claude.tools import add_tool_results, tool_started
from steprail_daemon.drivers.claude.turns import Course, TurnReader

_INTERRUPTED: Final = "[Request interrupted by user"
_SYNTHETIC_MODEL: Final = "<synthetic>"

#: Looked up once: a member of an enumeration costs a function call.
_STOP_ACTION: Final = DecisionAction.STOP

_call_id: Final = attrgetter("tool_use_id")

#: Subtypes of `system` lines that say nothing beyond what other lines say.
_CONSUMED_SYSTEM: Final = frozenset({"session_state_changed", "task_progress"})

_KNOWN_BLOCKS: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


class ClaudeCodec(LineReader):
    """The protocol of one Claude Code process."""

    def __init__(self, settings: CodecSettings) -> None:
        super().__init__(settings.line_bytes)
        self._settings = settings
        self._out: list[bytes] = []
        self._controls = Controls(self._out)
        self._ready = False
        self._prompt_id = ""
        self._confirmed = False
        self._has_lifecycle = False
        self._turn_runs = False
        #: A stop was decided or the turn is being cut off: nothing of it goes on, sub-agents included.
        self._stopped = False
        self._boundaries: set[str] = set()
        self._asks = Asks()
        self._edits = Edits()
        self._refusals = Refusals()
        self._last_error = ""
        self._messages = MainMessages()
        self._turns = TurnReader(resumed=settings.resume)
        self._meter = Meter(self._controls, resumed=settings.resume)
        #: A sub-agent began to work before the message that called it was whole.
        self._mark_due = False
        self._handlers |= {
            wire.UserLine: self._on_user,
            wire.StreamEventLine: self._on_stream_event,
            wire.AssistantLine: self._on_assistant,
            wire.SystemLine: self._on_system,
            wire.ControlRequestLine: self._on_control_request,
            wire.OddRequestLine: self._on_odd_request,
            wire.ControlResponseLine: self._on_control_response,
            wire.ControlCancelLine: self._on_control_cancel,
            wire.CommandLifecycleLine: self._on_command_lifecycle,
            wire.RateLimitLine: self._on_rate_limit,
            wire.ResultLine: self._on_result,
        }

    def start(self) -> None:
        """Queue `initialize` with the gate's hook; `AgentReady` says whether the CLI took it."""
        self._controls.ask(handshake.request(), self._on_initialized)

    def data_to_send(self) -> bytes:
        """Give and forget what must be written to the CLI's stdin."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def eof_is_safe(self) -> bool:
        """False while a turn runs or an answer is owed: the CLI would then work on alone until its turn is over."""
        return not (self._turn_runs or self._boundaries or self._asks.open)

    def send(self, command: AgentCommand) -> None:
        """Turn a command into a line.

        An answer to what the CLI no longer asks sends nothing, nor does an interrupt while no turn runs.
        """
        if isinstance(command, AnswerBoundary):
            self._answer_boundary(command)
        elif isinstance(command, SendPrompt):
            self._send_prompt(command)
        elif isinstance(command, AnswerPermission):
            self._answer(command.permission_id, self._asks.answer_permission(command))
        elif isinstance(command, AnswerQuestion):
            self._answer(command.question_id, self._asks.answer_question(command))
        elif isinstance(command, Interrupt):
            self._interrupt()
        else:
            self._change(command)

    # --- out -----------------------------------------------------------------------------------------------------

    def _change(self, command: SetModel | SetPermissionMode) -> None:
        if isinstance(command, SetModel):
            self._controls.set_model(command.model)
        else:
            self._controls.set_mode(command.permission_mode, plan_mode=command.plan_mode)

    def _interrupt(self) -> None:
        if self._turn_runs:
            self._stopped = True
            self._controls.interrupt()

    def _send_prompt(self, command: SendPrompt) -> None:
        if self._prompt_id:
            raise RuntimeError(f"prompt {self._prompt_id} is still worked on, so {command.prompt_id} cannot be sent")
        self._prompt_id = command.prompt_id
        self._confirmed = False
        self._turn_runs = True
        self._stopped = False
        self._messages.forget()
        self._refusals.begin_turn()
        self._meter.begin_turn(wants_cost=command.wants_cost)
        self._mark_due = False
        line = {
            "type": "user",
            "message": {"role": "user", "content": command.text},
            "parent_tool_use_id": None,
            "session_id": "",
            "uuid": command.prompt_id,
        }
        self._controls.go_on(answers.to_json(line) + b"\n")

    def _answer_boundary(self, command: AnswerBoundary) -> None:
        boundary_id = command.boundary_id
        if boundary_id not in self._boundaries:
            return
        self._boundaries.discard(boundary_id)
        if command.action is _STOP_ACTION:
            self._stopped = True
            self._out.append(answers.stop(boundary_id))
            return
        if command.model:
            self._controls.set_model(command.model)
        self._controls.go_on(answers.go_on(boundary_id, command.guidance))

    def _answer(self, request_id: str, answer: bytes | None) -> None:
        """Answer a question; `answer` is JSON, None if it is no longer wanted."""
        if answer is not None:
            self._out.append(answers.answer(request_id, answer))

    # --- in ------------------------------------------------------------------------------------------------------

    def _on_user(self, line: wire.UserLine, raw: bytes, events: list[AgentEvent]) -> None:
        if line.parent_tool_use_id is not None:
            self._subagent_seen(line.agent_id, line.parent_tool_use_id)
        if not add_tool_results(line, self._asks.denied, self._edits, events) and not _tells_interruption(line):
            self._pass_on("user", raw, events)

    def _subagent_seen(self, agent_id: str | None, call_id: str) -> None:
        self._mark_due = self._messages.streaming
        self._meter.subagent_seen(agent_id or "", call_id, message_open=self._mark_due)

    def _on_stream_event(self, line: wire.StreamEventLine, raw: bytes, events: list[AgentEvent]) -> None:
        # Sub-agents of 2.1.332 are not streamed; if they were, theirs must not be taken for the main loop's.
        if line.parent_tool_use_id is not None or not self._messages.streamed(line.event, events):
            self._pass_on(f"stream_event/{line.event.type}", raw, events)
        if self._mark_due and not self._messages.streaming:
            self._mark_due = False
            self._meter.message_closed()

    def _on_assistant(self, line: wire.AssistantLine, raw: bytes, events: list[AgentEvent]) -> None:
        if line.error is not None:
            self._last_error = line.error
            text = "".join(block.text for block in line.message.content)
            events.append(AgentErrorReported(line.error, text, will_retry=False))
            return
        if line.message.model == _SYNTHETIC_MODEL:
            self._pass_on("assistant", raw, events)
            return
        if line.parent_tool_use_id is None:
            self._messages.told(line, events)
        else:
            self._subagent_seen(line.agent_id, line.parent_tool_use_id)
            add_subagent_text(line, events)
        for block in line.message.content:
            if block.type == "tool_use":
                self._on_call(block, line, events)
        if any(block.type not in _KNOWN_BLOCKS for block in line.message.content):
            self._pass_on("assistant", raw, events)

    def _on_call(self, block: wire.AssistantBlock, line: wire.AssistantLine, events: list[AgentEvent]) -> None:
        if block.name in EDITING:
            self._edits.began(block)
        self._asks.call_began(block)
        events.append(tool_started(block, line.agent_id, line.parent_tool_use_id))

    def _on_system(self, line: wire.SystemLine, raw: bytes, events: list[AgentEvent]) -> None:
        subtype = line.subtype
        if subtype == "init":
            self._on_turn_began(line, events)
        elif subtype == "api_retry":
            self._refusals.retried(line, events)
        elif subtype == "status":
            self._on_status(line)
        elif subtype == "compact_boundary":
            after = None if line.compact_metadata is None else line.compact_metadata.post_tokens
            events.append(ContextWindowChanged(ContextWindowKind.COMPACTED, after))
        elif subtype == "task_progress" and line.tool_use_id and line.description:
            events.append(ToolUpdated(line.tool_use_id, progress=line.description))
        elif subtype not in _CONSUMED_SYSTEM:
            if subtype == "task_started" and line.task_type == "local_agent" and line.tool_use_id:
                self._subagent_seen(line.task_id, line.tool_use_id)
            self._pass_on(f"system/{subtype}", raw, events)

    def _on_status(self, line: wire.SystemLine) -> None:
        if line.status == "compacting":
            self._meter.compaction_began()
        elif line.compact_result is not None:
            self._meter.compaction_ended()

    def _on_rate_limit(self, line: wire.RateLimitLine, raw: bytes, events: list[AgentEvent]) -> None:
        if not self._refusals.limited(line, events):
            self._pass_on("rate_limit_event", raw, events)

    def _on_turn_began(self, line: wire.SystemLine, events: list[AgentEvent]) -> None:
        self._turn_runs = True
        self._refusals.model = line.model
        # Where there are lifecycle lines, a turn that begins may be one that the CLI started by itself.
        if not self._has_lifecycle:
            self._confirm(line.session_id, line.model, events)

    def _on_command_lifecycle(self, line: wire.CommandLifecycleLine, raw: bytes, events: list[AgentEvent]) -> None:
        del raw
        self._has_lifecycle = True
        if line.state == "started" and line.command_uuid == self._prompt_id:
            self._confirm(line.session_id, "", events)

    def _confirm(self, agent_session_id: str, model: str, events: list[AgentEvent]) -> None:
        if self._prompt_id and not self._confirmed:
            self._confirmed = True
            events.append(PromptConfirmed(self._prompt_id, agent_session_id, model))

    def _on_control_request(self, line: wire.ControlRequestLine, raw: bytes, events: list[AgentEvent]) -> None:
        request, request_id = line.request, line.request_id
        if isinstance(request, wire.CanUseTool):
            self._answer(request_id, self._asks.asked(request_id, request, events))
            return
        batch = request.input
        if request.callback_id == GATE and self._confirmed and not batch.agent_id:
            usage = self._messages.finish(events)
            self._boundaries.add(request_id)
            boundary = BoundaryReached(request_id, tuple(map(_call_id, batch.tool_calls)), usage)
            if self._meter.reads_at_boundary:
                self._meter.hold(boundary)
            else:
                events.append(boundary)
        elif request.callback_id == DELEGATION:
            self._on_delegation(request_id, inner=bool(batch.agent_id))
        elif request.callback_id != GATE:
            self._on_other_hook(request_id, raw, events)
        elif batch.agent_id:
            self._answer(request_id, answers.STOP if self._stopped else answers.NOTHING)
        else:
            # A turn that no prompt asked for: nobody would decide about its steps.
            self._answer(request_id, answers.STOP)
            self._pass_on("control_request/hook_callback", raw, events)

    def _on_delegation(self, request_id: str, *, inner: bool) -> None:
        if inner:
            # What a sub-agent's own sub-agents use is of the same account.
            self._answer(request_id, answers.NOTHING)
            return
        self._mark_due = self._messages.streaming
        if self._meter.delegation(request_id, message_open=self._mark_due):
            self._answer(request_id, answers.NOTHING)

    def _on_other_hook(self, request_id: str, raw: bytes, events: list[AgentEvent]) -> None:
        self._answer(request_id, answers.NOTHING)
        self._pass_on("control_request/hook_callback", raw, events)

    def _on_odd_request(self, line: wire.OddRequestLine, raw: bytes, events: list[AgentEvent]) -> None:
        subtype = line.request.subtype
        if subtype != "hook_callback":
            self._out.append(answers.refusal(line.request_id, f"this host does not know {subtype!r}"))
            self._pass_on(f"control_request/{subtype}", raw, events)
        elif line.request.callback_id == GATE:
            events.append(ProtocolFailed(f"a step boundary of an unknown shape: {line.problem}"))
        else:
            self._on_other_hook(line.request_id, raw, events)

    def _on_control_response(self, line: wire.ControlResponseLine, raw: bytes, events: list[AgentEvent]) -> None:
        if not self._controls.answered(line.response, events) and line.response.subtype != SUCCESS:
            self._pass_on("control_response", raw, events)

    def _on_initialized(self, response: wire.ControlResponse, events: list[AgentEvent]) -> None:
        told = handshake.answered(response, self._settings.agent_session_id)
        self._ready = isinstance(told, AgentReady)
        events.append(told)

    def _on_control_cancel(self, line: wire.ControlCancelLine, raw: bytes, events: list[AgentEvent]) -> None:
        del raw
        request_id = line.request_id
        self._asks.withdrawn(request_id, events)
        untold = self._meter.drop(request_id)
        if request_id in self._boundaries:
            self._boundaries.discard(request_id)
            if not untold:
                events.append(BoundaryCancelled(request_id))

    def _on_result(self, line: wire.ResultLine, raw: bytes, events: list[AgentEvent]) -> None:
        self._messages.close(events)
        self._refusals.ended(line, events)
        spent = self._turns.spent(line)
        beside = self._meter.end_turn(line, spent, self._turns.sums, events)
        course = Course(
            self._messages.last_text,
            self._messages.last_stop_reason,
            self._last_error,
            self._refusals.quota_json,
            self._refusals.retry_after_ns,
            beside,
        )
        ended = self._turns.read(line, spent, course, ready=self._ready)
        self._last_error = ""
        if self._ready and not self._is_of_prompt(line):
            self._turn_runs = bool(self._prompt_id)
            self._pass_on("result", raw, events)
            return
        self._prompt_id = ""
        self._confirmed = self._turn_runs = self._mark_due = False
        self._boundaries.clear()
        self._controls.forget_kept()
        self._asks.forget()
        self._edits.open.clear()
        events.append(ended)

    def _is_of_prompt(self, line: wire.ResultLine) -> bool:
        return bool(self._prompt_id) and (self._confirmed or line.origin is None)


def _tells_interruption(line: wire.UserLine) -> bool:
    content = line.message.content
    return not isinstance(content, str) and all(block.text.startswith(_INTERRUPTED) for block in content)

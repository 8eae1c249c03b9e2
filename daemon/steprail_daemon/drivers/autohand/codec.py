"""The Autohand CLI's bytes to core events and back: JSON-RPC 2.0, one message a line, in both directions.

The gate is `stepEnd`: with `stopWhen` in the prompt, the CLI waits there for a `stepDecision`, without a limit. A turn
ends with `turnEnd` and with nothing else. What wedges the CLI or loses work and is avoided here: an abort before
`turnStart`, file writes that nobody accepts, questions that are not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    Interrupt,
    SendPrompt,
    SetPermissionMode,
)
from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    BoundaryReached,
    MessageEnded,
    MessageStarted,
    PlanProposed,
    PromptConfirmed,
    ProtocolFailed,
    RawReceived,
    TurnEnded,
)
from steprail_daemon.core.model import (
    ContextWindowKind,
    DecisionAction,
    Failure,
    FailureFault,
    MessageKind,
    TurnEndReason,
)
from steprail_daemon.drivers.autohand import reading, wire
from steprail_daemon.drivers.autohand.handshake import Handshake
from steprail_daemon.drivers.autohand.launch import cli_mode
from steprail_daemon.drivers.autohand.notices import (
    context_changed,
    file_modified,
    on_accepted,
    on_mode,
    on_nothing,
    refusal,
    succeeded,
)
from steprail_daemon.drivers.autohand.permissions import Permissions
from steprail_daemon.drivers.autohand.tools import Calls
from steprail_daemon.drivers.autohand.turns import Turn
from steprail_daemon.drivers.autohand.usage import StepFigures, TokenMeter, cost_of, usage_of
from steprail_daemon.drivers.base import Channel, CodecSettings
from steprail_daemon.drivers.framing import LineFramer, OverlongLine, text_of
from steprail_daemon.drivers.jsonrpc import Requests

_BEGINS_JSON: Final = 0x7B
_PREFIX: Final = "autohand."
#: How 0.8.2 refuses a prompt while it works; the code is shared by every exception.
_BUSY: Final = "already processing"

OnAnswer = Callable[[reading.Answer, list[AgentEvent]], None]


class AutohandCodec:
    """The protocol of one process."""

    def __init__(self, settings: CodecSettings) -> None:
        self._line_bytes = settings.line_bytes
        self._framer = LineFramer(settings.line_bytes)
        self._out: list[bytes] = []
        self._noise = 0
        self._line = b""
        self._requests: Requests[OnAnswer] = Requests()
        self._handshake = Handshake(settings, self._ask)
        self._ended = False
        self._prompt_id = ""
        self._began = False
        self._model_heard = False
        self._aborting = False
        self._abort_owed = False
        self._boundary = ""
        self._turn = Turn()
        self._calls = Calls()
        self._permissions = Permissions()
        self._meter = TokenMeter()
        self._figures = StepFigures()
        self._handlers: dict[type, Callable[[Any, list[AgentEvent]], None]] = {
            wire.AgentStart: self._on_agent_start,
            wire.AgentEnd: self._on_agent_end,
            wire.TurnStart: self._on_turn_start,
            wire.TurnEnd: self._on_turn_end,
            wire.MessageUpdate: self._on_message_update,
            wire.MessageEnd: lambda line, events: self._turn.end_text(line.params, events),
            wire.ChangesBatchStart: lambda line, _: self._accept(line.params.batch_id),
            wire.ChangesBatchEnd: self._on_batch_end,
            wire.PreTool: self._on_pre_tool,
            wire.ToolStart: self._on_tool_start,
            wire.PostTool: lambda line, _: self._calls.time(line.params.tool_id, line.params.duration),
            wire.ToolEnd: self._on_tool_end,
            wire.FileModified: file_modified,
            wire.StepEnd: self._on_step_end,
            wire.PermissionHook: lambda line, _: self._permissions.announce(line.params),
            wire.PermissionRequest: self._on_permission,
            wire.DirectoryRequest: self._on_directory,
            wire.Error: lambda line, events: self._turn.error(line.params, events),
            wire.SessionError: lambda line, _: self._turn.session_error(line.params),
            wire.RateLimit: lambda line, events: self._turn.rate_limit(line.params, events),
            wire.ContextCompacted: partial(context_changed, ContextWindowKind.COMPACTED),
            wire.ContextOverflow: partial(context_changed, ContextWindowKind.WARNING),
            wire.ContextWarning: partial(context_changed, ContextWindowKind.WARNING),
            wire.ContextCritical: partial(context_changed, ContextWindowKind.WARNING),
            reading.Answer: self._on_answer,
            reading.Consumed: lambda _line, _: None,
            reading.UnknownLine: lambda line, events: self._pass_on(line.method or "answer", events),
            reading.UnreadableLine: self._on_unreadable,
        }

    @property
    def noise_lines(self) -> int:
        """Lines that were no JSON objects, or came after the end, and were skipped."""
        return self._noise

    def start(self) -> None:
        """Nothing: the CLI speaks first."""

    def receive(self, channel: Channel, data: bytes) -> list[AgentEvent]:
        """Take bytes of stdout, cut anywhere, and give what they complete."""
        del channel
        return self._read(self._framer.feed(data))

    def receive_eof(self, channel: Channel) -> list[AgentEvent]:
        """Take the end of stdout and give what a last line without a line end completes."""
        del channel
        return self._read(self._framer.finish())

    def data_to_send(self) -> bytes:
        """Give and forget what must be written to the CLI's stdin."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def eof_is_safe(self) -> bool:
        """Whether the CLI ends at once when its stdin is closed.

        Not while a tool runs: it says goodbye after 2.5 s and lives on until the command ends. Nor before the model was
        heard of in a turn, for the CLI may be at git or at installing packages, which it does not cut off. A boundary
        or a question that waits is safe: the turn is closed as aborted.
        """
        return not self._calls.running and (not self._prompt_id or self._model_heard)

    def send(self, command: AgentCommand) -> None:
        """Turn a command into a line.

        An answer to what the CLI no longer asks sends nothing. An interrupt that comes before `turnStart` is sent then.
        """
        if isinstance(command, AnswerBoundary):
            self._answer_boundary(command)
        elif isinstance(command, SendPrompt):
            self._send_prompt(command)
        elif isinstance(command, AnswerPermission):
            request = self._permissions.answer(command)
            if request is not None:
                self._ask(*request, self._on_permission_answered)
        elif isinstance(command, Interrupt):
            self._interrupt()
        elif isinstance(command, SetPermissionMode):
            self._ask("planModeSet", {"enabled": command.plan_mode}, partial(on_mode, "plan_mode"))
            mode = {"mode": cli_mode(command.permission_mode)}
            self._ask("permissionModeSet", mode, partial(on_mode, "permission_mode"))

    # --- out -----------------------------------------------------------------------------------------------------

    def _ask(self, method: str, params: dict[str, Any] | None, on_answer: OnAnswer) -> None:
        self._out.append(self._requests.line(_PREFIX + method, params, on_answer))

    def _send_prompt(self, command: SendPrompt) -> None:
        if self._prompt_id:
            raise RuntimeError(f"prompt {self._prompt_id} is still worked on, so {command.prompt_id} cannot be sent")
        self._prompt_id = command.prompt_id
        # What a turn that nobody asked for may have left is not this one's.
        self._turn, self._figures, self._calls = Turn(), StepFigures(), Calls()
        params = {"message": command.text, "stopWhen": {"mode": "host"}}
        self._ask("prompt", params, partial(self._on_prompt_answered, command.prompt_id))

    def _answer_boundary(self, command: AnswerBoundary) -> None:
        boundary_id = command.boundary_id
        # Once an abort is sent it has won, and a decision would come too late.
        if boundary_id != self._boundary or self._aborting:
            return
        self._boundary = ""
        self._decide(boundary_id, stop=command.action is DecisionAction.STOP)

    def _decide(self, step_id: str, *, stop: bool) -> None:
        self._ask("stepDecision", {"stepId": step_id, "stop": stop}, partial(self._on_decided, step_id))

    def _interrupt(self) -> None:
        if not self._prompt_id or self._aborting:
            return
        if not self._began:
            self._abort_owed = True
            return
        self._aborting = True
        self._boundary = ""
        self._permissions.void()
        self._ask("abort", None, on_nothing)

    def _accept(self, batch_id: str) -> None:
        # Staged writes reach no later tool of the turn, and the next prompt drops what nobody decided about.
        params = {"batchId": batch_id, "action": "accept_all"}
        self._ask("changesDecision", params, partial(on_accepted, batch_id))

    # --- answers -------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: reading.Answer, events: list[AgentEvent]) -> None:
        take = self._requests.answered(answer.id)
        if take is not None:
            take(answer, events)
        elif answer.id is None and answer.error is not None:
            if self._handshake.ready:
                events.append(ProtocolFailed(f"the agent did not understand a line: {answer.error.message}"))
            else:
                self._handshake.refused(answer.error, events)
        else:
            self._pass_on("answer", events)

    def _on_prompt_answered(self, prompt_id: str, answer: reading.Answer, events: list[AgentEvent]) -> None:
        message = refusal(answer)
        if prompt_id != self._prompt_id or message is None:
            return
        if _BUSY in message:
            # It hangs at an earlier prompt, and only another process helps.
            events.append(ProtocolFailed(f"the agent refused the prompt although it has no other: {message}"))
            return
        failure = Failure(reason="AGENT_ERROR", message=f"the prompt was refused: {message}", fault=FailureFault.AGENT)
        self._forget_turn(events)
        events.append(TurnEnded(TurnEndReason.ERROR, "prompt_refused", failure=failure))

    def _on_decided(self, step_id: str, answer: reading.Answer, events: list[AgentEvent]) -> None:
        if answer.error is not None:
            events.append(ProtocolFailed(f"the decision about {step_id} was refused: {answer.error.message}"))
        elif not succeeded(answer) and not self._aborting:
            text = f"the agent no longer waited for the decision about {step_id}"
            events.append(AgentErrorReported("decision_late", text, will_retry=False))

    def _on_permission_answered(self, answer: reading.Answer, events: list[AgentEvent]) -> None:
        if self._aborting or (answer.error is None and succeeded(answer)):
            return
        text = "the agent no longer waited for the answer to a permission"
        events.append(AgentErrorReported("permission_late", text, will_retry=False))

    # --- notifications -------------------------------------------------------------------------------------------

    def _read(self, lines: list[bytes | OverlongLine]) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        for line in lines:
            if type(line) is not bytes:
                limit = self._line_bytes
                events.append(ProtocolFailed(f"the agent wrote a line of more than {limit} bytes, which is the limit"))
            elif line and line[0] == _BEGINS_JSON:
                self._read_json(line, events)
            elif stripped := line.strip():
                if stripped[0] == _BEGINS_JSON:
                    self._read_json(stripped, events)
                else:
                    self._noise += 1
        return events

    def _read_json(self, line: bytes, events: list[AgentEvent]) -> None:
        self._line = line
        parsed = reading.read_line(line)
        self._handlers[type(parsed)](parsed, events)

    def _on_unreadable(self, line: reading.UnreadableLine, events: list[AgentEvent]) -> None:
        if self._ended and not line.is_json:
            self._noise += 1
        else:
            events.append(ProtocolFailed(f"the agent wrote {line.problem}"))

    def _on_agent_start(self, line: wire.AgentStart, events: list[AgentEvent]) -> None:
        if self._handshake.begun:
            self._pass_on("agentStart", events)
        else:
            self._handshake.begin(line.params)

    def _on_agent_end(self, _line: wire.AgentEnd, _events: list[AgentEvent]) -> None:
        self._ended = True

    def _on_turn_start(self, _line: wire.TurnStart, events: list[AgentEvent]) -> None:
        if not self._prompt_id or self._began:
            self._pass_on("turnStart", events)
            return
        self._began = True
        events.append(PromptConfirmed(self._prompt_id, self._handshake.saved_id, self._handshake.model))
        if self._abort_owed:
            self._abort_owed = False
            self._interrupt()

    def _on_message_update(self, line: wire.MessageUpdate, events: list[AgentEvent]) -> None:
        if not self._turn.shows_error(line.params.delta):
            self._heard(events)
        self._turn.add_text(line.params, events)

    def _on_pre_tool(self, line: wire.PreTool, events: list[AgentEvent]) -> None:
        self._heard(events)  # all calls of a reply are looked at before the first of them runs
        self._calls.announce(line.params)

    def _heard(self, events: list[AgentEvent]) -> None:
        """Note that the model replied; to tools that ran to their end it must not have, before the boundary."""
        self._model_heard = True
        if self._calls.unbounded and not self._aborting:
            calls = self._calls.past_gate()
            events.append(BoundaryReached(f"untold {calls[-1]}", calls, held=False))

    def _on_tool_start(self, line: wire.ToolStart, events: list[AgentEvent]) -> None:
        self._model_heard = True
        self._calls.begin(line.params, events)

    def _on_tool_end(self, line: wire.ToolEnd, events: list[AgentEvent]) -> None:
        plan = self._calls.end(line.params, events, aborting=self._aborting)
        if plan:
            events.append(PlanProposed(plan))

    def _on_step_end(self, line: wire.StepEnd, events: list[AgentEvent]) -> None:
        told = line.params
        if not self._began:
            # A turn that no prompt asked for: nobody would decide about its steps.
            self._decide(told.step_id, stop=True)
            self._pass_on("stepEnd", events)
            return
        self._model_heard = True
        self._permissions.withdraw(events)
        model = told.usage.model if told.usage is not None else ""
        if told.step.thought:
            thought_id = f"{told.step_id}/thought"
            events.append(MessageStarted(thought_id, MessageKind.THOUGHT))
            events.append(MessageEnded(thought_id, MessageKind.THOUGHT, told.step.thought, model=model))
        call_ids = self._calls.settle(told.step, events)
        usage, cost = usage_of(told.usage), cost_of(told.usage)
        self._figures.add(usage, cost)
        self._boundary = told.step_id
        events.append(BoundaryReached(told.step_id, call_ids, usage, cost))

    def _on_permission(self, line: wire.PermissionRequest, events: list[AgentEvent]) -> None:
        self._ask(*self._permissions.ask(line.params, self._calls, events), on_nothing)

    def _on_directory(self, line: wire.DirectoryRequest, events: list[AgentEvent]) -> None:
        self._ask(*self._permissions.ask_directory(line.params, self._calls, events), on_nothing)

    def _on_batch_end(self, line: wire.ChangesBatchEnd, _events: list[AgentEvent]) -> None:
        if line.params.change_count:
            self._accept(line.params.batch_id)

    def _on_turn_end(self, line: wire.TurnEnd, events: list[AgentEvent]) -> None:
        if not self._began:
            # A turn that no prompt asked for; what it used is in all later numbers.
            self._meter.lose()
            self._pass_on("turnEnd", events)
            return
        told = line.params
        tokens = self._meter.turn(told.tokens_used, told.tokens_usage_status, cut_off=self._calls.running)
        worked, denied = self._calls.any_ended or self._calls.running, self._calls.denied
        figures = self._figures
        turn = self._turn
        self._forget_turn(events)
        reason, failure = turn.close(told.reason, events, worked=worked, tokens=tokens)
        usage, cost = figures.turn(tokens, told.usage)
        denied = denied and reason is TurnEndReason.COMPLETED and not turn.text
        events.append(TurnEnded(reason, told.reason, turn.text, failure, usage, cost, denied))

    def _forget_turn(self, events: list[AgentEvent]) -> None:
        self._turn.cut_text(events)
        self._calls.close(events)
        self._permissions.withdraw(events)
        self._turn = Turn()
        self._figures = StepFigures()
        self._prompt_id = self._boundary = ""
        self._began = self._model_heard = self._aborting = self._abort_owed = False

    def _pass_on(self, vendor_type: str, events: list[AgentEvent]) -> None:
        events.append(RawReceived(vendor_type.removeprefix(_PREFIX), text_of(self._line)))

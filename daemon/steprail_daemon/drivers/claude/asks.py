"""What the CLI asks before it uses a tool (`can_use_tool`): leave, a plan's acceptance, or a question to a person.

Answers are `allow`, which must carry the input to use, or `deny` with a text for the model. `interrupt` is never set
with a denial: it ends the turn without the gate's hook.
"""

from __future__ import annotations

from typing import Final

import msgspec

from steprail_daemon.core.commands import AnswerPermission, AnswerQuestion
from steprail_daemon.core.events import (
    AgentEvent,
    PermissionAsked,
    PermissionWithdrawn,
    PlanProposed,
    QuestionAsked,
    QuestionWithdrawn,
)
from steprail_daemon.core.model import PermissionAlternative, QuestionItem
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.drivers.claude import questions, wire
from steprail_daemon.drivers.claude.tools import text_of_input, title_of, tool_kind

_PLAN_TOOL: Final = "ExitPlanMode"

_to_json: Final = msgspec.json.encode


class _Plan(msgspec.Struct, gc=False):
    plan: str = ""


_decode_plan: Final = msgspec.json.Decoder(_Plan).decode
_decode_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text: Final = msgspec.json.Decoder(str).decode


class Asks:
    """What one process has asked and was not answered yet."""

    def __init__(self) -> None:
        self._permissions: dict[str, wire.CanUseTool] = {}
        self._questions: dict[str, tuple[wire.CanUseTool, tuple[QuestionItem, ...]]] = {}
        self._plans: dict[str, str] = {}
        #: Calls that were refused on request and have no result yet.
        self.denied: set[str] = set()

    @property
    def open(self) -> bool:
        """Whether an answer is owed."""
        return bool(self._permissions or self._questions)

    def forget(self) -> None:
        """The turn is over: nothing is owed any more."""
        self._permissions.clear()
        self._questions.clear()
        self._plans.clear()
        self.denied.clear()

    def call_began(self, block: wire.AssistantBlock) -> None:
        """Remember a plan that the model gave with its call: where it wrote none to a file, the CLI asks without it."""
        if block.name == _PLAN_TOOL:
            self._plans[block.id] = _plan_in(block.input)

    def asked(self, request_id: str, request: wire.CanUseTool, events: list[AgentEvent]) -> bytes | None:
        """Take an ask; gives the answer where there is no need to ask anybody."""
        if request.tool_name == questions.TOOL:
            items = questions.read_items(bytes(request.input))
            if items is None:
                return self._denial(request, questions.UNANSWERED)
            self._questions[request_id] = (request, items)
            events.append(QuestionAsked(request_id, items, request.tool_use_id, request.agent_id or ""))
            return None
        self._permissions[request_id] = request
        if request.tool_name == _PLAN_TOOL:
            plan = _plan_in(request.input) or self._plans.pop(request.tool_use_id, "")
            events.append(PlanProposed(plan, request_id))
        events.append(
            PermissionAsked(
                request_id,
                request.tool_use_id,
                request.tool_name,
                text_of_input(request.input),
                request.agent_id or "",
                tool_kind(request.tool_name),
                title_of(request.tool_name, request.input),
            )
        )
        return None

    def withdrawn(self, request_id: str, events: list[AgentEvent]) -> None:
        """The CLI no longer wants an answer, if it did."""
        if self._permissions.pop(request_id, None) is not None:
            events.append(PermissionWithdrawn(request_id))
        elif self._questions.pop(request_id, None) is not None:
            events.append(QuestionWithdrawn(request_id))

    def answer_permission(self, command: AnswerPermission) -> bytes | None:
        """Give the answer as JSON; None if it is no longer wanted."""
        request = self._permissions.pop(command.permission_id, None)
        if request is None:
            return None
        if not command.allow:
            return self._denial(request, command.message)
        wanted = _wanted_input(request, command.alternative)
        # An alternative that this tool cannot take: neither it nor the call that nobody allowed is run.
        return self._denial(request, DENIAL_MESSAGE) if wanted is None else _allowance(wanted)

    def answer_question(self, command: AnswerQuestion) -> bytes | None:
        """Give the answer as JSON; None if it is no longer wanted."""
        request, items = self._questions.pop(command.question_id, (None, ()))
        if request is None:
            return None
        if command.answers is None:
            return self._denial(request, questions.UNANSWERED)
        return _allowance(questions.answered_input(bytes(request.input), items, command.answers))

    def _denial(self, request: wire.CanUseTool, message: str) -> bytes:
        self.denied.add(request.tool_use_id)
        return _to_json({"behavior": "deny", "message": message})


def _allowance(wanted: object) -> bytes:
    return _to_json({"behavior": "allow", "updatedInput": wanted})


def _wanted_input(request: wire.CanUseTool, alternative: PermissionAlternative | None) -> object | None:
    if alternative is None:
        return request.input
    try:
        if alternative.arguments_json is not None:
            return _decode_object(alternative.arguments_json)
        given = _decode_object(request.input)
        _decode_text(given["command"])
    except (msgspec.DecodeError, KeyError, RecursionError):
        return None
    return {**given, "command": alternative.command}


def _plan_in(arguments: msgspec.Raw) -> str:
    try:
        return _decode_plan(arguments).plan
    except msgspec.DecodeError:
        return ""

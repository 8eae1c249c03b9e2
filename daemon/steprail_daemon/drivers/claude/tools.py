"""Claude Code's tools: their kinds, their titles, and what came of a call."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from steprail_daemon.core.events import AgentEvent, ToolEnded, ToolStarted
from steprail_daemon.core.model import ToolCall, ToolKind, ToolOutcome, ToolResult
from steprail_daemon.drivers.base import call_title, kind_of
from steprail_daemon.drivers.claude.edits import Edits
from steprail_daemon.drivers.claude.wire import AssistantBlock, ResultPart, UserLine

_KINDS: Final = {
    "Bash": ToolKind.EXECUTE,
    "BashOutput": ToolKind.EXECUTE,
    "KillShell": ToolKind.EXECUTE,
    "Monitor": ToolKind.EXECUTE,
    "Read": ToolKind.READ,
    "NotebookRead": ToolKind.READ,
    "ListMcpResourcesTool": ToolKind.READ,
    "ReadMcpResourceTool": ToolKind.READ,
    "Edit": ToolKind.EDIT,
    "MultiEdit": ToolKind.EDIT,
    "Write": ToolKind.EDIT,
    "NotebookEdit": ToolKind.EDIT,
    "Glob": ToolKind.SEARCH,
    "Grep": ToolKind.SEARCH,
    "LS": ToolKind.SEARCH,
    "ToolSearch": ToolKind.SEARCH,
    "WebSearch": ToolKind.SEARCH,
    "WebFetch": ToolKind.FETCH,
    "Agent": ToolKind.OTHER,
    "Task": ToolKind.OTHER,
    "TodoWrite": ToolKind.OTHER,
    "Skill": ToolKind.OTHER,
    "EnterPlanMode": ToolKind.OTHER,
    "ExitPlanMode": ToolKind.OTHER,
}

#: `non_execution_kind` of 2.1.332 where the call was cut off; the other kinds are refusals.
_CUT_OFF: Final = frozenset({"user-rejected", "interrupted", "cancelled"})


class _Subject(msgspec.Struct, gc=False):
    file_path: str = ""
    notebook_path: str = ""
    command: str = ""
    pattern: str = ""
    url: str = ""
    query: str = ""
    description: str = ""


_decode_subject = msgspec.json.Decoder(_Subject).decode


def tool_kind(name: str) -> ToolKind:
    """Say what a tool does."""
    return kind_of(name, _KINDS)


def tool_started(block: AssistantBlock, agent_id: str | None, parent_call_id: str | None) -> ToolStarted:
    """Make the event of a `tool_use` block."""
    call = ToolCall(
        block.id,
        block.name,
        tool_kind(block.name),
        title_of(block.name, block.input),
        text_of_input(block.input),
    )
    return ToolStarted(call, agent_id or "", parent_call_id or "")


def text_of_input(arguments: Raw) -> str:
    """Give a tool's arguments as the JSON text that they came as."""
    return bytes(arguments).decode("utf-8", "replace")


def title_of(tool: str, arguments: Raw) -> str:
    """Say in one line what a call is about."""
    try:
        subject = _decode_subject(arguments)
    except msgspec.DecodeError:
        return tool
    return call_title(
        tool,
        subject.file_path
        or subject.notebook_path
        or subject.command
        or subject.pattern
        or subject.url
        or subject.query
        or subject.description,
    )


def add_tool_results(line: UserLine, denied: set[str], edits: Edits, events: list[AgentEvent]) -> bool:
    """Add a `ToolEnded` for each result in a `user` line, and what it did to a file; false if there is none.

    `denied` holds the calls that were refused on request; a call leaves it with its result.
    """
    content = line.message.content
    if isinstance(content, str):
        return False
    found = False
    for block in content:
        if block.type != "tool_result":
            continue
        found = True
        text = block.content if isinstance(block.content, str) else _joined(block.content)
        if block.is_error:
            result = ToolResult(block.tool_use_id, _refusal(line, block.tool_use_id, denied), None, text)
        else:
            result = ToolResult(block.tool_use_id, ToolOutcome.SUCCEEDED, text)
        events.append(ToolEnded(result, None, line.agent_id or "", line.parent_tool_use_id or ""))
        if edits.open:
            edits.ended(line, result, events)
    return found


def _refusal(line: UserLine, call_id: str, denied: set[str]) -> ToolOutcome:
    if call_id in denied:
        denied.discard(call_id)
        return ToolOutcome.DENIED
    for meta in line.tool_result_meta or ():
        if meta.id == call_id and meta.non_execution_kind is not None:
            return ToolOutcome.CANCELLED if meta.non_execution_kind in _CUT_OFF else ToolOutcome.DENIED
    return ToolOutcome.FAILED


def _joined(parts: list[ResultPart] | None) -> str:
    return "\n".join(_part(part) for part in parts or ())


def _part(part: ResultPart) -> str:
    return part.text if part.type == "text" else f"[{part.type}]"

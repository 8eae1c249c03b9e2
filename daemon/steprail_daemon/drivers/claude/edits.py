"""Which files a call changed, as the result of an editing tool tells."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from steprail_daemon.core.events import AgentEvent, FileModified
from steprail_daemon.core.model import FileChange, ToolOutcome, ToolResult
from steprail_daemon.drivers.claude.wire import AssistantBlock, UserLine

#: The tools that change a file themselves. What a shell command does to files is not told.
EDITING: Final = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})


class _Subject(msgspec.Struct, gc=False):
    file_path: str = ""
    notebook_path: str = ""


class _Result(msgspec.Struct, gc=False):
    """`Write` says create or update. `Edit` can create a file too and does not tell that from filling an empty one."""

    type: str = ""


_decode_subject: Final = msgspec.json.Decoder(_Subject).decode
_decode_result: Final = msgspec.json.Decoder(_Result).decode


class Edits:
    """The calls of editing tools that have no result yet."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        #: Paths, as the model gave them, by call.
        self.open: dict[str, str] = {}

    def began(self, block: AssistantBlock) -> None:
        """Take a call of one of `EDITING`."""
        try:
            subject = _decode_subject(block.input)
        except msgspec.DecodeError:
            return
        self.open[block.id] = subject.file_path or subject.notebook_path

    def ended(self, line: UserLine, result: ToolResult, events: list[AgentEvent]) -> None:
        """Take a result and add what it did to a file."""
        path = self.open.pop(result.call_id, "")
        if path and result.outcome is ToolOutcome.SUCCEEDED:
            change = FileChange.CREATED if _created(line.tool_use_result) else FileChange.MODIFIED
            events.append(
                FileModified(path, change, result.call_id, line.agent_id or "", line.parent_tool_use_id or "")
            )


def _created(told: Raw) -> bool:
    try:
        return _decode_result(told).type == "create"
    except msgspec.DecodeError:
        return False

"""What single answers and notifications say that touch no state of a turn."""

from __future__ import annotations

from typing import Final

import msgspec

from steprail_daemon.core.events import AgentErrorReported, AgentEvent, ContextWindowChanged, FileModified
from steprail_daemon.core.model import ContextWindowKind, FileChange
from steprail_daemon.drivers.autohand import wire
from steprail_daemon.drivers.autohand.reading import Answer, decode_success

_CHANGES: Final = {
    "create": FileChange.CREATED,
    "modify": FileChange.MODIFIED,
    "delete": FileChange.DELETED,
}


def succeeded(answer: Answer) -> bool:
    """Whether the agent says that it did what was asked."""
    try:
        return decode_success(answer.result).success
    except msgspec.DecodeError:
        return False


def refusal(answer: Answer) -> str | None:
    """Say why the agent did not do what was asked; None if it did."""
    if answer.error is not None:
        return answer.error.message
    return None if succeeded(answer) else "it answered without success"


def on_nothing(_answer: Answer, _events: list[AgentEvent]) -> None:
    """Take an answer that changes nothing: what it is about is told by other lines."""


def on_mode(what: str, answer: Answer, events: list[AgentEvent]) -> None:
    """Take the answer to a change of mode."""
    refused = refusal(answer)
    if refused is not None:
        events.append(AgentErrorReported(what, f"the mode was not changed: {refused}", will_retry=False))


def on_accepted(batch_id: str, answer: Answer, events: list[AgentEvent]) -> None:
    """Take the answer to the acceptance of staged writes."""
    if answer.error is not None or not succeeded(answer):
        text = f"file writes of batch {batch_id} were not accepted and may never reach the disk"
        events.append(AgentErrorReported("staged_changes", text, will_retry=False))


def file_modified(line: wire.FileModified, events: list[AgentEvent]) -> None:
    """Tell of a file that changed."""
    told = line.params
    change = _CHANGES.get(told.change_type, FileChange.MODIFIED)
    events.append(FileModified(told.file_path, change, told.tool_id))


def context_changed(kind: ContextWindowKind, line: wire.ContextCompacted, events: list[AgentEvent]) -> None:
    """Tell what became of the model's context."""
    told = line.params
    # Where the history was shortened, the size before is no longer that of the context.
    used = told.tokens_used if told.tokens_used is not None else told.tokens_after
    events.append(ContextWindowChanged(kind, used, told.max_tokens))

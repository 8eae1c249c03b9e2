"""The tools of the Autohand CLI, and the calls of a turn: announced, begun, ended, or never run.

A call that was denied, that policy refused or that does not fit its schema has no `toolStart` and no `toolEnd`: it
shows only among the results of the step, which have no ids and stand in the order of the calls.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from steprail_daemon.core.events import AgentEvent, ToolEnded, ToolStarted
from steprail_daemon.core.model import MILLISECOND, ToolCall, ToolKind, ToolOutcome, ToolResult
from steprail_daemon.drivers.autohand.wire import CallParams, Step, StepResult, ToolEndParams
from steprail_daemon.drivers.base import call_title, kind_of

DIRECTORY_TOOL: Final = "request_directory_access"
PLAN_TOOL: Final = "plan"

_NAMES: Final = {
    ToolKind.READ: "read_file read_files read_image get_file_info file_stats read_notebook recall_memory",
    ToolKind.EDIT: (
        "write_file append_file apply_patch search_replace edit_file multi_file_edit format_file delete_file "
        "delete_path rename_path copy_path create_directory notebook_edit"
    ),
    ToolKind.EXECUTE: (
        "run_command custom_command shell kill_shell git_commit git_push git_pull git_fetch git_merge git_rebase "
        "git_checkout git_switch git_branch git_stash git_reset git_apply_patch git_cherry_pick git_worktree_add "
        "git_worktree_remove git_add auto_commit add_dependency remove_dependency"
    ),
    ToolKind.SEARCH: (
        "search search_with_context semantic_search find find_files glob grep list_tree list_directory list_files "
        "web_search tool_search git_status git_diff git_log git_list_untracked"
    ),
    ToolKind.FETCH: "fetch_url web_fetch web_repo package_info",
    ToolKind.OTHER: (
        "plan exit_plan_mode ask_followup_question request_directory_access todo_write save_memory delegate_task "
        "delegate_parallel skill create_meta_tool"
    ),
}
_KINDS: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}

_ABORTED: Final = "Command execution aborted"
_UNAUTHORIZED: Final = "authorization"
_NO_END: Final = "the turn ended before the agent told how this call ended"


class _Subject(msgspec.Struct, gc=False):
    path: str = ""
    file_path: str = ""
    command: str = ""
    pattern: str = ""
    query: str = ""
    url: str = ""
    question: str = ""


class _Plan(msgspec.Struct, gc=False):
    notes: str = ""


_decode_subject = msgspec.json.Decoder(_Subject).decode
_decode_plan = msgspec.json.Decoder(_Plan).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def tool_kind(name: str) -> ToolKind:
    """Say what a tool does."""
    return kind_of(name, _KINDS)


def json_of(args: Raw) -> str:
    """Give arguments as JSON text."""
    return bytes(args).decode("utf-8", "replace") or "{}"


def same(one: Raw, other: Raw) -> bool:
    """Say whether two arguments are equal as JSON."""
    return bytes(one) == bytes(other) or _value(one) == _value(other)


class Calls:
    """Follows the tool calls of a turn."""

    def __init__(self) -> None:
        self._announced: dict[str, CallParams] = {}
        self._asked: set[str] = set()
        self._open: dict[str, str] = {}
        self._times: dict[str, float] = {}
        self._done: list[str] = []
        self._plan = ""
        #: Whether any call ended in this turn, and whether the last step had a call that was denied.
        self.any_ended = False
        self.denied = False

    @property
    def running(self) -> bool:
        """Whether a tool runs."""
        return bool(self._open)

    @property
    def unbounded(self) -> tuple[str, ...]:
        """Calls that ran to their end since the last step, if none runs."""
        return () if self._open else tuple(self._done)

    def announce(self, call: CallParams) -> None:
        """Note a call that is looked at."""
        self._announced[call.tool_id] = call

    def ask(self, tool: str, args: Raw) -> tuple[str, Raw]:
        """Find the call that leave is asked for: its id and arguments, an empty id if it is not known."""
        waiting = [
            call
            for call in self._announced.values()
            if call.tool_name == tool and call.tool_id not in self._open and call.tool_id not in self._asked
        ]
        alike = [call for call in waiting if same(call.args, args)] or waiting[-1:]
        if not alike:
            return "", args
        self._asked.add(alike[0].tool_id)
        return alike[0].tool_id, alike[0].args

    def running_call(self, tool: str) -> str:
        """Give the id of the last call of `tool` that runs, empty if there is none."""
        return next((call_id for call_id, name in reversed(self._open.items()) if name == tool), "")

    def begin(self, call: CallParams, events: list[AgentEvent]) -> None:
        """Note that a call runs."""
        announced = self._announced.pop(call.tool_id, None)
        args = _without_type(call, announced)
        self._open[call.tool_id] = call.tool_name
        if call.tool_name == PLAN_TOOL:
            self._plan = _notes(args)
        events.append(ToolStarted(_call(call.tool_id, call.tool_name, args)))

    def time(self, call_id: str, milliseconds: float | None) -> None:
        """Note how long a call took."""
        if milliseconds is not None:
            self._times[call_id] = milliseconds

    def end(self, ended: ToolEndParams, events: list[AgentEvent], *, aborting: bool) -> str:
        """Note what came of a call; gives the plan if it made one."""
        call_id = ended.tool_id
        tool = self._open.pop(call_id, "")
        self.any_ended = True
        self._done.append(call_id)
        outcome = ToolOutcome.SUCCEEDED if ended.success else ToolOutcome.FAILED
        if not ended.success and aborting and ended.error == _ABORTED:
            outcome = ToolOutcome.CANCELLED
        milliseconds = self._times.pop(call_id, None)
        duration = None if milliseconds is None else round(milliseconds * MILLISECOND)
        events.append(ToolEnded(_result(call_id, outcome, ended.output, ended.error), duration))
        plan, self._plan = (self._plan, "") if tool == PLAN_TOOL and ended.success else ("", self._plan)
        return plan

    def settle(self, step: Step, events: list[AgentEvent]) -> tuple[str, ...]:
        """Tell the calls of a complete step of which nothing was told, and give the ids of all in the model's order."""
        self.denied = False
        for position, call in enumerate(step.tool_calls):
            result = step.tool_results[position] if position < len(step.tool_results) else None
            if result is not None and result.kind == _UNAUTHORIZED:
                self.denied = True
            if call.id in self._done:
                continue
            if call.id not in self._open:
                events.append(ToolStarted(_call(call.id, call.tool, call.args)))
            if result is not None:
                events.append(ToolEnded(_settled(call.id, result)))
        self.any_ended = self.any_ended or bool(step.tool_calls)
        self._forget()
        return tuple(call.id for call in step.tool_calls)

    def past_gate(self) -> tuple[str, ...]:
        """Give the calls that were complete when the agent went on without having told of a step, and forget them."""
        done = tuple(self._done)
        self._done.clear()
        return done

    def close(self, events: list[AgentEvent]) -> None:
        """End the turn: what still runs is told as cut off."""
        events.extend([ToolEnded(ToolResult(call_id, ToolOutcome.CANCELLED, None, _NO_END)) for call_id in self._open])
        self._forget()
        self.any_ended = self.denied = False
        self._plan = ""

    def _forget(self) -> None:
        for known in (self._announced, self._asked, self._open, self._times, self._done):
            known.clear()


def _call(call_id: str, tool: str, args: Raw) -> ToolCall:
    return ToolCall(call_id, tool, tool_kind(tool), _title(tool, args), json_of(args))


def _title(tool: str, args: Raw) -> str:
    try:
        subject = _decode_subject(args)
    except msgspec.DecodeError:
        return tool
    return call_title(
        tool,
        subject.command
        or subject.file_path
        or subject.path
        or subject.pattern
        or subject.query
        or subject.url
        or subject.question,
    )


def _result(call_id: str, outcome: ToolOutcome, output: str | None, error: str | None) -> ToolResult:
    if outcome is ToolOutcome.SUCCEEDED:
        return ToolResult(call_id, outcome, output, error)
    # A failure is told twice where there was no output of its own.
    return ToolResult(call_id, outcome, None if output == error or error is None else output, error or output or "")


def _settled(call_id: str, result: StepResult) -> ToolResult:
    if result.success:
        outcome = ToolOutcome.SUCCEEDED
    else:
        outcome = ToolOutcome.DENIED if result.kind == _UNAUTHORIZED else ToolOutcome.FAILED
    return _result(call_id, outcome, result.output, result.error)


def _without_type(call: CallParams, announced: CallParams | None) -> Raw:
    """Give the arguments that the call runs with, without the member `type` that the CLI added."""
    members = _members(call.args)
    if members is None or "type" not in members:
        return call.args
    before = None if announced is None else _members(announced.args)
    own = None if before is None else before.get("type")
    if own is None:
        del members["type"]
    else:
        members["type"] = own
    return Raw(msgspec.json.encode(members))


def _members(args: Raw) -> dict[str, Raw] | None:
    try:
        return _decode_members(args)
    except msgspec.DecodeError:
        return None


def _value(args: Raw) -> Any:
    try:
        return msgspec.json.decode(args)
    except msgspec.DecodeError:
        return None


def _notes(args: Raw) -> str:
    try:
        return _decode_plan(args).notes
    except msgspec.DecodeError:
        return ""

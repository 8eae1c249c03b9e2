"""One step: the calls of one reply, first asked for, then run."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steprail_scripted.asking import DECISIONS
from steprail_scripted.commands import CommandRunner
from steprail_scripted.model import Call, Reply, ToolResult
from steprail_scripted.staging import Change
from steprail_scripted.tools import TOOLS, Tool, execute
from steprail_scripted.wire import now_ms

if TYPE_CHECKING:
    from steprail_scripted.loop import Turn

SIDE_BY_SIDE = 5
SKIPPED = "Tool execution skipped by user."


class Planned:
    """A call on its way: it has a result without being run when it was refused."""

    def __init__(self, call_id: str, call: Call) -> None:
        self.call_id = call_id
        self.call = call
        self.tool: Tool | None = None
        self.result: ToolResult | None = None


class StepRunner:
    """Runs the steps of a turn, and is the host that its tools talk to."""

    def __init__(self, turn: "Turn") -> None:
        self._turn = turn
        self._process = turn.process
        self.commands = CommandRunner()
        self.workspace: Path = turn.process.options.workspace
        self.home: Path = turn.process.options.home
        self.interactive: bool = turn.process.options.interactive
        self.roots: list[Path] = turn.process.roots

    def run(self, reply: Reply) -> tuple[list[dict[str, Any]], list[ToolResult]]:
        """Run the calls of a reply; give them and their results in the order of the calls.

        The reply is in the history before the first call runs, the results only when all of them are there: an abort
        in between leaves calls without results, as with the CLI.
        """
        planned = [Planned(self._process.new_call_id(), call) for call in reply.calls]
        shown = [{"id": item.call_id, "tool": item.call.tool, "args": item.call.args} for item in planned]
        kept = [{"id": item.call_id, "name": item.call.tool, "args": item.call.args} for item in planned]
        self._process.conversation.add("assistant", reply.text, toolCalls=kept)
        for item in planned:
            self._admit(item)
            self._turn.check()
        for group in _groups([item for item in planned if item.result is None]):
            self._run_group(group)
            self._turn.check()
        results = [item.result for item in planned if item.result is not None]
        for item, result in zip(planned, results, strict=True):
            self._process.conversation.add("tool", result.text, toolCallId=item.call_id)
        return shown, results

    def _admit(self, item: Planned) -> None:
        name, args = item.call.tool, item.call.args
        item.tool = TOOLS.get(name)
        complaint = f"Unknown tool: {name}" if item.tool is None else item.tool.complaint(args)
        if item.tool is None or complaint is not None:
            item.result = ToolResult(name, success=False, error=complaint, kind="validation")
            return
        if self._forbidden(item.tool):
            text = f"Tool '{name}' was denied by the permission policy."
            item.result = ToolResult(name, success=False, output=text, error=text, kind="authorization")
            return
        self._turn.emit("hook.preTool", {"toolId": item.call_id, "toolName": name, "args": args})
        if item.tool.asks and not self._process.permissions.unrestricted:
            self._ask(item)

    def _forbidden(self, tool: Tool) -> bool:
        return (tool.asks and self._process.permissions.mode == "restricted") or (
            self._process.plan_mode and not tool.read_only
        )

    def _ask(self, item: Planned) -> None:
        name, args = item.call.tool, item.call.args
        key = "command" if name == "run_command" else "path"
        subject = " ".join([str(args[key]), *map(str, args.get("args") or [])])
        allowed = self._process.permissions.known(name, subject)
        replacement: str | None = None
        if allowed is None:
            answer = self._question(name, key, args)
            self._turn.check()
            verdict = self._process.permissions.read(name, subject, answer)
            allowed, replacement = verdict.allowed, verdict.replacement
        if not allowed or (replacement is not None and key != "command"):
            text = SKIPPED if replacement is None else replacement
            item.result = ToolResult(name, success=False, output=text, error=text, kind="authorization")
        elif replacement is not None:
            item.call = Call(name, {**args, "command": replacement, "args": []})

    def _question(self, name: str, key: str, args: dict[str, Any]) -> dict[str, Any] | None:
        self._turn.emit("hook.permissionRequest", {"tool": name, key: args[key], "args": args})
        request_id = self._process.wire.new_id("perm")
        lead = {"run_command": "Run this command?\n  $", "delete_file": "Delete this file?\n "}
        asked = {
            "requestId": request_id,
            "tool": name,
            "description": f"{lead.get(name, 'Write to this file?' + chr(10) + ' ')} {args[key]}",
            "context": {key: args[key]},
            "options": list(DECISIONS),
        }
        return self._process.questions.ask(
            "permission",
            request_id,
            lambda: self._turn.emit("permissionRequest", asked),
            self._turn.aborted.is_set,
        )

    def _run_group(self, group: Sequence[Planned]) -> None:
        began = now_ms()
        for item in group:
            args = {**item.call.args, "type": item.call.tool}
            self._turn.emit("toolStart", {"toolId": item.call_id, "toolName": item.call.tool, "args": args})
        self._turn.tool_count += len(group)
        if len(group) == 1:
            self._execute(group[0], began)
            return
        threads = [threading.Thread(target=self._execute, args=(item, began), daemon=True) for item in group]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _execute(self, item: Planned, began: int) -> None:
        assert item.tool is not None
        self._turn.strike("tool_start")
        result = execute(item.tool, self, item.call_id, item.call.args)
        item.result = result
        base = {"toolId": item.call_id, "toolName": result.tool, "success": result.success}
        with self._process.condition:
            self._turn.emit("hook.postTool", {**base, "duration": now_ms() - began, "output": result.text})
            error = {} if result.error is None else {"error": result.error}
            self._turn.emit("toolEnd", {**base, "output": result.text, **error})
        self._turn.strike("tool_end")

    # What a tool asks of its host.

    def run_command(self, args: dict[str, Any]) -> ToolResult:
        """Run a shell command."""
        return self.commands.run(args, self.workspace)

    def change_file(self, change: Change, tool_id: str) -> None:
        """Stage or make a change."""
        self._process.staging.record(change, self._announce)
        self._turn.emit(
            "hook.fileModified",
            {"filePath": change.shown_path, "changeType": change.kind, "toolId": tool_id},
        )

    def _announce(self, batch_id: str, change: Change) -> None:
        self._turn.emit("changesBatchUpdate", {"batchId": batch_id, "change": change.on_the_wire()})

    def ask_directory(self, path: str, reason: str) -> bool:
        """Ask the host for a folder outside the workspace."""
        request_id = self._process.wire.new_id("dir")
        asked = {"requestId": request_id, "path": path, "reason": reason}
        answer = self._process.questions.ask(
            "directory",
            request_id,
            lambda: self._turn.emit("directoryAccessRequest", asked),
            self._turn.aborted.is_set,
        )
        return answer is not None and answer.get("granted") is True

    def leave_plan_mode(self) -> bool:
        """Leave plan mode if that needs nobody's consent."""
        if self.interactive and not self._process.permissions.unrestricted:
            return False
        self._process.plan_mode = False
        return True

    def note(self, kind: str, message: str) -> None:
        """Send `hook.notification`."""
        self._turn.emit("hook.notification", {"notificationType": kind, "message": message})


def _groups(items: Sequence[Planned]) -> Iterator[list[Planned]]:
    """Bring neighbouring read-only calls together; everything else runs alone."""
    group: list[Planned] = []
    for item in items:
        read_only = item.tool is not None and item.tool.read_only
        if group and (not read_only or len(group) == SIDE_BY_SIDE):
            yield group
            group = []
        if read_only:
            group.append(item)
        else:
            yield [item]
    if group:
        yield group

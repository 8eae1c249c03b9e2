"""The tools: what the agent can really do in a workspace."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from steprail_scripted.model import ToolResult
from steprail_scripted.staging import Change

SKIPPED_FOLDERS = frozenset({".git", ".autohand", ".venv", "node_modules", "__pycache__"})
LIST_LIMIT = 500
MATCH_LIMIT = 200
OPTIONAL: dict[str, type] = {"path": str, "offset": int, "limit": int, "args": list, "timeout": int, "background": bool}
"""Types of the arguments that a tool can do without."""
SEARCHED_FILE_LIMIT = 1_000_000
"""Bytes above which a file is not searched."""


class Host(Protocol):
    """What a tool needs from the turn that it runs in."""

    workspace: Path
    home: Path
    roots: list[Path]
    interactive: bool

    def run_command(self, args: dict[str, Any]) -> ToolResult:
        """Run a shell command."""
        ...

    def change_file(self, change: Change, tool_id: str) -> None:
        """Stage or make a change."""
        ...

    def ask_directory(self, path: str, reason: str) -> bool:
        """Ask the host for a folder outside the workspace."""
        ...

    def leave_plan_mode(self) -> bool:
        """Leave plan mode if that needs nobody's consent, and say whether it was left."""
        ...

    def note(self, kind: str, message: str) -> None:
        """Send `hook.notification`."""
        ...


class ToolError(Exception):
    """A call that did not work; the text is for the model."""


class Tool(NamedTuple):
    """A tool. `read_only` ones run side by side and in plan mode; `asks` ones need permission."""

    name: str
    required: tuple[str, ...]
    run: Callable[[Host, str, dict[str, Any]], ToolResult]
    read_only: bool = True
    asks: bool = False

    def complaint(self, args: dict[str, Any]) -> str | None:
        """Say what is wrong with the arguments, if anything."""
        for name in self.required:
            if not isinstance(args.get(name), str):
                return f"Invalid arguments for {self.name}: '{name}' must be a string"
        for name, kind in OPTIONAL.items():
            if name in args and not isinstance(args[name], kind):
                return f"Invalid arguments for {self.name}: '{name}' must be of type {kind.__name__}"
        return None


def execute(tool: Tool, host: Host, tool_id: str, args: dict[str, Any]) -> ToolResult:
    """Run a tool; what goes wrong is a result."""
    try:
        return tool.run(host, tool_id, args)
    except (ToolError, OSError, ValueError) as error:
        return ToolResult(tool.name, success=False, error=str(error), kind="operational")


def _inside(host: Host, given: str) -> Path:
    path = (host.workspace / given).resolve()
    if not any(path.is_relative_to(root) for root in host.roots):
        allowed = ", ".join(str(root) for root in host.roots)
        raise ToolError(f"Path {given} escapes the allowed directories: {allowed}")
    return path


def _existing(host: Host, given: str) -> Path:
    path = _inside(host, given)
    if not path.is_file():
        raise ToolError(f"File {given} not found in workspace.")
    return path


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _read_file(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    lines = _read_text(_existing(host, args["path"])).splitlines()
    first = int(args.get("offset") or 0)
    last = first + int(args["limit"]) if args.get("limit") else len(lines)
    numbered = [f"{number:6d}\t{line}" for number, line in enumerate(lines, start=1)]
    return ToolResult("read_file", success=True, output="\n".join(numbered[first:last]))


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in SKIPPED_FOLDERS:
                yield from _files(path)
        else:
            yield path


def _cut(found: list[str], limit: int) -> str:
    more = [f"... and {len(found) - limit} more"] if len(found) > limit else []
    return "\n".join(found[:limit] + more)


def _list_tree(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    root = _inside(host, args.get("path") or ".")
    found = [str(path.relative_to(root)) for path in _files(root)]
    return ToolResult("list_tree", success=True, output=_cut(found, LIST_LIMIT))


def _glob(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    found = [str(path.relative_to(host.workspace)) for path in _files(host.workspace) if path.match(args["pattern"])]
    return ToolResult("glob", success=True, output=_cut(found, LIST_LIMIT) or "No files found.")


def _search(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    root = _inside(host, args.get("path") or ".")
    try:
        wanted = re.compile(args["query"])
    except re.error as error:
        raise ToolError(f"Invalid pattern {args['query']!r}: {error}") from error
    found = [
        f"{path.relative_to(host.workspace)}:{number}:{line.strip()[:200]}"
        for path in (_files(root) if root.is_dir() else [root])
        if path.is_file() and path.stat().st_size <= SEARCHED_FILE_LIMIT
        for number, line in enumerate(_read_text(path).splitlines(), start=1)
        if wanted.search(line)
    ]
    return ToolResult("search", success=True, output=_cut(found, MATCH_LIMIT) or "No matches found.")


def _change(host: Host, tool_id: str, given: str, proposed: str | None) -> Change:
    path = _inside(host, given)
    exists = path.is_file()
    original = path.read_text(encoding="utf-8", errors="surrogateescape") if exists else ""
    kind = "delete" if proposed is None else "modify" if exists else "create"
    change = Change(path, given, kind, original, proposed)
    host.change_file(change, tool_id)
    return change


def _diff(change: Change) -> str:
    before, after = change.original.splitlines(), (change.proposed or "").splitlines()
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    added, removed = after[same:], before[same:]
    lines = [f"  Added {_lines(len(added))}, removed {_lines(len(removed))}"]
    lines += [f"{number:4d} -  {line}".ljust(97) for number, line in enumerate(removed, start=same + 1)]
    lines += [f"{number:4d} +  {line}".ljust(97) for number, line in enumerate(added, start=same + 1)]
    return "\n".join(lines)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _write_file(host: Host, tool_id: str, args: dict[str, Any]) -> ToolResult:
    return ToolResult("write_file", success=True, output=_diff(_change(host, tool_id, args["path"], args["contents"])))


def _edit_file(host: Host, tool_id: str, args: dict[str, Any]) -> ToolResult:
    text = _existing(host, args["path"]).read_text(encoding="utf-8", errors="surrogateescape")
    count = text.count(args["old"])
    if count != 1:
        raise ToolError(f"The text to replace occurs {count} times in {args['path']}; it has to occur once.")
    change = _change(host, tool_id, args["path"], text.replace(args["old"], args["new"]))
    return ToolResult("edit_file", success=True, output=_diff(change))


def _delete_file(host: Host, tool_id: str, args: dict[str, Any]) -> ToolResult:
    _existing(host, args["path"])
    _change(host, tool_id, args["path"], None)
    return ToolResult("delete_file", success=True, output=f"Deleted {args['path']}")


def _run_command(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    return host.run_command(args)


def _plan(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    folder = host.home / "plans"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"plan-{os.urandom(4).hex()}.md"
    path.write_text(args["notes"], encoding="utf-8", errors="replace")
    steps = sum(1 for line in args["notes"].splitlines() if line.strip())
    return ToolResult(
        "plan",
        success=True,
        output=f"Plan saved to {path} ({steps} step(s)).\n\n"
        "Call `exit_plan_mode` when you are ready to present the plan to the user for approval.",
    )


def _exit_plan_mode(host: Host, _: str, __: dict[str, Any]) -> ToolResult:
    if host.leave_plan_mode():
        output = "Plan accepted with option: auto_accept. Starting execution..."
        return ToolResult("exit_plan_mode", success=True, output=output)
    return ToolResult(
        "exit_plan_mode", success=True, output="Plan not accepted. Staying in planning mode for revisions."
    )


def _ask_followup(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    if not host.interactive:
        output = "<answer>Skipped (non-interactive mode)</answer>"
        return ToolResult("ask_followup_question", success=True, output=output)
    host.note("question", f"Question: {args['question']}")
    return ToolResult(
        "ask_followup_question",
        success=True,
        output="<answer>User cancelled the question. Do NOT call ask_followup_question again. "
        "Continue with your best judgment or provide a final response.</answer>",
    )


def _request_directory(host: Host, _: str, args: dict[str, Any]) -> ToolResult:
    if not host.ask_directory(args["path"], args["reason"]):
        raise ToolError(f"Access denied to directory: {args['path']}")
    host.roots.append(Path(args["path"]).resolve())
    output = (
        f"Access granted to directory: {args['path']}\n\nYou can now use file tools "
        "(read_file, write_file, glob, find, etc.) to work with files in this directory."
    )
    return ToolResult("request_directory_access", success=True, output=output)


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("read_file", ("path",), _read_file),
        Tool("list_tree", (), _list_tree),
        Tool("glob", ("pattern",), _glob),
        Tool("search", ("query",), _search),
        Tool("write_file", ("path", "contents"), _write_file, read_only=False, asks=True),
        Tool("edit_file", ("path", "old", "new"), _edit_file, read_only=False, asks=True),
        Tool("delete_file", ("path",), _delete_file, read_only=False, asks=True),
        Tool("run_command", ("command",), _run_command, read_only=False, asks=True),
        Tool("plan", ("notes",), _plan),
        Tool("exit_plan_mode", (), _exit_plan_mode),
        Tool("ask_followup_question", ("question",), _ask_followup),
        Tool("request_directory_access", ("path", "reason"), _request_directory),
    )
}

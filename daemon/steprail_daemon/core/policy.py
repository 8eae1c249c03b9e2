"""What an agent is allowed when it asks for leave: the operator's rules, the caller's, what people granted, the mode.

**Order.** The operator's rules come first: one that denies wins wherever it stands, else the first that matches. The
caller's rules are read in the same way and only narrow: they can turn an allow into an ask or a deny, never the other
way round where the operator said something. What neither rules on is the mode's. What a person allowed for the session
needs nobody's leave again, unless a rule denies it. READ_ONLY denies whatever changes or executes, whoever allows it.

**In doubt.** A rule that denies matches if any of several commands or paths match, one that allows or asks only if
each of them does; a condition that cannot be told (a command that substitutes others, an expression without a result)
holds for a rule that denies and does not hold for one that allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from steprail_daemon.core import shell
from steprail_daemon.core.globs import name_matches, path_matches
from steprail_daemon.core.model import PermissionAction, PermissionMode, PermissionRule, ToolKind


class Ruling(msgspec.Struct, frozen=True):
    """What policy says about a permission: ALLOW and DENY settle it, ASK leaves it to people. `reason` is for them."""

    action: PermissionAction
    reason: str

    @property
    def allow(self) -> bool:
        """Whether it settles it by allowing."""
        return self.action is PermissionAction.ALLOW


class ToolAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked leave for. `paths` are absolute with symlinks resolved, `cwd` the session's directory likewise.

    `command` is None for a tool that runs none. `told` is false if the arguments do not tell: they cannot be read.
    """

    tool: str
    tool_kind: ToolKind
    arguments_json: str
    cwd: str
    command: str | None = None
    paths: tuple[str, ...] = ()
    told: bool = True


class Subject(msgspec.Struct, frozen=True):
    """What a tool's arguments tell: the command it runs, if any, and paths as the agent wrote them.

    `told` is false if they may be about a command or a path that could not be read.
    """

    command: str | None = None
    paths: tuple[str, ...] = ()
    told: bool = True


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """All that a permission is judged by. `grants` are pairs of tool and arguments that a person allowed before.

    `allowed_tools` empty: all; `disallowed_tools` win.
    """

    mode: PermissionMode
    operator: tuple[PermissionRule, ...] = ()
    caller: tuple[PermissionRule, ...] = ()
    grants: frozenset[tuple[str, str]] = frozenset()
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()


#: What the agent's model is told on a denial: neutral and the same for every cause.
DENIAL_MESSAGE = "This tool is not allowed here. Go on without it."

_ALLOW = PermissionAction.ALLOW
_DENY = PermissionAction.DENY
_ASK = PermissionAction.ASK

#: What an ask has before policy looked at it, and what the mode ASK says.
ASK_PEOPLE = Ruling(_ASK, "permission mode ASK leaves it to people")

_READING = frozenset({ToolKind.READ, ToolKind.SEARCH})

_ALLOW_ASK_READ = Ruling(_ALLOW, "permission mode ASK allows tools that read or search")
_ALLOW_BYPASS = Ruling(_ALLOW, "permission mode BYPASS allows every tool")
_ALLOW_EDIT = Ruling(_ALLOW, "permission mode ACCEPT_EDITS allows edits under the session's directory")
_ALLOW_EDIT_READ = Ruling(_ALLOW, "permission mode ACCEPT_EDITS allows tools that read or search")
_ASK_EDIT = Ruling(_ASK, "permission mode ACCEPT_EDITS leaves what is no edit under the session's directory to people")
_ALLOW_READ = Ruling(_ALLOW, "permission mode READ_ONLY allows tools that read or search")
_DENY_READ = Ruling(_DENY, "permission mode READ_ONLY allows only tools that read or search")
_GRANTED = Ruling(_ALLOW, "it was allowed for the session")
_DISALLOWED = Ruling(_DENY, "the session does not use this tool")

#: Denials whatever the policy is.
DENY_ABORTING = Ruling(_DENY, "the run is being aborted")
DENY_STOPPING = Ruling(_DENY, "the run is being stopped")
DENY_PAST_GATE = Ruling(_DENY, "the agent had to wait at a step boundary")

_MAX_TOOL = 256
_MAX_COMMAND = 4096
_MAX_PATH = 4096
_MAX_CEL = 2048
_MAX_REASON = 4096

#: Names under which agents pass a command, and paths, in the arguments of their tools.
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("file_path", "path", "notebook_path", "filePath", "absolute_path", "directory", "dir", "paths", "files")


def judge(policy: Policy, ask: ToolAsk, expressions: Mapping[str, bool | None] | None = None) -> Ruling:
    """Rule on an ask. `expressions` has the result of each CEL source of the rules, None where there is none."""
    results = expressions or {}
    operator = _first(policy.operator, ask, results, "operator policy")
    caller = _first(policy.caller, ask, results, "a rule of the session")
    for ruling in (operator, _tools(policy, ask), caller):
        if ruling is not None and ruling.action is _DENY:
            return ruling
    by_mode = _mode(policy.mode, ask)
    if by_mode.action is _DENY:
        return by_mode
    if (ask.tool, canonical(ask.arguments_json)) in policy.grants:
        return _GRANTED
    # Whoever asks for more care is heard.
    for ruling in (operator, caller):
        if ruling is not None and ruling.action is _ASK:
            return ruling
    return operator or caller or by_mode


def expressions_of(policy: Policy) -> tuple[str, ...]:
    """Give the CEL sources that `judge` wants results of, each once."""
    return tuple(dict.fromkeys(rule.cel for rule in (*policy.operator, *policy.caller) if rule.cel))


def _first(
    rules: Sequence[PermissionRule], ask: ToolAsk, results: Mapping[str, bool | None], whose: str
) -> Ruling | None:
    matching = [rule for rule in rules if _matches(rule, ask, results)]
    chosen = next((rule for rule in matching if rule.action is _DENY), matching[0] if matching else None)
    if chosen is None:
        return None
    words = {_ALLOW: "allows", _DENY: "denies", _ASK: "asks people about"}[chosen.action]
    return Ruling(chosen.action, chosen.reason or f"{whose} {words} {ask.tool}")


def _tools(policy: Policy, ask: ToolAsk) -> Ruling | None:
    if ask.tool in policy.disallowed_tools or (policy.allowed_tools and ask.tool not in policy.allowed_tools):
        return _DISALLOWED
    return None


def _mode(mode: PermissionMode, ask: ToolAsk) -> Ruling:
    reads = ask.tool_kind in _READING
    if mode is PermissionMode.BYPASS:
        return _ALLOW_BYPASS
    if mode is PermissionMode.ACCEPT_EDITS:
        if reads:
            return _ALLOW_EDIT_READ
        return _ALLOW_EDIT if ask.tool_kind is ToolKind.EDIT and _all_inside(ask) else _ASK_EDIT
    if mode is PermissionMode.READ_ONLY:
        return _ALLOW_READ if reads else _DENY_READ
    return _ALLOW_ASK_READ if reads else ASK_PEOPLE


def _all_inside(ask: ToolAsk) -> bool:
    return bool(ask.paths) and all(_relative(path, ask.cwd) is not None for path in ask.paths)


def _matches(rule: PermissionRule, ask: ToolAsk, results: Mapping[str, bool | None]) -> bool:
    if rule.tool and not name_matches(rule.tool, ask.tool):
        return False
    if not ask.told and (rule.command_prefix or rule.path):
        return rule.action is _DENY
    if rule.command_prefix and not _command_matches(rule, ask.command):
        return False
    if rule.path and not _path_matches(rule, ask):
        return False
    if rule.cel:
        held = results.get(rule.cel)
        return rule.action is _DENY if held is None else held
    return True


def _command_matches(rule: PermissionRule, command: str | None) -> bool:
    if command is None:
        return False
    line = shell.split(command)
    prefix = shell.split(rule.command_prefix).commands[0]
    if rule.action is _DENY:
        return not line.clear or any(shell.may_begin_with(one, prefix) for one in line.commands)
    return line.clear and not line.redirected and all(shell.begins_with(one, prefix) for one in line.commands)


def _path_matches(rule: PermissionRule, ask: ToolAsk) -> bool:
    found = [_one_path_matches(rule.path, path, ask.cwd) for path in ask.paths]
    return any(found) if rule.action is _DENY else bool(found) and all(found)


def _one_path_matches(pattern: str, path: str, cwd: str) -> bool:
    if pattern.startswith("/"):
        return path_matches(pattern, path)
    relative = _relative(path, cwd)
    return relative is not None and path_matches(pattern, relative)


def _relative(path: str, cwd: str) -> str | None:
    """Give a path as seen from the session's directory; None if it lies elsewhere."""
    if path == cwd:
        return "."
    root = cwd.rstrip("/") + "/"
    return path[len(root) :] if path.startswith(root) else None


# --- what a tool's arguments tell -----------------------------------------------------------------------------------


def subject(arguments_json: str) -> Subject:
    """Give the command and the paths in a tool's arguments, by the names that agents give them."""
    arguments = _parsed(arguments_json or "{}")
    if not isinstance(arguments, dict):
        return Subject(told=False)
    given = [arguments[key] for key in _COMMAND_KEYS if arguments.get(key) is not None]
    command = _command(given[0], arguments.get("args")) if given else None
    paths: list[str] = []
    readable = len(given) <= 1 and (command is not None or not given)
    for key in _PATH_KEYS:
        value = arguments.get(key)
        found = value if isinstance(value, list) else [value]
        readable = readable and all(path is None or isinstance(path, str) for path in found)
        paths += [path for path in found if isinstance(path, str) and path]
    return Subject(command, tuple(dict.fromkeys(paths)), readable)


def _command(value: object, more: object) -> str | None:
    """Give a command with the arguments that a tool takes apart from it; None if that is none."""
    if isinstance(value, str):
        # Some agents quote the rest and some do not: what they would run unquoted must be seen.
        words = [value, *more] if isinstance(more, list) else [value]
        return " ".join(words) if all(isinstance(word, str) for word in words) else None
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(["'" + word.replace("'", "'\\''") + "'" for word in value])
    return None


def canonical(arguments_json: str) -> str:
    """Give arguments so that the same ones read the same; what is no JSON, or nested too deep, stays as it is."""
    parsed = _parsed(arguments_json)
    return arguments_json if parsed is None else msgspec.json.encode(parsed, order="deterministic").decode()


def _parsed(text: str) -> object:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


# --- rules ------------------------------------------------------------------------------------------------------------


def problem(rule: PermissionRule) -> str:
    """Say what is wrong with a rule: the field within it, what that holds, what is accepted; empty if nothing is."""
    conditions = (
        ("tool", rule.tool, _MAX_TOOL),
        ("command_prefix", rule.command_prefix, _MAX_COMMAND),
        ("path", rule.path, _MAX_PATH),
        ("cel", rule.cel, _MAX_CEL),
        ("reason", rule.reason, _MAX_REASON),
    )
    for field, text, most in conditions:
        size = len(text.encode())
        if size > most:
            return f"{field} has {size} bytes; accepted are at most {most}"
    if not any(text for field, text, _ in conditions if field != "reason"):
        return "no condition is set; accepted are tool, command_prefix, path and cel, at least one of them"
    if rule.command_prefix:
        line = shell.split(rule.command_prefix)
        if not line.clear or line.redirected or len(line.commands) != 1 or None in line.commands[0]:
            return f"command_prefix is {rule.command_prefix!r}; accepted is the beginning of one plain command"
    if ".." in rule.path.split("/"):
        return f"path is {rule.path!r}; accepted are globs without '..', for paths are resolved before"
    return ""

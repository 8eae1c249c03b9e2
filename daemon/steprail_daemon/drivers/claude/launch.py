"""How Claude Code is started: arguments, environment, and which versions it may be."""

from __future__ import annotations

from typing import Final

from steprail_daemon.core.model import PermissionMode
from steprail_daemon.drivers.base import LaunchPlan, LaunchSpec, ProbeResult, version_range
from steprail_daemon.drivers.claude.controls import mode_word
from steprail_daemon.drivers.claude.edits import EDITING

#: The first version known to confirm in its handshake that the gate's hook is in force and fails closed. 2.1.197 runs
#: the same hook and says nothing about it, so it cannot be told from a version that ignores it; what lies between was
#: not tried. Whatever the version, a session counts as gated only by what its own process answers.
OLDEST: Final = (2, 1, 332)
#: The first major version that is not known.
BEYOND: Final = (3, 0, 0)

#: Nothing but the work itself: no updates, no telemetry, no title or quota requests. Background tasks are off because
#: what they finish starts a turn that no prompt asked for: 2.1.332 made a model request by itself one second after its
#: `result`, when a shell in the background ended. Without them there is no request outside of a run.
QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_BUG_COMMAND": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}

_PROTOCOL: Final = (
    "-p",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",
    "--include-partial-messages",
    "--forward-subagent-text",
    "--permission-prompt-tool=stdio",
)

#: Work that the CLI would begin by itself after the run, or go on with beside it.
_NO_TOOLS: Final = ("CronCreate", "ScheduleWakeup", "Workflow")

#: What a session may ask for beyond the mode and the model.
OPTIONS: Final = frozenset({"allowed_tools", "disallowed_tools", "instructions"})


def plan(spec: LaunchSpec) -> LaunchPlan:
    """Describe the start. Values from outside go in the form `--option=value`, so that none can be an option."""
    # Allow rules in the user's own settings would let edits through without asking.
    read_only = sorted(EDITING) if spec.permission_mode is PermissionMode.READ_ONLY else ()
    forbidden = dict.fromkeys((*_NO_TOOLS, *read_only, *spec.disallowed_tools))
    argv = [
        *spec.command,
        *_PROTOCOL,
        f"--permission-mode={mode_word(spec.permission_mode, plan_mode=spec.plan_mode)}",
        f"--disallowedTools={','.join(forbidden)}",
        f"--resume={spec.agent_session_id}" if spec.resume else f"--session-id={spec.agent_session_id}",
    ]
    if spec.allowed_tools:
        # `--allowedTools` would be the opposite: tools that are used without asking.
        argv.append(f"--tools={','.join(spec.allowed_tools)}")
    if spec.instructions:
        argv.append(f"--append-system-prompt={spec.instructions}")
    if spec.model:
        argv.append(f"--model={spec.model}")
    environment = dict(QUIET)
    directories: tuple[str, ...] = ()
    if spec.isolated_home:
        config = f"{spec.isolated_home}/.claude"
        argv += ["--setting-sources=", "--strict-mcp-config"]
        environment |= {"HOME": spec.isolated_home, "CLAUDE_CONFIG_DIR": config}
        directories = (spec.isolated_home, config)
    return LaunchPlan(argv=tuple(argv), environment=environment, directories=directories)


def read_version(output: bytes, code: int | None) -> ProbeResult:
    """Read what `--version` printed, such as `2.1.332 (Claude Code)`, and judge the version."""
    said = output.decode("utf-8", "replace").strip()
    word = said.split(" ", 1)[0]
    if code != 0 or "(Claude Code)" not in said:
        ended = "did not end" if code is None else f"ended with code {code}"
        return ProbeResult("", f"`--version` {ended} and said {said[:200]!r}, which is not Claude Code's answer")
    version = _parsed(word)
    accepted = version_range(OLDEST, BEYOND)
    if version is None:
        return ProbeResult(word, f"version {word!r} cannot be read; accepted: {accepted}")
    if not OLDEST <= version < BEYOND:
        return ProbeResult(word, f"version {word} is not supported; accepted: {accepted}")
    return ProbeResult(word)


def _parsed(word: str) -> tuple[int, ...] | None:
    parts = word.split("-", 1)[0].split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part) for part in parts)

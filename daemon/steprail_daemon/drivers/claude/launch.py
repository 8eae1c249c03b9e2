"""How Claude Code is started: arguments, environment, and which versions it may be."""

from __future__ import annotations

from typing import Final

from steprail_daemon.core.model import PermissionMode
from steprail_daemon.drivers.base import LaunchPlan, LaunchSpec, ProbeResult

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
    "--permission-prompt-tool=stdio",
)

#: READ_ONLY is not the CLI's mode `plan`: that one changes what the model is told to do (make a plan and ask for leave
#: to carry it out), while in `default` it works as usual, and every tool that changes something asks and is denied.
#: BYPASS is `default` too: the CLI refuses its own bypass to root, and the daemon allows whatever it is asked.
_MODES: Final = {
    PermissionMode.ASK: "default",
    PermissionMode.ACCEPT_EDITS: "acceptEdits",
    PermissionMode.READ_ONLY: "default",
    PermissionMode.BYPASS: "default",
}

#: A question to a person that nobody is shown; work that the CLI would begin by itself after the run.
_NO_TOOLS: Final = ("AskUserQuestion", "CronCreate", "ScheduleWakeup")
#: Allow rules in the user's own settings would let these through without asking.
_EDITING_TOOLS: Final = ("Edit", "MultiEdit", "NotebookEdit", "Write")


def plan(spec: LaunchSpec) -> LaunchPlan:
    """Describe the start. Values from outside go in the form `--option=value`, so that none can be an option."""
    forbidden = _NO_TOOLS + (_EDITING_TOOLS if spec.permission_mode is PermissionMode.READ_ONLY else ())
    argv = [
        *spec.command,
        *_PROTOCOL,
        f"--permission-mode={_MODES[spec.permission_mode]}",
        f"--disallowedTools={','.join(forbidden)}",
        f"--resume={spec.agent_session_id}" if spec.resume else f"--session-id={spec.agent_session_id}",
    ]
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
    accepted = f"{_dotted(OLDEST)} or later, below {_dotted(BEYOND)}"
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


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)

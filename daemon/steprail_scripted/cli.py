"""The command line: the flags of the CLI, checked as the CLI checks them, and three of our own."""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from steprail_scripted import AUTOHAND_VERSION
from steprail_scripted.agent import Agent
from steprail_scripted.fields import ScriptError
from steprail_scripted.process import Options, Process
from steprail_scripted.rpc import INTERNAL_ERROR, NOT_AUTHENTICATED, STARTUP_FAILED, RpcError
from steprail_scripted.script import Script
from steprail_scripted.sessions import default_home
from steprail_scripted.wire import Wire

SCRIPT_VARIABLE = "STEPRAIL_SCRIPTED_SCRIPT"
SWITCHES = [
    "--unrestricted",
    "--restricted",
    "--yes",
    "-y",
    "--dry-run",
    "--bare",
    "--offline",
    "--worktree",
    "--context-compact",
    "--no-context-compact",
    "--no-idle-logout",
    "--debug",
    "-d",
    "--version",
    "-V",
    "--help",
    "-h",
]
VALUES = [
    "--mode",
    "--path",
    "--dir",
    "--model",
    "--config",
    "--temperature",
    "--thinking",
    "--yolo",
    "--timeout",
    "--add-dir",
    "--sys-prompt",
    "--system-prompt",
    "--system-prompt-file",
    "--append-sys-prompt",
    "--append-system-prompt",
    "--append-system-prompt-file",
    "--mcp-config",
    "--agents",
    "--plugin-dir",
    "--fork",
    "--client-context",
    "--display-language",
    "--search-engine",
    "--max-iterations",
    "--max-runtime",
    "--max-cost",
    "--completion-promise",
    "--checkpoint-interval",
    "--script",
    "--home",
]
SYSTEM_FOLDERS = frozenset(["/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/sbin", "/sys", "/usr", "/var"])
HELP = """\
Usage: steprail-scripted --mode rpc --path DIR [options]

The built-in agent of steprail: speaks the JSON-RPC dialect of Autohand CLI on stdin and stdout.

  --mode rpc        the only mode
  --path DIR        the workspace (--dir is the same); default: the current folder
  --script FILE     what to do, as YAML (also STEPRAIL_SCRIPTED_SCRIPT); default: look around, read, report
  --home DIR        where sessions are saved (also STEPRAIL_SCRIPTED_HOME, AUTOHAND_HOME)
  --model NAME      the model's name, as reported
  --unrestricted    ask for no permission
  --restricted      refuse what would need permission
  --yes, -y         accept plans without asking
  --add-dir DIR     another folder that may be read and written; may be repeated
  --version         the version of Autohand CLI whose dialect this is

Other flags of Autohand CLI are accepted and have no effect.
"""


class UsageError(Exception):
    """The command line cannot be understood."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent; the result is the exit code. Once it served, the process ends here."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        flags = parse(arguments)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if "--version" in flags or "-V" in flags:
        sys.stdout.write(f"{AUTOHAND_VERSION} (steprail-scripted)\n")
        return 0
    if "--help" in flags or "-h" in flags:
        sys.stdout.write(HELP)
        return 0
    code = _serve(flags)
    # Threads that hang on purpose, or wait for a command, do not keep the process.
    os._exit(code)


def parse(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Read the flags into lists of their values.

    Raises:
        UsageError: a flag is unknown, or lacks its value.
    """
    flags: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in SWITCHES and not equals:
            flags.setdefault(name, [])
        elif name == "--yolo":  # its pattern may be left out
            flags.setdefault(name, []).append(value or (rest.pop(0) if rest and not rest[0].startswith("-") else ""))
        elif name in VALUES and (equals or rest):
            flags.setdefault(name, []).append(value if equals else rest.pop(0))
        elif name in VALUES:
            raise UsageError(f"option '{name}' argument missing")
        else:
            raise UsageError(f"unknown option '{name}'" if name.startswith("-") else f"unexpected argument '{name}'")
    if (mode := flags.get("--mode", ["rpc"])[-1]) != "rpc":
        raise UsageError(f"option '--mode' is '{mode}'; the built-in agent has the mode 'rpc' only")
    return flags


def _serve(flags: dict[str, list[str]]) -> int:
    wire = Wire(sys.stdout.fileno())
    try:
        script = _script(flags)
        options = _options(flags, script)
        _start_up(script)
        process = Process(options, script, wire)
    except RpcError as error:
        wire.send(error.answer(None))
        wire.flush()
        return 1
    except OSError as error:
        wire.send(RpcError(STARTUP_FAILED, f"Sessions cannot be saved: {error}").answer(None))
        wire.flush()
        return 1
    if options.debug:
        sys.stderr.write(f"[DEBUG] Initial provider: scripted, model: {options.model}\n")
        sys.stderr.flush()
    return Agent(process, sys.stdin.fileno()).serve()


def _script(flags: dict[str, list[str]]) -> Script:
    name = flags["--script"][-1] if "--script" in flags else os.environ.get(SCRIPT_VARIABLE)
    if not name:
        return Script()
    # The loader is a third of the start-up, and a default plan does without it.
    from steprail_scripted.loading import load_file  # noqa: PLC0415

    try:
        return load_file(Path(name))
    except ScriptError as error:
        sys.stderr.write(f"error: {error}\n")
        raise RpcError(STARTUP_FAILED, str(error)) from error


def _options(flags: dict[str, list[str]], script: Script) -> Options:
    given = (flags.get("--path") or flags.get("--dir") or ["."])[-1]
    workspace = Path(given).resolve()
    if not workspace.is_dir():
        raise RpcError(INTERNAL_ERROR, f"Workspace path does not exist: {given}")
    if str(workspace) in SYSTEM_FOLDERS or workspace == Path.home():
        raise RpcError(INTERNAL_ERROR, f"Workspace path is not allowed: {given}")
    mode = "unrestricted" if "--unrestricted" in flags else "restricted" if "--restricted" in flags else "interactive"
    silent = os.environ.get("AUTOHAND_NON_INTERACTIVE") == "1" or "--yes" in flags or "-y" in flags
    return Options(
        workspace=workspace,
        home=Path(flags["--home"][-1]) if "--home" in flags else default_home(),
        model=flags.get("--model", [script.model])[-1],
        permission_mode=mode,
        interactive=not silent,
        debug="--debug" in flags or "-d" in flags,
        extra_roots=tuple(Path(name).resolve() for name in flags.get("--add-dir", [])),
    )


def _start_up(script: Script) -> None:
    if script.startup.delay:
        threading.Event().wait(script.startup.delay)
    if script.startup.error == "authentication":
        data = {"kind": "authentication_required", "stage": "startup", "retryable": True, "providerId": "scripted"}
        raise RpcError(NOT_AUTHENTICATED, "Authentication required. Run `autohand login` first.", data)
    if script.startup.error == "failed":
        raise RpcError(STARTUP_FAILED, "Start-up failed")

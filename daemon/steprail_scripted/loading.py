"""Reads scripts from YAML; what is wrong is said with the field's path, the value found and what is accepted."""

import re
import signal
from pathlib import Path
from typing import Any

from steprail_scripted.faults import POINTS, Fault, Orphan
from steprail_scripted.fields import Node, ScriptError
from steprail_scripted.model import Call, ProviderError, Reply, Usage
from steprail_scripted.script import Bootstrap, Script, Startup, Timers, TurnScript
from steprail_scripted.tools import TOOLS

LINE_LIMIT = 256 * 1024 * 1024
REPEATS = ("plan", "last", "all")
SCRIPT_KEYS = (
    "model",
    "context_window",
    "max_iterations",
    "guards",
    "report_usage",
    "vision",
    "repeat",
    "timers",
    "startup",
    "turns",
    "faults",
)
ACTIONS = ("delay", "hang", "exit", "signal", "print", "stderr", "line_bytes", "json_line_bytes", "notify", "orphan")


def load_file(path: Path) -> Script:
    """Read a script file.

    Raises:
        ScriptError: it cannot be read, is no YAML, or a field is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"script {path}: cannot be read: {error}") from error
    return load_text(text)


def load_text(text: str) -> Script:
    """Read a script.

    Raises:
        ScriptError: it is no YAML, or a field is wrong.
    """
    # Costs a third of the start-up time, and a default plan does without it.
    import yaml  # noqa: PLC0415

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScriptError(f"script: not valid YAML: {error}") from error
    return _script(Node("script", value if value is not None else {}))


def _script(node: Node) -> Script:
    fields = node.mapping(SCRIPT_KEYS)
    return Script(
        model=fields.text("model", "scripted"),
        context_window=fields.integer("context_window", 112_000, low=1_000),
        max_iterations=fields.integer("max_iterations", 100, low=1),
        guards=fields.boolean("guards", default=False),
        report_usage=fields.boolean("report_usage", default=True),
        vision=fields.boolean("vision", default=False),
        repeat=fields.choice("repeat", REPEATS) or "plan",
        timers=_timers(fields.node("timers")),
        startup=_startup(fields.node("startup")),
        turns=tuple(_turn(item) for item in fields.items("turns")),
        faults=_faults(fields.items("faults")),
    )


def _timers(node: Node | None) -> Timers:
    if node is None:
        return Timers()
    default = Timers()
    names = [name for name in Timers._fields if name != "retries"]
    fields = node.mapping(Timers._fields)
    values = {name: fields.number(name, getattr(default, name)) for name in names}
    retries = tuple(item.as_number() for item in fields.items("retries")) if fields.has("retries") else default.retries
    return Timers(**values, retries=retries)


def _startup(node: Node | None) -> Startup:
    if node is None:
        return Startup()
    fields = node.mapping(("delay", "error"))
    return Startup(delay=fields.number("delay", 0.0), error=fields.choice("error", ("authentication", "failed")))


def _turn(node: Node) -> TurnScript:
    fields = node.mapping(("match", "replies", "faults", "bootstrap"))
    bootstrap = fields.node("bootstrap")
    return TurnScript(
        replies=tuple(_reply(item) for item in fields.items("replies")),
        match=_pattern(fields.node("match")),
        faults=_faults(fields.items("faults")),
        bootstrap=_bootstrap(bootstrap) if bootstrap is not None else Bootstrap(),
    )


def _pattern(node: Node | None) -> re.Pattern[str] | None:
    if node is None:
        return None
    try:
        return re.compile(node.as_text())
    except re.error as error:
        raise node.wrong(f"a regular expression ({error})") from error


def _bootstrap(node: Node) -> Bootstrap:
    fields = node.mapping(("delay", "fails"))
    return Bootstrap(delay=fields.number("delay", 0.0), fails=fields.boolean("fails", default=False))


def _reply(node: Node) -> Reply:
    fields = node.mapping(
        ("text", "text_bytes", "calls", "reflection", "delay", "hang", "usage", "error", "faults"),
    )
    error = fields.node("error")
    text = fields.text("text", "")
    if fields.has("text_bytes"):
        text += "x" * fields.integer("text_bytes", 0, low=0, high=LINE_LIMIT)
    return Reply(
        text=text,
        calls=tuple(_call(item) for item in fields.items("calls")),
        reflection=fields.text("reflection", ""),
        delay=fields.number("delay", 0.0),
        hang=fields.boolean("hang", default=False),
        usage=_usage(fields.node("usage")),
        computed_usage=not fields.has("usage"),
        error=_provider_error(error) if error is not None else None,
        faults=_faults(fields.items("faults")),
    )


def _call(node: Node) -> Call:
    value = node.value
    if not isinstance(value, dict) or len(value) != 1:
        raise node.wrong("a mapping with one key, the tool, and its arguments: `read_file: {path: README.md}`")
    ((tool, args),) = value.items()
    if args is None:
        args = {}
    if not isinstance(tool, str) or not isinstance(args, dict):
        raise node.wrong(f"a tool ({', '.join(TOOLS)}) and a mapping of arguments")
    return Call(tool, args)


def _usage(node: Node | None) -> Usage | None:
    if node is None or node.value is None:
        return None
    counts = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens", "cost_micro_usd")
    fields = node.mapping((*counts, "model"))
    known = {name: fields.integer(name, 0, low=0) for name in counts if fields.has(name)}
    return Usage(
        **{"input_tokens": 0, "output_tokens": 0, **known},
        model=fields.text("model", "") or None,
    )


def _provider_error(node: Node) -> ProviderError:
    fields = node.mapping(
        ("status", "message", "retry_after", "times", "code", "error_type", "recoverable"),
    )
    return ProviderError(
        message=fields.text("message", "the provider failed"),
        status=fields.integer("status", 0, low=100, high=599) if fields.has("status") else None,
        retry_after=fields.number("retry_after", 0.0) if fields.has("retry_after") else None,
        times=fields.integer("times", 1, low=1),
        code=fields.text("code", "") or None,
        error_type=fields.text("error_type", "") or None,
        recoverable=fields.boolean("recoverable", default=True) if fields.has("recoverable") else None,
    )


def _faults(items: list[Node]) -> tuple[Fault, ...]:
    return tuple(_fault(item) for item in items)


def _fault(node: Node) -> Fault:
    fields = node.mapping(("at", *ACTIONS))
    chosen = [name for name in ACTIONS if fields.has(name)]
    if len(chosen) != 1:
        raise node.wrong(f"`at` and exactly one of {', '.join(ACTIONS)}")
    at = fields.choice("at", POINTS)
    if at is None:
        raise node.wrong(f"`at`, one of {', '.join(POINTS)}")
    return Fault(at=at, **{chosen[0]: _action(chosen[0], fields.child(chosen[0]))})


def _action(name: str, node: Node) -> Any:
    if name == "delay":
        return node.as_number()
    if name in ("print", "stderr"):
        return node.as_text()
    if name in ("line_bytes", "json_line_bytes"):
        return node.as_integer(low=1, high=LINE_LIMIT)
    if name == "exit":
        return node.as_integer(low=0, high=255)
    return {"hang": _hang, "signal": _signal, "notify": _notify, "orphan": _orphan}[name](node)


def _hang(node: Node) -> str:
    return node.as_choice(("turn", "process"))


def _signal(node: Node) -> str:
    names = tuple(sorted(name.removeprefix("SIG") for name in signal.Signals.__members__))
    return node.as_choice(names)


def _notify(node: Node) -> tuple[str, dict[str, Any]]:
    fields = node.mapping(("method", "params"))
    params = fields.child("params").value if fields.has("params") else {}
    if not isinstance(params, dict):
        raise fields.child("params").wrong("a mapping")
    return fields.text("method", "autohand.unheardOf"), params


def _orphan(node: Node) -> Orphan:
    fields = node.mapping(("seconds", "setsid", "ignore_term", "double_fork", "keep_stdout", "pid_file"))
    return Orphan(
        seconds=fields.number("seconds", 60.0),
        setsid=fields.boolean("setsid", default=False),
        ignore_term=fields.boolean("ignore_term", default=False),
        double_fork=fields.boolean("double_fork", default=False),
        keep_stdout=fields.boolean("keep_stdout", default=False),
        pid_file=fields.text("pid_file", "") or None,
    )

"""Every key of the configuration: its type, default, meaning and bounds. To add a key, add a field.

A field is named as its key; `_ns` (its value is in nanoseconds) and a closing `_` (the key is a word of Python's) are
no part of the key. `Config` is the root; sections are dataclasses within it. Reading, the reference page and the sample
file follow from what stands here. Only keys that do something exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from steprail_daemon.config import values
from steprail_daemon.config.values import Kind

T = TypeVar("T")

DRIVERS = ("claude",)
USER_LISTEN = ("unix:$XDG_RUNTIME_DIR/steprail/steprail.sock",)
ROOT_LISTEN = ("unix:/run/steprail/steprail.sock",)


@dataclass(frozen=True)
class Key:
    """What is known of one key.

    `default` is as TOML would give it. Where the default varies, `default_words` tells people how, and `sample` is what
    the sample file shows.
    """

    kind: Kind[object]
    default: object
    help: str
    default_words: str = ""
    sample: str = ""


def _key(kind: Kind[T], default: object, help_text: str, *, default_words: str = "", sample: str = "") -> T:
    facts = Key(kind, default, help_text, default_words, sample)
    made: T = field(default_factory=lambda: kind.read(default), metadata={"key": facts})
    return made


@dataclass(frozen=True)
class Server:
    """Where the daemon listens and how much it takes on."""

    listen: tuple[str, ...] = _key(
        values.Items(values.address(), 1, 8),
        list(ROOT_LISTEN),
        "Addresses to serve on. A socket is made with mode 0600, its directory with 0700: who may connect is who may "
        "open the file.",
        default_words=f'["{USER_LISTEN[0]}"], as root ["{ROOT_LISTEN[0]}"]',
        sample=f'["{USER_LISTEN[0]}"]',
    )
    max_sessions: int = _key(
        values.Whole(1, 10_000), 64, "Sessions that are neither closed nor suspended. More are TOO_MANY_SESSIONS."
    )
    max_processes: int = _key(
        values.Whole(1, 1_000),
        32,
        "Agent processes at one time. The one that was idle for longest gives way; if none is idle: TOO_MANY_SESSIONS.",
    )
    workspace_roots: tuple[str, ...] = _key(
        values.Items(values.directory(), 1, 100),
        ["."],
        "Directories under which a session's directory must lie after symlinks are resolved, else CWD_NOT_ALLOWED.",
    )


@dataclass(frozen=True)
class Limits:
    """Ceilings. Callers may ask for less where the API lets them."""

    max_steps: int = _key(
        values.Whole(1, 1_000_000), 200, "Steps after which a run is stopped; the ceiling of what callers may ask for."
    )
    hard_timeout_ns: int = _key(
        values.duration(low="1s"),
        "6h",
        "Wall time of a run from the moment the agent took the prompt, waiting included; then it fails, HARD_TIMEOUT.",
    )
    decision_timeout_ns: int = _key(
        values.duration(low="100ms"),
        "10m",
        "How long a client may take for a decision at a boundary; an agent that provably waits for less shortens it.",
    )
    stop_timeout_ns: int = _key(
        values.duration(), "30s", "How long an agent may take to confirm a stop before its process is ended."
    )
    abort_timeout_ns: int = _key(
        values.duration(), "10s", "How long an agent may take to confirm an abort before its process is ended."
    )
    line_bytes: int = _key(
        values.size("64KiB", "1GiB"), "64MiB", "Longest line that an agent may write; a longer one is PROTOCOL_ERROR."
    )
    prompt_bytes: int = _key(values.size("1KiB", "16MiB"), "16MiB", "Largest prompt; a larger one is PROMPT_TOO_LARGE.")


@dataclass(frozen=True)
class Processes:
    """How agents are started and ended, and how the worker comes back."""

    start_timeout_ns: int = _key(
        values.duration(), "30s", "How long an agent may take to be ready; then the run fails, AGENT_START_FAILED."
    )
    ladder: tuple[str, ...] = _key(
        values.Items(values.rung(), 1, 4),
        ["end:5s", "eof:5s", "term:5s", "kill"],
        "How a process is ended, each rung with the time before the next: the protocol's own end, end of input where "
        "that is safe, SIGTERM, SIGKILL for the whole tree. Rungs may be left out, but not kill.",
    )
    idle_timeout_ns: int = _key(
        values.duration(low="1s"),
        "15m",
        "How long a session without a run keeps its agent's process. The next run starts it again and resumes.",
    )
    worker_backoff_ns: tuple[int, int] = _key(
        cast("Kind[tuple[int, int]]", values.Items(values.duration(), 2, 2, unique=False)),
        ["0.5s", "30s"],
        "First and longest pause before a worker that died is started anew; it doubles from one to the other.",
    )


@dataclass(frozen=True)
class Journal:
    """Where everything is recorded before anybody sees it."""

    synchronous: str = _key(
        values.choice("normal", "full"),
        "normal",
        "normal: a crash of the daemon loses nothing, a crash of the machine may lose the last commits. "
        "full: that neither, and each commit waits for the disk.",
    )


@dataclass(frozen=True)
class Drain:
    """What SIGTERM begins: no new runs, then the end."""

    window_ns: int = _key(
        values.duration(low="0s"),
        "60s",
        "How long live runs may go on after SIGTERM before they are aborted. A second SIGTERM ends it at once.",
    )
    grace_ns: int = _key(
        values.duration(low="1s"),
        "90s",
        "How long whoever supervises the daemon waits before it kills it. drain.window, limits.abort_timeout and the "
        "rungs of processes.ladder together must fit.",
    )


@dataclass(frozen=True)
class AgentEnvironment:
    """What an agent's process gets beyond PATH, HOME and the like."""

    pass_: tuple[str, ...] = _key(
        values.Items(values.environment_name()),
        ["ANTHROPIC_API_KEY"],
        "Variables of the daemon's environment that the agent gets too, if they are set.",
    )
    set_: Mapping[str, str] = _key(
        values.Variables(values.environment_name()),
        {},
        "Variables that the agent gets with these values. They are never printed.",
    )


@dataclass(frozen=True)
class Agent:
    """One agent that callers may choose by its name."""

    driver: str = _key(
        values.choice(*DRIVERS), "claude", "Protocol that the program speaks.", default_words="the agent's name"
    )
    command: tuple[str, ...] = _key(
        values.Command(),
        ["claude"],
        "Program, found through PATH or absolute, and arguments before those of the driver.",
        default_words="the driver's name",
    )
    home: str = _key(
        values.choice("user", "isolated"),
        "user",
        "user: the program's own login, settings and history. isolated: a home of its own in the state directory, for "
        "services and tests.",
    )
    environment: AgentEnvironment = field(default_factory=AgentEnvironment, metadata={"section": AgentEnvironment})
    model: str = _key(
        values.text("a name of a model, or empty", empty=True), "", "Model to ask for. Empty: the program's own choice."
    )
    permission_mode: str = _key(
        values.choice("ask", "accept_edits", "read_only", "bypass"),
        "ask",
        "What the agent may do without asking, where a session names no mode. ask: before anything that changes or "
        "executes; nobody can be asked yet, so that is denied. accept_edits: edits of files pass. read_only: whatever "
        "changes or executes is denied. bypass: everything passes.",
    )
    checksum: str = _key(
        values.checksum(), "", "SHA-256 of the program, checked before it is started. Empty: not checked."
    )


@dataclass(frozen=True)
class Logging:
    """What the daemon writes to stderr. Prompts and outputs are never in it."""

    level: str = _key(values.choice("debug", "info", "warning", "error"), "info", "Least severe lines written.")
    format: str = _key(
        values.choice("json", "console"), "json", "json: one object a line. console: for the eyes of people."
    )


@dataclass(frozen=True)
class Config:
    """The whole configuration."""

    version: int = _key(values.Whole(1, 1), 1, "Version of this file's format.")
    server: Server = field(default_factory=Server, metadata={"section": Server})
    limits: Limits = field(default_factory=Limits, metadata={"section": Limits})
    processes: Processes = field(default_factory=Processes, metadata={"section": Processes})
    journal: Journal = field(default_factory=Journal, metadata={"section": Journal})
    drain: Drain = field(default_factory=Drain, metadata={"section": Drain})
    agents: Mapping[str, Agent] = field(default_factory=lambda: {"claude": Agent()}, metadata={"named": Agent})
    logging: Logging = field(default_factory=Logging, metadata={"section": Logging})


@dataclass(frozen=True)
class Child:
    """What stands under one key of a section: exactly one of `key`, `section` and `named` is set."""

    attribute: str
    key: Key | None = None
    section: type[Any] | None = None
    named: type[Any] | None = None


def children(section: type[Any]) -> dict[str, Child]:
    """Give what a section holds, by key, in order."""
    found: dict[str, Child] = {}
    for entry in fields(section):
        facts = entry.metadata
        name = entry.name.removesuffix("_").removesuffix("_ns")
        found[name] = Child(entry.name, facts.get("key"), facts.get("section"), facts.get("named"))
    return found


def conflicts(config: Config) -> list[tuple[str, str]]:
    """Give what is wrong between keys that are right by themselves, as pairs of key and sentence."""
    found: list[tuple[str, str]] = []
    names = [rung.partition(":")[0] for rung in config.processes.ladder]
    if names != [name for name in ("end", "eof", "term", "kill") if name in names] or names[-1] != "kill":
        found.append(
            ("processes.ladder", "the rungs must be in the order end, eof, term, kill, and kill must be there")
        )
    first, longest = config.processes.worker_backoff_ns
    if first > longest:
        found.append(("processes.worker_backoff", "the first pause is longer than the longest"))
    ladder = sum(values.rung_time(rung) for rung in config.processes.ladder)
    needed = config.drain.window_ns + config.limits.abort_timeout_ns + ladder
    if needed > config.drain.grace_ns:
        span = values.duration(low="0s").write
        found.append(
            (
                "drain.grace",
                f"{span(config.drain.grace_ns)} is too short: drain.window {span(config.drain.window_ns)}, "
                f"limits.abort_timeout {span(config.limits.abort_timeout_ns)} and the rungs of processes.ladder "
                f"{span(ladder)} need {span(needed)}",
            )
        )
    return found

"""Every key of the configuration: its type, default, meaning and bounds. To add a key, add a field.

A field is named as its key; `_ns` (its value is in nanoseconds) and a closing `_` (the key is a word of Python's) are
no part of the key. `Config` is the root; sections are dataclasses within it. Reading, the reference page and the sample
file follow from what stands here. Only keys that do something exist.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from steprail_daemon.config import values
from steprail_daemon.config.values import Kind

T = TypeVar("T")

#: The driver of the built-in agent, which has no model.
SCRIPTED = "scripted"
DRIVERS = ("claude", "autohand", SCRIPTED)
#: The built-in agent runs on the daemon's own interpreter; `-P`, or the session's directory could take the place of its
#: modules.
SCRIPTED_COMMAND = (sys.executable, "-P", "-m", "steprail_scripted")
USER_LISTEN = ("unix:$XDG_RUNTIME_DIR/steprail/steprail.sock",)
ROOT_LISTEN = ("unix:/run/steprail/steprail.sock",)


@dataclass(frozen=True)
class Key:
    """What is known of one key.

    `default` is as TOML would give it. Where the default varies, `default_words` tells people how, and `sample` is what
    the sample file shows. A `required` key has no default: what stands there is what the sample file shows.
    """

    kind: Kind[object]
    default: object
    help: str
    default_words: str = ""
    sample: str = ""
    required: bool = False


def _key(
    kind: Kind[T],
    default: object,
    help_text: str,
    *,
    default_words: str = "",
    sample: str = "",
    required: bool = False,
) -> T:
    facts = Key(kind, default, help_text, default_words, sample, required)
    made: T = field(default_factory=lambda: kind.read(default), metadata={"key": facts})
    return made


@dataclass(frozen=True)
class Tls:
    """What TCP is encrypted with, in PEM. Files that change are read again, without a restart."""

    cert: str = _key(
        values.file(), "", "Certificate of the daemon with what leads to its root. Empty: TCP is not encrypted."
    )
    key: str = _key(values.file(), "", "Private key of the certificate.")
    client_ca: str = _key(
        values.file(),
        "",
        "Roots of the clients' certificates. If set, every client over TCP needs a certificate.",
    )


@dataclass(frozen=True)
class Server:
    """Where the daemon listens and how much it takes on."""

    listen: tuple[str, ...] = _key(
        values.Items(values.address(), 1, 8),
        list(ROOT_LISTEN),
        "Addresses to serve on. A socket is made with mode 0600, its directory with 0700: who may connect is who may "
        "open the file. TCP needs identities that can prove themselves over it, and beyond loopback TLS too.",
        default_words=(
            f'["{USER_LISTEN[0]}"], without that variable in /run/user/UID/steprail or else in the state directory; '
            f'as root ["{ROOT_LISTEN[0]}"]'
        ),
        sample=f'["{USER_LISTEN[0]}"]',
    )
    http: str = _key(
        values.side_address(),
        "127.0.0.1:9464",
        "Where to serve /metrics, /livez and /readyz, to whoever can connect; beyond loopback only if you name such an "
        "address. The default does without if it is taken.",
    )
    tls: Tls = field(default_factory=Tls, metadata={"section": Tls})
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
class Cel:
    """Bounds of one evaluation of a CEL expression; over them the verdict is UNKNOWN."""

    time_ns: int = _key(values.duration(low="1ms", high="10s"), "50ms", "Time that an expression may take.")
    memory: int = _key(
        values.size("64MiB", "4GiB"), "256MiB", "Memory of the process that evaluates; one that needs more is ended."
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
    permission_timeout_ns: int = _key(
        values.duration(low="100ms"),
        "5m",
        "How long a permission or a question waits for somebody before it is denied; an agent that waits for less "
        "shortens it.",
    )
    queue_timeout_ns: int = _key(
        values.duration(low="100ms"),
        "1h",
        "How long a run may stay QUEUED before its prompt is given to the agent; then it fails, QUEUE_TIMEOUT.",
    )
    queue_length: int = _key(
        values.Whole(0, 10_000), 16, "Runs that may wait in one session behind its live one. More are QUEUE_FULL."
    )
    disconnect_grace_ns: int = _key(
        values.duration(low="0s"),
        "30s",
        "How long no decider may be registered before what the run says of a lost one applies, where it names no time.",
    )
    silence_ns: int = _key(
        values.duration(low="1s"),
        "10m",
        "How long an agent that is at work may give no sign of life; then the run fails, AGENT_UNRESPONSIVE. Waiting "
        "for people stops this clock.",
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
    cel: Cel = field(default_factory=Cel, metadata={"section": Cel})


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
class Retain:
    """How much history is kept. Sessions, runs and what is shown of them stay until a session is deleted."""

    age_ns: int = _key(
        values.days("1h", "36500d"),
        "30d",
        "Events that are older are removed, with the texts of their steps, up to the end of a run; those of a run that "
        "has not ended stay.",
    )
    bytes: int = _key(
        values.size("16MiB", "1048576GiB"),
        "20GiB",
        "Size from which on the oldest events are removed although they are younger. The file does not shrink, its "
        "free pages are used again.",
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
    retain: Retain = field(default_factory=Retain, metadata={"section": Retain})


@dataclass(frozen=True)
class Drain:
    """What SIGTERM begins: no new runs, then the end."""

    window_ns: int = _key(
        values.duration(low="0s"),
        "60s",
        "How long live runs may go on after SIGTERM before they are aborted. A second SIGTERM ends it at once.",
    )
    stop_budget_ns: int = _key(
        values.duration(low="0s"),
        "10s",
        "Part of the window that is kept for stopping: this long before its end, whoever is still asked for a decision "
        "or a permission has no more time.",
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
        default_words='`["ANTHROPIC_API_KEY"]` with the driver claude, else `[]`',
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
        default_words="the driver's name; of scripted, the built-in agent on the daemon's own interpreter",
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
        "executes somebody is asked. accept_edits: edits of files in the session's directory pass. read_only: whatever "
        "changes or executes is denied. bypass: everything passes.",
    )
    checksum: str = _key(
        values.checksum(), "", "SHA-256 of the program, checked before it is started. Empty: not checked."
    )


@dataclass(frozen=True)
class Identity:
    """Somebody who may call: how they prove who they are, and what they may do. They are in the file alone."""

    name: str = _key(values.name(), "payments", "Name, shown as the owner of sessions and in decisions.", required=True)
    token_file: str = _key(
        values.file(),
        "",
        "File of bearer tokens, one a line. Several lines are several valid tokens, so that they can be rotated.",
        sample='"/etc/steprail/tokens/payments"',
    )
    certificate: str = _key(
        values.text("a name in a client's certificate, or empty", empty=True),
        "",
        "Name in the certificate of a client: a subject alternative name or, without any, the common name.",
    )
    role: str = _key(
        values.choice("viewer", "operator", "admin"),
        "viewer",
        "viewer: sees what its tenant has. operator: makes and controls it too. admin: also operates the daemon, and "
        "sees all tenants.",
    )
    tenant: str = _key(values.name(), "default", "Tenant. What belongs to another does not exist for this identity.")
    labels: Mapping[str, str] = _key(
        values.Labels(), {}, "Labels that all its sessions and runs have. It cannot give them other values."
    )


@dataclass(frozen=True)
class PermissionPolicy:
    """What the operator says about tools. The first entry that matches counts, and one that denies wins over all."""

    tool: str = _key(
        values.text("a glob over names of tools, or empty", empty=True),
        "",
        "Glob over the agent's name of the tool: `*` any characters, `?` one. An entry is heard where the agent asks "
        "for permission: what an agent does without asking, which is reading files with most of them, none denies.",
        sample='"read_*"',
    )
    command_prefix: str = _key(
        values.text("the beginning of a command, or empty", empty=True),
        "",
        "Beginning of the command, compared word by word. A line of several commands is allowed only if each of them "
        "begins so and no file is read or written by redirection, and denied if any may begin so, also behind `env`, "
        "`sudo`, `xargs` and the like, or if it cannot be told. It looks at words: it is no sandbox.",
    )
    path: str = _key(
        values.text("a glob over paths, or empty", empty=True),
        "",
        "Glob over paths as seen from the session's directory, symlinks resolved; `**` spans directories. One that "
        "begins with a slash is over absolute paths.",
    )
    cel: str = _key(
        values.text("a CEL expression, or empty", empty=True),
        "",
        "CEL over tool, tool_kind, command, paths and labels; must be of type bool.",
    )
    action: str = _key(
        values.choice("allow", "deny", "ask"),
        "allow",
        "allow: without asking. deny: whatever else says. ask: whoever watches the run.",
        required=True,
    )
    reason: str = _key(values.text("a sentence, or empty", empty=True), "", "Why, for people.")


@dataclass(frozen=True)
class Policy:
    """What the operator rules before callers and modes are heard."""

    operator_modes: tuple[str, ...] = _key(
        values.Items(values.choice("ask", "accept_edits", "read_only", "bypass"), 0, 4),
        ["ask", "accept_edits", "read_only"],
        "Permission modes that callers with the role operator may choose; an admin may choose all.",
    )
    caller_environment: tuple[str, ...] = _key(
        values.Items(values.environment_name(), 0, 64),
        [],
        "Variables that callers may set in the environment of their sessions' agents.",
    )
    permissions: tuple[PermissionPolicy, ...] = field(default=(), metadata={"listed": PermissionPolicy})


@dataclass(frozen=True)
class RateLimits:
    """What happens while a provider refuses an agent's requests. All sessions of an agent share it."""

    on_limit: str = _key(
        values.choice("queue", "refuse"),
        "queue",
        "queue: runs that may queue wait until it is over. refuse: every new run is RATE_LIMITED.",
    )
    fallback_delay_ns: int = _key(
        values.duration(low="1s"), "20s", "How long to wait where the provider did not say; it doubles each time."
    )
    max_delay_ns: int = _key(values.duration(low="1s"), "15m", "Longest wait, whatever the provider said.")


def default_command(driver: str) -> tuple[str, ...]:
    """Give the command of an agent that names none."""
    return SCRIPTED_COMMAND if driver == SCRIPTED else (driver,)


def default_pass(driver: str) -> tuple[str, ...]:
    """Give the variables that an agent gets which names none."""
    return ("ANTHROPIC_API_KEY",) if driver == "claude" else ()


def default_agents() -> dict[str, Agent]:
    """Give the agents that are there if none is configured: one for each driver, be its program there or not."""
    return {
        driver: Agent(
            driver=driver,
            command=default_command(driver),
            environment=AgentEnvironment(pass_=default_pass(driver)),
        )
        for driver in DRIVERS
    }


@dataclass(frozen=True)
class Logging:
    """What the daemon writes to stderr."""

    level: str = _key(values.choice("debug", "info", "warning", "error"), "info", "Least severe lines written.")
    format: str = _key(
        values.choice("json", "console"),
        "json",
        "json: one object a line. console: for the eyes of people, and the default of `steprail serve` on a terminal.",
    )
    content: bool = _key(
        values.Flag(),
        False,
        "Whether prompts, final texts and what agents wrote to stderr may be in the lines of runs' ends. Otherwise no "
        "line has any of them.",
    )


@dataclass(frozen=True)
class Metrics:
    """What bounds the labels of metrics."""

    label_keys: tuple[str, ...] = _key(
        values.Items(values.label_key(), 0, 8),
        [],
        "Labels of sessions that become labels label_<key> of the metrics of runs. Of each the first 50 values are "
        "shown, the rest is other.",
    )
    tools: tuple[str, ...] = _key(
        values.Items(values.text("a name of a tool", empty=False), 0, 200),
        [
            "read_file",
            "write_file",
            "run_command",
            "Bash",
            "Edit",
            "Glob",
            "Grep",
            "Read",
            "WebFetch",
            "WebSearch",
            "Write",
        ],
        "Names of tools, as agents call them, that metrics show; the rest is other.",
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
    agents: Mapping[str, Agent] = field(default_factory=default_agents, metadata={"named": Agent})
    policy: Policy = field(default_factory=Policy, metadata={"section": Policy})
    identities: tuple[Identity, ...] = field(default=(), metadata={"listed": Identity})
    rate_limits: RateLimits = field(default_factory=RateLimits, metadata={"section": RateLimits})
    logging: Logging = field(default_factory=Logging, metadata={"section": Logging})
    metrics: Metrics = field(default_factory=Metrics, metadata={"section": Metrics})


@dataclass(frozen=True)
class Child:
    """What stands under one key of a section: exactly one of `key`, `section`, `named` and `listed` is set.

    `named` is a table of sections by names that people choose, `listed` an array of tables.
    """

    attribute: str
    key: Key | None = None
    section: type[Any] | None = None
    named: type[Any] | None = None
    listed: type[Any] | None = None


def children(section: type[Any]) -> dict[str, Child]:
    """Give what a section holds, by key, in order."""
    found: dict[str, Child] = {}
    for entry in fields(section):
        facts = entry.metadata
        name = entry.name.removesuffix("_").removesuffix("_ns")
        found[name] = Child(entry.name, facts.get("key"), facts.get("section"), facts.get("named"), facts.get("listed"))
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
    labels = ["".join(char if char.isalnum() else "_" for char in key) for key in config.metrics.label_keys]
    if len(set(labels)) < len(labels):
        found.append(("metrics.label_keys", "two of them differ in characters only that no label of a metric can have"))
    ladder = sum(values.rung_time(rung) for rung in config.processes.ladder)
    if config.drain.stop_budget_ns > config.drain.window_ns:
        found.append(("drain.stop_budget", "it is longer than drain.window, of which it is a part"))
    if config.rate_limits.fallback_delay_ns > config.rate_limits.max_delay_ns:
        found.append(("rate_limits.fallback_delay", "it is longer than rate_limits.max_delay"))
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

"""What the engine is configured with. `daemon.py` fills it from the configuration."""

from __future__ import annotations

import msgspec

from steprail_daemon.core.backoff import BackoffSettings
from steprail_daemon.core.model import MILLISECOND, SECOND, PermissionMode, PermissionRule
from steprail_daemon.core.shutdown import Ladder

#: Roles are viewer 1, operator 2, admin 3.
ALL_MODES = {role: frozenset(PermissionMode) for role in (2, 3)}


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One configured agent.

    `environment` is what a child gets, already reduced to what is allowed. `isolated_home` is empty for the user's own.
    `checksum` is the SHA-256 of the program in hexadecimal, empty for no check.
    """

    name: str
    driver: str
    command: tuple[str, ...]
    environment: dict[str, str]
    isolated_home: str
    model: str
    permission_mode: PermissionMode
    checksum: str


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times. Spans in nanoseconds, sizes in bytes."""

    agents: tuple[AgentSettings, ...]
    workspace_roots: tuple[str, ...]
    max_sessions: int
    max_processes: int
    max_steps: int
    hard_timeout_ns: int
    decision_timeout_ns: int
    stop_timeout_ns: int
    abort_timeout_ns: int
    start_timeout_ns: int
    idle_timeout_ns: int
    permission_timeout_ns: int = 300 * SECOND
    queue_timeout_ns: int = 3600 * SECOND
    queue_length: int = 16
    disconnect_grace_ns: int = 30 * SECOND
    silence_ns: int = 600 * SECOND
    #: What the operator rules about permissions.
    permission_rules: tuple[PermissionRule, ...] = ()
    backoff: BackoffSettings = BackoffSettings()
    #: Permission modes that each role may choose, by the role's number.
    permission_modes: dict[int, frozenset[PermissionMode]] = msgspec.field(default_factory=lambda: dict(ALL_MODES))
    #: Names of variables that callers may set in an agent's environment.
    caller_environment: tuple[str, ...] = ()
    max_rule_depth: int = 8
    #: Whether runs may queue while a provider refuses requests.
    queue_on_limit: bool = True
    #: How long an agent that is ready may take to confirm a prompt.
    prompt_timeout_ns: int = 30 * SECOND
    line_bytes: int
    prompt_bytes: int
    ladder: Ladder
    max_rules: int = 64
    heartbeat_ns: int = 10 * SECOND
    stalled_reader_ns: int = 60 * SECOND
    #: How long the journal may refuse a commit before the agent's process is ended.
    journal_patience_ns: int = 30 * SECOND
    journal_retry_ns: int = 250 * MILLISECOND
    #: Text that goes to an agent which needs one to go on after a stop.
    continue_text: str = "Continue."

"""What the engine is configured with. `daemon.py` fills it from the configuration."""

from __future__ import annotations

import msgspec

from steprail_daemon.core.model import MILLISECOND, SECOND, PermissionMode
from steprail_daemon.core.shutdown import Ladder


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

"""What the service may call: every verb of the API on plain values of the core.

All methods are called on the loop's thread. Those that are not `async` have committed what they report when they
return. What is refused raises a `core.errors.StepRailError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

import msgspec

from steprail_daemon.core.model import (
    Capabilities,
    Decision,
    DecisionAction,
    OnTimeout,
    PendingDecision,
    PermissionMode,
    StopRule,
)
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.journal import store

#: What an encoder hands over beside events, named here because the service sees no room but this one.
Blob = store.Blob


class AgentView(msgspec.Struct, frozen=True):
    """A configured agent as it was last probed."""

    name: str
    driver: str
    version: str
    unavailable_reason: str
    capabilities: Capabilities


class LimitsView(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds in force; see `ServerLimits` of the API. Spans in nanoseconds, sizes in bytes."""

    max_prompt_bytes: int
    max_sessions: int
    max_processes: int
    max_steps: int
    max_rules: int
    hard_timeout_ns: int
    decision_timeout_ns: int
    stop_timeout_ns: int
    abort_timeout_ns: int
    heartbeat_ns: int
    stalled_reader_ns: int


class CreateSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a session. `permission_mode` None is the configuration's."""

    agent: str
    cwd: str
    labels: dict[str, str] = {}
    permission_mode: PermissionMode | None = None
    model: str = ""
    identity: str = ""


class DeciderRequest(msgspec.Struct, frozen=True):
    """A client decider as asked for. `timeout_ns` None is the default."""

    timeout_ns: int | None = None
    on_timeout: OnTimeout = OnTimeout.STOP


class LimitsRequest(msgspec.Struct, frozen=True):
    """Ceilings as asked for. None is the configuration's."""

    max_steps: int | None = None
    hard_timeout_ns: int | None = None


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a run."""

    session_id: str
    prompt: str
    stop_rules: tuple[StopRule, ...] = ()
    decider: DeciderRequest | None = None
    limits: LimitsRequest = LimitsRequest()
    labels: dict[str, str] = {}
    request_id: str = ""
    identity: str = ""


class ContinueRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request to go on after a run. None in `prompt`, `stop_rules`, `limits` and `inherit_decider`: inherit."""

    run_id: str
    prompt: str | None = None
    stop_rules: tuple[StopRule, ...] | None = None
    inherit_decider: bool = True
    decider: DeciderRequest | None = None
    limits: LimitsRequest | None = None
    labels: dict[str, str] = {}
    request_id: str = ""
    identity: str = ""


class Slice:
    """Consecutive committed events of one stream, already in their wire form.

    `wire` is a concatenation of entries as every watch response carries them, `kinds` has a byte and `ends` an offset
    per entry. `last_seq` is the cursor to go on from. `ends` may be given as a callable: most readers never look.
    """

    __slots__ = ("_ends", "kinds", "last_seq", "wire")

    def __init__(
        self, wire: bytes, kinds: bytes, ends: tuple[int, ...] | Callable[[], tuple[int, ...]], last_seq: int
    ) -> None:
        self.wire = wire
        self.kinds = kinds
        self.last_seq = last_seq
        self._ends = ends

    @property
    def ends(self) -> tuple[int, ...]:
        """Where each entry ends in `wire`."""
        if not isinstance(self._ends, tuple):
            self._ends = self._ends()
        return self._ends


class Respondent(Protocol):
    """One who is asked on the engine's own stack, and may neither wait nor raise there."""

    def can_be_asked(self) -> bool:
        """Whether a question would be passed on at once."""

    def ask(self, pending: PendingDecision, step: bytes) -> None:
        """Pass on what waits for a decision, with the step in its public form. Only if it can be asked."""


class Subscription(Protocol):
    """A place in a session's sequence that moves on. Recorded events first, then live ones; no gap, no duplicate."""

    async def next(self, timeout_ns: int) -> Slice | None:
        """Give what comes next, at once if something is there; None if nothing came in time.

        Raises:
            StopAsyncIteration: the last event of the run, or of the closed session, was given.
        """

    def ask_at_once(self, respondent: Respondent) -> None:
        """Have somebody asked as soon as a question is recorded, ahead of the events about it, until `close`.

        It is done only while this subscription has given all that there is, and no question is sure to come this way.
        All of them are in the events.
        """

    @property
    def last_seq(self) -> int:
        """Cursor: the last event given, or skipped by a filter."""

    def close(self) -> None:
        """Stop to follow."""


class StoredStep(msgspec.Struct, frozen=True):
    """A completed step: the public `Event` with its `step_end`, and its decision if there is one."""

    number: int
    event: bytes
    decision: Decision | None


class Facade(Protocol):
    """Every verb. Ids of another tenant are not found."""

    async def agents(self) -> list[AgentView]:
        """Give the configured agents, by name. One that is still being probed is waited for shortly."""

    def limits(self) -> LimitsView:
        """Give the bounds in force."""

    async def create_session(self, request: CreateSession) -> SessionView:
        """Make a session and begin to start its agent."""

    def get_session(self, session_id: str) -> SessionView:
        """Give a session."""

    def list_sessions(self) -> list[SessionView]:
        """Give all sessions, newest first."""

    async def close_session(self, session_id: str, *, force: bool) -> SessionView:
        """End a session and its process tree."""

    def start_run(self, request: StartRun) -> RunView:
        """Start a run."""

    def continue_run(self, request: ContinueRun) -> RunView:
        """Start a run that goes on after another."""

    def stop_run(self, run_id: str, *, identity: str, reason: str) -> RunView:
        """Ask for a stop at the next boundary."""

    def abort_run(self, run_id: str, *, identity: str, reason: str) -> RunView:
        """Cut a run off."""

    def submit_decision(
        self, run_id: str, step_id: str, action: DecisionAction | None, *, identity: str, reason: str, error: str
    ) -> Decision:
        """Decide about the step that waits; `action` None with `error` set."""

    def get_run(self, run_id: str) -> RunView:
        """Give a run."""

    def list_runs(self, session_id: str) -> list[RunView]:
        """Give the runs of a session, or of all with an empty id, newest first."""

    def steps(self, run_id: str, after_number: int, limit: int) -> list[StoredStep]:
        """Give at most `limit` completed steps after `after_number`, by number."""

    async def wait_run(self, run_id: str, *, attention: bool, timeout_ns: int) -> RunView:
        """Wait until the run has ended (or with `attention`, also waits for somebody), at most so long."""

    def watch_run(self, run_id: str, after_seq: int, epoch: str) -> Subscription:
        """Follow a run; ends after its last event."""

    def watch_session(self, session_id: str, after_seq: int, epoch: str) -> Subscription:
        """Follow a session; ends once it is closed."""

    def now(self) -> int:
        """The daemon's clock, Unix nanoseconds."""

    def read_blob(self, blob_id: str, offset: int) -> AsyncIterator[tuple[bytes, int, int, str]]:
        """Give data, offset, full size and MIME type of a blob, part by part."""

"""What the service may call: every verb of the API on plain values of the core.

Every verb on what belongs to a tenant takes first who calls. All methods are called on the loop's thread. Those that
are not `async` have committed what they report when they return. What is refused raises a `core.errors.StepRailError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    Decision,
    DecisionAction,
    OnDisconnect,
    OnTimeout,
    PendingDecision,
    Permission,
    PermissionAlternative,
    PermissionAnswer,
    PermissionMode,
    PermissionRule,
    Question,
    QuestionItemAnswer,
    QueueMode,
    StopRule,
)
from steprail_daemon.core.records import PermissionResolved, QuestionResolved
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.journal import store

#: What an encoder hands over beside events, named here because the service sees no room but this one.
Blob = store.Blob
#: What is remembered of a request.
Request = store.RequestRow


class Role(IntEnum):
    """What a caller may do; each role may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


#: The tenant of whoever is given none.
DEFAULT_TENANT: Final = "default"


#: How long a request id counts.
REQUEST_RETENTION_NS: Final = 24 * 3600 * SECOND


class RequestKey(msgspec.Struct, frozen=True):
    """What tells a request from others: the id that its caller made up, the name of the call, a digest of the body."""

    request_id: str
    method: str
    digest: bytes


class Caller(msgspec.Struct, frozen=True):
    """Who calls. `name` is told in decisions and stops; `labels` are pinned to what the caller makes.

    `request` is what is being carried out, to be remembered with what it does; None if it has no id.
    """

    name: str
    tenant: str = DEFAULT_TENANT
    role: Role = Role.VIEWER
    labels: dict[str, str] = {}
    request: RequestKey | None = None

    @property
    def is_admin(self) -> bool:
        """Whether the role is admin."""
        return self.role is Role.ADMIN

    def sees(self, tenant: str) -> bool:
        """Whether what belongs to a tenant exists for this caller."""
        return self.is_admin or tenant == self.tenant


#: Who calls over a socket that only the daemon's own user can open.
LOCAL: Final = Caller("local", DEFAULT_TENANT, Role.ADMIN)


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
    max_queued_runs: int = 16
    max_rule_depth: int = 8
    permission_timeout_ns: int = 300 * SECOND
    queue_timeout_ns: int = 3600 * SECOND
    disconnect_grace_ns: int = 30 * SECOND
    silence_ns: int = 600 * SECOND


class CreateSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a session. `permission_mode` None is the configuration's.

    `resume` is the agent's own id of a conversation to take up, empty for a new one. `environment` is never recorded.
    """

    agent: str
    cwd: str
    labels: dict[str, str] = {}
    permission_mode: PermissionMode | None = None
    model: str = ""
    permission_rules: tuple[PermissionRule, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    instructions: str = ""
    environment: dict[str, str] = {}
    resume: str = ""


class DeciderRequest(msgspec.Struct, frozen=True):
    """A client decider as asked for. None is the default."""

    timeout_ns: int | None = None
    on_timeout: OnTimeout = OnTimeout.STOP
    on_disconnect: OnDisconnect = OnDisconnect.WAIT
    disconnect_grace_ns: int | None = None


class LimitsRequest(msgspec.Struct, frozen=True):
    """Ceilings as asked for. None is the configuration's."""

    max_steps: int | None = None
    hard_timeout_ns: int | None = None
    permission_timeout_ns: int | None = None
    queue_timeout_ns: int | None = None


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different in a session; None: as before. `labels` replace all but pinned ones."""

    permission_mode: PermissionMode | None = None
    plan_mode: bool | None = None
    model: str | None = None
    labels: dict[str, str] | None = None


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a run."""

    session_id: str
    prompt: str
    stop_rules: tuple[StopRule, ...] = ()
    decider: DeciderRequest | None = None
    limits: LimitsRequest = LimitsRequest()
    queue: QueueMode = QueueMode.REJECT
    allow_inexact_stop: bool = False
    labels: dict[str, str] = {}
    request_id: str = ""


class ContinueRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request to go on after a run. None and `inherit_decider`: inherit."""

    run_id: str
    prompt: str | None = None
    stop_rules: tuple[StopRule, ...] | None = None
    inherit_decider: bool = True
    decider: DeciderRequest | None = None
    limits: LimitsRequest | None = None
    queue: QueueMode = QueueMode.REJECT
    allow_inexact_stop: bool | None = None
    labels: dict[str, str] = {}
    request_id: str = ""


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

    def only(self, wanted: frozenset[int]) -> Slice | None:
        """Give the entries of these kinds alone; None if there are none. The cursor is the same."""
        if wanted.issuperset(self.kinds):
            return self
        parts: list[bytes] = []
        kinds, ends = bytearray(), []
        start = size = 0
        for kind, end in zip(self.kinds, self.ends, strict=True):
            if kind in wanted:
                parts.append(self.wire[start:end])
                size += end - start
                kinds.append(kind)
                ends.append(size)
            start = end
        return Slice(b"".join(parts), bytes(kinds), tuple(ends), self.last_seq) if parts else None


class Guidance(msgspec.Struct, frozen=True):
    """What goes to the agent with a CONTINUE: a text for its model, and the model to use. Empty: nothing."""

    text: str = ""
    model: str = ""


NO_GUIDANCE: Final = Guidance()


class PendingView(msgspec.Struct, frozen=True):
    """Something that waits for somebody."""

    session: SessionView
    run: RunView
    item: PendingDecision | Permission | Question


class DrainPhase(IntEnum):
    """How far a drain is; see `DrainPhase` of the API."""

    NOT_DRAINING = 1
    STOPPING_RUNS = 2
    ABORTING_RUNS = 3
    SHUTTING_DOWN = 4


class DrainView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a drain is. Times are None without one."""

    phase: DrainPhase = DrainPhase.NOT_DRAINING
    identity: str = ""
    reason: str = ""
    started_at: int | None = None
    deadline_at: int | None = None
    live_runs: int = 0
    awaiting_decision_runs: int = 0
    awaiting_permission_runs: int = 0
    queued_runs: int = 0
    stopped_runs: int = 0
    aborted_runs: int = 0
    processes: int = 0


class Cursor(msgspec.Struct, frozen=True):
    """A place in a session's sequence, exclusive."""

    session_id: str
    after_seq: int
    epoch: str


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted; what is empty lets everything through. `kinds` are field numbers of `Event.body`."""

    kinds: frozenset[int] = frozenset()
    agents: frozenset[str] = frozenset()
    labels: dict[str, str] = {}


class EventsSubscription(Protocol):
    """Places in the sequences of all sessions that the caller sees, and of those to come."""

    async def next(self, timeout_ns: int) -> Slice | None:
        """Give what comes next of some session; None if nothing came in time. Sessions take turns."""

    def cursors(self) -> list[Cursor]:
        """Give the place in each session that is followed."""

    def close(self) -> None:
        """Stop to follow."""


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


def shown_items(resolved: QuestionResolved) -> str:
    """Give what is remembered of an answer: the items that may be shown, as only the open question can tell."""
    return msgspec.json.encode([answer.item_id for answer in resolved.answers or ()]).decode()


class Facade(Protocol):
    """Every verb. What belongs to another tenant is refused exactly like what does not exist; an admin sees all.

    What is not of a tenant, the agents, the bounds and the clock, is the same for every caller.
    """

    async def agents(self) -> list[AgentView]:
        """Give the configured agents, by name. One that is still being probed is waited for shortly."""

    def limits(self) -> LimitsView:
        """Give the bounds in force."""

    async def create_session(self, caller: Caller, request: CreateSession) -> SessionView:
        """Make a session of the caller's tenant, owned by the caller, and begin to start its agent."""

    def get_session(self, caller: Caller, session_id: str) -> SessionView:
        """Give a session."""

    def list_sessions(self, caller: Caller) -> list[SessionView]:
        """Give all sessions that the caller sees, newest first."""

    async def close_session(self, caller: Caller, session_id: str, *, force: bool, reason: str = "") -> SessionView:
        """End a session and its process tree. `reason` goes into its last event, and to runs that it aborts."""

    def update_session(self, caller: Caller, session_id: str, change: SessionChange) -> SessionView:
        """Change modes, model or labels; while a run is live from its next boundary on."""

    def delete_session(self, caller: Caller, session_id: str) -> None:
        """Remove a closed or broken session with its history."""

    def release_queue(self, caller: Caller, session_id: str) -> SessionView:
        """Let runs start again that wait behind one that was stopped or failed."""

    async def start_run(self, caller: Caller, request: StartRun) -> RunView:
        """Start a run. It waits for nothing but the check of expressions."""

    async def continue_run(self, caller: Caller, request: ContinueRun) -> RunView:
        """Start a run that goes on after another. It waits for nothing but the check of expressions."""

    def stop_run(self, caller: Caller, run_id: str, *, reason: str) -> RunView:
        """Ask for a stop at the next boundary."""

    def abort_run(self, caller: Caller, run_id: str, *, reason: str) -> RunView:
        """Cut a run off."""

    def submit_decision(
        self,
        caller: Caller,
        run_id: str,
        step_id: str,
        action: DecisionAction | None,
        *,
        reason: str,
        error: str,
        guidance: Guidance = NO_GUIDANCE,
    ) -> Decision:
        """Decide about the step that waits; `action` None with `error` set."""

    def register_decider(self, caller: Caller, run_id: str) -> Callable[[], None]:
        """Count one more who decides about a run; what is given back counts it off, once. An ended run counts none."""

    def answer_permission(
        self,
        caller: Caller,
        run_id: str,
        permission_id: str,
        answer: PermissionAnswer,
        *,
        alternative: PermissionAlternative | None,
        reason: str,
    ) -> PermissionResolved:
        """Answer a permission that waits."""

    def answer_question(
        self, caller: Caller, run_id: str, question_id: str, answers: tuple[QuestionItemAnswer, ...] | None
    ) -> QuestionResolved:
        """Answer a question that waits; `answers` None declines it."""

    def steer_run(self, caller: Caller, run_id: str, text: str) -> str:
        """Give a text to the running turn; gives the id under which events tell of it."""

    def pending(self, caller: Caller, session_id: str) -> list[PendingView]:
        """Give what waits for somebody in a session, or in all with an empty id, oldest first."""

    def get_run(self, caller: Caller, run_id: str) -> RunView:
        """Give a run."""

    def list_runs(self, caller: Caller, session_id: str) -> list[RunView]:
        """Give the runs of a session, or of all that the caller sees with an empty id, newest first."""

    def steps(self, caller: Caller, run_id: str, after_number: int, limit: int) -> list[StoredStep]:
        """Give at most `limit` completed steps after `after_number`, by number."""

    async def wait_run(self, caller: Caller, run_id: str, *, attention: bool, timeout_ns: int) -> RunView:
        """Wait until the run has ended (or with `attention`, also waits for somebody), at most so long."""

    def watch_run(self, caller: Caller, run_id: str, after_seq: int, epoch: str) -> Subscription:
        """Follow a run; ends after its last event."""

    def watch_session(self, caller: Caller, session_id: str, after_seq: int, epoch: str) -> Subscription:
        """Follow a session; ends once it is closed."""

    def watch_events(self, caller: Caller, cursors: list[Cursor], wanted: EventFilter) -> EventsSubscription:
        """Follow all sessions: those with a cursor from there, others from now on, new ones from their beginning."""

    def drain(self, caller: Caller, window_ns: int | None, reason: str) -> DrainView:
        """Begin to drain, which ends with the daemon's exit. During a drain it changes nothing."""

    def drain_status(self) -> DrainView:
        """Tell how far a drain is."""

    def remembered(self, caller: Caller, request_id: str) -> Request | None:
        """Give what a caller's request did that was carried out in the last 24 hours, also before a restart."""

    def remember(self, caller: Caller, result: str) -> None:
        """See that `caller.request` is remembered with what it made or meant, if what it did was no commit."""

    def now(self) -> int:
        """The daemon's clock, Unix nanoseconds."""

    def read_blob(self, caller: Caller, blob_id: str, offset: int) -> AsyncIterator[tuple[bytes, int, int, str]]:
        """Give data, offset, full size and MIME type of a blob, part by part."""

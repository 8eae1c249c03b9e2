"""What each class of fact moves: one row of `ROWS` per class. For a new fact, write a function and add its row.

A few numbers are kept for each session that is not closed and each run that is live. A run that an earlier life of the
daemon began is not known here: what would need its beginning is left out then, not guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from steprail_daemon.core.events import RateLimited
from steprail_daemon.core.model import (
    Cost,
    PermissionAnswer,
    ResolutionSource,
    RunState,
    SessionState,
    Usage,
    VerdictOutcome,
)
from steprail_daemon.core.records import (
    AgentStarted,
    DecisionRecorded,
    PermissionRequested,
    PermissionResolved,
    RunCreated,
    RunEnded,
    RunStateChanged,
    SessionStateChanged,
    StepEnded,
    TurnFinished,
    TurnStarted,
)
from steprail_daemon.core.views import SessionView
from steprail_daemon.observability.metrics import UNKNOWN
from steprail_daemon.observability.registry import Observe

#: Characters of a prompt, a final text or a failure in a line of the log, where `logging.content` allows them.
SHOWN: Final = 2_000

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_TOKENS: Final = (
    ("input", "input_tokens"),
    ("cached_input", "cached_input_tokens"),
    ("cache_write", "cache_write_tokens"),
    ("output", "output_tokens"),
    ("reasoning", "reasoning_tokens"),
)

log: Final = logging.getLogger("steprail.runs")


class LiveRun:
    """What is kept of a run. Times are None where they are not known."""

    def __init__(self) -> None:
        self.run_id = ""
        self.created_at: int | None = None
        self.started_at: int | None = None
        self.state: RunState | None = None
        self.taken_up = False
        self.ended = False
        self.waited_ns = 0
        self.model = ""
        self.prompt = ""
        self.text = ""
        #: What was counted of it so far.
        self.tokens: dict[str, int] = {}
        self.micro_usd = 0
        #: When somebody was asked for which permission.
        self.permissions: dict[str, int] = {}


class Tally:
    """What is kept of all: the sessions with the agent and state that they are counted under.

    `content`: prompts, texts and failures may be logged.
    """

    def __init__(self, observe: Observe, *, content: bool) -> None:
        self.observe = observe
        self.content = content
        self._sessions: dict[str, Mapping[str, str]] = {}

    def session(self, session: SessionView, state: SessionState) -> None:
        """Count a session under its state."""
        self.forget(session.session_id)
        if state is not SessionState.CLOSED:
            now = self._sessions[session.session_id] = {"agent": session.agent, "state": _name(state)}
            self.observe("sessions", 1, now)

    def forget(self, session_id: str) -> None:
        """Count a session under nothing."""
        before = self._sessions.pop(session_id, None)
        if before is not None:
            self.observe("sessions", -1, before)


class Moment:
    """Where a fact belongs: the tally, its session and run, its time, and the labels that the metrics of runs have."""

    __slots__ = ("agent", "at", "labels", "observe", "run", "session", "tally")

    def __init__(self, tally: Tally, session: SessionView, run: LiveRun, at: int, labels: dict[str, str]) -> None:
        self.tally = tally
        self.observe = tally.observe
        self.session = session
        self.run = run
        self.at = at
        self.agent = session.agent
        self.labels = labels


Row = Callable[[Moment, Any], None]

# --- sessions and runs --------------------------------------------------------------------------------------------


def _session_state(moment: Moment, fact: SessionStateChanged) -> None:
    moment.tally.session(moment.session, fact.state)


def _run_created(moment: Moment, fact: RunCreated) -> None:
    run = moment.run
    run.run_id = fact.run_id
    run.created_at = fact.created_at
    if moment.tally.content:
        run.prompt = fact.spec.prompt[:SHOWN]


def _run_state(moment: Moment, fact: RunStateChanged) -> None:
    run = moment.run
    if run.state is RunState.QUEUED:
        moment.observe("runs_queued", -1, NO_LABELS)
    if fact.state is RunState.QUEUED:
        moment.observe("runs_queued", 1, NO_LABELS)
    run.state = fact.state


def _agent_started(moment: Moment, fact: AgentStarted) -> None:
    moment.run.taken_up = True
    moment.run.model = fact.model


def _turn_started(moment: Moment, fact: TurnStarted) -> None:
    moment.run.started_at = moment.at if fact.at is None else fact.at


def _turn_finished(moment: Moment, fact: TurnFinished) -> None:
    if moment.tally.content:
        moment.run.text = fact.text[:SHOWN]


def _run_ended(moment: Moment, fact: RunEnded) -> None:
    run, observe = moment.run, moment.observe
    run.ended = True
    if run.permissions:
        observe("permissions_pending", -len(run.permissions), NO_LABELS)
    outcome, reason = _name(fact.state), _reason(fact)
    observe("runs_total", 1, {**moment.labels, "outcome": outcome, "reason": reason})
    observe("steps_per_run", fact.step_count, NO_LABELS)
    if run.created_at is not None:
        seconds = (moment.at - run.created_at) / 1e9
        observe("run_duration_seconds", seconds, {"agent": moment.agent, "outcome": outcome})
        # Of a run that began in an earlier life it is not known what was counted then.
        _use(moment, fact.usage, fact.cost, whole=True)
    usage = fact.usage
    if (run.taken_up or fact.step_count) and (usage is None or usage.total_tokens is None or not usage.complete):
        observe("usage_unknown_total", 1, moment.labels)
    log.info("run ended", extra=_line(moment, fact, outcome, reason))


def _line(moment: Moment, fact: RunEnded, outcome: str, reason: str) -> dict[str, object]:
    """Put together what the one line of a run's end says. Unknown is null."""
    run, session, usage = moment.run, moment.session, fact.usage
    line: dict[str, object] = {
        "session_id": session.session_id,
        "run_id": run.run_id or (session.run_ids[-1] if session.run_ids else ""),
        "agent": moment.agent,
        "outcome": outcome,
        "reason": reason,
        "steps": fact.step_count,
        "seconds": _span(run.created_at, moment.at),
        "queued_seconds": _span(run.created_at, run.started_at or moment.at),
        "waited_seconds": None if run.created_at is None else round(run.waited_ns / 1e9, 3),
        "input_tokens": usage.input_tokens if usage is not None else None,
        "output_tokens": usage.output_tokens if usage is not None else None,
        "micro_usd": fact.cost.micro_usd if fact.cost is not None else None,
    }
    if moment.tally.content:
        # What an agent wrote to stderr may be a part of why it failed.
        line["prompt"] = run.prompt
        line["text"] = run.text
        line["failure"] = fact.failure.message[:SHOWN] if fact.failure is not None else ""
    return line


# --- steps and boundaries -----------------------------------------------------------------------------------------


def _step_ended(moment: Moment, fact: StepEnded) -> None:
    step, observe = fact.step, moment.observe
    observe("steps_total", 1, moment.labels)
    observe("step_duration_seconds", step.duration_ns / 1e9, {"agent": moment.agent})
    tools = {call.call_id: call.tool for call in step.tool_calls}
    for result in step.tool_results:
        labels = {**moment.labels, "tool": tools.get(result.call_id, UNKNOWN), "outcome": _name(result.outcome)}
        observe("tool_calls_total", 1, labels)
    for verdict in fact.verdicts:
        if verdict.outcome is VerdictOutcome.MATCHED:
            observe("stop_rule_fired_total", 1, {"kind": _name(verdict.kind)})
    moment.run.model = step.model or moment.run.model
    _use(moment, step.usage, step.cost, whole=False)


def _use(moment: Moment, usage: Usage | None, cost: Cost | None, *, whole: bool) -> None:
    """Count tokens and money of a step; or, with `whole`, those of the run beyond what its steps had."""
    run = moment.run
    labels = {**moment.labels, "model": run.model or UNKNOWN}
    for kind, field in _TOKENS if usage is not None else ():
        amount = getattr(usage, field)
        if amount is not None:
            counted = run.tokens.get(kind, 0)
            more = amount - counted if whole else amount
            run.tokens[kind] = counted + more
            if more > 0:
                moment.observe("tokens_total", more, {**labels, "type": kind})
    if cost is not None and cost.micro_usd is not None:
        more = cost.micro_usd - run.micro_usd if whole else cost.micro_usd
        run.micro_usd += more
        if more > 0:
            moment.observe("cost_usd_total", more / 1e6, {**labels, "basis": _name(cost.basis)})


def _decision_recorded(moment: Moment, fact: DecisionRecorded) -> None:
    decision = fact.decision
    moment.run.waited_ns += decision.waited_ns
    source = _name(decision.source)
    moment.observe("step_decisions_total", 1, {"action": _name(decision.action), "source": source})
    moment.observe("step_decision_wait_seconds", decision.waited_ns / 1e9, {"source": source})


# --- permissions and limits ---------------------------------------------------------------------------------------


def _permission_requested(moment: Moment, fact: PermissionRequested) -> None:
    moment.run.permissions[fact.permission.permission_id] = fact.permission.asked_at
    moment.observe("permissions_pending", 1, NO_LABELS)


def _permission_resolved(moment: Moment, fact: PermissionResolved) -> None:
    asked_at = moment.run.permissions.pop(fact.permission_id, None)
    if asked_at is None:
        return
    waited_ns = moment.at - asked_at
    moment.run.waited_ns += waited_ns
    moment.observe("permissions_pending", -1, NO_LABELS)
    moment.observe("permission_wait_seconds", waited_ns / 1e9, {"outcome": _resolution(fact)})


def _rate_limited(moment: Moment, event: RateLimited) -> None:
    labels = {"provider": event.provider or UNKNOWN, "kind": _name(event.kind)}
    moment.observe("rate_limited_total", 1, labels)


#: What is done for each class of fact. A fact that is not here is not counted by itself.
ROWS: Final[Mapping[type, Row]] = MappingProxyType(
    {
        SessionStateChanged: _session_state,
        RunCreated: _run_created,
        RunStateChanged: _run_state,
        AgentStarted: _agent_started,
        TurnStarted: _turn_started,
        TurnFinished: _turn_finished,
        StepEnded: _step_ended,
        DecisionRecorded: _decision_recorded,
        PermissionRequested: _permission_requested,
        PermissionResolved: _permission_resolved,
        RunEnded: _run_ended,
    }
)
#: The same for events that change no state; few of them are of interest by themselves.
PASSIVE_ROWS: Final[Mapping[type, Row]] = MappingProxyType({RateLimited: _rate_limited})


@lru_cache(maxsize=None, typed=True)
def _name(member: IntEnum) -> str:
    return member.name.lower()


def _reason(fact: RunEnded) -> str:
    if fact.failure is not None and fact.state is RunState.FAILED:
        return fact.failure.reason
    return fact.stop_reason.kind.name if fact.stop_reason is not None else ""


def _resolution(fact: PermissionResolved) -> str:
    if fact.source is ResolutionSource.TIMEOUT:
        return "timed_out"
    if fact.answer is None:
        return "withdrawn"
    return "denied" if fact.answer is PermissionAnswer.DENY else "allowed"


def _span(begin: int | None, end: int) -> float | None:
    return round((end - begin) / 1e9, 3) if begin is not None else None

"""A facade in memory, for tests of what stands before it: sessions and runs without agents.

It keeps the promises of `engine.facade` that a client can see: gapless sequences, cursors, one decision per step,
streams that end with their run. What an agent would do is done by the methods of the second half.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import msgspec

from steprail_daemon.core import queue, records
from steprail_daemon.core.errors import Exhausted, Invalid, NotFound, Unavailable, WrongState
from steprail_daemon.core.model import (
    SECOND,
    Decider,
    Decision,
    DecisionAction,
    DecisionSource,
    FinishReason,
    OnTimeout,
    PendingDecision,
    QueueMode,
    RunLimits,
    RunSpec,
    RunState,
    Step,
    StepBoundary,
    StepCountRule,
    StopKind,
    StopReason,
    StopRequest,
    ToolCall,
    ToolKind,
    ToolOutcome,
    ToolResult,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.replay import fold_session
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.admission import admit_labels
from steprail_daemon.engine.facade import (
    LOCAL,
    NO_GUIDANCE,
    AgentView,
    Caller,
    ContinueRun,
    DeciderRequest,
    DrainPhase,
    DrainView,
    Guidance,
    LimitsView,
    Request,
    StartRun,
    StoredStep,
)
from steprail_daemon.engine.requests import Requests, row_of
from steprail_daemon.service.entries import step_of_event
from steprail_daemon.testing.fake_asks import FakeAsks
from steprail_daemon.testing.fake_book import LIMITS
from steprail_daemon.testing.fake_feed import Subscription
from steprail_daemon.testing.fake_sessions import CAPABILITIES, FakeSessions

__all__ = ["CAPABILITIES", "LIMITS", "LONGEST_WINDOW_NS", "FakeFacade"]

LONGEST_WINDOW_NS = 60 * SECOND
_BLOB_PART = 256 * 1024


class FakeFacade(FakeSessions, FakeAsks):
    """Implements `engine.facade.Facade`."""

    def __init__(self, limits: LimitsView = LIMITS) -> None:
        super().__init__(limits)
        self._drain = DrainView()
        self._requests = Requests()

    def remembered(self, caller: Caller, request_id: str) -> Request | None:
        """See `Facade`."""
        return self._requests.find(caller, request_id, self.now())

    def remember(self, caller: Caller, result: str) -> None:
        """See `Facade`."""
        request = row_of(caller, result, self.now())
        if request is not None:
            self._requests.add(request)

    # --- the facade -------------------------------------------------------------------------------------------------

    async def agents(self) -> list[AgentView]:
        """See `Facade`."""
        return [
            AgentView("claude", "claude", "2.1.0", "", CAPABILITIES),
            AgentView("gone", "claude", "", "no such program", CAPABILITIES),
        ]

    async def start_run(self, caller: Caller, request: StartRun) -> RunView:
        """See `Facade`."""
        if self._drain.phase is not DrainPhase.NOT_DRAINING:
            raise Unavailable("DRAINING", "the daemon is draining", retry_after_ns=SECOND)
        limits = request.limits
        spec = RunSpec(
            prompt=request.prompt,
            stop_rules=request.stop_rules,
            decider=None if request.decider is None else _decider(request.decider),
            limits=RunLimits(
                limits.max_steps or self._limits.max_steps,
                limits.hard_timeout_ns or self._limits.hard_timeout_ns,
                self._limits.stop_timeout_ns,
                self._limits.abort_timeout_ns,
                permission_timeout_ns=limits.permission_timeout_ns or self._limits.permission_timeout_ns,
                queue_timeout_ns=limits.queue_timeout_ns or self._limits.queue_timeout_ns,
            ),
            queue=request.queue,
            allow_inexact_stop=request.allow_inexact_stop,
            labels=admit_labels(request.labels, caller.labels),
            request_id=request.request_id,
        )
        return self._start(self.get_session(caller, request.session_id), spec)

    async def continue_run(self, caller: Caller, request: ContinueRun) -> RunView:
        """See `Facade`."""
        before = self.get_run(caller, request.run_id)
        spec = msgspec.structs.replace(
            before.spec,
            prompt=request.prompt or "Continue.",
            prompt_synthesized=request.prompt is None,
            stop_rules=before.spec.stop_rules if request.stop_rules is None else request.stop_rules,
            continued_from=before.run_id,
            queue=request.queue,
            request_id=request.request_id,
        )
        return self._start(self.get_session(caller, before.session_id), spec)

    def stop_run(self, caller: Caller, run_id: str, *, reason: str) -> RunView:
        """See `Facade`."""
        run = self.get_run(caller, run_id)
        if not run.ended and run.stop_requested is None:
            run.stop_requested = StopRequest(DecisionSource.OPERATOR, caller.name, reason, self.now())
            pending = run.pending_decision
            if pending is not None:
                self._decide(
                    run, pending.step_id, DecisionAction.STOP, DecisionSource.OPERATOR, by=caller.name, why=reason
                )
        return run

    def abort_run(self, caller: Caller, run_id: str, *, reason: str) -> RunView:
        """See `Facade`. Who aborted and why shows nowhere."""
        del reason
        run = self.get_run(caller, run_id)
        if not run.ended:
            run.pending_decision = None
            run.pending_permissions.clear()
            run.pending_questions.clear()
            self.end_run(run_id, RunState.ABORTED)
        return run

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
        """See `Facade`."""
        run = self.get_run(caller, run_id)
        pending = run.pending_decision
        if pending is None or pending.step_id != step_id:
            raise WrongState(
                "DECISION_NOT_PENDING", f"step {step_id!r} waits for no decision", run_id=run_id, step_id=step_id
            )
        chosen = DecisionAction.STOP if action is None else action
        why = reason or error
        return self._decide(run, step_id, chosen, DecisionSource.CLIENT, by=caller.name, why=why, guidance=guidance)

    def list_runs(self, caller: Caller, session_id: str) -> list[RunView]:
        """See `Facade`."""
        if session_id:
            self.get_session(caller, session_id)
        seen = [run for run in reversed(self._runs.values()) if caller.sees(self._sessions[run.session_id].tenant)]
        return [run for run in seen if session_id in ("", run.session_id)]

    def steps(self, caller: Caller, run_id: str, after_number: int, limit: int) -> list[StoredStep]:
        """See `Facade`."""
        run = self.get_run(caller, run_id)
        found = list(enumerate(self._step_events[run_id], 1))[after_number : after_number + limit]
        return [StoredStep(number, event, run.decisions.get(run.steps[number - 1].step_id)) for number, event in found]

    async def wait_run(self, caller: Caller, run_id: str, *, attention: bool, timeout_ns: int) -> RunView:
        """See `Facade`."""
        run = self.get_run(caller, run_id)
        with anyio.move_on_after(timeout_ns / 1e9):
            while not (run.ended or (attention and run.needs_attention)):
                await self._logs[run.session_id].changed.wait()
        return run

    def watch_run(self, caller: Caller, run_id: str, after_seq: int, epoch: str) -> Subscription:
        """See `Facade`."""
        run = self.get_run(caller, run_id)
        log = self._logs[run.session_id]
        self._check_cursor(log, after_seq, epoch)
        return Subscription(log, after_seq, run_id, lambda: run.ended)

    def drain(self, caller: Caller, window_ns: int | None, reason: str) -> DrainView:
        """See `Facade`. It goes no further than its first phase."""
        if window_ns is not None and window_ns > LONGEST_WINDOW_NS:
            raise Invalid("FIELD_INVALID", f"window is {window_ns} ns; at most 60 s are accepted", field="window")
        if self._drain.phase is DrainPhase.NOT_DRAINING:
            at = self.now()
            self._drain = DrainView(
                phase=DrainPhase.STOPPING_RUNS,
                identity=caller.name,
                reason=reason,
                started_at=at,
                deadline_at=at + (LONGEST_WINDOW_NS if window_ns is None else window_ns),
            )
        return self.drain_status()

    def drain_status(self) -> DrainView:
        """See `Facade`."""
        live = [run.state for run in self._runs.values() if not run.ended]
        return msgspec.structs.replace(
            self._drain,
            live_runs=len(live),
            awaiting_decision_runs=live.count(RunState.AWAITING_DECISION),
            awaiting_permission_runs=live.count(RunState.AWAITING_PERMISSION),
            queued_runs=live.count(RunState.QUEUED),
        )

    async def read_blob(self, caller: Caller, blob_id: str, offset: int) -> AsyncIterator[tuple[bytes, int, int, str]]:
        """See `Facade`."""
        blob = self._blobs.get(blob_id)
        if blob is None or not any(map(caller.sees, self._blob_tenants[blob_id])):
            raise NotFound("BLOB_NOT_FOUND", f"there is no blob {blob_id!r}", blob_id=blob_id)
        for start in range(offset, len(blob.data), _BLOB_PART):
            yield blob.data[start : start + _BLOB_PART], start, len(blob.data), blob.mime_type

    # --- what an agent would do -------------------------------------------------------------------------------------

    def complete_step(self, run_id: str, *, output: str = "done", ask: bool = True) -> Step:
        """Complete a step; with `ask` a client is asked, else it is decided that the run goes on."""
        run = self.get_run(LOCAL, run_id)
        number = run.step_count + 1
        call_id = f"call-{number}"
        step = Step(
            number=number,
            step_id=self._new_id("step"),
            text=f"step {number}",
            thought="",
            tool_calls=(ToolCall(call_id, "read", ToolKind.READ, "read", "{}"),),
            tool_results=(ToolResult(call_id, ToolOutcome.SUCCEEDED, output),),
            finish_reason=FinishReason.TOOL_CALLS,
            finish_reason_raw="tool_use",
            usage=None,
            cost=None,
            model="m",
            duration_ns=SECOND,
            ended_at=self.now(),
            boundary=StepBoundary.OBSERVED,
        )
        verdicts = tuple(
            Verdict(
                rule.rule_id,
                StopKind.STEP_COUNT,
                VerdictOutcome.NOT_MATCHED,
                str(number),
                str(rule.condition.at_least),
                number / rule.condition.at_least,
                "",
            )
            for rule in run.spec.stop_rules
            if isinstance(rule.condition, StepCountRule)
        )
        run.steps.append(records.StepSummary(number, step.step_id, ("read",), None, None, step.ended_at))
        self._step_events[run_id].append(b"")
        respondents = self._logs[run.session_id].respondents()
        entry = self._record(
            self.get_session(LOCAL, run.session_id), run_id, number, records.StepEnded(step, verdicts), wake=False
        )
        self._step_events[run_id][-1] = event = _event_of(entry)
        if ask:
            self._ask(run, step)
            for respondent in respondents:
                assert run.pending_decision is not None
                respondent.ask(run.pending_decision, step_of_event(event))
        else:
            self._decide(run, step.step_id, DecisionAction.CONTINUE, DecisionSource.AUTO)
        return step

    def end_run(self, run_id: str, state: RunState, stop_reason: StopReason | None = None) -> None:
        """Let a run end."""
        run = self.get_run(LOCAL, run_id)
        session = self.get_session(LOCAL, run.session_id)
        previous, at = run.state, self.now()
        run.state, run.ended_at, run.stop_reason, session.active_run_id = state, at, stop_reason, ""
        self.emit_quietly(run_id, records.RunStateChanged(state, previous, at, stop_reason))
        self.emit(run_id, records.RunEnded(state, stop_reason, None, run.step_count, None, None))
        fact = queue.after_run(session, run)
        if fact is not None:
            fold_session(session, fact, "")
        self._next_turn(session)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _start(self, session: SessionView, spec: RunSpec) -> RunView:
        if session.active_run_id and spec.queue is QueueMode.REJECT:
            raise WrongState("SESSION_BUSY", "the session has a live run", active_run_id=session.active_run_id)
        if len(session.queued_run_ids) >= self._limits.max_queued_runs:
            raise Exhausted("QUEUE_FULL", f"{len(session.queued_run_ids)} runs of this session wait")
        at = self.now()
        run = RunView(
            run_id=self._new_id("run"), session_id=session.session_id, spec=spec, created_at=at, state_since=at
        )
        self._runs[run.run_id] = run
        self._step_events[run.run_id] = []
        session.run_ids.append(run.run_id)
        session.queued_run_ids.append(run.run_id)
        self._next_turn(session)
        if run.state is RunState.QUEUED:
            self.emit(run.run_id, records.RunStateChanged(RunState.QUEUED, None, at))
        return run

    def _ask(self, run: RunView, step: Step) -> None:
        at = self.now()
        default = run.spec.decider.on_timeout if run.spec.decider is not None else OnTimeout.STOP
        deadline = at + 600 * SECOND
        run.pending_decision = PendingDecision(step.step_id, step.number, at, deadline, default)
        run.state = RunState.AWAITING_DECISION
        self.emit_quietly(run.run_id, records.DecisionAsked(step.step_id, step.number, at, deadline, default))
        self.emit(run.run_id, records.RunStateChanged(run.state, RunState.RUNNING, at))

    def _decide(
        self,
        run: RunView,
        step_id: str,
        action: DecisionAction,
        source: DecisionSource,
        *,
        by: str = "",
        why: str = "",
        guidance: Guidance = NO_GUIDANCE,
    ) -> Decision:
        decision = Decision(
            action=action,
            source=source,
            identity=by,
            reason=why,
            decided_at=self.now(),
            guidance=guidance.text,
            model=guidance.model,
        )
        run.decisions[step_id] = decision
        run.pending_decision = None
        run.state = RunState.RUNNING
        self.emit(run.run_id, records.DecisionRecorded(step_id, decision))
        if action is DecisionAction.STOP:
            self.end_run(
                run.run_id, RunState.STOPPED, StopReason(kind=StopKind.CLIENT_DECISION, source=source, reason=why)
            )
        return decision


def _event_of(entry: bytes) -> bytes:
    place = 1
    while entry[place] & 0x80:
        place += 1
    return entry[place + 1 :]


def _decider(request: DeciderRequest) -> Decider:
    grace = 30 * SECOND if request.disconnect_grace_ns is None else request.disconnect_grace_ns
    return Decider(request.timeout_ns or 600 * SECOND, request.on_timeout, request.on_disconnect, grace)

"""Whatever happens to a run, in whatever order: what holds always, and that it can always be brought to an end."""

from __future__ import annotations

from itertools import permutations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.core.conversations import (
    ABORT_PLEASE,
    COMPLETED_TURN,
    STOP_PLEASE,
    awaiting,
    completed,
    failure,
    running,
    spec,
    step_id,
)

from steprail_daemon.core.commands import (
    AnswerBoundary,
    CancelTimer,
    Command,
    Emit,
    EndProcess,
    Interrupt,
    StartTimer,
)
from steprail_daemon.core.errors import WrongState
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    AgentStartFailed,
    BoundaryCancelled,
    DaemonRestarted,
    DecisionSubmitted,
    PermissionAsked,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    RunEvent,
    Timer,
    TimerFired,
    TurnEnded,
)
from steprail_daemon.core.model import (
    SECOND,
    Decider,
    DecisionAction,
    FailureFault,
    OnTimeout,
    PermissionMode,
    RunLimits,
    RunState,
    StepCountRule,
    StopRequest,
    StopRule,
    ToolKind,
    TurnEndReason,
)
from steprail_daemon.core.records import DecisionRecorded, RunStateChanged
from steprail_daemon.testing.playbook import Playbook

BOUNDS = {
    RunState.RUNNING: {Timer.HARD_TIMEOUT},
    RunState.AWAITING_DECISION: {Timer.HARD_TIMEOUT, Timer.DECISION},
    RunState.STOPPING: {Timer.HARD_TIMEOUT, Timer.STOP},
    RunState.ABORTING: {Timer.ABORT},
}

spans = st.integers(-2 * SECOND, 60 * SECOND)
decisions = st.sampled_from([DecisionAction.CONTINUE, DecisionAction.STOP])


class World(RuleBasedStateMachine):
    """A run and everything around it: an agent that may do anything, clients, timers, a daemon that restarts."""

    play: Playbook

    @initialize(
        decider=st.none() | st.builds(Decider, st.just(60 * SECOND), st.sampled_from(OnTimeout)),
        limit=st.none() | st.integers(1, 4),
        max_steps=st.integers(1, 6),
        mode=st.sampled_from(PermissionMode),
    )
    def begin(self, decider: Decider | None, limit: int | None, max_steps: int, mode: PermissionMode) -> None:
        rules = () if limit is None else (StopRule("rule-1", StepCountRule(limit)),)
        limits = RunLimits(max_steps, 3_600 * SECOND, 10 * SECOND, 20 * SECOND)
        self.play = Playbook(spec(*rules, decider=decider, limits=limits, mode=mode))
        self.sent = self.confirmed = self.exited = False
        self.boundaries = 0
        self.turns: list[TurnEndReason] = []
        self.timers: set[Timer] = set()
        self.past_timers: set[Timer] = set()
        self.said: list[Command] = []
        self.decided: dict[str, DecisionAction] = {}
        self.request: StopRequest | None = None
        self.no_more_leave = False

    def happen(self, event: RunEvent, after: int = 0) -> None:
        self.play.hears(event, after=after)
        for command in self.play.commands:
            self.take(command)
        self.said += self.play.commands

    def take(self, command: Command) -> None:
        if isinstance(command, StartTimer):
            self.timers.add(command.timer)
        elif isinstance(command, CancelTimer):
            self.timers.remove(command.timer)
            self.past_timers.add(command.timer)
        elif isinstance(command, AnswerBoundary):
            self.answered(command)
        elif isinstance(command, Interrupt):
            assert self.confirmed or self.boundaries, "an interrupt before the agent showed that it can take one"
        elif isinstance(command, Emit):
            self.recorded(command)

    def answered(self, answer: AnswerBoundary) -> None:
        earlier = [said.boundary_id for said in self.said if isinstance(said, AnswerBoundary)]
        assert answer.boundary_id not in earlier, "two answers to one boundary"
        if answer.action is DecisionAction.CONTINUE:
            assert not self.no_more_leave, "leave after a stop or an abort"
        if self.sent:
            assert answer.boundary_id == f"b{self.boundaries}", "an answer to a boundary that is past"
            assert self.decided[step_id(self.play.run.view.step_count)] is answer.action

    def recorded(self, command: Emit) -> None:
        fact = command.fact
        if isinstance(fact, DecisionRecorded):
            assert fact.step_id not in self.decided, "two decisions about one step"
            self.decided[fact.step_id] = fact.decision.action
            self.no_more_leave |= fact.decision.action is DecisionAction.STOP
        elif isinstance(fact, RunStateChanged):
            self.no_more_leave |= fact.state not in {RunState.RUNNING, RunState.AWAITING_DECISION, RunState.QUEUED}

    # --- the engine and the agent ------------------------------------------------------------------------------------

    @precondition(lambda self: not self.sent and not self.play.run.view.ended)
    @rule(after=spans)
    def prompt_sent(self, after: int) -> None:
        self.sent = True
        self.happen(PromptSent("p1"), after)

    @precondition(lambda self: self.sent)
    @rule(after=spans)
    def prompt_confirmed(self, after: int) -> None:
        self.confirmed = True
        self.happen(PromptConfirmed("p1"), after)

    @precondition(lambda self: not self.exited)
    @rule(after=spans)
    def step_completed(self, after: int) -> None:
        self.boundaries += 1
        event = completed(self.play.run.view.step_count + 1)
        self.happen(event.__class__(f"b{self.boundaries}", event.step, event.session_steps), after)

    @precondition(lambda self: not self.exited and self.sent)
    @rule(reason=st.sampled_from(TurnEndReason), after=spans)
    def turn_ended(self, reason: TurnEndReason, after: int) -> None:
        self.turns.append(reason)
        self.happen(TurnEnded(reason, "raw", "text"), after)

    @precondition(lambda self: not self.exited)
    @rule(
        event=st.sampled_from(
            [
                BoundaryCancelled("b1"),
                ActivityPastGate("ToolStarted"),
                PermissionAsked("perm", "call", "Bash", "{}", tool_kind=ToolKind.EXECUTE),
                PermissionAsked("perm", "call", "Read", "{}", "sub", ToolKind.READ),
            ]
        )
    )
    def agent_misbehaves(self, event: RunEvent) -> None:
        self.happen(event)

    @precondition(lambda self: not self.exited)
    @rule()
    def protocol_failed(self) -> None:
        self.happen(ProtocolFailed("not JSON"))

    @precondition(lambda self: not self.exited)
    @rule(code=st.sampled_from([0, 1]), after=spans)
    def exits(self, code: int, after: int) -> None:
        self.exited = True
        self.happen(AgentExited(code, None), after)

    @precondition(lambda self: not self.sent and self.play.run.view.state is RunState.QUEUED)
    @rule()
    def start_failed(self) -> None:
        self.exited = True
        self.happen(AgentStartFailed(failure("AGENT_START_FAILED", "gone", FailureFault.ENVIRONMENT)))

    # --- clients, timers, the daemon ---------------------------------------------------------------------------------

    @rule(after=spans)
    def stop(self, after: int) -> None:
        self.happen(STOP_PLEASE, after)

    @rule(after=spans)
    def abort(self, after: int) -> None:
        self.happen(ABORT_PLEASE, after)

    @rule(number=st.integers(1, 4), action=decisions, error=st.sampled_from(["", "it threw"]), after=spans)
    def decide_something(self, number: int, action: DecisionAction, error: str, after: int) -> None:
        self.decide(DecisionSubmitted(step_id(number), action, "ann", error=error), after)

    @precondition(lambda self: self.play.run.view.pending_decision is not None)
    @rule(action=decisions, error=st.sampled_from(["", "it threw"]), twice=st.booleans(), after=spans)
    def decide_rightly(self, action: DecisionAction, error: str, twice: bool, after: int) -> None:
        event = DecisionSubmitted(step_id(self.play.run.view.step_count), action, "ann", error=error)
        self.decide(event, after)
        if twice:
            self.play.refuses(event, "DECISION_NOT_PENDING")

    def decide(self, event: DecisionSubmitted, after: int) -> None:
        pending = self.play.run.view.pending_decision
        if pending is not None and pending.step_id == event.step_id:
            self.happen(event, after)
        else:
            assert isinstance(self.play.refuses(event, "DECISION_NOT_PENDING"), WrongState)

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def timer_fires(self, data: st.DataObject) -> None:
        timer = data.draw(st.sampled_from(sorted(self.timers)))
        self.timers.remove(timer)
        self.happen(TimerFired(timer))

    @precondition(lambda self: self.past_timers and self.play.run.view.state is not RunState.QUEUED)
    @rule(data=st.data())
    def cancelled_timer_fires(self, data: st.DataObject) -> None:
        timer = data.draw(st.sampled_from(sorted(self.past_timers)))
        if timer not in self.timers:
            self.happen(TimerFired(timer))
            assert self.play.commands == []

    @precondition(lambda self: not self.play.run.view.ended)
    @rule(after=spans)
    def daemon_restarts(self, after: int) -> None:
        self.happen(DaemonRestarted(), after)

    # --- what holds always -------------------------------------------------------------------------------------------

    @invariant()
    def every_wait_is_bounded(self) -> None:
        view = self.play.run.view
        ending = any(isinstance(command, EndProcess) for command in self.said)
        bounds = BOUNDS.get(view.state, set())
        assert self.timers <= bounds, "a timer that nobody needs"
        missing = bounds - self.timers
        assert not missing or (ending and missing <= {Timer.STOP, Timer.ABORT}), f"no bound: {missing}"

    @invariant()
    def nothing_is_claimed_that_the_agent_did_not_confirm(self) -> None:
        state = self.play.run.view.state
        if state is RunState.COMPLETED:
            assert TurnEndReason.COMPLETED in self.turns
        elif state is RunState.STOPPED:
            assert TurnEndReason.STOP_CONDITION in self.turns or not self.sent
        elif state is RunState.ABORTED:
            assert self.turns or self.exited or not self.sent

    @invariant()
    def the_reasons_fit_the_end(self) -> None:
        view = self.play.run.view
        assert (view.state is not RunState.STOPPED) or (view.stop_reason is not None and view.failure is None)
        assert (view.state is not RunState.FAILED) or view.failure is not None
        assert (view.state is RunState.AWAITING_DECISION) == (view.pending_decision is not None)

    @invariant()
    def effects_on_the_agent_happen_once(self) -> None:
        assert sum(isinstance(command, Interrupt) for command in self.said) <= 1
        assert sum(isinstance(command, EndProcess) for command in self.said) <= 1

    @invariant()
    def the_first_stop_request_stays(self) -> None:
        request = self.play.run.view.stop_requested
        assert self.request is None or request == self.request
        self.request = request

    def teardown(self) -> None:
        """Every timer that runs out and the exit of the process bring every run to its end."""
        if not hasattr(self, "play"):
            return
        for _ in range(len(Timer)):
            if self.timers and not self.play.run.view.ended:
                timer = max(self.timers)
                self.timers.remove(timer)
                self.happen(TimerFired(timer))
        self.happen(AgentExited(0, None))
        assert self.play.run.view.ended


TestAnyInterleaving = World.TestCase
TestAnyInterleaving.settings = settings(max_examples=150, stateful_step_count=25)


def test_an_abort_against_a_stop_a_decision_the_end_and_the_exit_ends_the_run_once_in_every_order() -> None:
    events: list[RunEvent] = [
        ABORT_PLEASE,
        STOP_PLEASE,
        DecisionSubmitted(step_id(1), DecisionAction.CONTINUE, "ann"),
        COMPLETED_TURN,
        AgentExited(0, None),
        TimerFired(Timer.ABORT),
    ]
    ends = set()
    for order in permutations(events):
        for play in (running(), awaiting()):
            for event in order:
                try:
                    play.hears(event)
                except WrongState:
                    assert isinstance(event, DecisionSubmitted)
            assert play.run.view.ended
            ends.add(play.run.view.state)
    assert ends == {RunState.COMPLETED, RunState.ABORTED, RunState.FAILED}

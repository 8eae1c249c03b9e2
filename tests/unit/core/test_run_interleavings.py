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
    LowerGate,
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
    StepCompleted,
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
actions = st.sampled_from(DecisionAction)
errors = st.sampled_from(["", "", "it threw"])


#: What befalls a run, or its agent does, against all rules.
DISASTERS: tuple[RunEvent, ...] = (
    AgentExited(0, None),
    ProtocolFailed("not JSON"),
    PromptConfirmed("p1"),
    BoundaryCancelled("b1"),
    ActivityPastGate("ToolStarted"),
    PermissionAsked("perm", "call", "Bash", "{}", tool_kind=ToolKind.EXECUTE),
    PermissionAsked("perm", "call", "Read", "{}", "sub", ToolKind.READ),
)

#: What comes when nobody waits for it any more.
LATE: tuple[RunEvent, ...] = (*DISASTERS, STOP_PLEASE, ABORT_PLEASE, COMPLETED_TURN, completed(1))


class World(RuleBasedStateMachine):
    """A run and everything around it: an agent that may do anything, clients, timers, a daemon that restarts."""

    play: Playbook

    @initialize(
        decider=st.none() | st.builds(Decider, st.just(60 * SECOND), st.sampled_from(OnTimeout)),
        limit=st.none() | st.integers(1, 4),
        max_steps=st.integers(2, 6),
        mode=st.sampled_from(PermissionMode),
        calm_steps=st.integers(0, 3),
        opening=st.sampled_from([(PromptSent, PromptConfirmed)] * 4 + [(PromptSent,), ()]),
    )
    def begin(
        self,
        *,
        decider: Decider | None,
        limit: int | None,
        max_steps: int,
        mode: PermissionMode,
        calm_steps: int,
        opening: tuple[type[PromptSent | PromptConfirmed], ...],
    ) -> None:
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
        self.calm_steps = calm_steps
        for event in opening:
            self.happen(event("p1"))
        self.sent, self.confirmed = PromptSent in opening, PromptConfirmed in opening

    @property
    def live(self) -> bool:
        return not self.play.run.view.ended

    @property
    def working(self) -> bool:
        """Whether the agent may do something."""
        return self.live and self.sent and not self.exited

    @property
    def calm(self) -> bool:
        """Whether the run is still left to itself, so that it gets somewhere before it is disturbed."""
        view = self.play.run.view
        return view.state in {RunState.QUEUED, RunState.RUNNING} and view.step_count < self.calm_steps

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

    @precondition(lambda self: self.live and not self.sent)
    @rule(after=spans)
    def prompt_sent(self, after: int) -> None:
        self.sent = True
        self.happen(PromptSent("p1"), after)

    @precondition(lambda self: self.live and self.sent and not self.confirmed)
    @rule(after=spans)
    def prompt_confirmed(self, after: int) -> None:
        self.confirmed = True
        self.happen(PromptConfirmed("p1"), after)

    @precondition(lambda self: self.working)
    @rule(after=spans)
    def step_completed(self, after: int) -> None:
        self.complete_step(after)

    @precondition(lambda self: self.working and self.play.run.view.state in {RunState.QUEUED, RunState.RUNNING})
    @rule(after=spans)
    def step_completed_in_order(self, after: int) -> None:
        self.complete_step(after)

    @precondition(lambda self: self.working and self.boundaries and not self.calm)
    @rule(after=spans)
    def step_completed_before_the_answer_was_sent(self, after: int) -> None:
        self.complete_step(after, past_gate=True)

    def complete_step(self, after: int, *, past_gate: bool = False) -> None:
        self.boundaries += 1
        event = completed(self.play.run.view.step_count + 1)
        self.happen(StepCompleted(f"b{self.boundaries}", event.step, event.session_steps, past_gate), after)

    @precondition(lambda self: self.working and not self.calm)
    @rule(reason=st.sampled_from(TurnEndReason), after=spans)
    def turn_ended(self, reason: TurnEndReason, after: int) -> None:
        self.end_turn(reason, after)

    @precondition(lambda self: self.working and self.play.run.view.state in {RunState.STOPPING, RunState.ABORTING})
    @rule(after=spans)
    def turn_ended_as_told(self, after: int) -> None:
        stopping = self.play.run.view.state is RunState.STOPPING
        self.end_turn(TurnEndReason.STOP_CONDITION if stopping else TurnEndReason.ABORTED, after)

    def end_turn(self, reason: TurnEndReason, after: int) -> None:
        self.turns.append(reason)
        self.happen(TurnEnded(reason, "raw", "text"), after)

    @precondition(lambda self: self.working and not self.calm)
    @rule(event=st.sampled_from(DISASTERS), after=spans)
    def disaster(self, event: RunEvent, after: int) -> None:
        self.exited = isinstance(event, AgentExited)
        self.confirmed |= self.sent and isinstance(event, PromptConfirmed)
        self.happen(event, after)

    @precondition(lambda self: self.live and not self.sent and not self.calm)
    @rule()
    def start_failed(self) -> None:
        self.exited = True
        self.happen(AgentStartFailed(failure("AGENT_START_FAILED", "gone", FailureFault.ENVIRONMENT)))

    # --- clients, timers, the daemon ---------------------------------------------------------------------------------

    @precondition(lambda self: self.live and not self.calm)
    @rule(after=spans)
    def stop(self, after: int) -> None:
        self.happen(STOP_PLEASE, after)

    @precondition(lambda self: self.live and not self.calm)
    @rule(after=spans)
    def abort(self, after: int) -> None:
        self.happen(ABORT_PLEASE, after)

    @precondition(lambda self: self.live)
    @rule(number=st.integers(1, 4), action=actions, error=errors, after=spans)
    def decide_something(self, number: int, action: DecisionAction, error: str, after: int) -> None:
        self.decide(DecisionSubmitted(step_id(number), action, "ann", error=error), after)

    @precondition(lambda self: self.play.run.view.pending_decision is not None)
    @rule(action=actions, error=errors, twice=st.booleans(), after=spans)
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
            self.play.refuses(event, "DECISION_NOT_PENDING")

    @precondition(lambda self: self.timers and not self.calm)
    @rule(data=st.data())
    def timer_fires(self, data: st.DataObject) -> None:
        self.fire(data.draw(st.sampled_from(sorted(self.timers))))

    def fire(self, timer: Timer) -> None:
        self.timers.remove(timer)
        self.happen(TimerFired(timer))

    @precondition(lambda self: self.past_timers - self.timers)
    @rule(data=st.data())
    def cancelled_timer_fires(self, data: st.DataObject) -> None:
        self.happen(TimerFired(data.draw(st.sampled_from(sorted(self.past_timers - self.timers)))))
        assert self.play.commands == []

    @precondition(lambda self: self.live and not self.calm)
    @rule(after=spans)
    def daemon_restarts(self, after: int) -> None:
        self.happen(DaemonRestarted(), after)

    @precondition(lambda self: not self.live)
    @rule(event=st.sampled_from(LATE))
    def something_comes_late(self, event: RunEvent) -> None:
        self.happen(event)
        assert self.play.commands == []

    # --- what holds always -------------------------------------------------------------------------------------------

    @invariant()
    def every_wait_is_bounded(self) -> None:
        view = self.play.run.view
        ending = any(isinstance(command, EndProcess) for command in self.said)
        bounds = BOUNDS.get(view.state, set())
        if view.state is RunState.QUEUED and self.sent:
            bounds = {Timer.PROMPT}
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
    def a_lost_gate_is_told_once_and_never_ends_well(self) -> None:
        lost = sum(isinstance(command, LowerGate) for command in self.said)
        assert lost <= 1
        assert not lost or self.play.run.view.state is not RunState.STOPPED

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
            if self.timers and self.live:
                self.fire(max(self.timers))
        self.happen(AgentExited(0, None))
        assert not self.live


TestAnyInterleaving = World.TestCase
TestAnyInterleaving.settings = settings(max_examples=300, stateful_step_count=15)


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

"""Whatever happens to a run, in whatever order: what holds always, and that it can always be brought to an end.

`HYPOTHESIS_PROFILE=full` (or `--hypothesis-profile=full`) tries 10,000 interleavings; otherwise it is a part of them.
"""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import suppress
from itertools import permutations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT_PLEASE,
    BASH,
    CAPABLE,
    COMPLETED_TURN,
    INCAPABLE,
    STOP_PLEASE,
    TURN,
    WHICH,
    awaiting,
    completed,
    failure,
    hits,
    running,
    spec,
    step_id,
)

from steprail_daemon.core.commands import (
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    CancelTimer,
    Command,
    Emit,
    EndProcess,
    EvaluateExpressions,
    Interrupt,
    LowerGate,
    StartTimer,
)
from steprail_daemon.core.errors import WrongState
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    AgentSilent,
    AgentStartFailed,
    BoundaryCancelled,
    DaemonRestarted,
    DecidersChanged,
    DecisionSubmitted,
    DrainWindowEnding,
    PermissionAnswered,
    PermissionWithdrawn,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    QuestionAnswered,
    QuestionWithdrawn,
    RulesEvaluated,
    RunEvent,
    SteerSubmitted,
    StepCompleted,
    StopRequested,
    Timer,
    TimerFired,
    TurnCame,
    TurnEnded,
    UsageSpent,
)
from steprail_daemon.core.model import (
    SECOND,
    Decider,
    DecisionAction,
    DecisionSource,
    ExpressionRule,
    FailureFault,
    OnDisconnect,
    OnTimeout,
    OnUnknown,
    PermissionAction,
    PermissionAnswer,
    QuestionItemAnswer,
    ResolutionSource,
    RunLimits,
    RunState,
    StepCountRule,
    StepGate,
    StopRequest,
    StopRule,
    TurnEndReason,
    Usage,
)
from steprail_daemon.core.policy import Ruling
from steprail_daemon.core.records import (
    DecisionRecorded,
    Fact,
    PermissionRequested,
    PermissionResolved,
    QuestionRequested,
    QuestionResolved,
    RunEnded,
    RunStateChanged,
    SteerAccepted,
    SteerDelivered,
    SteerDropped,
)
from steprail_daemon.core.run import Run
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult
from steprail_daemon.core.table import TABLE
from steprail_daemon.testing.playbook import Playbook, replayed

Opening = tuple[str, ...]
_WORKING: Opening = ("has_turn", "has_prompt", "works")
#: How a run begins before anything may happen to it, so that each state is well tried.
OPENINGS: list[Opening] = [
    (),
    ("has_turn", "has_prompt"),
    _WORKING,
    _WORKING,
    ("for_a_client", *_WORKING),
    ("for_a_client", *_WORKING, "has_step"),
    ("for_a_client", *_WORKING, "has_step"),
    (*_WORKING, "asks_people", "asks_people"),
    (*_WORKING, "asks_people", "has_step"),
    (*_WORKING, "is_asked_to_stop", "has_step"),
    (*_WORKING, "has_step", "is_aborted"),
    (*_WORKING, "has_answered"),
]

INTERLEAVINGS = 10_000 if settings.get_current_profile_name() == "full" else 1_500

#: Timers that must be set in a state, unless the process is being ended.
BOUNDS = {
    RunState.RUNNING: {Timer.HARD_TIMEOUT},
    RunState.AWAITING_PERMISSION: {Timer.HARD_TIMEOUT},
    RunState.AWAITING_DECISION: {Timer.HARD_TIMEOUT, Timer.DECISION},
    RunState.STOPPING: {Timer.HARD_TIMEOUT, Timer.STOP},
    RunState.ABORTING: {Timer.ABORT},
}
DRAIN = StopRequested(DecisionSource.DRAIN, "", "the daemon is draining")

spans = st.integers(-2 * SECOND, 60 * SECOND)
actions = st.sampled_from(DecisionAction)
errors = st.sampled_from(["", "", "it threw"])
sub_agents = st.sampled_from(["", "sub"])
rulings = st.builds(Ruling, st.sampled_from([*PermissionAction, PermissionAction.ASK]), st.just("because"))
results = st.builds(ExpressionResult, st.sampled_from(ExpressionOutcome), st.just("why"))


#: What befalls a run, or its agent does, or somebody says, whether it fits or not.
ANYTHING: tuple[RunEvent, ...] = (
    AgentExited(0, None),
    ProtocolFailed("not JSON"),
    BoundaryCancelled("b1"),
    ActivityPastGate("ToolStarted"),
    AgentSilent(60 * SECOND),
    UsageSpent(Usage(1, output_tokens=1), None),
    DrainWindowEnding(),
    DRAIN,
)

#: What moves nothing in any state, but for whether a decider is there.
NOISE: tuple[RunEvent, ...] = (
    PermissionWithdrawn("unknown"),
    QuestionWithdrawn("unknown"),
    RulesEvaluated(99, ()),
    DecidersChanged(1),
    DecidersChanged(0),
)

#: What is refused where nobody waits for it.
UNWANTED: tuple[tuple[RunEvent, str], ...] = (
    (DecisionSubmitted("unknown", DecisionAction.STOP, "ann"), "DECISION_NOT_PENDING"),
    (PermissionAnswered("unknown", PermissionAnswer.DENY, "ann"), "PERMISSION_NOT_PENDING"),
    (QuestionAnswered("unknown", None, "ann"), "QUESTION_NOT_PENDING"),
)

#: Where the agent works, so that a text can be given to it.
_STEERED = frozenset({RunState.RUNNING, RunState.AWAITING_PERMISSION})

#: What comes when nobody waits for it any more.
LATE: tuple[RunEvent, ...] = (
    *ANYTHING,
    *NOISE,
    PromptConfirmed("p1"),
    STOP_PLEASE,
    ABORT_PLEASE,
    COMPLETED_TURN,
    completed(1),
    BASH,
    WHICH,
    TimerFired(Timer.DECISION),
)


class World(RuleBasedStateMachine):
    """A run and everything around it: an agent that may do anything, clients, timers, a daemon that restarts."""

    play: Playbook

    @initialize(
        decider=st.builds(Decider, st.just(60 * SECOND), st.sampled_from(OnTimeout), st.sampled_from(OnDisconnect)),
        limit=st.none() | st.integers(1, 4),
        expression=st.sampled_from([None, None, OnUnknown.IGNORE, OnUnknown.STOP]),
        gate=st.sampled_from([*[StepGate.EXACT] * 4, StepGate.BEST_EFFORT, StepGate.UNSUPPORTED]),
        max_steps=st.integers(2, 6),
        opening=st.sampled_from(OPENINGS),
        capable=st.sampled_from([True, True, False]),
    )
    def begin(
        self,
        *,
        decider: Decider,
        limit: int | None,
        expression: OnUnknown | None,
        gate: StepGate,
        max_steps: int,
        opening: Opening,
        capable: bool,
    ) -> None:
        asks_client = "for_a_client" in opening
        if asks_client:
            gate = StepGate.EXACT  # a decider is refused on the others
        rules = [] if limit is None else [StopRule("rule-1", StepCountRule(limit))]
        if expression is not None:
            rules.append(StopRule("rule-2", ExpressionRule("true"), on_unknown=expression))
        limits = RunLimits(max_steps, 3_600 * SECOND, 10 * SECOND, 20 * SECOND)
        self.exact = gate is StepGate.EXACT
        run = spec(*rules, decider=decider if asks_client else None, limits=limits)
        self.play = Playbook(replace(run, step_gate=gate))
        self.turn = TURN if capable else TurnCame(INCAPABLE)
        self.sent = self.confirmed = self.exited = self.aborted = False
        self.boundaries = self.asked = 0
        self.turns: list[TurnEnded] = []
        self.timers: set[Timer] = set()
        self.past_timers: set[Timer] = set()
        self.said: list[Command] = []
        self.answered_boundaries: set[str] = set()
        self.answered_ids: set[str] = set()
        self.decided: dict[str, DecisionAction] = {}
        self.request: StopRequest | None = None
        self.evaluation: EvaluateExpressions | None = None
        #: The agent's own ids of what is open, by public id, and of what it no longer waits for.
        self.own_ids: dict[str, str] = {}
        self.closed: set[str] = set()
        self.texts: set[str] = set()
        self.no_more_leave = False
        #: What is done once or twice for an interleaving, so that it gets somewhere.
        self.done: Counter[str] = Counter()
        self.take_all(self.play.commands)
        for name in opening:
            if self.live:
                getattr(self, name)()

    @property
    def live(self) -> bool:
        return not self.play.run.view.ended

    @property
    def working(self) -> bool:
        """Whether the agent may do something."""
        return self.live and self.sent and not self.exited

    def seldom(self, what: str, times: int) -> bool:
        """Whether something was done fewer times."""
        return self.done[what] < times

    # --- openings ----------------------------------------------------------------------------------------------------

    def for_a_client(self) -> None:
        """A client decides."""

    def has_turn(self) -> None:
        self.happen(self.turn)

    def has_prompt(self) -> None:
        self.sent = True
        self.happen(PromptSent("p1"))

    def works(self) -> None:
        self.confirmed = True
        self.happen(PromptConfirmed("p1"))

    def has_step(self) -> None:
        self.complete_step(0, held=self.exact)

    def asks_people(self) -> None:
        self.ask(Ruling(PermissionAction.ASK, ""), "sub", question=bool(self.asked), after=0)

    def is_asked_to_stop(self) -> None:
        self.happen(STOP_PLEASE)

    def is_aborted(self) -> None:
        self.aborted = True
        self.happen(ABORT_PLEASE)

    def has_answered(self) -> None:
        self.end_turn(TurnEnded(TurnEndReason.COMPLETED, "raw", "text"), 0)

    # --- what it says ------------------------------------------------------------------------------------------------

    def happen(self, event: RunEvent, after: int = 0) -> None:
        hits[self.play.run.view.state, type(event)] += 1
        self.play.hears(event, after=after)
        self.take_all(self.play.commands)

    def refuse(self, event: RunEvent, reason: str) -> None:
        hits[self.play.run.view.state, type(event)] += 1
        self.play.refuses(event, reason)

    def take_all(self, commands: list[Command]) -> None:
        for command in commands:
            self.take(command)
        self.said += commands

    def take(self, command: Command) -> None:
        if isinstance(command, StartTimer):
            self.timers.add(command.timer)
        elif isinstance(command, CancelTimer):
            self.timers.remove(command.timer)
            self.past_timers.add(command.timer)
        elif isinstance(command, AnswerBoundary):
            self.answered(command)
        elif isinstance(command, AnswerPermission | AnswerQuestion):
            own_id = command.permission_id if isinstance(command, AnswerPermission) else command.question_id
            assert own_id not in self.answered_ids, "two answers to one question"
            assert own_id not in self.closed, "an answer to what is no longer asked"
            self.answered_ids.add(own_id)
        elif isinstance(command, EvaluateExpressions):
            self.evaluation = command
        elif isinstance(command, Interrupt):
            assert self.confirmed or self.boundaries, "an interrupt before the agent showed that it can take one"
        elif isinstance(command, Emit):
            self.recorded(command.fact)

    def answered(self, answer: AnswerBoundary) -> None:
        assert answer.boundary_id not in self.answered_boundaries, "two answers to one boundary"
        self.answered_boundaries.add(answer.boundary_id)
        if answer.action is DecisionAction.CONTINUE:
            assert not self.no_more_leave, "leave after a stop or an abort"
        if self.exact and self.sent and not self.play.run.view.turn_ended:
            assert answer.boundary_id == f"b{self.boundaries}", "an answer to a boundary that is past"
            assert self.decided[step_id(self.play.run.view.step_count)] is answer.action

    def recorded(self, fact: Fact) -> None:
        if isinstance(fact, DecisionRecorded):
            assert fact.step_id not in self.decided, "two decisions about one step"
            self.decided[fact.step_id] = fact.decision.action
            self.no_more_leave |= fact.decision.action is DecisionAction.STOP
        elif isinstance(fact, RunStateChanged):
            self.no_more_leave |= fact.state not in {*BOUNDS, RunState.QUEUED} - {RunState.STOPPING, RunState.ABORTING}
        elif isinstance(fact, PermissionRequested):
            self.own_ids[fact.permission.permission_id] = f"own-{self.asked}"
        elif isinstance(fact, QuestionRequested):
            self.own_ids[fact.question.question_id] = f"own-{self.asked}"
        elif isinstance(fact, PermissionResolved | QuestionResolved):
            self.resolved(fact)
        elif isinstance(fact, SteerAccepted):
            self.texts.add(fact.steer_id)
        elif isinstance(fact, SteerDelivered | SteerDropped):
            self.texts.remove(fact.steer_id)
        elif isinstance(fact, RunEnded):
            assert not self.own_ids, "something is still open"
            assert not self.texts, "a text without an outcome"

    def resolved(self, fact: PermissionResolved | QuestionResolved) -> None:
        public_id = fact.permission_id if isinstance(fact, PermissionResolved) else fact.question_id
        own_id = self.own_ids.pop(public_id, "")
        if fact.source is ResolutionSource.AGENT:
            self.closed.add(own_id)
        if isinstance(fact, QuestionResolved):
            assert "secret" not in str(fact)

    # --- the engine and the agent ------------------------------------------------------------------------------------

    @precondition(lambda self: self.live and not self.sent and self.seldom("turn", 2))
    @rule(after=spans)
    def turn_came(self, after: int) -> None:
        self.done["turn"] += 1
        self.happen(self.turn, after)

    @precondition(lambda self: self.live and not self.sent and self.play.run.view.turn_came)
    @rule(after=spans)
    def prompt_sent(self, after: int) -> None:
        self.sent = True
        self.happen(PromptSent("p1"), after)

    @precondition(lambda self: self.working and not self.confirmed)
    @rule(after=spans)
    def prompt_confirmed(self, after: int) -> None:
        self.confirmed = True
        self.happen(PromptConfirmed("p1"), after)

    @precondition(lambda self: self.live and not self.exited)
    @rule(after=spans, held=st.booleans())
    def step_completed(self, after: int, held: bool) -> None:
        self.complete_step(after, held=held or self.exact)

    @precondition(lambda self: self.working and self.play.run.view.state in {RunState.QUEUED, RunState.RUNNING})
    @rule(after=spans, held=st.booleans())
    def step_completed_in_order(self, after: int, held: bool) -> None:
        self.complete_step(after, held=held or self.exact)

    @precondition(lambda self: self.working and self.boundaries)
    @rule(after=spans)
    def step_completed_before_the_answer_was_sent(self, after: int) -> None:
        self.complete_step(after, past_gate=True)

    def complete_step(self, after: int, *, past_gate: bool = False, held: bool = True) -> None:
        self.boundaries += 1
        event = completed(self.play.run.next_step_number)
        self.happen(StepCompleted(f"b{self.boundaries}", event.step, past_gate, held), after)

    @precondition(lambda self: self.evaluation is not None)
    @rule(result=results, again=st.booleans(), after=spans)
    def rules_evaluated(self, result: ExpressionResult, again: bool, after: int) -> None:
        assert self.evaluation is not None
        event = RulesEvaluated(self.evaluation.evaluation_id, (result,) * len(self.evaluation.expressions))
        self.evaluation = self.evaluation if again else None
        self.happen(event, after)

    @precondition(lambda self: self.working)
    @rule(reason=st.sampled_from(TurnEndReason), denied=st.sampled_from([False, False, False, True]), after=spans)
    def turn_ended(self, reason: TurnEndReason, denied: bool, after: int) -> None:
        self.end_turn(TurnEnded(reason, "raw", "text", denied=denied), after)

    @precondition(lambda self: self.working and self.play.run.view.state in {RunState.STOPPING, RunState.ABORTING})
    @rule(after=spans)
    def turn_ended_as_told(self, after: int) -> None:
        stopping = self.play.run.view.state is RunState.STOPPING and self.exact
        reason = TurnEndReason.STOP_CONDITION if stopping else TurnEndReason.ABORTED
        self.end_turn(TurnEnded(reason, "raw", "text"), after)

    def end_turn(self, event: TurnEnded, after: int) -> None:
        self.turns.append(event)
        self.happen(event, after)

    @precondition(lambda self: self.live and not self.exited)
    @rule(event=st.sampled_from(ANYTHING), after=spans)
    def anything(self, event: RunEvent, after: int) -> None:
        self.exited |= isinstance(event, AgentExited)
        self.happen(event, after)

    @precondition(lambda self: self.live and not self.exited and self.seldom("noise", 2))
    @rule()
    def noise(self) -> None:
        self.done["noise"] += 1
        state = self.play.run.view.state
        for event in (*NOISE, *([PromptConfirmed("p1")] if self.confirmed else [])):
            self.happen(event)
        assert self.play.run.view.state is state

    @precondition(lambda self: self.live and not self.sent)
    @rule()
    def start_failed(self) -> None:
        self.exited = True
        self.happen(AgentStartFailed(failure("AGENT_START_FAILED", "gone", FailureFault.ENVIRONMENT)))

    # --- permissions and questions -----------------------------------------------------------------------------------

    @precondition(lambda self: self.live and not self.exited)
    @rule(ruling=rulings, subagent_id=sub_agents, question=st.booleans(), after=spans)
    def asks(self, ruling: Ruling, subagent_id: str, question: bool, after: int) -> None:
        self.ask(ruling, subagent_id, question=question, after=after)

    def ask(self, ruling: Ruling, subagent_id: str, *, question: bool, after: int) -> None:
        self.asked += 1
        own_id = f"own-{self.asked}"
        if question:
            self.happen(replace(WHICH, question_id=own_id, subagent_id=subagent_id), after)
        else:
            self.happen(replace(BASH, permission_id=own_id, subagent_id=subagent_id, ruling=ruling), after)

    @precondition(lambda self: self.own_ids)
    @rule(data=st.data(), after=spans)
    def no_longer_asks(self, data: st.DataObject, after: int) -> None:
        public_id = data.draw(st.sampled_from(sorted(self.own_ids)))
        kind = PermissionWithdrawn if ".p" in public_id else QuestionWithdrawn
        self.happen(kind(self.own_ids[public_id]), after)
        assert public_id not in self.own_ids

    @precondition(lambda self: self.own_ids)
    @rule(data=st.data(), answer=st.sampled_from(PermissionAnswer), decline=st.booleans(), after=spans)
    def answers(self, data: st.DataObject, answer: PermissionAnswer, decline: bool, after: int) -> None:
        public_id = data.draw(st.sampled_from(sorted(self.own_ids)))
        own_id = self.own_ids[public_id]
        if ".p" in public_id:
            event: RunEvent = PermissionAnswered(public_id, answer, "ann")
            reason = "PERMISSION_NOT_PENDING"
        else:
            answers = (QuestionItemAnswer("colour", ("r",)), QuestionItemAnswer("key", text="secret"))
            event = QuestionAnswered(public_id, None if decline else answers, "ann")
            reason = "QUESTION_NOT_PENDING"
        self.happen(event, after)
        assert own_id in self.answered_ids
        self.refuse(event, reason)

    # --- clients, timers, the daemon ---------------------------------------------------------------------------------

    @precondition(lambda self: self.live)
    @rule(after=spans)
    def stop(self, after: int) -> None:
        self.happen(STOP_PLEASE, after)

    @precondition(lambda self: self.live)
    @rule(after=spans)
    def abort(self, after: int) -> None:
        self.aborted = True
        self.happen(ABORT_PLEASE, after)

    @precondition(lambda self: self.seldom("unwanted", 2))
    @rule()
    def unwanted_answers(self) -> None:
        self.done["unwanted"] += 1
        for event, reason in UNWANTED:
            self.refuse(event, reason)

    @precondition(lambda self: self.play.run.view.pending_decision is not None)
    @rule(action=actions, error=errors, texts=st.booleans(), after=spans)
    def decide(self, action: DecisionAction, error: str, texts: bool, after: int) -> None:
        event = DecisionSubmitted(step_id(self.play.run.view.step_count), action, "ann", error=error)
        if action is DecisionAction.CONTINUE and not error:
            if self.play.run.view.stop_requested is not None:
                self.refuse(event, "DRAINING")
                return
            if texts and self.turn.capabilities is not CAPABLE:
                self.refuse(replace(event, guidance="Carefully."), "CAPABILITY_MISSING")
            elif texts:
                event = replace(event, guidance="Carefully.", model="model-2")
        self.happen(event, after)
        self.refuse(event, "DECISION_NOT_PENDING")

    @precondition(lambda self: self.live and self.seldom("steer", 3))
    @rule(after=spans)
    def steer(self, after: int) -> None:
        self.done["steer"] += 1
        event = SteerSubmitted(f"steer_{self.done['steer']}", "Look there.", "ann")
        state = self.play.run.view.state
        with suppress(WrongState):
            self.happen(event, after)
            assert state in _STEERED

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def timer_fires(self, data: st.DataObject) -> None:
        self.fire(data.draw(st.sampled_from(sorted(self.timers))))

    def fire(self, timer: Timer) -> None:
        self.timers.remove(timer)
        self.happen(TimerFired(timer))

    @precondition(lambda self: self.past_timers - self.timers and self.seldom("cancelled", 2))
    @rule(data=st.data())
    def cancelled_timer_fires(self, data: st.DataObject) -> None:
        self.done["cancelled"] += 1
        self.happen(TimerFired(data.draw(st.sampled_from(sorted(self.past_timers - self.timers)))))
        assert self.play.commands == []

    @precondition(lambda self: self.live)
    @rule(after=spans)
    def daemon_restarts(self, after: int) -> None:
        """Everything but the record is lost, and the agent's process."""
        self.play.run = Run.restore(replayed(self.play.facts))
        self.timers.clear()
        self.past_timers.clear()
        self.evaluation = None
        self.happen(DaemonRestarted(), after)
        assert self.live == (not self.sent), "only a run whose prompt was not given survives"
        self.exited = False

    @precondition(lambda self: not self.live)
    @rule()
    def nothing_more(self) -> None:
        """An interleaving may be over before its steps are."""

    @precondition(lambda self: not self.live and self.seldom("late", 1))
    @rule()
    def everything_comes_late(self) -> None:
        self.done["late"] += 1
        run = self.play.run
        for event in LATE:
            hits[run.view.state, type(event)] += 1
            assert run.handle(event, self.play.at) == []
        self.refuse(SteerSubmitted("late", "Look there.", "ann"), "STEER_NOT_POSSIBLE")
        if run.view.state in {RunState.STOPPED, RunState.ABORTED}:
            self.happen(AgentStartFailed(failure("AGENT_START_FAILED", "gone", FailureFault.ENVIRONMENT)))

    # --- what holds always -------------------------------------------------------------------------------------------

    @invariant()
    def every_wait_is_bounded(self) -> None:
        view = self.play.run.view
        ending = any(isinstance(command, EndProcess) for command in self.said)
        bounds = set(BOUNDS.get(view.state, ()))
        if view.state is RunState.QUEUED:
            bounds = {Timer.PROMPT if self.sent else Timer.QUEUE}
        if view.asks:
            bounds.add(Timer.PERMISSION)
        optional = {Timer.DISCONNECT} if view.state is RunState.AWAITING_DECISION else set()
        assert self.timers <= bounds | optional, "a timer that nobody needs"
        missing = bounds - self.timers
        assert not missing or (ending and missing <= {Timer.STOP, Timer.ABORT}), f"no bound: {missing}"

    @invariant()
    def nothing_is_claimed_that_the_agent_did_not_confirm(self) -> None:
        state = self.play.run.view.state
        reasons = {turn.reason for turn in self.turns}
        if state is RunState.COMPLETED:
            assert TurnEndReason.COMPLETED in reasons
        elif state is RunState.STOPPED and self.sent:
            confirmed = TurnEndReason.STOP_CONDITION in reasons or any(turn.denied for turn in self.turns)
            assert confirmed or (not self.exact and TurnEndReason.ABORTED in reasons)
        elif state is RunState.ABORTED:
            assert self.turns or self.exited or not self.sent

    @invariant()
    def the_reasons_fit_the_end(self) -> None:
        view = self.play.run.view
        assert (view.state is not RunState.STOPPED) or (view.stop_reason is not None and view.failure is None)
        assert (view.state is not RunState.COMPLETED) or view.stop_reason is None
        assert (view.state is not RunState.FAILED) or view.failure is not None
        assert (view.state is RunState.AWAITING_DECISION) == (view.pending_decision is not None)
        if not self.exact and view.stop_reason is not None and view.step_count:
            assert not view.stop_reason.exact or view.stop_reason.kind.name == "PERMISSION_DENIED"

    @invariant()
    def people_are_waited_for_exactly_while_something_is_open(self) -> None:
        view = self.play.run.view
        assert view.asks == bool(self.own_ids)
        assert view.asks or view.state is not RunState.AWAITING_PERMISSION
        assert not view.asks or view.state in {RunState.AWAITING_PERMISSION, RunState.AWAITING_DECISION}
        assert view.needs_attention == (view.asks or view.pending_decision is not None)

    @invariant()
    def an_abort_is_never_told_as_a_stop(self) -> None:
        assert not self.aborted or self.play.run.view.state is not RunState.STOPPED

    @invariant()
    def effects_on_the_agent_happen_once(self) -> None:
        assert sum(isinstance(command, Interrupt) for command in self.said) <= 1
        assert sum(isinstance(command, EndProcess) for command in self.said) <= 1

    @invariant()
    def a_lost_gate_is_told_once_and_never_ends_well(self) -> None:
        lost = sum(isinstance(command, LowerGate) for command in self.said)
        assert lost <= (1 if self.exact else 0)
        assert not lost or self.play.run.view.state is not RunState.STOPPED

    @invariant()
    def the_first_stop_request_stays(self) -> None:
        request = self.play.run.view.stop_requested
        assert self.request is None or request == self.request
        self.request = request

    def whatever_came_next_would_have_its_row(self) -> None:
        constant = (self.play.run.view.spec, self.play.run.capabilities, *self.play.run.view.steps)
        for event in (*ANYTHING, PromptConfirmed("p1"), BASH, WHICH):
            run = copy.deepcopy(self.play.run, {id(value): value for value in constant})
            state = run.view.state
            hits[state, type(event)] += 1
            commands = run.handle(event, self.play.at)
            assert run.view.state in TABLE[state, type(event)].to
            facts = [isinstance(command, Emit | LowerGate) for command in commands]
            assert facts == sorted(facts, reverse=True), "an effect before a fact"
        state = self.play.run.view.state
        if state not in _STEERED:
            self.refuse(SteerSubmitted("late", "Look there.", "ann"), "STEER_NOT_POSSIBLE")
        restored = Run.restore(replayed(self.play.facts))
        hits[state, DaemonRestarted] += 1
        restored.handle(DaemonRestarted(), self.play.at)
        assert restored.view.state in TABLE[state, DaemonRestarted].to

    def teardown(self) -> None:
        """Every timer that runs out and the exit of the process bring every run to its end."""
        if not hasattr(self, "play"):
            return
        if self.live:
            self.whatever_came_next_would_have_its_row()
        for _ in range(2 * len(Timer)):
            if self.timers and self.live:
                self.fire(max(self.timers))
        self.happen(AgentExited(0, None))
        assert not self.live
        assert sum(isinstance(fact, RunEnded) for fact in self.play.facts) == 1


@pytest.mark.timeout(1_800)
def test_any_interleaving_ends_once_and_together_they_use_every_row() -> None:
    hits.clear()
    bounds = settings(max_examples=INTERLEAVINGS, stateful_step_count=20)
    run_state_machine_as_test(World, settings=bounds)
    assert {pair for pair in TABLE if not hits[pair]} == set()


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

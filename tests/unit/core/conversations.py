"""Openings that the playbooks share. `opened` lists the playbooks since it was last cleared."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from steprail_daemon.core.commands import (
    AnswerBoundary,
    CancelTimer,
    Command,
    Emit,
    FinishRun,
    StartTimer,
)
from steprail_daemon.core.events import (
    AbortRequested,
    PermissionAsked,
    PromptConfirmed,
    PromptSent,
    QuestionAsked,
    StepCompleted,
    StopRequested,
    Timer,
    TurnCame,
    TurnEnded,
)
from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    Cost,
    CostSupport,
    Decider,
    Decision,
    DecisionAction,
    DecisionSource,
    ExpressionRule,
    Failure,
    FailureFault,
    FinishReason,
    OnTimeout,
    PermissionMode,
    QuestionItem,
    QuestionOption,
    RunLimits,
    RunSpec,
    RunState,
    Step,
    StepBoundary,
    StepCountRule,
    StepGate,
    StopKind,
    StopReason,
    StopRule,
    ToolCall,
    ToolKind,
    ToolOutcome,
    ToolResult,
    TurnEndReason,
    Usage,
    UsageSupport,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.records import (
    AbortAsked,
    DecisionAsked,
    DecisionRecorded,
    RunEnded,
    RunStateChanged,
    StepEnded,
    TurnFinished,
    TurnStarted,
)
from steprail_daemon.testing.playbook import BEGIN, RUN_ID, Playbook

HARD = 3_600 * SECOND
TAKE_UP = 30 * SECOND
STOP = 10 * SECOND
ABORT = 20 * SECOND
PATIENCE = 60 * SECOND

LIMITS = RunLimits(max_steps=100, hard_timeout_ns=HARD, stop_timeout_ns=STOP, abort_timeout_ns=ABORT)
CLIENT = Decider(PATIENCE)
AT_TWO = StopRule("two", StepCountRule(2), "enough seen")

#: What the agent of the playbooks can do.
CAPABLE = Capabilities(
    step_gate=StepGate.EXACT,
    usage=UsageSupport.PER_STEP,
    cost=CostSupport.REPORTED,
    steer=True,
    guidance=True,
    model_switch=True,
    permission_alternatives=True,
)
#: And one that can do nothing of it.
INCAPABLE = Capabilities(step_gate=StepGate.EXACT, usage=UsageSupport.PER_RUN, cost=CostSupport.UNSUPPORTED)
TURN = TurnCame(CAPABLE)

#: What the agent of the playbooks asks of people, and what it asks of nobody.
BASH = PermissionAsked("perm", "call", "Bash", '{"command":"ls"}', tool_kind=ToolKind.EXECUTE, title="List files")
COLOUR = QuestionItem(item_id="colour", text="Which colour?", options=(QuestionOption("r", "Red"),))
SECRET = QuestionItem(item_id="key", text="Which key?", free_text=True, secret=True)
WHICH = QuestionAsked("ask", (COLOUR, SECRET), "call")
FIRST_PERMISSION = "run_01.p000001"
FIRST_QUESTION = "run_01.q000001"
BY_CEL = StopRule("cel", ExpressionRule("step.number > 1"))

STOP_PLEASE = StopRequested(DecisionSource.OPERATOR, "ann", "lunch")
STOP_REASON = StopReason(kind=StopKind.STOP_REQUEST, source=DecisionSource.OPERATOR, reason="lunch")
ABORT_PLEASE = AbortRequested("ann", "wrong directory")

STOPPED_TURN = TurnEnded(TurnEndReason.STOP_CONDITION, "hook_stopped")
ABORTED_TURN = TurnEnded(TurnEndReason.ABORTED, "aborted_tools")
COMPLETED_TURN = TurnEnded(TurnEndReason.COMPLETED, "completed", "All done.")
RATE_LIMITED = Failure(reason="RATE_LIMITED", message="429", fault=FailureFault.PROVIDER, retryable=True)
FAILED_TURN = TurnEnded(TurnEndReason.ERROR, "api_error", "", RATE_LIMITED)

opened: list[Playbook] = []

#: How often the interleavings used each row of the table; told at the end of the test run.
hits: Counter[tuple[RunState, type]] = Counter()

ABORT_ASKED = Emit(AbortAsked("ann", "wrong directory"))
QUEUE_TIMER = (Timer.QUEUE,)


def spec(
    *rules: StopRule,
    decider: Decider | None = None,
    limits: RunLimits = LIMITS,
    mode: PermissionMode = PermissionMode.ASK,
    synthesized: bool = False,
) -> RunSpec:
    """What a run is started with."""
    return RunSpec("Look around.", rules, decider, limits, permission_mode=mode, prompt_synthesized=synthesized)


def queued(*rules: StopRule, run: RunSpec | None = None) -> Playbook:
    """A run that nothing happened to yet."""
    play = Playbook(run or spec(*rules))
    opened.append(play)
    return play


def begun(*rules: StopRule, run: RunSpec | None = None, turn: TurnCame = TURN) -> Playbook:
    """A run whose turn came and whose agent is starting."""
    return queued(*rules, run=run).hears(turn)


def sent(*rules: StopRule, run: RunSpec | None = None, turn: TurnCame = TURN) -> Playbook:
    """A run whose prompt was sent."""
    return begun(*rules, run=run, turn=turn).hears(PromptSent("p1"))


def running(*rules: StopRule, run: RunSpec | None = None, turn: TurnCame = TURN) -> Playbook:
    """A run that the agent works on."""
    return sent(*rules, run=run, turn=turn).hears(PromptConfirmed("p1"))


def awaiting(decider: Decider = CLIENT, *rules: StopRule) -> Playbook:
    """A run whose first step a client is asked about."""
    play = running(run=spec(*rules, decider=decider)).hears(completed(1))
    play.ends_in(RunState.AWAITING_DECISION)
    return play


def asked(decider: Decider | None = None, *rules: StopRule, subagent: str = "") -> Playbook:
    """A run whose agent asks for leave to use a tool."""
    play = running(run=spec(*rules, decider=decider)).hears(replace(BASH, subagent_id=subagent))
    play.ends_in(RunState.AWAITING_PERMISSION)
    return play


def inexact(*rules: StopRule, gate: StepGate = StepGate.BEST_EFFORT) -> Playbook:
    """A run of an agent that is not held at its boundaries."""
    return running(run=replace(spec(*rules), step_gate=gate, allow_inexact_stop=True))


def evaluating(*rules: StopRule, decider: Decider | None = None) -> Playbook:
    """A run whose first step waits for what an expression says of it."""
    return running(run=spec(*(rules or (BY_CEL,)), decider=decider)).hears(completed(1))


def stopping() -> Playbook:
    """A run that was told to stop after its second step, by a rule."""
    play = running(AT_TWO).hears(completed(1)).hears(completed(2))
    play.ends_in(RunState.STOPPING)
    return play


def aborting(*rules: StopRule) -> Playbook:
    """A run that was interrupted within its second step."""
    play = running(*rules).hears(completed(1)).hears(ABORT_PLEASE)
    play.ends_in(RunState.ABORTING)
    return play


def step_id(number: int) -> str:
    """Id of a step of the playbooks' run."""
    return f"{RUN_ID}.{number:06d}"


def step(number: int, usage: Usage | None = None, cost: Cost | None = None) -> Step:
    """A step that read one file."""
    return Step(
        number=number,
        step_id=step_id(number),
        text="Reading.",
        thought="",
        tool_calls=(ToolCall("call", "Read", ToolKind.READ, "Read a file", "{}"),),
        tool_results=(ToolResult("call", ToolOutcome.SUCCEEDED, "text"),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish_reason_raw="tool_use",
        usage=usage,
        cost=cost,
        model="model-1",
        duration_ns=SECOND,
        ended_at=BEGIN,
        boundary=StepBoundary.OBSERVED,
    )


def completed(
    number: int, usage: Usage | None = None, cost: Cost | None = None, *, past_gate: bool = False, held: bool = True
) -> StepCompleted:
    """That a step is complete and the agent waits, unless it is not `held`."""
    return StepCompleted(f"b{number}", step(number, usage, cost), past_gate, held)


def judged(outcome: VerdictOutcome, count: int, limit: int, rule_id: str = "two") -> Verdict:
    """What a step_count rule of scope RUN says."""
    message = f"Completed steps of the run: {count}, limit {limit}."
    return Verdict(rule_id, StopKind.STEP_COUNT, outcome, str(count), str(limit), count / limit, message)


def ended_step(number: int, *verdicts: Verdict) -> Emit:
    """That a step is recorded."""
    return Emit(StepEnded(step(number), verdicts))


def changes(state: RunState, previous: RunState, at: int, reason: StopReason | None = None) -> Emit:
    """That a state which is no end is recorded."""
    return Emit(RunStateChanged(state, previous, at, reason))


def asks(number: int, at: int, default: OnTimeout = OnTimeout.STOP) -> list[Command]:
    """That a client is asked."""
    return [
        Emit(DecisionAsked(step_id(number), number, at, at + PATIENCE, default)),
        changes(RunState.AWAITING_DECISION, RunState.RUNNING, at),
        StartTimer(Timer.DECISION, at + PATIENCE),
    ]


def decided(
    number: int,
    action: DecisionAction,
    source: DecisionSource,
    at: int,
    *,
    reason: str = "",
    identity: str = "",
    rule_id: str = "",
    waited: int = 0,
) -> Emit:
    """That a decision is recorded."""
    decision = Decision(
        action=action,
        source=source,
        reason=reason,
        identity=identity,
        rule_id=rule_id,
        waited_ns=waited,
        decided_at=at,
    )
    return Emit(DecisionRecorded(step_id(number), decision))


def goes_on(number: int, at: int) -> list[Command]:
    """That nothing stops after a step, and the agent is let go."""
    return [
        decided(number, DecisionAction.CONTINUE, DecisionSource.AUTO, at),
        AnswerBoundary(f"b{number}", DecisionAction.CONTINUE),
    ]


def stops(number: int, at: int, reason: StopReason, *, previous: RunState = RunState.RUNNING) -> list[Command]:
    """What follows a decision to stop. From AWAITING_DECISION its timer goes too."""
    waited = previous is RunState.AWAITING_DECISION
    return [
        changes(RunState.STOPPING, previous, at, reason),
        *([CancelTimer(Timer.DECISION)] if waited else []),
        StartTimer(Timer.STOP, at + STOP),
        AnswerBoundary(f"b{number}", DecisionAction.STOP),
    ]


def starts(at: int) -> list[Command]:
    """That the agent took the prompt."""
    return [
        changes(RunState.RUNNING, RunState.QUEUED, at),
        Emit(TurnStarted(False, at)),
        CancelTimer(Timer.PROMPT),
        StartTimer(Timer.HARD_TIMEOUT, at + HARD),
    ]


def turn(event: TurnEnded) -> Emit:
    """That the end of a turn is recorded."""
    return Emit(TurnFinished(event.reason, event.reason_raw, event.text))


def ends(
    state: RunState,
    previous: RunState,
    at: int,
    *effects: Command,
    timers: tuple[Timer, ...] = (),
    steps: int = 0,
    reason: StopReason | None = None,
    failure: Failure | None = None,
    final: tuple[Verdict, ...] = (),
    usage: Usage | None = None,
    cost: Cost | None = None,
) -> list[Command]:
    """The end of a run: two facts, its timers, other effects, and the end of it all."""
    return [
        Emit(RunStateChanged(state, previous, at, reason, failure)),
        Emit(RunEnded(state, reason, failure, steps, usage, cost, final)),
        *(CancelTimer(timer) for timer in timers),
        *effects,
        FinishRun(),
    ]


def failure(reason: str, message: str, fault: FailureFault, step: int | None = None) -> Failure:
    """A failure as the machine words it."""
    retryable = reason == "DAEMON_RESTARTED"
    return Failure(reason=reason, message=message, fault=fault, retryable=retryable, resumable_at_step=step)

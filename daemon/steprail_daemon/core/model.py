"""Values that the whole daemon speaks of: states, steps, usage, rules, outcomes.

Everything here is immutable. Times are Unix nanoseconds (`..._at`), spans are nanoseconds (`..._ns`), money is
millionths of a US dollar, sizes are bytes. `None` means unknown, which is never the same as zero.

What steps and decisions consist of is recorded as arrays (`array_like`), see `journal.record`: a new field there goes
to the end and has a default.

The numbers of the enumerations are those of the public protobuf enumerations, so that the service translates them
without a table; a test compares the two.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


class RunState(IntEnum):
    """State of a run. STOPPED and ABORTED are claimed only once the agent confirmed it or its process is gone."""

    QUEUED = 1
    RUNNING = 2
    AWAITING_DECISION = 3
    AWAITING_PERMISSION = 4
    STOPPING = 5
    ABORTING = 6
    COMPLETED = 7
    STOPPED = 8
    ABORTED = 9
    FAILED = 10


TERMINAL_STATES = frozenset({RunState.COMPLETED, RunState.STOPPED, RunState.ABORTED, RunState.FAILED})


class SessionState(IntEnum):
    """State of a session: its process and whether a run is live."""

    STARTING = 1
    IDLE = 2
    RUNNING = 3
    SUSPENDED = 4
    CLOSED = 5
    BROKEN = 6


class StepGate(IntEnum):
    """How well an agent can be held at a step boundary."""

    EXACT = 1
    BEST_EFFORT = 2
    UNSUPPORTED = 3


class UsageSupport(IntEnum):
    """When token figures arrive."""

    PER_STEP = 1
    PER_RUN = 2
    UNSUPPORTED = 3


class CostSupport(IntEnum):
    """Where cost figures come from."""

    REPORTED = 1
    PRICED = 2
    UNSUPPORTED = 3


class PermissionMode(IntEnum):
    """What an agent may do without asking."""

    ASK = 1
    ACCEPT_EDITS = 2
    READ_ONLY = 3
    BYPASS = 4


class ToolKind(IntEnum):
    """What a tool does, whatever the agent calls it."""

    UNKNOWN = 0
    READ = 1
    EDIT = 2
    EXECUTE = 3
    SEARCH = 4
    FETCH = 5
    OTHER = 6


class ToolOutcome(IntEnum):
    """What came of a tool call."""

    SUCCEEDED = 1
    FAILED = 2
    DENIED = 3
    CANCELLED = 4


class FinishReason(IntEnum):
    """Why the model's message ended. UNKNOWN: the agent did not report it."""

    UNKNOWN = 0
    STOP = 1
    TOOL_CALLS = 2
    LENGTH = 3
    CONTENT_FILTER = 4
    ERROR = 5
    OTHER = 6


class StepBoundary(IntEnum):
    """How the end of a step is known."""

    OBSERVED = 1
    INFERRED = 2


class MessageKind(IntEnum):
    """What a message contains."""

    TEXT = 1
    THOUGHT = 2


class TurnEndReason(IntEnum):
    """How a turn of the agent ended."""

    COMPLETED = 1
    ABORTED = 2
    STOP_CONDITION = 3
    ERROR = 4


class CostBasis(IntEnum):
    """Where an amount of money comes from."""

    REPORTED = 1
    PRICED = 2
    MIXED = 3


class StopKind(IntEnum):
    """What can stop a run."""

    STEP_COUNT = 10
    TOOL_CALL = 11
    TOKEN_USAGE = 12
    COST = 13
    DURATION = 14
    FINISH_REASON = 15
    TOOL_FAILURES = 16
    REPETITION = 17
    EXPRESSION = 18
    ANY_OF = 19
    ALL_OF = 20
    NONE_OF = 21
    CLIENT_DECISION = 100
    MAX_STEPS = 101
    BUDGET = 102
    STOP_REQUEST = 103
    DRAIN = 104
    TIMEOUT = 105
    DISCONNECT = 106
    PERMISSION_DENIED = 107


class RuleScope(IntEnum):
    """What a cumulative rule sums over."""

    RUN = 1
    SESSION = 2


class OnUnknown(IntEnum):
    """What to do with a rule whose data is missing."""

    REFUSE = 1
    IGNORE = 2
    STOP = 3


class ToolCallScope(IntEnum):
    """Where a tool call is looked for."""

    STEP = 1
    RUN = 2


class ToolOutcomeFilter(IntEnum):
    """Which results of a tool call match. ANY includes a cancelled call."""

    ANY = 1
    SUCCEEDED = 2
    FAILED = 3
    DENIED = 4


class TokenCounting(IntEnum):
    """Which tokens are counted. UNCACHED: input and output without cached input."""

    TOTAL = 1
    INPUT = 2
    OUTPUT = 3
    UNCACHED = 4


class RuleClock(IntEnum):
    """Which clock a duration is measured by. ACTIVE leaves out the queue and waiting for people."""

    ACTIVE = 1
    WALL = 2


class VerdictOutcome(IntEnum):
    """What a rule said about a step."""

    MATCHED = 1
    NOT_MATCHED = 2
    UNKNOWN = 3


class DecisionAction(IntEnum):
    """What was decided at a boundary."""

    CONTINUE = 1
    STOP = 2


class DecisionSource(IntEnum):
    """Where a decision or a stop came from."""

    AUTO = 1
    RULE = 2
    CLIENT = 3
    BUDGET = 4
    LIMIT = 5
    TIMEOUT = 6
    DISCONNECT = 7
    OPERATOR = 8
    DRAIN = 9
    RESTART = 10


class OnTimeout(IntEnum):
    """What happens when nobody decided in time."""

    STOP = 1
    CONTINUE = 2
    ABORT = 3


class OnDisconnect(IntEnum):
    """What happens when a decision is pending and no decider is registered any more."""

    WAIT = 1
    STOP = 2
    CONTINUE = 3


class QueueMode(IntEnum):
    """What to do with a run that cannot start at once."""

    REJECT = 1
    QUEUE = 2


class PermissionAction(IntEnum):
    """What a rule says about a permission."""

    ALLOW = 1
    DENY = 2
    ASK = 3


class PermissionAnswer(IntEnum):
    """An answer to a permission. ALLOW_SESSION: and every later call of this tool with these arguments."""

    ALLOW_ONCE = 1
    ALLOW_SESSION = 2
    DENY = 3


class FileChange(IntEnum):
    """What was done to a file."""

    CREATED = 1
    MODIFIED = 2
    DELETED = 3


class RateLimitKind(IntEnum):
    """Whether waiting helps."""

    TRANSIENT = 1
    QUOTA = 2


class ContextWindowKind(IntEnum):
    """What happened to the model's context: it was compacted, or it is nearly full."""

    COMPACTED = 1
    WARNING = 2


class ResolutionSource(IntEnum):
    """Who or what resolved a permission or a question."""

    POLICY = 1
    CLIENT = 2
    TIMEOUT = 3
    ABORT = 4
    DRAIN = 5
    AGENT = 6


class FailureFault(IntEnum):
    """Whose fault a failure is, as far as it can be told."""

    AGENT = 1
    PROVIDER = 2
    CLIENT = 3
    DAEMON = 4
    ENVIRONMENT = 5


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do in this version and configuration; see `Capabilities` of the API."""

    step_gate: StepGate
    usage: UsageSupport
    cost: CostSupport
    finish_reason: bool = False
    partial_text: bool = False
    permissions: bool = False
    permission_alternatives: bool = False
    questions: bool = False
    resume: bool = False
    steer: bool = False
    guidance: bool = False
    continue_without_prompt: bool = False
    plan_mode: bool = False
    model_switch: bool = False
    images: bool = False
    fork: bool = False
    mcp_servers: bool = False
    loop_strategy: bool = False
    max_iterations: bool = False
    stop_leaves_trace: bool = False
    abort_keeps_results: bool = False
    max_decision_hold_ns: int | None = None
    max_permission_hold_ns: int | None = None


class Usage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Tokens. `None` is unknown; `complete` is false where a part of a sum is missing.

    `reported_total` is input and output together where they are not known apart.
    """

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    complete: bool = True
    reported_total: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output, or None if it is unknown."""
        if self.reported_total is not None:
            return self.reported_total
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Cost(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Money in millionths of a US dollar. `None` is unknown."""

    micro_usd: int | None
    basis: CostBasis
    complete: bool = True


class ToolCall(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One call of a tool; `arguments_json` as the agent gave it."""

    call_id: str
    tool: str
    tool_kind: ToolKind
    title: str
    arguments_json: str


class ToolResult(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The result of one call. `output` is what the tool gave, `error` what went wrong."""

    call_id: str
    outcome: ToolOutcome
    output: str | None = None
    error: str | None = None


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One message of the main loop with its tool calls and their results, whole."""

    number: int
    step_id: str
    text: str
    thought: str
    tool_calls: tuple[ToolCall, ...]
    tool_results: tuple[ToolResult, ...]
    finish_reason: FinishReason
    finish_reason_raw: str
    usage: Usage | None
    cost: Cost | None
    model: str
    duration_ns: int
    ended_at: int
    boundary: StepBoundary


class StepCountRule(msgspec.Struct, frozen=True, tag="step_count"):
    """Matches when the number of completed steps is at or over `at_least`."""

    at_least: int
    scope: RuleScope = RuleScope.RUN


class ToolCallRule(msgspec.Struct, frozen=True, tag="tool_call"):
    """Matches when such a call is there. Either `tool`, a glob over its name, or `tool_kind` is set."""

    tool: str = ""
    tool_kind: ToolKind = ToolKind.UNKNOWN
    outcome: ToolOutcomeFilter = ToolOutcomeFilter.ANY
    scope: ToolCallScope = ToolCallScope.STEP


class TokenUsageRule(msgspec.Struct, frozen=True, tag="token_usage"):
    """Matches when the tokens used, sub-agents and side requests included, are at or over `at_least`."""

    at_least: int
    counting: TokenCounting = TokenCounting.TOTAL
    scope: RuleScope = RuleScope.RUN


class CostRule(msgspec.Struct, frozen=True, tag="cost"):
    """Matches when the cost is at or over `at_least_micro_usd`."""

    at_least_micro_usd: int
    scope: RuleScope = RuleScope.RUN


class DurationRule(msgspec.Struct, frozen=True, tag="duration"):
    """Matches at the first boundary at which the time is at or over `at_least_ns`."""

    at_least_ns: int
    clock: RuleClock = RuleClock.ACTIVE


class FinishReasonRule(msgspec.Struct, frozen=True, tag="finish_reason"):
    """Matches when the step's message reported one of `any_of`. UNKNOWN if it reported none."""

    any_of: tuple[FinishReason, ...]


class ToolFailuresRule(msgspec.Struct, frozen=True, tag="tool_failures"):
    """Matches when enough tool calls of the run failed. Cancelled calls never count."""

    at_least: int
    consecutive: bool = False
    count_denied: bool = False


class RepetitionRule(msgspec.Struct, frozen=True, tag="repetition"):
    """Matches when the same tool was called with the same arguments at least so often in the run."""

    at_least: int


class ExpressionRule(msgspec.Struct, frozen=True, tag="expression"):
    """Matches when a CEL expression is true or is a non-empty string, which then becomes the reason."""

    cel: str


class AnyOfRule(msgspec.Struct, frozen=True, tag="any_of"):
    """Matches when at least one of `rules` matches."""

    rules: tuple[StopRule, ...]


class AllOfRule(msgspec.Struct, frozen=True, tag="all_of"):
    """Matches when each of `rules` matches."""

    rules: tuple[StopRule, ...]


class NoneOfRule(msgspec.Struct, frozen=True, tag="none_of"):
    """Matches when none of `rules` matches."""

    rules: tuple[StopRule, ...]


#: Conditions that this daemon evaluates, one class per kind; `core.stops` holds the evaluators.
RuleCondition = (
    StepCountRule
    | ToolCallRule
    | TokenUsageRule
    | CostRule
    | DurationRule
    | FinishReasonRule
    | ToolFailuresRule
    | RepetitionRule
    | ExpressionRule
    | AnyOfRule
    | AllOfRule
    | NoneOfRule
)


class StopRule(msgspec.Struct, frozen=True):
    """A condition checked at every boundary. `rule_id` is unique within its list, `reason` is for people."""

    rule_id: str
    condition: RuleCondition
    reason: str = ""
    on_unknown: OnUnknown = OnUnknown.REFUSE


class Verdict(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one rule said at one step. `ratio` 1.0 is the limit reached; None if there is no measure.

    `missing` are the kinds of rules within a group whose data was missing; empty unless a group is UNKNOWN.
    """

    rule_id: str
    kind: StopKind
    outcome: VerdictOutcome
    observed: str
    limit: str
    ratio: float | None
    message: str
    missing: tuple[StopKind, ...] = ()


class Decider(msgspec.Struct, frozen=True):
    """A client is asked at each boundary where nothing else stops.

    `on_disconnect` counts once a decider had been registered, none has been for `disconnect_grace_ns`, and a decision
    is pending.
    """

    timeout_ns: int
    on_timeout: OnTimeout = OnTimeout.STOP
    on_disconnect: OnDisconnect = OnDisconnect.WAIT
    disconnect_grace_ns: int = 30 * SECOND


class RunLimits(msgspec.Struct, frozen=True):
    """Ceilings of one run, all filled in. The agent has `prompt_timeout_ns` to take the prompt that it was sent.

    `permission_timeout_ns` is how long a permission or a question waits before it is denied, shorter than the agent's
    own patience. `queue_timeout_ns` is how long the run may stay QUEUED before its prompt is sent.
    """

    max_steps: int
    hard_timeout_ns: int
    stop_timeout_ns: int
    abort_timeout_ns: int
    prompt_timeout_ns: int = 30 * SECOND
    permission_timeout_ns: int = 300 * SECOND
    queue_timeout_ns: int = 3600 * SECOND


class RunSpec(msgspec.Struct, frozen=True):
    """What a run was started with, as accepted: defaults and inherited parts are filled in."""

    prompt: str
    stop_rules: tuple[StopRule, ...]
    decider: Decider | None
    limits: RunLimits
    labels: dict[str, str] = {}
    prompt_synthesized: bool = False
    continued_from: str = ""
    request_id: str = ""
    permission_mode: PermissionMode = PermissionMode.ASK
    queue: QueueMode = QueueMode.REJECT
    allow_inexact_stop: bool = False
    #: The session's gate when the run was accepted.
    step_gate: StepGate = StepGate.EXACT


class Decision(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The one decision of a step. `delivered`: the agent confirmed it.

    `guidance` is a text that the model gets with its next step, `model` the one it uses from there on; both only with
    CONTINUE.
    """

    action: DecisionAction
    source: DecisionSource
    rule_id: str = ""
    reason: str = ""
    identity: str = ""
    waited_ns: int = 0
    delivered: bool = False
    decided_at: int
    guidance: str = ""
    model: str = ""


class StopReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run was stopped. The agent's model never sees it."""

    kind: StopKind
    source: DecisionSource
    rule_id: str = ""
    reason: str = ""
    observed: str = ""
    limit: str = ""
    also_matched: tuple[Verdict, ...] = ()
    exact: bool = True
    overshoot_requests: int = 0


class StopRequest(msgspec.Struct, frozen=True):
    """That somebody asked the run to stop at its next boundary."""

    source: DecisionSource
    identity: str
    reason: str
    requested_at: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed, or what went wrong beside another ending. `reason` is one of the API's failure reasons."""

    reason: str
    message: str
    fault: FailureFault
    retryable: bool = False
    retry_after_ns: int | None = None
    resumable_at_step: int | None = None
    #: What the agent or the provider sent, as JSON; empty if there is nothing.
    detail_json: str = ""


class PendingDecision(msgspec.Struct, frozen=True):
    """A decision that is waited for until `deadline_at`."""

    step_id: str
    step_number: int
    asked_at: int
    deadline_at: int
    default: OnTimeout


class PermissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule about permissions; every condition that is set must hold. See `PermissionRule` of the API."""

    action: PermissionAction
    tool: str = ""
    command_prefix: str = ""
    path: str = ""
    cel: str = ""
    reason: str = ""


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that waits for leave until `deadline_at`; the default is to deny.

    `permission_id` is the public one, `run_id.p` and a number; the agent's own stays with the run.
    """

    permission_id: str
    step_number: int
    tool: str
    tool_kind: ToolKind
    title: str
    arguments_json: str
    asked_at: int
    deadline_at: int
    subagent_id: str = ""
    call_id: str = ""


class PermissionAlternative(msgspec.Struct, frozen=True):
    """What the agent should do in place of the call that it asked for; exactly one is set."""

    command: str | None = None
    arguments_json: str | None = None


class QuestionOption(msgspec.Struct, frozen=True):
    """One option of an item."""

    option_id: str
    label: str
    description: str = ""


class QuestionItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a question. A `secret` answer goes to the agent and is never recorded."""

    item_id: str
    text: str
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multiple: bool = False
    free_text: bool = False
    secret: bool = False


class QuestionItemAnswer(msgspec.Struct, frozen=True):
    """The answer to one item."""

    item_id: str
    option_ids: tuple[str, ...] = ()
    text: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Something the agent asks a person until `deadline_at`; the default is to decline.

    `question_id` is the public one, `run_id.q` and a number; the agent's own stays with the run.
    """

    question_id: str
    step_number: int
    items: tuple[QuestionItem, ...]
    asked_at: int
    deadline_at: int
    subagent_id: str = ""
    call_id: str = ""

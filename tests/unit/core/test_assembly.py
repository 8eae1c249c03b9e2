"""Steps as they are put together from what the agent says."""

from steprail_daemon.core.assembly import NO_RESULT, StepAssembly
from steprail_daemon.core.events import (
    AgentErrorReported,
    BoundaryReached,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    PassiveEvent,
    RawReceived,
    ToolEnded,
    ToolStarted,
    UsageReported,
)
from steprail_daemon.core.model import (
    SECOND,
    Cost,
    CostBasis,
    FinishReason,
    MessageKind,
    Step,
    StepBoundary,
    ToolCall,
    ToolKind,
    ToolOutcome,
    ToolResult,
    Usage,
)

BEGIN = 1_700_000_000_000_000_000
RUN = "run_01"


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "Read", ToolKind.READ, "Read a file", '{"path":"a"}')


def result(call_id: str, outcome: ToolOutcome = ToolOutcome.SUCCEEDED) -> ToolResult:
    return ToolResult(call_id, outcome, f"output of {call_id}")


def fed(*events: PassiveEvent) -> StepAssembly:
    assembly = StepAssembly()
    assembly.begin(BEGIN)
    for event in events:
        assembly.feed(event)
    return assembly


def completed(*events: PassiveEvent, boundary: BoundaryReached | None = None) -> Step:
    return fed(*events).complete(boundary or BoundaryReached("b1"), 1, RUN, BEGIN + SECOND)


def test_a_step_is_one_message_with_its_calls_and_results() -> None:
    usage, cost = Usage(10, output_tokens=2), Cost(7, CostBasis.REPORTED)
    step = completed(
        MessageStarted("m1", MessageKind.TEXT),
        MessageDelta("m1", "Let me "),
        MessageEnded("m0", MessageKind.THOUGHT, "Which file?"),
        MessageEnded("m1", MessageKind.TEXT, "Let me look.", FinishReason.TOOL_CALLS, "tool_use", "model-1"),
        ToolStarted(call("c1")),
        UsageReported(usage, cost),
        AgentErrorReported("529", "overloaded", True),
        RawReceived("ping", "{}"),
        ToolEnded(result("c1"), SECOND),
        boundary=BoundaryReached("b1", ("c1",), usage, cost),
    )
    assert step == Step(
        number=1,
        step_id="run_01.000001",
        text="Let me look.",
        thought="Which file?",
        tool_calls=(call("c1"),),
        tool_results=(result("c1"),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish_reason_raw="tool_use",
        usage=usage,
        cost=cost,
        model="model-1",
        duration_ns=SECOND,
        ended_at=BEGIN + SECOND,
        boundary=StepBoundary.OBSERVED,
    )


def test_calls_are_in_the_models_order_and_results_in_the_order_of_completion() -> None:
    step = completed(
        ToolStarted(call("c2")),
        ToolStarted(call("c1")),
        ToolEnded(result("c2")),
        ToolEnded(result("c1")),
        boundary=BoundaryReached("b1", ("c1", "c2")),
    )
    assert [each.call_id for each in step.tool_calls] == ["c1", "c2"]
    assert [each.call_id for each in step.tool_results] == ["c2", "c1"]


def test_without_a_list_the_calls_are_in_the_order_in_which_they_began() -> None:
    step = completed(ToolStarted(call("c2")), ToolStarted(call("c1")))
    assert [each.call_id for each in step.tool_calls] == ["c2", "c1"]


def test_calls_that_the_agents_list_leaves_out_are_kept_and_calls_only_in_the_list_are_not_made_up() -> None:
    step = completed(
        ToolStarted(call("extra")),
        ToolStarted(call("c1")),
        ToolEnded(result("c1")),
        ToolEnded(result("extra")),
        boundary=BoundaryReached("b1", ("ghost", "c1")),
    )
    assert [each.call_id for each in step.tool_calls] == ["c1", "extra"]


def test_every_call_has_one_result_and_what_no_result_came_of_says_so() -> None:
    step = completed(ToolStarted(call("c1")), ToolStarted(call("c2")), ToolStarted(call("c3")), ToolEnded(result("c2")))
    assert step.tool_results == (
        result("c2"),
        ToolResult("c1", ToolOutcome.CANCELLED, None, NO_RESULT),
        ToolResult("c3", ToolOutcome.CANCELLED, None, NO_RESULT),
    )


def test_a_result_that_is_corrected_counts_once() -> None:
    step = completed(ToolStarted(call("c1")), ToolEnded(result("c1")), ToolEnded(result("c1", ToolOutcome.FAILED)))
    assert step.tool_results == (result("c1", ToolOutcome.FAILED),)


def test_a_late_result_of_an_earlier_step_belongs_to_no_step() -> None:
    assembly = fed(ToolStarted(call("c1")))
    assembly.complete(BoundaryReached("b1"), 1, RUN, BEGIN)
    for event in (ToolEnded(result("c1")), ToolStarted(call("c2")), ToolEnded(result("c2"))):
        assembly.feed(event)
    assert assembly.complete(BoundaryReached("b2"), 2, RUN, BEGIN).tool_results == (result("c2"),)


def test_sub_agents_make_no_part_of_a_step() -> None:
    step = completed(
        MessageEnded("m1", MessageKind.TEXT, "sub", subagent_id="s", parent_call_id="c1"),
        MessageEnded("m2", MessageKind.TEXT, "main"),
        MessageEnded("m3", MessageKind.THOUGHT, "sub", parent_call_id="c1"),
        ToolStarted(call("c1")),
        ToolStarted(call("s1"), subagent_id="s"),
        ToolStarted(call("s2"), parent_call_id="c1"),
        ToolEnded(result("c1", ToolOutcome.FAILED), subagent_id="s"),
        ToolEnded(result("c1", ToolOutcome.DENIED), parent_call_id="c0"),
        ToolEnded(result("c1")),
    )
    assert (step.text, step.thought) == ("main", "")
    assert step.tool_calls == (call("c1"),)
    assert step.tool_results == (result("c1"),)


def test_several_messages_are_joined_and_the_last_word_on_the_finish_counts() -> None:
    step = completed(
        MessageEnded("m1", MessageKind.TEXT, "One."),
        MessageEnded("m2", MessageKind.TEXT, "Two.", FinishReason.LENGTH, "max_tokens", "model-1"),
        MessageEnded("m3", MessageKind.TEXT, ""),
    )
    assert (step.text, step.model) == ("One.\nTwo.", "model-1")
    assert (step.finish_reason, step.finish_reason_raw) == (FinishReason.LENGTH, "max_tokens")


def test_a_finish_reason_without_a_counterpart_keeps_the_agents_word() -> None:
    step = completed(MessageEnded("m1", MessageKind.TEXT, "x", FinishReason.UNKNOWN, "pause_turn"))
    assert (step.finish_reason, step.finish_reason_raw) == (FinishReason.UNKNOWN, "pause_turn")


def test_the_last_messages_finish_reason_is_known_before_its_step_is_complete() -> None:
    assembly = fed(MessageEnded("m1", MessageKind.TEXT, "One.", FinishReason.TOOL_CALLS, "tool_use"))
    assembly.complete(BoundaryReached("b1"), 1, RUN, BEGIN)
    reasons = [assembly.finish_reason]
    assembly.feed(MessageEnded("m2", MessageKind.TEXT, "Two", FinishReason.LENGTH, "max_tokens"))
    reasons.append(assembly.finish_reason)
    assert reasons == [FinishReason.UNKNOWN, FinishReason.LENGTH]


def test_what_is_unknown_stays_unknown() -> None:
    step = completed()
    assert (step.usage, step.cost, step.model, step.finish_reason) == (None, None, "", FinishReason.UNKNOWN)


def test_a_step_lasts_from_the_one_before_and_carries_nothing_over() -> None:
    assembly = fed(MessageEnded("m1", MessageKind.TEXT, "One.", FinishReason.TOOL_CALLS, "tool_use", "model-1"))
    assembly.complete(BoundaryReached("b1"), 1, RUN, BEGIN + SECOND)
    second = assembly.complete(BoundaryReached("b2"), 2, RUN, BEGIN + 4 * SECOND)
    assert (second.duration_ns, second.text, second.model, second.finish_reason_raw) == (3 * SECOND, "", "", "")


def test_a_reset_forgets_the_run_before() -> None:
    assembly = fed(MessageEnded("m1", MessageKind.TEXT, "old"), ToolStarted(call("c1")))
    assembly.reset()
    step = assembly.complete(BoundaryReached("b1"), 1, "run_02", BEGIN + SECOND)
    assert (step.text, step.tool_calls, step.duration_ns) == ("", (), 0)


def test_a_clock_that_ran_backwards_gives_no_negative_duration() -> None:
    assert fed().complete(BoundaryReached("b1"), 1, RUN, BEGIN - SECOND).duration_ns == 0


def test_ids_of_steps_sort_by_number() -> None:
    numbers = (1, 2, 9, 10, 99_999, 100_000)
    ids = [StepAssembly().complete(BoundaryReached("b", ()), number, RUN, 0).step_id for number in numbers]
    assert ids == sorted(ids)
    assert ids[0] == "run_01.000001"

from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    Cost,
    CostBasis,
    CostSupport,
    FinishReason,
    PermissionMode,
    RunLimits,
    RunSpec,
    Step,
    StepBoundary,
    StepGate,
    ToolCall,
    ToolKind,
    ToolOutcome,
    ToolResult,
    Usage,
    UsageSupport,
)
from steprail_daemon.core.replay import fold_step, summarise
from steprail_daemon.core.stops.expression_view import (
    MAX_TEXT_BYTES,
    MAX_TOOLS,
    MAX_WINDOW_TEXT_BYTES,
    NO_TEXT,
    WINDOW,
    CallValue,
    ExpressionHistory,
    ExpressionView,
    ResultValue,
    SessionValue,
    StepValue,
    TextValue,
    ToolTotals,
    Totals,
    clip,
    session_value,
    step_value,
)
from steprail_daemon.core.views import RunView, SessionView

LIMITS = RunLimits(max_steps=10, hard_timeout_ns=1, stop_timeout_ns=1, abort_timeout_ns=1)
SESSION = SessionValue("session_1", "claude", None, "/project", "ask", 3)


def run_view(usage: Usage | None = None, cost: Cost | None = None) -> RunView:
    spec = RunSpec(prompt="", stop_rules=(), decider=None, limits=LIMITS, labels={"team": "core"})
    return RunView(
        run_id="run_1", session_id="session_1", spec=spec, created_at=0, state_since=0, usage=usage, cost=cost
    )


def step(
    number: int = 1,
    outcomes: tuple[tuple[str, ToolOutcome], ...] = (("Bash", ToolOutcome.SUCCEEDED),),
    *,
    text: str = "",
    output: str | None = "ok",
    usage: Usage | None = None,
    cost: Cost | None = None,
) -> Step:
    calls = tuple(
        ToolCall(f"call_{index}", tool, ToolKind.EXECUTE, "a title", "{}") for index, (tool, _) in enumerate(outcomes)
    )
    results = tuple(ToolResult(f"call_{index}", outcome, output) for index, (_, outcome) in enumerate(outcomes))
    return Step(
        number=number,
        step_id=f"step_{number}",
        text=text,
        thought="",
        tool_calls=calls,
        tool_results=results,
        finish_reason=FinishReason.TOOL_CALLS,
        finish_reason_raw="tool_use",
        usage=usage,
        cost=cost,
        model="",
        duration_ns=1_500_000_000,
        ended_at=17 * SECOND,
        boundary=StepBoundary.OBSERVED,
    )


def view_after(*steps: Step) -> ExpressionView:
    history = ExpressionHistory()
    for item in steps:
        history.add(item)
    return history.view(run_view(), SESSION, 0)


def test_a_step_is_shown_in_words_and_seconds_with_tool_names_beside_the_results() -> None:
    assert step_value(step()) == StepValue(
        number=1,
        step_id="step_1",
        text=NO_TEXT,
        thought=NO_TEXT,
        tool_calls=(CallValue("call_0", "Bash", "execute", "a title", TextValue("{}", 2)),),
        tool_results=(ResultValue("call_0", "Bash", "execute", "succeeded", TextValue("ok", 2), NO_TEXT),),
        finish_reason="tool_calls",
        finish_reason_raw="tool_use",
        usage=None,
        cost_usd=None,
        model=None,
        duration=1.5,
        end_time=17 * SECOND,
        boundary="observed",
    )


def test_what_the_agent_did_not_report_is_absent() -> None:
    bare = Step(
        1, "step_1", "", "", (ToolCall("c", "x", ToolKind.UNKNOWN, "", ""),), (), FinishReason.UNKNOWN, "", None, None,
        "", 0, 0, StepBoundary.INFERRED,
    )  # fmt: skip
    value = step_value(bare)
    absent = (value.finish_reason, value.finish_reason_raw, value.usage, value.cost_usd, value.model)
    assert absent == (None,) * 5
    assert value.tool_calls[0].tool_kind is None


def test_a_result_without_its_call_has_no_tool() -> None:
    stray = Step(
        1, "step_1", "", "", (), (ToolResult("gone", ToolOutcome.FAILED, error="no"),), FinishReason.STOP, "", None,
        None, "", 0, 0, StepBoundary.OBSERVED,
    )  # fmt: skip
    assert step_value(stray).tool_results == (ResultValue("gone", "", None, "failed", NO_TEXT, TextValue("no", 2)),)


def test_a_long_text_is_cut_between_characters_and_tells_its_whole_size() -> None:
    text = "é" * MAX_TEXT_BYTES
    value = step_value(step(text="x" + text)).text
    assert value == TextValue("x" + "é" * (MAX_TEXT_BYTES // 2 - 1), 2 * MAX_TEXT_BYTES + 1, truncated=True)


def test_a_text_of_exactly_the_bound_is_whole() -> None:
    assert clip("x" * MAX_TEXT_BYTES) == TextValue("x" * MAX_TEXT_BYTES, MAX_TEXT_BYTES)


def test_the_view_holds_the_run_as_it_stands() -> None:
    history = ExpressionHistory()
    usage, cost = Usage(10, None, None, 5), Cost(1_250_000, CostBasis.PRICED)
    latest = step(usage=usage, cost=cost)
    history.add(latest)
    run = run_view(usage, cost)
    run.steps = [summarise(latest)]
    view = history.view(run, SESSION, 2_500_000_000)
    assert (view.version, view.usage, view.cost_usd, view.elapsed) == (1, usage, 1.25, 2.5)
    assert (view.session, view.labels) == (SESSION, {"team": "core"})
    assert view.step is view.steps[-1]


def test_a_step_that_the_run_is_about_to_get_counts_like_one_that_it_has() -> None:
    history = ExpressionHistory()
    steps = [
        step(1, usage=Usage(10, 0, 0, 5, 0), cost=Cost(1_000_000, CostBasis.PRICED)),
        step(2, usage=None, cost=None),
        step(3, usage=Usage(1, 0, 0, 1, 0), cost=Cost(500_000, CostBasis.PRICED)),
    ]
    run = run_view()
    ahead = history.view(run, SESSION, 0)
    for item in steps:
        history.add(item)
        ahead = history.view(run, SESSION, 0)
        fold_step(run, summarise(item))
        assert history.view(run, SESSION, 0) == ahead
        assert ahead.usage == run.usage
    assert (ahead.usage, ahead.cost_usd) == (Usage(11, 0, 0, 6, 0, complete=False), 1.5)


def test_an_unknown_cost_is_absent_and_so_is_the_step_before_the_first() -> None:
    view = ExpressionHistory().view(run_view(cost=Cost(None, CostBasis.PRICED)), SESSION, 0)
    assert (view.step, view.steps, view.cost_usd, view.totals) == (None, (), None, Totals())


def test_totals_count_what_left_the_window() -> None:
    view = view_after(*[step(number) for number in range(1, WINDOW + 51)])
    assert [value.number for value in view.steps] == list(range(51, WINDOW + 51))
    assert (view.totals.steps, view.totals.tool_calls, view.totals.succeeded) == (WINDOW + 50,) * 3


def test_totals_tell_outcomes_apart_and_by_tool() -> None:
    view = view_after(
        step(1, (("Bash", ToolOutcome.FAILED), ("Read", ToolOutcome.SUCCEEDED))),
        step(2, (("Bash", ToolOutcome.FAILED), ("Bash", ToolOutcome.DENIED), ("Bash", ToolOutcome.CANCELLED))),
        step(3, (("Bash", ToolOutcome.FAILED),)),
    )
    assert view.totals == Totals(
        steps=3,
        tool_calls=6,
        succeeded=1,
        failed=3,
        denied=1,
        cancelled=1,
        consecutive_failures=2,
        tools=(
            ToolTotals("Bash", calls=5, failed=3, denied=1, cancelled=1),
            ToolTotals("Read", calls=1, succeeded=1),
        ),
    )


def test_tools_beyond_the_bound_are_in_the_sums_only() -> None:
    names = [(f"tool_{index}", ToolOutcome.SUCCEEDED) for index in range(MAX_TOOLS + 5)]
    totals = view_after(step(1, tuple(names))).totals
    assert (len(totals.tools), totals.succeeded) == (MAX_TOOLS, MAX_TOOLS + 5)


def test_the_texts_of_the_oldest_steps_go_first_and_their_sizes_stay() -> None:
    kept = MAX_WINDOW_TEXT_BYTES // MAX_TEXT_BYTES
    long = "x" * MAX_TEXT_BYTES
    view = view_after(*[step(number, (), text=long, output=None) for number in range(1, kept + 3)])
    assert [value.text.truncated for value in view.steps] == [True, True] + [False] * kept
    assert view.steps[0].text == TextValue("", MAX_TEXT_BYTES, truncated=True)
    assert sum(len(value.text.value) for value in view.steps) == MAX_WINDOW_TEXT_BYTES


def test_the_latest_step_keeps_its_texts_however_many_they_are() -> None:
    many = (("Bash", ToolOutcome.SUCCEEDED),) * (MAX_WINDOW_TEXT_BYTES // MAX_TEXT_BYTES + 10)
    view = view_after(step(1, text="early"), step(2, many, output="x" * MAX_TEXT_BYTES))
    assert view.step is not None
    assert all(result.output.size == len(result.output.value) for result in view.step.tool_results)
    assert view.steps[0].text == TextValue("", 5, truncated=True)
    assert view.steps[0].tool_results[0].output == TextValue("", 2, truncated=True)


def test_a_session_is_shown_with_the_steps_of_all_its_runs() -> None:
    session = SessionView(
        session_id="session_1",
        agent="claude",
        cwd="/project",
        agent_session_id="",
        permission_mode=PermissionMode.ACCEPT_EDITS,
        model="opus",
        labels={},
        tenant="",
        owner="",
        capabilities=Capabilities(step_gate=StepGate.EXACT, usage=UsageSupport.PER_STEP, cost=CostSupport.UNSUPPORTED),
        created_at=0,
        last_active_at=0,
    )
    assert session_value(session, 7) == SessionValue("session_1", "claude", "opus", "/project", "accept_edits", 7)

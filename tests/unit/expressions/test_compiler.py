"""What can be written in CEL, what is refused and where, and what each expression says of a view."""

import pytest
from tests.unit.expressions.views import BARE_VIEW, EMPTY_VIEW, PERMISSION, VIEW

from steprail_daemon.core.stops.expression_view import ExpressionView, PermissionView
from steprail_daemon.expressions.compiler import MAX_PROBLEMS, Environment, SourceProblem, environments
from steprail_daemon.expressions.encode import StepEncoder, encode_permission_view, encode_view
from steprail_daemon.expressions.messages import worker_pb2

ENVIRONMENTS = environments()
STOP = ENVIRONMENTS[worker_pb2.KIND_STOP_RULE]
PERMIT = ENVIRONMENTS[worker_pb2.KIND_PERMISSION_RULE]

MATCHED = ("MATCHED", "")
NOT_MATCHED = ("NOT_MATCHED", "")


def say(source: str, view: ExpressionView | PermissionView = VIEW) -> tuple[str, str]:
    """Evaluate a source; give outcome and text."""
    if isinstance(view, ExpressionView):
        environment, data = STOP, encode_view(view, StepEncoder(), with_window=True)
    else:
        environment, data = PERMIT, encode_permission_view(view)
    result = environment.compile(source).evaluate(environment.bind(data))
    return worker_pb2.Outcome.Name(result.outcome).removeprefix("OUTCOME_"), result.text


def refusal(source: str, environment: Environment = STOP) -> list[tuple[int, int, str]]:
    """Give the problems of a source, with line and column."""
    with pytest.raises(SourceProblem) as raised:
        environment.compile(source)
    return [(problem.line, problem.column, problem.message) for problem in raised.value.problems]


@pytest.mark.parametrize(
    "source",
    [
        "version == 1",
        "step.number == 2 && step.step_id == 'step_2'",
        "step.text.value.startsWith('I run') && step.text.size == 9 && !step.text.truncated",
        "step.thought.value == 'hm'",
        "step.tool_calls[0].tool == 'Bash' && step.tool_calls[0].tool_kind == 'execute'",
        "step.tool_calls[0].arguments_json.value.contains('make')",
        "step.tool_calls.exists(c, c.title.matches('^make (test|check)$'))",
        "step.tool_results.exists(r, r.outcome == 'failed' && r.tool == 'Bash')",
        "step.tool_results[0].error.size == 99 && step.tool_results[0].error.truncated",
        "step.finish_reason == 'tool_calls' && step.finish_reason_raw == 'tool_use'",
        "step.usage.input_tokens == 100 && step.usage.total_tokens == 120 && step.usage.complete",
        "step.cost_usd == 0.25 && step.model == 'opus' && step.duration == 1.5",
        "step.end_time > timestamp('2023-11-01T00:00:00Z') && step.end_time.getFullYear() == 2023",
        "step.boundary == 'observed'",
        "steps.size() == 2 && steps[0].number == 1",
        "steps.filter(s, s.tool_results.exists(r, r.outcome == 'failed')).size() == 1",
        "steps.map(s, s.number) == [1, 2]",
        "totals.steps == 2 && totals.failed == 1 && totals.consecutive_failures == 1",
        "totals.tools.exists(t, t.tool == 'Bash' && t.calls >= 1)",
        "usage.output_tokens >= 20 && !usage.complete",
        "cost_usd >= 1.0 && elapsed > 60.0",
        "session.agent == 'claude' && session.steps == 5 && session.permission_mode == 'ask'",
        "labels.team == 'core' && labels['team'] == 'core'",
        "'team' in labels && !has(labels.other)",
        "{'a': [1, 2]}.a.size() == 2",
    ],
)
def test_every_variable_can_be_read(source: str) -> None:
    assert say(source) == MATCHED


@pytest.mark.parametrize(
    "source",
    [
        "tool == 'Bash'",
        "tool_kind == 'execute'",
        "command.startsWith('git ')",
        "paths.all(p, p.startsWith('/project/'))",
        "labels.team == 'core'",
        "version == 1",
    ],
)
def test_every_variable_of_a_permission_rule_can_be_read(source: str) -> None:
    assert say(source, PERMISSION) == MATCHED


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("usage.total_tokens > 3", "usage.total_tokens"),
        ("usage.total_tokens == 3", "usage.total_tokens"),
        ("usage.total_tokens != 3", "usage.total_tokens"),
        ("usage.total_tokens in [3]", "usage.total_tokens"),
        ("!(usage.total_tokens > 3)", "usage.total_tokens"),
        ("step.finish_reason == 'length'", "step.finish_reason"),
        ("step.finish_reason != 'length'", "step.finish_reason"),
        ("step.finish_reason", "step.finish_reason"),
        ("cost_usd > 1.0", "cost_usd"),
        ("cost_usd * 2.0 == 1.0", "cost_usd"),
        ("steps[0].usage.input_tokens == 1", "steps[...].usage.input_tokens"),
        ("steps.exists(s, s.cost_usd > 1.0)", "s.cost_usd"),
        ("step.tool_calls.all(c, c.tool_kind == 'read')", "c.tool_kind"),
        ("[step.model].size() == 1", "step.model"),
        ("{'m': step.model}.m == 'x'", "step.model"),
        ("type(step.model) == string", "step.model"),
        ("step.finish_reason == step.model", "step.finish_reason"),
    ],
)
def test_to_read_what_is_absent_is_unknown_and_says_what(source: str, what: str) -> None:
    assert say(source, BARE_VIEW) == ("UNKNOWN", f"{what} is absent")


@pytest.mark.parametrize(
    "source",
    [
        "has(step.finish_reason) ? step.finish_reason == 'stop' : true",
        "step.finish_reason == null",
        "null == cost_usd",
        "usage == null && step.usage == null && !(step.usage != null)",
        "step != null && step.tool_calls[0] != null",
        "!has(step.usage.total_tokens) && !has(step.usage)",
        "usage.total_tokens > 3 || true",
        "!(usage.total_tokens > 3 && false)",
        "[1, 2].exists(n, cost_usd > 1.0 || n == 2)",
        "!usage.complete",
        "step.text.value == '' && step.tool_results[0].output.size == 0",
    ],
)
def test_absence_that_is_asked_for_or_does_not_matter_is_no_obstacle(source: str) -> None:
    assert say(source, BARE_VIEW) == MATCHED


def test_what_is_present_is_not_null() -> None:
    assert say("step.finish_reason != null && cost_usd != null && usage != null && !(step.usage == null)") == MATCHED


def test_the_step_is_absent_before_the_first() -> None:
    assert say("step.number == 0", EMPTY_VIEW) == ("UNKNOWN", "step is absent")
    assert say("step.text.value == ''", EMPTY_VIEW) == ("UNKNOWN", "step is absent")
    assert say("step == null && steps.size() == 0", EMPTY_VIEW) == MATCHED


def test_a_label_that_is_not_there_is_unknown() -> None:
    assert say("labels.other == 'x'") == ("UNKNOWN", 'there is no key "other"')


def test_a_permission_rule_that_reads_an_unknown_kind_is_unknown() -> None:
    view = PermissionView("mystery", None, "", (), {})
    assert say("tool_kind == 'edit'", view) == ("UNKNOWN", "tool_kind is absent")


def test_a_string_that_is_not_empty_matches_and_is_the_reason() -> None:
    assert say("step.number > 1 ? 'enough' : ''") == ("MATCHED", "enough")
    assert say("step.number > 2 ? 'enough' : ''") == NOT_MATCHED
    assert say("step.model") == ("MATCHED", "opus")


def test_a_long_reason_is_cut_between_characters() -> None:
    outcome, reason = say("'x" + "é" * 1000 + "'")
    assert (outcome, reason) == ("MATCHED", "x" + "é" * 511)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1 / (step.number - 2) > 0", "divide by zero"),
        ("steps[7].number == 1", "Index error: index=7 size=2"),
        ("int(step.model) > 0", "cannot convert string to int"),
        ("9223372036854775807 + step.number > 0", "integer overflow"),
    ],
)
def test_what_goes_wrong_otherwise_is_an_error(source: str, text: str) -> None:
    assert say(source) == ("ERROR", text)


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        ("nope", 1, 1, "undeclared reference to 'nope'"),
        ("step.number > 1 &&\n  nope", 2, 3, "undeclared reference to 'nope'"),
        ("step.tool_result", 1, 5, "undefined field 'tool_result' not found in struct 'Step'"),
        ("step.number > 1.0", 1, 13, "found no matching overload for '_>_' applied to '(int, double)'"),
        ("'é' == 'é' && nope", 1, 15, "undeclared reference to 'nope'"),
        ("a b", 1, 3, "Syntax error: extraneous input 'b' expecting <EOF>"),
        ("true ? 1 : 'x'", 1, 6, "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        ("step.text.value + 'x' == ''", 1, 17, "texts cannot be joined with '+'"),
        ("b'a' + b'b' == b''", 1, 6, "bytes cannot be joined with '+'"),
        ("[1].map(x, [x] + [x]) == []", 1, 16, "lists cannot be joined with '+'"),
        ("'x'.matches('(')", 1, 13, "invalid regular expression: missing ): ("),
        ("'x'.matches(step.step_id)", 1, 17, "the regular expression of matches() must be written out as a text"),
        ("dyn(step).nope == 1", 1, 10, "the type of what 'nope' is taken from is not known before it runs"),
        ("dyn(1) == 1", 1, 4, "dyn() is not available; every part must have a type that is known before it runs"),
        ("[step, 1][0].number == 1", 1, 13, "the type of what 'number' is taken from is not known before it runs"),
        ("google.protobuf.Int64Value{value: 1} == 1", 1, 1,
         "messages such as 'google.protobuf.Int64Value' cannot be made"),
        ("steps.exists(step, true)", 1, 13, "the loop's variable 'step' would hide the variable of that name"),
        ("steps.all(a, steps.all(b, steps.all(c, true)))", 1, 36, "loops are nested over 2 deep"),
    ],
)  # fmt: skip
def test_a_source_that_is_refused_is_told_its_line_and_column(
    source: str, line: int, column: int, message: str
) -> None:
    assert refusal(source)[0] == (line, column, message)


@pytest.mark.parametrize(
    ("source", "kind"),
    [("step.number", "int"), ("cost_usd", "double"), ("step", "Step"), ("labels", "map"), ("[true]", "list"),
     ("step.end_time", "timestamp or duration"), ("null", "null")],
)  # fmt: skip
def test_an_expression_of_another_type_is_refused(source: str, kind: str) -> None:
    assert refusal(source) == [(0, 0, f"it is of type {kind}; accepted is bool or string")]


def test_a_permission_rule_must_be_a_bool_and_sees_no_steps() -> None:
    assert refusal("command", PERMIT) == [(0, 0, "it is of type string; accepted is bool")]
    assert refusal("step.number == 1", PERMIT)[0] == (1, 5, "undeclared reference to 'step.number'")


def test_problems_are_counted_out_and_a_syntax_error_is_told_once() -> None:
    assert len(refusal(" && ".join(f"nope{n}" for n in range(20)))) == MAX_PROBLEMS
    assert refusal("true ? true ? 'a' : 'b' : 'c'") == [(1, 13, "Syntax error: mismatched input '?' expecting ':'")]
    assert refusal("steps" + "[0]" * 600) == [(0, 0, "Exceeded max recursion depth of 32 when parsing.")]


@pytest.mark.parametrize("source", ["", "true" + " " * 2045])
def test_a_source_outside_of_its_size_is_refused(source: str) -> None:
    assert refusal(source) == [(0, 0, f"it has {len(source)} bytes; accepted are 1 to 2048")]


def test_the_longest_source_is_accepted() -> None:
    assert say("true" + " " * 2044) == MATCHED


def test_loops_behind_each_other_are_counted_and_not_taken_for_nested() -> None:
    assert say("[1]" + ".map(x, x)" * 6 + ".size() == 1") == MATCHED
    assert refusal("[1]" + ".map(x, x)" * 7 + ".size() == 1")[0][2] == (
        "there are over 6 loops (all, exists, map, filter ...)"
    )


def nested_reads(depth: int) -> str:
    source = "0"
    for _ in range(depth):
        source = f"steps[{source}].usage.input_tokens"
    return f"{source} == 1"


def test_reads_within_the_index_of_reads_grow_the_expression_only_so_far() -> None:
    assert say(nested_reads(6)) == ("UNKNOWN", "steps[...].usage.input_tokens is absent")
    assert refusal(nested_reads(9))[0][2] == "the expression has over 4000 parts; accepted are fewer"


def test_iterations_are_bounded_over_all_loops() -> None:
    many = str(list(range(120)))
    assert say(f"{many}.all(a, {many}.all(b, a + b >= 0))") == (
        "UNKNOWN",
        "over the bound: 10000 iterations of all loops together",
    )


def test_a_program_tells_whether_it_reads_the_window() -> None:
    reads = {source: STOP.compile(source).uses_steps for source in ("step.number == 1", "steps.size() > 1")}
    assert reads == {"step.number == 1": False, "steps.size() > 1": True}

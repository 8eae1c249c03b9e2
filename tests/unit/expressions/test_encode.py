import gc

import msgspec
from google.protobuf.message import Message
from msgspec.structs import replace
from tests.unit.expressions.views import BARE_STEP, BARE_VIEW, FULL_STEP, PERMISSION, VIEW

from steprail_daemon.core.stops.expression_view import StepValue
from steprail_daemon.expressions.encode import StepEncoder, encode_permission_view, encode_view, step_message
from steprail_daemon.expressions.messages import view_pb2


def decoded(with_window: bool = True) -> view_pb2.StopView:
    return view_pb2.StopView.FromString(encode_view(VIEW, StepEncoder(), with_window=with_window))


def test_a_view_arrives_whole() -> None:
    view = decoded()
    assert (view.version, view.elapsed, view.cost_usd.value, dict(view.labels)) == (1, 61.5, 1.25, {"team": "core"})
    assert view.step == step_message(FULL_STEP)
    assert list(view.steps) == [step_message(BARE_STEP), step_message(FULL_STEP)]
    assert (view.totals.tool_calls, view.totals.tools[1].failed, view.session.model.value) == (2, 1, "opus")


def test_the_window_can_be_left_out() -> None:
    view = decoded(with_window=False)
    assert (list(view.steps), view.step.number) == ([], 2)


def test_a_step_arrives_whole() -> None:
    step = step_message(FULL_STEP)
    assert (step.text.value, step.tool_calls[0].tool, step.tool_results[0].error.truncated) == (
        "I run it.",
        "Bash",
        True,
    )
    assert (step.usage.total_tokens.value, step.usage.complete) == (120, True)
    assert (step.end_time.seconds, step.end_time.nanos) == (1_700_000_000, 5)


def test_what_is_absent_is_not_set() -> None:
    step = step_message(BARE_STEP)
    assert {field.name for field, _ in step.ListFields()} == {
        "number", "step_id", "tool_calls", "tool_results", "end_time", "boundary"
    }  # fmt: skip
    assert not step_message(FULL_STEP).usage.HasField("reasoning_tokens")
    view = view_pb2.StopView.FromString(encode_view(BARE_VIEW, StepEncoder(), with_window=True))
    assert not view.HasField("usage")
    assert not view.HasField("cost_usd")


def test_a_permission_arrives_whole() -> None:
    view = view_pb2.PermissionView.FromString(encode_permission_view(PERMISSION))
    assert (view.tool, view.tool_kind.value, view.command) == ("Bash", "execute", "git push")
    assert (list(view.paths), dict(view.labels)) == (["/project/a.txt"], {"team": "core"})


def test_a_step_is_encoded_once_and_forgotten_with_it() -> None:
    encoder = StepEncoder()
    step: StepValue | None = replace(FULL_STEP, number=7)
    assert step is not None
    assert encoder.encode(step) is encoder.encode(step)
    assert len(encoder) == 1
    step = None
    gc.collect()
    assert len(encoder) == 0


def test_every_field_of_the_core_view_is_in_the_message_and_the_other_way_round() -> None:
    pairs: list[tuple[msgspec.Struct, type[Message]]] = [
        (VIEW, view_pb2.StopView), (FULL_STEP, view_pb2.Step), (FULL_STEP.tool_calls[0], view_pb2.ToolCall),
        (FULL_STEP.tool_results[0], view_pb2.ToolResult), (VIEW.totals, view_pb2.Totals),
        (VIEW.totals.tools[0], view_pb2.ToolTotals), (VIEW.session, view_pb2.Session),
        (FULL_STEP.text, view_pb2.Text), (PERMISSION, view_pb2.PermissionView),
    ]  # fmt: skip
    for value, message in pairs:
        assert set(value.__struct_fields__) == set(message.DESCRIPTOR.fields_by_name), message

"""Sessions, runs and bounds as public resources."""

from typing import Any

from google.protobuf.duration_pb2 import Duration
from msgspec.structs import replace

from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, steps_pb2
from steprail_daemon.core.model import (
    SECOND,
    Cost,
    CostBasis,
    Decider,
    OnDisconnect,
    OnTimeout,
    Permission,
    PermissionMode,
    Question,
    QuestionItem,
    QueueMode,
    RunLimits,
    RunSpec,
    RunState,
    ToolKind,
    Usage,
)
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.service import resources
from steprail_daemon.service.asks import ARGUMENTS_KEPT
from steprail_daemon.service.contents import blob_id
from steprail_daemon.testing.fake_facade import CAPABILITIES, LIMITS

AT = 1_753_000_000 * SECOND
LIMITS_OF_RUN = RunLimits(7, 9 * SECOND, 1, 1, permission_timeout_ns=8 * SECOND, queue_timeout_ns=6 * SECOND)
MEBIBYTE = 1024 * 1024


def a_session(**fields: Any) -> SessionView:
    return SessionView(
        **{
            "session_id": "ses",
            "agent": "claude",
            "cwd": "/w",
            "agent_session_id": "",
            "permission_mode": PermissionMode.ASK,
            "model": "",
            "labels": {},
            "tenant": "t",
            "owner": "o",
            "capabilities": CAPABILITIES,
            "created_at": AT,
            "last_active_at": AT,
            **fields,
        }
    )


def a_run(**fields: Any) -> RunView:
    spec = RunSpec("go", (), None, LIMITS_OF_RUN)
    return RunView(
        **{"run_id": "run", "session_id": "ses", "spec": spec, "created_at": AT, "state_since": AT, **fields}
    )


def permission(number: int, arguments_json: str = "{}") -> Permission:
    return Permission(
        permission_id=f"run.p{number}",
        step_number=1,
        tool="x" * 256,
        tool_kind=ToolKind.EXECUTE,
        title="x" * 1024,
        arguments_json=arguments_json,
        asked_at=AT,
        deadline_at=AT + 5 * SECOND,
    )


def question(number: int, size: int = 10) -> Question:
    items = tuple(QuestionItem(item_id=str(item), text="x" * min(size, 4096)) for item in range(8))
    return Question(question_id=f"run.q{number}", step_number=1, items=items, asked_at=AT, deadline_at=AT + SECOND)


def test_a_session_shows_its_modes_and_its_queue() -> None:
    view = a_session(plan_mode=True, queued_run_ids=["run_2", "run_3"], queue_held=True, active_run_id="run_1")

    message = resources.session(view)

    assert (message.plan_mode, message.queue_held, message.active_run_id) == (True, True, "run_1")
    assert list(message.queued_run_ids) == ["run_2", "run_3"]


def test_a_session_has_used_what_its_runs_used_the_live_one_included() -> None:
    before = a_session(usage_before=Usage(10, 0, 0, 1, 0), cost_before=Cost(100, CostBasis.PRICED), prompt_given=True)
    live = a_run(usage=Usage(5, 0, 0, 2, 0), cost=Cost(7, CostBasis.REPORTED))

    message = resources.session(before, live)

    assert message.usage == steps_pb2.Usage(
        input_tokens=15,
        cached_input_tokens=0,
        cache_write_tokens=0,
        output_tokens=3,
        reasoning_tokens=0,
        total_tokens=18,
        complete=True,
    )
    assert (message.cost.micro_usd, message.cost.basis) == (107, steps_pb2.COST_BASIS_MIXED)


def test_what_a_live_run_used_counts_only_once_its_prompt_was_given_and_then_unknown_is_not_zero() -> None:
    known, live = Usage(10, 0, 0, 1, 0), a_run()

    waiting = resources.session(a_session(usage_before=known), live)
    working = resources.session(a_session(usage_before=known, prompt_given=True), live)
    first = resources.session(a_session(prompt_given=True), live)

    assert (waiting.usage.total_tokens, waiting.usage.complete) == (11, True)
    assert (working.usage.total_tokens, working.usage.complete) == (11, False)
    assert not first.HasField("usage")
    assert not first.HasField("cost")
    assert not resources.session(a_session(usage_before=None, cost_before=None)).HasField("usage")


def test_a_run_tells_what_sub_agents_and_side_requests_used_within_its_sum() -> None:
    view = a_run(usage=Usage(8, 0, 0, 3, 0), subagent_usage=Usage(2, 0, 0, 1, 0), side_usage=Usage(1, 0, 0, 0, 0))

    usage = resources.run(view, AT).usage

    assert usage.total_tokens == 11
    assert (usage.subagents.total_tokens, usage.side_requests.total_tokens) == (3, 1)
    assert not usage.subagents.HasField("subagents")


def test_a_run_shows_what_it_was_accepted_with() -> None:
    spec = RunSpec(
        "go",
        (),
        Decider(4 * SECOND, OnTimeout.ABORT, OnDisconnect.STOP, 3 * SECOND),
        LIMITS_OF_RUN,
        queue=QueueMode.QUEUE,
        allow_inexact_stop=True,
    )

    shown = resources.run(a_run(spec=spec), AT).spec

    assert (shown.queue, shown.allow_inexact_stop) == (runs_pb2.QUEUE_MODE_QUEUE, True)
    assert shown.decider == decisions_pb2.Decider(
        mode=decisions_pb2.DECIDER_MODE_CLIENT,
        timeout=Duration(seconds=4),
        on_timeout=decisions_pb2.ON_TIMEOUT_ABORT,
        on_disconnect=decisions_pb2.ON_DISCONNECT_STOP,
        disconnect_grace=Duration(seconds=3),
    )
    assert (shown.limits.permission_timeout, shown.limits.queue_timeout) == (Duration(seconds=8), Duration(seconds=6))


def test_a_run_shows_what_waits_for_people_oldest_first_with_the_time_that_is_left() -> None:
    view = a_run(
        state=RunState.AWAITING_PERMISSION,
        pending_permissions=[permission(1, '{"a":1}'), permission(2)],
        pending_questions=[question(1)],
    )

    message = resources.run(view, AT + 2 * SECOND)

    assert message.state == events_pb2.RUN_STATE_AWAITING_PERMISSION
    assert [item.permission_id for item in message.pending_permissions] == ["run.p1", "run.p2"]
    assert message.pending_permissions[0].arguments_json.value == '{"a":1}'
    assert message.pending_permissions[0].remaining == Duration(seconds=3)
    assert (message.pending_permissions[0].session_id, message.pending_permissions[0].run_id) == ("ses", "run")
    assert [item.question_id for item in message.pending_questions] == ["run.q1"]
    assert message.pending_questions[0].remaining == Duration()


def test_long_arguments_of_many_permissions_are_left_out_and_a_run_stays_under_a_mebibyte() -> None:
    large = f'"{"x" * 60_000}"'
    small = '"' + "x" * (ARGUMENTS_KEPT - 2) + '"'
    few = resources.run(a_run(pending_permissions=[permission(number, large) for number in range(4)]), AT)
    many = resources.run(
        a_run(
            text="x" * 100_000,
            spec=replace(a_run().spec, prompt="x" * 100_000),
            pending_permissions=[permission(0, large), *(permission(number, small) for number in range(1, 500))],
            pending_questions=[question(number, 4096) for number in range(100)],
        ),
        AT,
    )

    assert {item.arguments_json.value for item in few.pending_permissions} == {large}
    first, second = many.pending_permissions[:2]
    assert (first.arguments_json.value, first.arguments_json.blob_id) == ("", blob_id(large.encode()))
    assert (second.arguments_json.value, second.arguments_json.blob_id) == (small, "")
    assert len(many.pending_permissions) > 40
    assert len(many.pending_questions) > 5
    assert many.ByteSize() < MEBIBYTE


def test_the_bounds_in_force_are_told() -> None:
    limits = replace(
        LIMITS,
        max_queued_runs=5,
        max_rule_depth=3,
        permission_timeout_ns=2 * SECOND,
        queue_timeout_ns=4 * SECOND,
        disconnect_grace_ns=6 * SECOND,
        silence_ns=8 * SECOND,
    )

    message = resources.server_limits(limits)

    assert (message.max_queued_runs, message.max_rule_depth, message.max_cel_bytes) == (5, 3, 2048)
    spans = (message.permission_timeout, message.queue_timeout, message.disconnect_grace, message.silence_timeout)
    assert [span.seconds for span in spans] == [2, 4, 6, 8]
    unset = [
        field.name for field in message.DESCRIPTOR.fields if field.name not in {f.name for f, _ in message.ListFields()}
    ]
    assert unset == []

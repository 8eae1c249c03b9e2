"""Events that come seldom, each field of them held against the message that clients get."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from steprail.v1 import events_pb2
from steprail_daemon.core import events, model, records
from steprail_daemon.core.model import SECOND
from steprail_daemon.service.seldom import BODIES
from steprail_daemon.service.translate import KINDS, SessionEncoder

AT = 1_753_000_000 * SECOND
OPTION = model.QuestionOption("o1", "Yes", "do it")
ITEM = model.QuestionItem(
    item_id="i1", text="Sure?", header="Check", options=(OPTION,), multiple=True, free_text=True, secret=True
)

CASES: list[tuple[Any, dict[str, Any]]] = [
    (
        events.OutputProduced("call", 17, "text", subagent_id="sub", parent_call_id="task"),
        {"call_id": "call", "offset": "17", "text": "text"},
    ),
    (events.ToolUpdated("call", "title", "half"), {"call_id": "call", "title": "title", "progress": "half"}),
    (
        events.FileModified("src/a.py", model.FileChange.CREATED, "call"),
        {"path": "src/a.py", "change": "FILE_CHANGE_CREATED", "call_id": "call"},
    ),
    (events.PlanProposed("1. look", "per"), {"text": "1. look", "permission_id": "per"}),
    (
        events.RateLimited(model.RateLimitKind.QUOTA, "anthropic", "m", 429, 90 * SECOND),
        {
            "provider": "anthropic",
            "model": "m",
            "http_status": 429,
            "retry_after": "90s",
            "kind": "RATE_LIMIT_KIND_QUOTA",
        },
    ),
    (events.RateLimited(model.RateLimitKind.TRANSIENT), {"kind": "RATE_LIMIT_KIND_TRANSIENT"}),
    (
        events.ContextWindowChanged(model.ContextWindowKind.WARNING, 0, 200_000),
        {"kind": "CONTEXT_WINDOW_KIND_WARNING", "used_tokens": "0", "limit_tokens": "200000"},
    ),
    (events.ContextWindowChanged(model.ContextWindowKind.COMPACTED), {"kind": "CONTEXT_WINDOW_KIND_COMPACTED"}),
    (
        records.PermissionRequested(
            model.Permission(
                permission_id="run.p1",
                step_number=4,
                tool="Bash",
                tool_kind=model.ToolKind.EXECUTE,
                title="ls",
                arguments_json='{"command":"ls"}',
                asked_at=AT,
                deadline_at=AT + 300 * SECOND,
                subagent_id="sub",
                call_id="call",
            )
        ),
        {
            "permission": {
                "permission_id": "run.p1",
                "session_id": "ses",
                "run_id": "run",
                "step_number": "4",
                "subagent_id": "sub",
                "call_id": "call",
                "tool": "Bash",
                "tool_kind": "TOOL_KIND_EXECUTE",
                "title": "ls",
                "arguments_json": {"value": '{"command":"ls"}', "full_size": "16"},
                "request_time": "2025-07-20T08:26:40Z",
                "deadline": "2025-07-20T08:31:40Z",
                "remaining": "300s",
                "default": "PERMISSION_ANSWER_DENY",
            }
        },
    ),
    (
        records.PermissionResolved(
            "run.p1",
            model.PermissionAnswer.ALLOW_SESSION,
            model.ResolutionSource.CLIENT,
            "fine",
            "ops",
            model.PermissionAlternative(command="ls -l"),
        ),
        {
            "permission_id": "run.p1",
            "answer": "PERMISSION_ANSWER_ALLOW_SESSION",
            "alternative": {"command": "ls -l"},
            "source": "RESOLUTION_SOURCE_CLIENT",
            "identity": "ops",
            "reason": "fine",
        },
    ),
    (
        records.PermissionResolved("run.p1", None, model.ResolutionSource.AGENT, ""),
        {"permission_id": "run.p1", "source": "RESOLUTION_SOURCE_AGENT"},
    ),
    (
        records.QuestionRequested(
            model.Question(
                question_id="run.q1", step_number=2, items=(ITEM,), asked_at=AT, deadline_at=AT + SECOND, call_id="c"
            )
        ),
        {
            "question": {
                "question_id": "run.q1",
                "session_id": "ses",
                "run_id": "run",
                "step_number": "2",
                "call_id": "c",
                "items": [
                    {
                        "item_id": "i1",
                        "header": "Check",
                        "text": "Sure?",
                        "options": [{"option_id": "o1", "label": "Yes", "description": "do it"}],
                        "multiple": True,
                        "free_text": True,
                        "secret": True,
                    }
                ],
                "request_time": "2025-07-20T08:26:40Z",
                "deadline": "2025-07-20T08:26:41Z",
                "remaining": "1s",
            }
        },
    ),
    (
        records.QuestionResolved(
            "run.q1", (model.QuestionItemAnswer("i1", ("o1",), "yes"),), model.ResolutionSource.CLIENT, "ops"
        ),
        {
            "question_id": "run.q1",
            "answers": [{"item_id": "i1", "option_ids": ["o1"], "text": "yes"}],
            "source": "RESOLUTION_SOURCE_CLIENT",
            "identity": "ops",
        },
    ),
    (
        records.QuestionResolved("run.q1", None, model.ResolutionSource.TIMEOUT),
        {"question_id": "run.q1", "declined": True, "source": "RESOLUTION_SOURCE_TIMEOUT"},
    ),
    (records.SteerAccepted("s1", "faster", "ops"), {"steer_id": "s1", "text": "faster", "identity": "ops"}),
    (records.SteerDelivered("s1"), {"steer_id": "s1"}),
    (records.SteerDropped("s1", "the run ended"), {"steer_id": "s1", "reason": "the run ended"}),
]


def encoded(event: Any) -> events_pb2.Event:
    encoder = SessionEncoder("ses")
    encoder.begin(AT, "run", 4)
    (message,) = events_pb2.EventBatch.FromString(encoder.encode(9, event)).events
    return message


@pytest.mark.parametrize(("event", "fields"), CASES, ids=lambda value: type(value).__name__)
def test_every_field_reaches_the_client(event: Any, fields: dict[str, Any]) -> None:
    message = encoded(event)

    chosen = message.WhichOneof("body")
    assert chosen is not None
    assert events_pb2.Event.DESCRIPTOR.fields_by_name[chosen].number == KINDS[type(event)]
    assert MessageToDict(getattr(message, chosen), preserving_proto_field_name=True) == fields
    assert (message.seq, message.session_id, message.run_id, message.step_number) == (9, "ses", "run", 4)
    assert message.subagent_id == getattr(event, "subagent_id", "")
    assert message.parent_call_id == getattr(event, "parent_call_id", "")


def test_no_such_event_is_without_a_case() -> None:
    assert {type(event) for event, _ in CASES} == set(BODIES)


def test_large_arguments_are_kept_as_a_blob_and_left_out() -> None:
    arguments = '"' + "x" * 70_000 + '"'
    permission = model.Permission(
        permission_id="p",
        step_number=1,
        tool="T" * 500,
        tool_kind=model.ToolKind.OTHER,
        title="t\ud800",
        arguments_json=arguments,
        asked_at=AT,
        deadline_at=AT,
    )
    encoder = SessionEncoder("ses")
    encoder.begin(AT, "run", 1)
    entry = encoder.encode(1, records.PermissionRequested(permission))

    sent = events_pb2.EventBatch.FromString(entry).events[0].permission_requested.permission
    (blob,) = encoder.take_blobs()
    assert (sent.arguments_json.value, sent.arguments_json.full_size) == ("", len(arguments))
    assert (sent.arguments_json.blob_id, blob.data) == (blob.blob_id, arguments.encode())
    assert (sent.tool, sent.title) == ("T" * 256, "t\ufffd")

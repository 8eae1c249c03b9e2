"""Requests about sessions are read or refused field by field."""

from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from steprail.v1 import decisions_pb2, sessions_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import PermissionAction, PermissionMode, PermissionRule
from steprail_daemon.engine.facade import CreateSession, SessionChange
from steprail_daemon.service import decode_sessions

DENY = decisions_pb2.PERMISSION_ACTION_DENY


def session(**fields: Any) -> CreateSession:
    request = sessions_pb2.CreateSessionRequest(**{"agent": "claude", "cwd": "/w", **fields})
    return decode_sessions.create_session(request)


def rule(**fields: Any) -> CreateSession:
    return session(permission_rules=[decisions_pb2.PermissionRule(**fields)])


def update(*paths: str, **fields: Any) -> tuple[str, SessionChange]:
    changed = sessions_pb2.Session(**{"session_id": "s", **fields})
    request = sessions_pb2.UpdateSessionRequest(session=changed, update_mask=FieldMask(paths=paths))
    return decode_sessions.update_session(request)


def test_a_session_is_asked_for_with_all_that_is_honoured() -> None:
    found = session(
        cwd="/work",
        labels={"a": "b"},
        permission_mode=sessions_pb2.PERMISSION_MODE_BYPASS,
        permission_rules=[
            decisions_pb2.PermissionRule(tool="Bash", command_prefix="git push", action=DENY, reason="not here"),
            decisions_pb2.PermissionRule(path="src/**", cel="true", action=decisions_pb2.PERMISSION_ACTION_ASK),
        ],
        allowed_tools=["Bash", "Read"],
        disallowed_tools=["WebFetch"],
        model="m",
        instructions="Be brief.\nAlways.",
        environment={"LANG": "C", "TOKEN": "a=b\nc"},
        resume="conversation",
        request_id="r",
    )

    assert found == CreateSession(
        agent="claude",
        cwd="/work",
        labels={"a": "b"},
        permission_mode=PermissionMode.BYPASS,
        permission_rules=(
            PermissionRule(action=PermissionAction.DENY, tool="Bash", command_prefix="git push", reason="not here"),
            PermissionRule(action=PermissionAction.ASK, path="src/**", cel="true"),
        ),
        allowed_tools=("Bash", "Read"),
        disallowed_tools=("WebFetch",),
        model="m",
        instructions="Be brief.\nAlways.",
        environment={"LANG": "C", "TOKEN": "a=b\nc"},
        resume="conversation",
    )


def test_a_change_holds_what_the_mask_names_and_nothing_else() -> None:
    fields = {
        "permission_mode": sessions_pb2.PERMISSION_MODE_READ_ONLY,
        "plan_mode": True,
        "model": "m",
        "labels": {"a": "b"},
    }

    assert update("permission_mode", **fields) == ("s", SessionChange(permission_mode=PermissionMode.READ_ONLY))
    assert update("plan_mode") == ("s", SessionChange(plan_mode=False))
    assert update("model", "labels") == ("s", SessionChange(model="", labels={}))
    assert update(*fields, **fields) == (
        "s",
        SessionChange(permission_mode=PermissionMode.READ_ONLY, plan_mode=True, model="m", labels={"a": "b"}),
    )


LONG_ID = "x" * 65
BAD = [
    (lambda: session(agent=""), "FIELD_INVALID", "agent"),
    (lambda: session(cwd=""), "CWD_INVALID", "cwd"),
    (lambda: session(cwd="/" + "x" * 4096), "FIELD_INVALID", "cwd"),
    (lambda: session(permission_mode=99), "FIELD_INVALID", "permission_mode"),
    (lambda: session(labels={str(n): "" for n in range(65)}), "FIELD_INVALID", "labels"),
    (lambda: session(labels={"": "v"}), "FIELD_INVALID", "labels"),
    (lambda: session(model="a\tb"), "FIELD_INVALID", "model"),
    (lambda: session(resume="x" * 257), "FIELD_INVALID", "resume"),
    (lambda: session(resume="a\nb"), "FIELD_INVALID", "resume"),
    (lambda: session(instructions="é" * 32769), "FIELD_INVALID", "instructions"),
    (lambda: session(instructions="a\0b"), "FIELD_INVALID", "instructions"),
    (lambda: session(allowed_tools=["x"] * 257), "FIELD_INVALID", "allowed_tools"),
    (lambda: session(allowed_tools=["a", ""]), "FIELD_INVALID", "allowed_tools[1]"),
    (lambda: session(disallowed_tools=["x" * 257]), "FIELD_INVALID", "disallowed_tools[0]"),
    (lambda: session(disallowed_tools=["a\nb"]), "FIELD_INVALID", "disallowed_tools[0]"),
    (lambda: session(environment={str(n): "" for n in range(65)}), "FIELD_INVALID", "environment"),
    (lambda: session(environment={"": "v"}), "FIELD_INVALID", "environment"),
    (lambda: session(environment={"A=B": "v"}), "FIELD_INVALID", "environment"),
    (lambda: session(environment={"A": "a\0b"}), "FIELD_INVALID", "environment['A']"),
    (lambda: session(environment={"A": "x" * 4097}), "FIELD_INVALID", "environment['A']"),
    (
        lambda: session(permission_rules=[decisions_pb2.PermissionRule(tool="x", action=DENY)] * 257),
        "FIELD_INVALID",
        "permission_rules",
    ),
    (lambda: rule(action=DENY), "FIELD_INVALID", "permission_rules[0]"),
    (lambda: rule(tool="x"), "FIELD_INVALID", "permission_rules[0].action"),
    (lambda: rule(tool="x" * 257, action=DENY), "FIELD_INVALID", "permission_rules[0].tool"),
    (lambda: rule(command_prefix="x" * 4097, action=DENY), "FIELD_INVALID", "permission_rules[0].command_prefix"),
    (lambda: rule(path="x" * 4097, action=DENY), "FIELD_INVALID", "permission_rules[0].path"),
    (lambda: rule(cel="x" * 2049, action=DENY), "FIELD_INVALID", "permission_rules[0].cel"),
    (lambda: rule(tool="x", reason="x" * 4097, action=DENY), "FIELD_INVALID", "permission_rules[0].reason"),
    (lambda: update("model", session_id=""), "FIELD_INVALID", "session.session_id"),
    (lambda: update("model", session_id=LONG_ID), "FIELD_INVALID", "session.session_id"),
    (update, "FIELD_INVALID", "update_mask"),
    (lambda: update("model", "cwd"), "FIELD_INVALID", "update_mask"),
    (lambda: update("labels.a"), "FIELD_INVALID", "update_mask"),
    (lambda: update("*"), "FIELD_INVALID", "update_mask"),
    (lambda: update("permission_mode"), "FIELD_INVALID", "session.permission_mode"),
    (lambda: update("permission_mode", permission_mode=9), "FIELD_INVALID", "session.permission_mode"),
    (lambda: update("model", model="x" * 257), "FIELD_INVALID", "session.model"),
    (lambda: update("labels", labels={"": ""}), "FIELD_INVALID", "session.labels"),
]


@pytest.mark.parametrize(("ask", "reason", "field"), BAD, ids=[f"{reason}-{field}" for _, reason, field in BAD])
def test_a_bad_field_is_refused_by_its_path_with_what_is_accepted(ask: Any, reason: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        ask()

    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert caught.value.message.startswith(field.split("[", maxsplit=1)[0])
    assert len(caught.value.message) > len(field) + 10


@pytest.mark.parametrize("paths", [(), ("state",)])
def test_a_mask_that_changes_nothing_names_what_can_be_changed(paths: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="permission_mode, plan_mode, model, labels"):
        update(*paths)


def test_the_value_of_a_variable_is_in_no_refusal() -> None:
    with pytest.raises(Invalid) as caught:
        session(environment={"TOKEN": "secret\0"})

    assert "secret" not in caught.value.message

"""Requests are read or refused field by field."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from steprail.v1 import decisions_pb2, rules_pb2, runs_pb2, sessions_pb2
from steprail_daemon.core.errors import Invalid, StepRailError, WrongState
from steprail_daemon.core.model import (
    DecisionAction,
    OnDisconnect,
    OnTimeout,
    OnUnknown,
    QueueMode,
    RuleScope,
    StepCountRule,
    StopRule,
)
from steprail_daemon.engine.facade import ContinueRun, DeciderRequest, Guidance, LimitsRequest, StartRun
from steprail_daemon.service import checks, decode
from steprail_daemon.service.decode import Choice
from steprail_daemon.service.unsupported import UNSUPPORTED, refuse_unsupported

PROMPT = runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text="go")])
CLIENT = decisions_pb2.DECIDER_MODE_CLIENT


def count(at_least: int, **fields: Any) -> rules_pb2.StopRule:
    return rules_pb2.StopRule(step_count=rules_pb2.StepCountRule(at_least=at_least), **fields)


def start(**fields: Any) -> StartRun:
    request = runs_pb2.StartRunRequest(**{"session_id": "s", "prompt": PROMPT, **fields})
    return decode.start_run(request)


def test_a_run_is_asked_for_with_all_that_is_honoured() -> None:
    found = start(
        stop_rules=[count(3), count(5, id="mine", reason="why", on_unknown=rules_pb2.ON_UNKNOWN_STOP)],
        decider=decisions_pb2.Decider(
            mode=CLIENT,
            timeout=Duration(seconds=2, nanos=5),
            on_timeout=decisions_pb2.ON_TIMEOUT_ABORT,
            on_disconnect=decisions_pb2.ON_DISCONNECT_CONTINUE,
            disconnect_grace=Duration(),
        ),
        limits=rules_pb2.RunLimits(
            max_steps=7,
            hard_timeout=Duration(seconds=9),
            permission_timeout=Duration(seconds=8),
            queue_timeout=Duration(seconds=7),
        ),
        queue=runs_pb2.QUEUE_MODE_QUEUE,
        allow_inexact_stop=True,
        labels={"a": "b"},
        request_id="r",
    )

    assert found == StartRun(
        session_id="s",
        prompt="go",
        stop_rules=(
            StopRule("rule-1", StepCountRule(3, RuleScope.RUN), "", OnUnknown.REFUSE),
            StopRule("mine", StepCountRule(5, RuleScope.RUN), "why", OnUnknown.STOP),
        ),
        decider=DeciderRequest(2_000_000_005, OnTimeout.ABORT, OnDisconnect.CONTINUE, 0),
        limits=LimitsRequest(7, 9_000_000_000, 8_000_000_000, 7_000_000_000),
        queue=QueueMode.QUEUE,
        allow_inexact_stop=True,
        labels={"a": "b"},
        request_id="r",
    )


def test_absent_and_empty_differ_when_a_run_is_continued() -> None:
    absent = decode.continue_run(runs_pb2.ContinueRunRequest(run_id="r"))
    empty = decode.continue_run(
        runs_pb2.ContinueRunRequest(
            run_id="r",
            stop_rules=rules_pb2.StopRuleSet(),
            decider=decisions_pb2.Decider(),
            limits=rules_pb2.RunLimits(),
            allow_inexact_stop=False,
        ),
    )

    assert absent == ContinueRun(run_id="r")
    assert empty == ContinueRun(
        run_id="r",
        stop_rules=(),
        inherit_decider=False,
        decider=None,
        limits=LimitsRequest(),
        allow_inexact_stop=False,
    )


def test_the_texts_of_a_prompt_follow_each_other_line_by_line() -> None:
    parts = [runs_pb2.PromptPart(text="one"), runs_pb2.PromptPart(text="two")]

    assert start(prompt=runs_pb2.Prompt(parts=parts)).prompt == "one\ntwo"


def test_rules_without_an_id_are_numbered_past_names_that_are_taken() -> None:
    rules = [count(1, id="rule-2"), count(2), count(3), count(4, id="rule-1")]

    ids = [rule.rule_id for rule in start(stop_rules=rules).stop_rules]

    assert ids[0] == "rule-2"
    assert ids[3] == "rule-1"
    assert len(set(ids)) == 4


@given(
    st.lists(st.none() | st.integers(1, 9).map(lambda n: f"rule-{n}"), max_size=8, unique_by=lambda i: i or object())
)
def test_rule_ids_are_always_unique_and_given_ones_kept(given_ids: list[str | None]) -> None:
    rules = [count(1, id=rule_id or "") for rule_id in given_ids]

    ids = [rule.rule_id for rule in start(stop_rules=rules).stop_rules]

    assert len(set(ids)) == len(ids)
    assert [one for one, wanted in zip(ids, given_ids, strict=True) if wanted] == [i for i in given_ids if i]


def continued(**fields: Any) -> ContinueRun:
    return decode.continue_run(runs_pb2.ContinueRunRequest(**{"run_id": "r", **fields}))


def decide(**fields: Any) -> Any:
    return decode.decision(runs_pb2.SubmitDecisionRequest(**{"step_id": "s", **fields}))


TOO_LONG = "x" * 65
BAD = [
    (lambda: start(session_id=""), "FIELD_INVALID", "session_id"),
    (lambda: start(session_id=TOO_LONG), "FIELD_INVALID", "session_id"),
    (lambda: start(request_id=TOO_LONG), "FIELD_INVALID", "request_id"),
    (lambda: start(prompt=runs_pb2.Prompt(parts=[runs_pb2.PromptPart()])), "PROMPT_INVALID", "prompt.parts[0]"),
    (
        lambda: start(prompt=runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text="x")] * 257)),
        "PROMPT_INVALID",
        "prompt.parts",
    ),
    (
        lambda: start(prompt=runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text="x", full_size=1)])),
        "FIELD_INVALID",
        "prompt.parts[0]",
    ),
    (lambda: start(stop_rules=[rules_pb2.StopRule()]), "RULE_INVALID", "stop_rules[0]"),
    (lambda: start(stop_rules=[count(0)]), "RULE_INVALID", "stop_rules[0].step_count.at_least"),
    (lambda: start(stop_rules=[count(1, id=TOO_LONG)]), "RULE_INVALID", "stop_rules[0].id"),
    (lambda: start(stop_rules=[count(1, reason="x" * 1025)]), "RULE_INVALID", "stop_rules[0].reason"),
    (lambda: start(stop_rules=[count(1, on_unknown=9)]), "RULE_INVALID", "stop_rules[0].on_unknown"),
    (lambda: start(stop_rules=[count(1, id="a"), count(2, id="a")]), "RULE_INVALID", "stop_rules[1].id"),
    (
        lambda: continued(stop_rules=rules_pb2.StopRuleSet(rules=[count(0)])),
        "RULE_INVALID",
        "stop_rules.rules[0].step_count.at_least",
    ),
    (lambda: start(decider=decisions_pb2.Decider(mode=17)), "FIELD_INVALID", "decider.mode"),  # type: ignore[arg-type]
    (
        lambda: start(decider=decisions_pb2.Decider(timeout=Duration(seconds=1))),
        "FIELD_INVALID",
        "decider.mode",
    ),
    (
        lambda: start(decider=decisions_pb2.Decider(mode=CLIENT, timeout=Duration(seconds=-1))),
        "FIELD_INVALID",
        "decider.timeout",
    ),
    (
        lambda: start(decider=decisions_pb2.Decider(mode=CLIENT, on_timeout=9)),  # type: ignore[arg-type]
        "FIELD_INVALID",
        "decider.on_timeout",
    ),
    (
        lambda: start(limits=rules_pb2.RunLimits(hard_timeout=Duration(seconds=2**62))),
        "FIELD_INVALID",
        "limits.hard_timeout",
    ),
    (
        lambda: start(limits=rules_pb2.RunLimits(permission_timeout=Duration(seconds=-1))),
        "FIELD_INVALID",
        "limits.permission_timeout",
    ),
    (
        lambda: start(limits=rules_pb2.RunLimits(queue_timeout=Duration(nanos=-1))),
        "FIELD_INVALID",
        "limits.queue_timeout",
    ),
    (
        lambda: start(decider=decisions_pb2.Decider(mode=CLIENT, on_disconnect=9)),  # type: ignore[arg-type]
        "FIELD_INVALID",
        "decider.on_disconnect",
    ),
    (
        lambda: start(decider=decisions_pb2.Decider(mode=CLIENT, disconnect_grace=Duration(seconds=-1))),
        "FIELD_INVALID",
        "decider.disconnect_grace",
    ),
    (
        lambda: start(decider=decisions_pb2.Decider(disconnect_grace=Duration(seconds=1))),
        "FIELD_INVALID",
        "decider.mode",
    ),
    (lambda: start(queue=9), "FIELD_INVALID", "queue"),
    (lambda: continued(queue=9), "FIELD_INVALID", "queue"),
    (lambda: continued(run_id=""), "FIELD_INVALID", "run_id"),
    (decide, "FIELD_INVALID", "action"),
    (lambda: decide(action=17), "FIELD_INVALID", "action"),
    (lambda: decide(action=1, step_id=""), "FIELD_INVALID", "step_id"),
    (lambda: decide(action=1, reason="x" * 4097), "FIELD_INVALID", "reason"),
    (lambda: decide(error="x" * 4097), "FIELD_INVALID", "error"),
    (lambda: decide(error="e", action=1), "FIELD_INVALID", "action"),
    (lambda: decide(action=1, guidance="é" * 32769), "FIELD_INVALID", "guidance"),
    (lambda: decide(action=1, model="x" * 257), "FIELD_INVALID", "model"),
    (lambda: decide(action=1, model="a\nb"), "FIELD_INVALID", "model"),
    (lambda: decide(action=2, guidance="x"), "FIELD_INVALID", "guidance"),
    (lambda: decide(action=2, model="x"), "FIELD_INVALID", "model"),
    (lambda: decide(error="e", guidance="x"), "FIELD_INVALID", "guidance"),
]


@pytest.mark.parametrize(("ask", "reason", "field"), BAD, ids=[f"{reason}-{field}" for _, reason, field in BAD])
def test_a_bad_field_is_refused_by_its_path_with_what_is_accepted(ask: Any, reason: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        ask()

    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert field.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0] in caught.value.message
    assert len(caught.value.message) > len(field) + 10


def test_a_decision_is_an_action_or_an_error() -> None:
    assert decide(action=2, reason="r") == Choice("s", DecisionAction.STOP, "r")
    assert decide(error="predicate threw") == Choice("s", None, error="predicate threw")


def test_what_goes_to_the_agent_with_a_decision_is_read() -> None:
    guided = decide(action=1, guidance="Mind the tests.", model="m")

    assert guided == Choice("s", DecisionAction.CONTINUE, guidance=Guidance("Mind the tests.", "m"))
    assert decide(action=1, guidance="x" * 65536).guidance.text == "x" * 65536


@pytest.mark.parametrize("fields", [{}, {"reason": "r" * 4096}, {"step_id": "é" * 32}], ids=["plain", "reason", "id"])
def test_whatever_else_a_decision_holds_is_judged_as_in_a_plain_one(fields: dict[str, Any]) -> None:
    plain = decide(action=1, **fields)
    assert plain == (
        fields.get("step_id", "s"),
        DecisionAction.CONTINUE,
        fields.get("reason", ""),
        "",
        Guidance(),
    )
    for name in ("guidance", "model"):
        guided = decide(action=1, **fields, **{name: "x"})
        assert guided[:4] == plain[:4]
        assert guided.guidance != Guidance()
    for wrong in ({"step_id": "s" * 65}, {"step_id": "é" * 33}, {"step_id": ""}, {"reason": "é" * 2049}):
        with pytest.raises(Invalid, match=next(iter(wrong))):
            decide(**{"action": 1, **fields, **wrong})


def an_instance(message_class: type[Message], name: str) -> Message:
    """Set one field to something that is not its default."""
    message = message_class()
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, name)["key"] = "value"
        elif field.message_type is not None:
            getattr(message, name).add()
        else:
            getattr(message, name).append("x")
    elif field.message_type is not None:
        getattr(message, name).SetInParent()
    else:
        value = {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True, field.CPPTYPE_ENUM: 2}.get(field.cpp_type, 1)
        setattr(message, name, value)
    return message


UNSUPPORTED_FIELDS = [(cls, name) for cls, table in UNSUPPORTED.items() for name in table]


@pytest.mark.parametrize(
    ("message_class", "name"), UNSUPPORTED_FIELDS, ids=[f"{cls.__name__}.{name}" for cls, name in UNSUPPORTED_FIELDS]
)
def test_a_field_that_cannot_be_honoured_is_refused_and_not_dropped(message_class: type[Message], name: str) -> None:
    with pytest.raises(WrongState) as caught:
        refuse_unsupported(an_instance(message_class, name), "at")

    assert caught.value.reason == "CAPABILITY_MISSING"
    assert caught.value.field == f"at.{name}"
    assert caught.value.metadata == {"capability": UNSUPPORTED[message_class][name].capability}


#: What each request has and the daemon honours, reads elsewhere, or has as a message of its own in the table.
HONOURED = {
    sessions_pb2.CreateSessionRequest: {
        "agent",
        "cwd",
        "labels",
        "permission_mode",
        "permission_rules",
        "allowed_tools",
        "disallowed_tools",
        "model",
        "instructions",
        "environment",
        "request_id",
        "resume",
    },
    runs_pb2.Prompt: {"parts"},
    runs_pb2.PromptPart: {"text", "full_size", "blob_id"},
}


@pytest.mark.parametrize("message_class", list(UNSUPPORTED), ids=lambda cls: str(cls.__name__))
def test_every_field_of_a_request_is_honoured_or_refused(message_class: type[Message]) -> None:
    fields = {field.name for field in message_class.DESCRIPTOR.fields}

    assert fields == HONOURED[message_class] | set(UNSUPPORTED[message_class])
    assert not HONOURED[message_class] & set(UNSUPPORTED[message_class])


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_a_span_is_exact_or_refused(seconds: int, nanos: int) -> None:
    try:
        found = checks.span("f", Duration(seconds=seconds, nanos=nanos))
    except StepRailError as error:
        assert error.reason == "FIELD_INVALID"  # noqa: PT017
        assert abs(nanos) >= 10**9 or not 0 <= seconds * 10**9 + nanos < 2**63
    else:
        assert found == seconds * 10**9 + nanos

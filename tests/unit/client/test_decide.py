"""What callables may give, and what it becomes."""

from __future__ import annotations

import pytest

from steprail.client import Allow, Decision, Deny, Instead, _decide
from steprail.v1 import decisions_pb2, runs_pb2, steps_pb2

STEP = steps_pb2.Step(run_id="run_1", step_id="step_1")
PERMISSION = decisions_pb2.Permission(run_id="run_1", permission_id="perm_1", tool="run_command")
CONTINUE, STOP = decisions_pb2.DECISION_ACTION_CONTINUE, decisions_pb2.DECISION_ACTION_STOP
ONCE, SESSION = decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE, decisions_pb2.PERMISSION_ANSWER_ALLOW_SESSION
DENY = decisions_pb2.PERMISSION_ANSWER_DENY


def request(**fields: object) -> runs_pb2.SubmitDecisionRequest:
    return runs_pb2.SubmitDecisionRequest(run_id="run_1", step_id="step_1", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, request(action=CONTINUE)),
        (False, request(action=STOP)),
        ("try it in one file", request(action=CONTINUE, guidance="try it in one file")),
        (Decision(go_on=False, reason="seen enough"), request(action=STOP, reason="seen enough")),
        (Decision(go_on=True, guidance="g", model="m"), request(action=CONTINUE, guidance="g", model="m")),
    ],
)
def test_an_answer_of_decide_becomes_a_decision(given: object, expected: runs_pb2.SubmitDecisionRequest) -> None:
    assert _decide.decision(STEP, given) == expected


@pytest.mark.parametrize("given", [None, 1, 0, [], object()])
def test_what_is_no_answer_neither_goes_on_nor_stops(given: object) -> None:
    with pytest.raises(TypeError, match=r"decide gave .*; accepted are True \(go on\), False \(stop\)"):
        _decide.decision(STEP, given)


def test_an_empty_text_is_no_guidance() -> None:
    with pytest.raises(ValueError, match="empty text"):
        _decide.decision(STEP, "")


def test_an_error_is_told_by_its_class_and_text_within_the_bound() -> None:
    assert _decide.no_decision(STEP, KeyError("name")).error == "KeyError: 'name'"
    assert len(_decide.no_decision(STEP, ValueError("ö" * 5000)).error.encode()) <= 4096


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        (True, ONCE, ""),
        ("allow", ONCE, ""),
        ("session", SESSION, ""),
        (Allow(session=True, reason="mine"), SESSION, "mine"),
        (False, DENY, ""),
        ("deny", DENY, ""),
        (Deny("not here"), DENY, "not here"),
    ],
)
def test_an_answer_of_permissions_allows_or_denies(
    given: object, answer: decisions_pb2.PermissionAnswer.ValueType, reason: str
) -> None:
    made = _decide.permission(PERMISSION, given)
    assert (made.run_id, made.permission_id, made.answer, made.reason) == ("run_1", "perm_1", answer, reason)


def test_something_else_can_be_done_instead() -> None:
    assert _decide.permission(PERMISSION, Instead(command="ls")).alternative.command == "ls"
    assert _decide.permission(PERMISSION, Instead(arguments_json="{}")).alternative.arguments_json == "{}"
    for wrong in (Instead(), Instead(command="ls", arguments_json="{}")):
        with pytest.raises(ValueError, match="accepted is one of them"):
            _decide.permission(PERMISSION, wrong)


@pytest.mark.parametrize("given", [None, "maybe", "ALLOW", 1.5])
def test_what_is_no_answer_allows_nothing(given: object) -> None:
    with pytest.raises(TypeError, match="permissions gave"):
        _decide.permission(PERMISSION, given)


def asked(*item_ids: str) -> decisions_pb2.Question:
    options = [decisions_pb2.QuestionOption(option_id=f"o-{word}", label=word) for word in ("red", "blue")]
    items = [decisions_pb2.QuestionItem(item_id=item_id, options=options) for item_id in item_ids]
    return decisions_pb2.Question(run_id="run_1", question_id="q_1", items=items)


def test_one_text_answers_a_question_of_one_item_and_a_label_chooses_an_option() -> None:
    (said,) = _decide.question(asked("a"), "green").answers
    assert (said.item_id, said.text, list(said.option_ids)) == ("a", "green", [])
    (chosen,) = _decide.question(asked("a"), "blue").answers
    assert (chosen.text, list(chosen.option_ids)) == ("", ["o-blue"])


def test_a_mapping_answers_each_item() -> None:
    first, second = _decide.question(asked("a", "b"), {"a": ["red", "o-blue"], "b": "why not"}).answers
    assert (list(first.option_ids), second.text) == (["o-red", "o-blue"], "why not")


@pytest.mark.parametrize("given", [None, False])
def test_no_answer_declines(given: object) -> None:
    made = _decide.question(asked("a"), given)
    assert (made.decline, list(made.answers)) == (True, [])


def test_answers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"answered the items \['a'\]; asked are \['a', 'b'\]"):
        _decide.question(asked("a", "b"), {"a": "x"})
    with pytest.raises(ValueError, match="has no option 'green'"):
        _decide.question(asked("a"), {"a": ["green"]})
    with pytest.raises(TypeError, match="questions gave 3"):
        _decide.question(asked("a"), 3)
    with pytest.raises(TypeError, match="questions gave"):
        _decide.question(asked("a", "b"), "for both")

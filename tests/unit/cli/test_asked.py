"""What agents ask, in words: the request, who answered it, how to answer it, and what is an answer."""

from typing import Any

import click
import pytest

from steprail_daemon.cli.asked import (
    answer_to,
    how_to_answer,
    permission_lines,
    question_lines,
    question_resolved_words,
    resolved_words,
    span_words,
)
from steprail_daemon.cli.live import LiveView

PERMISSION = {
    "permission_id": "run_1.p000001",
    "run_id": "run_1",
    "tool": "write_file",
    "title": "Write to this file?\n  a.txt",
    "arguments_json": {"value": '{"path":\n "a.txt"}', "full_size": "17"},
    "remaining": "299.98s",
    "default": "PERMISSION_ANSWER_DENY",
}
COLOURS = [{"option_id": "r", "label": "Red", "description": "warm"}, {"option_id": "g", "label": "Green"}]
QUESTION = {
    "question_id": "run_1.q000001",
    "run_id": "run_1",
    "items": [{"item_id": "i", "header": "Colour", "text": "Which one?\nOf these.", "options": COLOURS}],
    "remaining": "60s",
}


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


def test_a_permission_shows_tool_title_arguments_and_when_it_is_denied() -> None:
    assert plain(permission_lines(PERMISSION)) == [
        "? write_file asks for permission: Write to this file? a.txt",
        '  {"path": "a.txt"}',
        "  unanswered, it is denied after 5m",
    ]
    assert plain(permission_lines({"tool": "Bash"})) == ["? Bash asks for permission", "  unanswered, it is denied"]


def test_arguments_that_are_not_whole_say_so() -> None:
    long = {"value": "x" * 5000, "full_size": "5000"}
    cut = plain(permission_lines({**PERMISSION, "arguments_json": long}))[1]
    assert cut.endswith("... (cut; 5000 bytes in all)")
    left = {"value": "{}", "full_size": "900000", "blob_id": "b"}
    assert plain(permission_lines({**PERMISSION, "arguments_json": left}))[1] == "  {} (cut; 900000 bytes in all)"


def test_what_a_terminal_would_obey_is_not_in_what_is_asked() -> None:
    hostile = {**PERMISSION, "title": "a\x1b[2Jb", "arguments_json": {"value": '{"a": "\x1b]0;t\x07\u202e"}'}}
    assert not any(char in "".join(plain(permission_lines(hostile))) for char in "\x1b\x07\u202e")
    asked = {**QUESTION, "items": [{"text": "\x1b[31mred\x9b", "options": [{"label": "\x1b[2J"}]}]}
    assert not any(char in "".join(plain(question_lines(asked))) for char in "\x1b\x9b")


def test_a_question_shows_its_options_with_numbers() -> None:
    assert plain(question_lines(QUESTION)) == [
        "? the agent has a question",
        "  Colour: Which one?",
        "  Of these.",
        "  1. Red: warm",
        "  2. Green",
        "  unanswered, it is declined after 1m",
    ]


@pytest.mark.parametrize(
    ("span", "words"),
    [("300s", "5m"), ("299.2s", "4m 59s"), ("0.2s", "0s"), ("3725s", "1h 2m"), ("3600s", "1h"), ("soon", "soon")],
)
def test_spans_are_in_two_units(span: str, words: str) -> None:
    assert span_words(span) == words


@pytest.mark.parametrize(
    ("resolved", "words"),
    [
        ({"answer": "PERMISSION_ANSWER_ALLOW_ONCE", "identity": "ada"}, "allowed once by ada"),
        ({"answer": "PERMISSION_ANSWER_ALLOW_SESSION", "identity": "ada"}, "allowed for the session by ada"),
        ({"answer": "PERMISSION_ANSWER_DENY", "identity": "ada", "reason": "no"}, "denied by ada: no"),
        ({"alternative": {"command": "ls -l"}, "identity": "ada"}, "replaced by ls -l by ada"),
        ({"source": "RESOLUTION_SOURCE_TIMEOUT", "reason": "nobody answered in time"}, "as nobody answered in time"),
        ({"source": "RESOLUTION_SOURCE_POLICY", "answer": "PERMISSION_ANSWER_DENY"}, "denied by policy"),
        ({"source": "RESOLUTION_SOURCE_ABORT"}, "not allowed as the run ends"),
        ({"source": "RESOLUTION_SOURCE_DRAIN"}, "not allowed as the daemon drains"),
        ({"source": "RESOLUTION_SOURCE_AGENT"}, "not allowed as the agent no longer asks"),
    ],
)
def test_a_resolution_says_what_became_of_it_and_by_whom(resolved: dict[str, Any], words: str) -> None:
    said = resolved_words({"source": "RESOLUTION_SOURCE_CLIENT", **resolved})
    assert said == words if words[:2] != "as" else said == f"not allowed {words}"


def test_a_resolved_question_tells_no_answer() -> None:
    answered = {"answers": [{"item_id": "i", "text": "secret"}], "source": "RESOLUTION_SOURCE_CLIENT", "identity": "me"}
    assert question_resolved_words(answered) == "answered by me"
    declined = {"declined": True, "source": "RESOLUTION_SOURCE_TIMEOUT"}
    assert question_resolved_words(declined) == "declined as nobody answered in time"


def test_what_is_asked_comes_with_the_commands_that_answer() -> None:
    permission = {"permission_requested": {"permission": PERMISSION}}
    assert how_to_answer(permission) == "answer with: steprail allow run_1.p000001, or steprail deny run_1.p000001"
    question = {"question_requested": {"question": QUESTION}}
    assert how_to_answer(question) == "answer with: steprail answer run_1.q000001 TEXT, or steprail deny run_1.q000001"
    assert how_to_answer({"turn_start": {}}) == ""


@pytest.mark.parametrize("text", ["1", " red ", "r", "RED"])
def test_an_option_is_chosen_by_number_id_or_label(text: str) -> None:
    assert answer_to({"item_id": "i", "options": COLOURS}, text) == {"item_id": "i", "option_ids": ["r"]}


def test_several_options_have_commas_unless_one_is_called_like_that() -> None:
    several = {"item_id": "i", "options": [*COLOURS, {"option_id": "b", "label": "Blue, dark"}], "multiple": True}
    assert answer_to(several, "2, Red,2")["option_ids"] == ["g", "r"]
    assert answer_to(several, "blue, dark")["option_ids"] == ["b"]
    with pytest.raises(ValueError, match=r"'1,2' is no answer; accepted: a number from 1 to 2, or a label$"):
        answer_to({"item_id": "i", "options": COLOURS}, "1,2")


def test_a_text_is_an_answer_where_it_may_be_one() -> None:
    assert answer_to({"item_id": "i"}, "blue") == {"item_id": "i", "text": "blue"}
    assert answer_to({"item_id": "i", "options": COLOURS, "free_text": True}, "3") == {"item_id": "i", "text": "3"}
    with pytest.raises(ValueError, match="'3' is no answer; accepted: a number from 1 to 2, or a label, several with"):
        answer_to({"item_id": "i", "options": COLOURS, "multiple": True}, "3")
    with pytest.raises(ValueError, match="accepted: a text"):
        answer_to({"item_id": "i", "free_text": True}, " ")


def test_the_live_view_tells_what_is_asked_and_what_became_of_it() -> None:
    view = LiveView()
    client = {"source": "RESOLUTION_SOURCE_CLIENT", "identity": "me"}
    allowed = {"permission_id": "run_1.p000001", "answer": "PERMISSION_ANSWER_ALLOW_ONCE", **client}
    events: list[dict[str, Any]] = [
        {"message_start": {"message_id": "m", "kind": "MESSAGE_KIND_TEXT"}},
        {"message_delta": {"message_id": "m", "text": "I write."}},
        {"permission_requested": {"permission": PERMISSION}},
        {"permission_resolved": allowed},
        {"file_modified": {"path": "a.txt", "change": "FILE_CHANGE_CREATED"}},
        {"file_modified": {"path": "b.txt"}},
        {"question_requested": {"question": QUESTION}},
        {"question_resolved": {"question_id": "run_1.q000001", "declined": True, **client}},
        {"plan_proposed": {"text": "1. Look.\n2. Write."}},
        {"steer_accepted": {"steer_id": "s", "text": "Be\nshort.", "identity": "me"}},
        {"steer_delivered": {"steer_id": "s"}},
        {"steer_dropped": {"steer_id": "other", "reason": "the run ended"}},
        {"rate_limited": {"provider": "p", "http_status": 429, "retry_after": "90s"}},
        {"rate_limited": {"kind": "RATE_LIMIT_KIND_QUOTA"}},
    ]
    assert plain([line for event in events for line in view.lines(event)]) == [
        "I write.",
        "  ? write_file asks for permission: Write to this file? a.txt",
        '    {"path": "a.txt"}',
        "    unanswered, it is denied after 5m",
        "  write_file: allowed once by me",
        "  created a.txt",
        "  changed b.txt",
        "  ? the agent has a question",
        "    Colour: Which one?",
        "    Of these.",
        "    1. Red: warm",
        "    2. Green",
        "    unanswered, it is declined after 1m",
        "  question: declined by me",
        "  the agent proposes a plan:",
        "    1. Look.",
        "    2. Write.",
        '  text for the agent by me: "Be short."',
        '  the agent got the text "Be short."',
        "  the agent did not get the text, the run ended",
        "p refused a request: HTTP 429, again in 1m 30s",
        "the provider refused a request, as a quota is used up",
    ]


def test_what_policy_allows_unasked_is_no_news_and_what_it_denies_is() -> None:
    by_policy = {"permission_id": "p", "source": "RESOLUTION_SOURCE_POLICY"}
    assert LiveView().lines({"permission_resolved": {**by_policy, "answer": "PERMISSION_ANSWER_ALLOW_ONCE"}}) == []
    denied = {**by_policy, "answer": "PERMISSION_ANSWER_DENY", "reason": "outside the workspace"}
    assert LiveView().lines({"permission_resolved": denied}) == ["  denied by policy: outside the workspace"]


def test_what_a_sub_agent_asks_is_indented() -> None:
    asked = {"subagent_id": "sub", "permission_requested": {"permission": {"tool": "Bash"}}}
    assert plain(LiveView().lines(asked))[0] == "      ? Bash asks for permission"

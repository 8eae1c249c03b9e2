"""What the drivers share: titles, kinds of tools, parts of messages, and the words for a range of versions."""

from __future__ import annotations

import pytest

from steprail_daemon.core.events import AgentEvent, MessageDelta
from steprail_daemon.core.model import ToolKind
from steprail_daemon.drivers.base import MAX_DELTA, add_deltas, call_title, kind_of, one_line, version_range


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("two  blanks stay", "two  blanks stay"),
        ("one\n\ttwo\r\nthree\n", "one two three"),
        ("one\rtwo", "one two"),
        ("\n", ""),
        ("x" * 201, "x" * 200),
        ("x\n" * 201, "x " * 100),
    ],
)
def test_a_title_is_one_line_of_at_most_200_characters(text: str, line: str) -> None:
    assert one_line(text) == line


@pytest.mark.parametrize(
    ("about", "title"),
    [("a\nb", "Bash: a b"), ("", "Bash"), ("\n ", "Bash"), ("x" * 300, f"Bash: {'x' * 194}")],
)
def test_a_call_s_title_is_its_tool_with_what_it_is_about(about: str, title: str) -> None:
    assert call_title("Bash", about) == title


def test_tools_of_servers_are_other_and_the_rest_that_is_not_listed_unknown() -> None:
    kinds = {"read": ToolKind.READ, "mcp__known": ToolKind.FETCH}
    found = [kind_of(tool, kinds) for tool in ("read", "mcp__known", "mcp__files__read", "write")]
    assert found == [ToolKind.READ, ToolKind.FETCH, ToolKind.OTHER, ToolKind.UNKNOWN]


@pytest.mark.parametrize(("length", "parts"), [(1, 1), (MAX_DELTA, 1), (MAX_DELTA + 1, 2), (3 * MAX_DELTA, 3)])
def test_a_part_of_a_message_is_cut_only_where_it_is_too_long(length: int, parts: int) -> None:
    text = "\U0001f600" * length
    events: list[AgentEvent] = []
    add_deltas("m1", text, events)
    deltas = [event for event in events if isinstance(event, MessageDelta)]
    assert len(events) == len(deltas) == parts
    assert {event.message_id for event in deltas} == {"m1"}
    assert "".join(event.text for event in deltas) == text
    assert max(len(event.text.encode()) for event in deltas) <= 64 * 1024


def test_a_range_of_versions_is_in_words() -> None:
    assert version_range((2, 1, 332), (3, 0, 0)) == "2.1.332 or later, below 3.0.0"

"""Command lines, split as far as that can be told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.shell import split, without_assignments


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("ls -l", [("ls", "-l")]),
        ("  git   status ", [("git", "status")]),
        ("a && b || c; d | e & f", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]),
        ("a&&b", [("a",), ("b",)]),
        ("a\nb\r\nc", [("a",), ("b",), ("c",)]),
        ("echo 'a && b' \"c; d\"", [("echo", "a && b", "c; d")]),
        ("echo a\\;b", [("echo", "a;b")]),
        ("r'm' -rf x", [("rm", "-rf", "x")]),
        ("echo # not a comment", [("echo", "#", "not", "a", "comment")]),
        ("a > out 2>&1", [("a", ">", "out", "2>"), ("1",)]),
    ],
)
def test_a_plain_line_is_its_commands(text: str, commands: list[tuple[str, ...]]) -> None:
    line = split(text)

    assert list(line.commands) == commands
    assert line.clear


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "echo $(rm -rf /)",
        "echo `rm -rf /`",
        "diff <(a) <(b)",
        "tee >(a)",
        "echo ${x:-$(rm)}",
        "(rm -rf /)",
        "f() { rm; }; f",
        "cat <<EOF\nrm\nEOF",
        "echo 'unbalanced",
        "if true; then rm; fi",
        "! rm x",
        "{ rm x; }",
    ],
)
def test_what_may_run_other_commands_is_unclear(text: str) -> None:
    assert not split(text).clear


def test_variables_before_a_command_are_no_part_of_its_name() -> None:
    assert without_assignments(("A=1", "B_2+=x y", "rm", "C=3")) == ("rm", "C=3")
    assert without_assignments(("A=1",)) == ()


@given(st.text())
def test_any_text_is_split_without_an_error(text: str) -> None:
    line = split(text)

    assert all(line.commands)

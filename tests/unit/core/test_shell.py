"""Command lines, split as far as that can be told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.shell import MAX_LINE, may_begin_with, split, without_assignments


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
        ("echo a#b # a comment; rm", [("echo", "a#b")]),
        ("a # '\nrm x\n# '", [("a",), ("rm", "x")]),
        ("a > out 2>&1", [("a",)]),
        (">out rm x", [("rm", "x")]),
        ("'a'2>out", [("a2",)]),
        ("a &>/dev/null", [("a",)]),
        ("r\\\nm x", [("rm", "x")]),
        ('echo "a\\"b\\c" \'\'', [("echo", 'a"b\\c', "")]),
        ("a $b \"$c\" *.py {x,y} '$d'", [("a", None, None, None, None, "$d")]),
        ("A=$b rm", [("A=$b", "rm")]),
    ],
)
def test_a_plain_line_is_its_commands(text: str, commands: list[tuple[str | None, ...]]) -> None:
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
        "echo $'\\'' ; rm x #'",
        'echo $"a"',
        "a &>/dev/null rm x",
        "a" * (MAX_LINE + 1),
    ],
)
def test_what_may_run_other_commands_is_unclear(text: str) -> None:
    assert not split(text).clear


def test_variables_before_a_command_are_no_part_of_its_name() -> None:
    assert without_assignments(("A=1", "B_2+=x y", "rm", "C=3")) == ("rm", "C=3")
    assert without_assignments(("A=1",)) == ()


@pytest.mark.parametrize(
    ("text", "redirected"),
    [
        ("a", False),
        ("a >out", True),
        ("a <in", True),
        ("a >$x", True),
        ("a 2>&1 >/dev/null 3>&-", False),
        ("a >1", True),
    ],
)
def test_files_that_a_line_reads_or_writes_by_redirection_are_noticed(text: str, redirected: bool) -> None:
    assert split(text).redirected is redirected


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("rm -r x", True),
        ("rm", False),
        ("/bin/rm -r", True),
        ("A=1 rm -r", True),
        ("$x -r", True),
        ("rm $x", True),
        ("ls $x", False),
        ("env A=1 rm -r", True),
        ("sudo -u me /bin/rm -r x", True),
        ("xargs rm -r", True),
        ("sudo $x", True),
        ("timeout 5 ls $x", False),
        ("find . -name rm", False),
        ("sh -c 'rm -r x'", True),
        ("sudo bash -lc x", True),
        ("sh", True),
        ("bash build.sh --release", False),
        ("eval rm", True),
        ("command eval rm", True),
        ("echo rm -r", False),
        ("rmdir -r", False),
    ],
)
def test_a_command_may_begin_with_words_whatever_it_is_wrapped_in(text: str, may: bool) -> None:
    (command,) = split(text).commands

    assert may_begin_with(command, ("rm", "-r")) is may


@pytest.mark.timeout(10)
@pytest.mark.parametrize("part", ["''", "a ", "env A=1 ", "1", '\\"', "A=1 ", "$x ", "&>", ">", "sudo sh "])
def test_the_longest_line_is_looked_at_in_little_time(part: str) -> None:
    line = split(part * (MAX_LINE // len(part)))

    for command in line.commands:
        may_begin_with(command, ("rm", "-r"))


@given(st.text())
def test_any_text_is_split_without_an_error(text: str) -> None:
    line = split(text)

    assert all(line.commands)

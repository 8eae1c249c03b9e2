"""Command lines in pages are taken by the command line, and a rule that is written in three ways is one rule."""

import re
import shlex
from itertools import dropwhile
from typing import Any

import click
import pytest
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from tests.framework.pages import PAGES, ROOT, Block, blocks, shell_lines

import steprail.client
from steprail.v1 import rules_pb2
from steprail_daemon.cli.connection import messages
from steprail_daemon.cli.main import cli
from steprail_daemon.cli.rules import FORMS, StopWhen

LINES = [line for page in PAGES for line in shell_lines(page)]
VERBS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
#: What ends a command within a line.
_ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<"}


def commands(line: str) -> list[list[str]]:
    """Give the commands of a line, each as its words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in _ENDS:
            found.append([])
        else:
            found[-1].append(word)
    return found


def check_command(words: list[str]) -> None:
    """Parse the words behind `steprail` without running anything.

    Raises:
        click.ClickException: the command line does not take them.
    """
    # A directory of the reader's.
    words = ["." if before == "-C" else word for before, word in zip(["", *words], words, strict=False)]
    context = cli.make_context("steprail", words)
    command: click.Command = cli
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = command.make_context(command.name, rest, parent=context)


def with_program(program: str) -> list[Any]:
    """Give what follows a program's name, wherever it is run in a page, as parameters."""
    found = []
    for line in LINES:
        for words in commands(line.text):
            # As another user, and with variables, it is the same command.
            bare = list(dropwhile(lambda word: "=" in word, words[3:] if words[:2] == ["sudo", "-u"] else words))
            if bare[:1] == [program]:
                found.append(pytest.param(bare[1:], id=str(line)))
    return found


def test_there_are_many() -> None:
    assert len(with_program("steprail")) > 30
    assert len({str(line).partition(":")[0] for line in LINES}) > 8


@pytest.mark.parametrize("words", with_program("steprail"))
def test_the_command_line_takes_what_pages_say(words: list[str]) -> None:
    check_command(words)


@pytest.mark.parametrize("words", with_program("make"))
def test_make_has_the_verbs_that_pages_name(words: list[str]) -> None:
    assert [word for word in words if "=" not in word and word not in VERBS] == []


@pytest.mark.parametrize("text", ["run --stop-wen steps=3 x", "run --stop-when stops=3 x", "decide RUN go", "rnu x"])
def test_a_command_that_is_wrong_is_noticed(text: str) -> None:
    with pytest.raises(click.ClickException):
        check_command(shlex.split(text))


# --- stop rules ---


def _functions() -> dict[str, Any]:
    given = {name: getattr(steprail.client, name) for name in steprail.client.__all__ if name[0].islower()}
    return {**given, "rules_pb2": rules_pb2, "Duration": Duration}


def groups() -> list[Any]:
    """Give the blocks of the page that stand together: those that end with JSON, without text between them."""
    page = ROOT / "docs" / "stop-rules.md"
    found: list[list[Block]] = []
    for block in blocks(page, "sh", "python", "json"):
        lines = page.read_text().splitlines()
        # The fence of the last block, an empty line, and this one's fence lie between the two.
        together = lines[block.line - 4].startswith("```") and lines[block.line - 3] == ""
        if found and together and found[-1][-1].language != "json":
            found[-1].append(block)
        else:
            found.append([block])
    return [pytest.param(group, id=str(group[0])) for group in found if group[-1].language == "json"]


def rule_of(block: Block) -> rules_pb2.StopRule:
    """Give the rule that a block writes."""
    if block.language == "json":
        return json_format.Parse(block.text, rules_pb2.StopRule())
    if block.language == "python":
        rule = eval(block.text, _functions())
        assert isinstance(rule, rules_pb2.StopRule)
        return rule
    words = commands(block.text)[0]
    short = StopWhen().convert(words[words.index("--stop-when") + 1], None, None)
    (message,) = messages([short])
    assert isinstance(message, rules_pb2.StopRule)
    return message


@pytest.mark.parametrize("group", groups())
def test_a_rule_is_the_same_on_the_command_line_in_python_and_as_json(group: list[Block]) -> None:
    first, *others = [rule_of(block) for block in group]
    assert others
    assert [other == first for other in others] == [True] * len(others), group


def test_every_kind_of_rule_is_there_in_every_way_that_it_can_be_written() -> None:
    written: dict[str, set[str]] = {}
    for parameter in groups():
        for block in parameter.values[0]:
            kind = rule_of(block).WhichOneof("kind")
            assert kind is not None
            written.setdefault(kind, set()).add(block.language)
    kinds = {field.name for field in rules_pb2.StopRule.DESCRIPTOR.oneofs_by_name["kind"].fields}
    short = {kind for kind, languages in written.items() if "sh" in languages}
    assert set(written) == kinds
    assert all({"python", "json"} <= languages for languages in written.values())
    assert len(short) == len(FORMS)
    assert kinds - short == {"any_of", "all_of", "none_of"}

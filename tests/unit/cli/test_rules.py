"""Stop rules in their short form."""

import re
from dataclasses import replace
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail.v1 import rules_pb2
from steprail_daemon.cli.connection import MESSAGES, messages
from steprail_daemon.cli.problems import Refused
from steprail_daemon.cli.rules import FORMS, ON_UNKNOWN, ShortRule, StopWhen, as_typed
from steprail_daemon.service.rules import stop_rules


def parse(text: str) -> ShortRule:
    return StopWhen().convert(text, None, None)


GOOD: list[tuple[str, Any]] = [
    ("steps=3", 3),
    ("steps=003", 3),
    ("tool=write_file", "write_file"),
    ("tool=mcp__*__a=b", "mcp__*__a=b"),
    ("tokens=40000", 40_000),
    (f"tokens={2**63 - 1}", 2**63 - 1),
    ("cost=2.00", 2_000_000),
    ("cost=2", 2_000_000),
    ("cost=.5", 500_000),
    ("cost=0.000001", 1),
    ("cost=0.10", 100_000),
    ("duration=60s", 60_000_000_000),
    ("duration=0.5s", 500_000_000),
    ("duration=250ms", 250_000_000),
    ("duration=10m", 600_000_000_000),
    ("finish=length", ("length",)),
    ("finish=LENGTH, content_filter", ("length", "content_filter")),
    ("failures=2", 2),
    ("repeats=3", 3),
    ("expr=step.number >= 3 && totals.failed == 1", "step.number >= 3 && totals.failed == 1"),
]


@pytest.mark.parametrize(("text", "value"), GOOD)
def test_a_short_rule_is_a_word_and_its_value(text: str, value: Any) -> None:
    assert parse(text) == ShortRule(text.partition("=")[0], value, text)
    assert parse(text).value == value
    assert repr(parse(text)) == text


BAD = [
    ("steps", "'steps' has no `=` and no limit; accepted after steps= is a number of completed steps"),
    ("steps=", "in 'steps=', '' is not a number of digits alone; accepted after steps= is"),
    ("steps=0", "'0' is out of range; accepted after steps= is a number of completed steps, 1 or more"),
    ("steps=-1", "'-1' is not a number of digits alone"),
    ("steps=x", "'x' is not a number of digits alone"),
    ("steps=٣", "is not a number of digits alone"),
    ("steps=1.5", "'1.5' is not a number"),
    (f"tokens={2**63}", "is out of range; accepted after tokens= is a number of tokens"),
    ("tokens=" + "9" * 5_000, "is out of range"),
    ("tool=", "'' is empty; accepted after tool= is a tool that was called"),
    ("tool=" + "x" * 257, "has 257 bytes; accepted after tool= is a tool that was called, with * and ?, at most 256"),
    ("cost=", "is not an amount of digits with a point; accepted after cost= is US dollars"),
    ("cost=.", "is not an amount"),
    ("cost=1.2.3", "is not an amount"),
    ("cost=$2", "'$2' is not an amount"),
    ("cost=1e3", "'1e3' is not an amount"),
    ("cost=NaN", "'NaN' is not an amount"),
    ("cost=0", "'0' is out of range"),
    ("cost=0.0000001", "'0.0000001' has more than six decimals"),
    ("cost=99999999999999999999", "is out of range"),
    ("duration=60", '"60" is not a number with a unit; accepted after duration= is working time, a number with a unit'),
    ("duration=60x", '"60x" has the unknown unit "x"'),
    ("duration=0s", '"0s" is out of range'),
    ("finish=", "is empty; accepted after finish= is how a message ended"),
    ("finish=length,", "is empty"),
    (
        "finish=done",
        "'done' names 'done'; accepted after finish= is how a message ended, one or more of stop, tool_calls",
    ),
    ("failures=0", "is out of range; accepted after failures= is a number of failed tool calls"),
    ("repeats=1", "is out of range; accepted after repeats= is how often the same call was made, 2 or more"),
    ("expr= ", "is empty; accepted after expr= is a CEL expression"),
    ("expr=" + "é" * 1_025, "has 2050 bytes"),
    ("token=5", "there is no rule 'token'; accepted are\n  steps=, a number of completed steps"),
    ("", "there is no rule ''; accepted are\n  steps="),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[text[:16] or "nothing" for text, _ in BAD])
def test_what_is_no_rule_is_refused_with_what_is_wrong_and_what_is_accepted(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        parse(text)
    assert said in caught.value.message


def test_an_unknown_word_is_answered_with_every_form() -> None:
    with pytest.raises(click.BadParameter) as caught:
        parse("turns=3")
    assert all(f"{name}=, {form.accepted}" in caught.value.message for name, form in FORMS.items())


@pytest.mark.parametrize("name", list(FORMS))
def test_the_example_of_each_form_is_a_rule_that_the_daemon_takes(name: str) -> None:
    found = re.search(rf"such as ({name}=.*)$", FORMS[name].accepted)
    assert found is not None
    example = found[1].replace("'", "")
    assert stop_rules("stop_rules", messages([parse(example)]))


def test_every_form_has_its_message() -> None:
    assert list(MESSAGES) == list(FORMS)
    texts = ["tool=w*", "cost=2.00", "duration=1.5s", "finish=length,error", "repeats=3", "expr=true"]
    assert [str(message).split() for message in messages([parse(text) for text in texts])] == [
        ["tool_call", "{", "tool:", '"w*"', "}"],
        ["cost", "{", "at_least_micro_usd:", "2000000", "}"],
        ["duration", "{", "at_least", "{", "seconds:", "1", "nanos:", "500000000", "}", "}"],
        ["finish_reason", "{", "any_of:", "FINISH_REASON_LENGTH", "any_of:", "FINISH_REASON_ERROR", "}"],
        ["repetition", "{", "at_least:", "3", "}"],
        ["expression", "{", "cel:", '"true"', "}"],
    ]
    assert messages([parse("steps=3")])[0] == rules_pb2.StopRule(step_count=rules_pb2.StepCountRule(at_least=3))
    assert [message.WhichOneof("kind") for message in messages([parse("tokens=1"), parse("failures=1")])] == [
        "token_usage",
        "tool_failures",
    ]


@given(st.sampled_from(list(FORMS)), st.text())
def test_whatever_is_written_is_a_rule_that_the_daemon_takes_or_is_refused(name: str, text: str) -> None:
    try:
        rule = parse(f"{name}={text}")
    except click.BadParameter as error:
        assert FORMS[name].accepted in error.message  # noqa: PT017
    else:
        assert stop_rules("stop_rules", messages([rule]))


def test_what_becomes_of_unknown_figures_is_sent_with_the_rule() -> None:
    sent = messages([replace(parse("cost=1"), on_unknown=word) for word in ON_UNKNOWN] + [parse("cost=1")])
    assert [rules_pb2.OnUnknown.Name(message.on_unknown) for message in sent] == [
        "ON_UNKNOWN_REFUSE",
        "ON_UNKNOWN_IGNORE",
        "ON_UNKNOWN_STOP",
        "ON_UNKNOWN_UNSPECIFIED",
    ]


@pytest.mark.parametrize(
    ("reason", "field", "said"),
    [
        (
            "RULE_INVALID",
            "stop_rules[1].expression.cel:1:5: undefined",
            "the rule 'expr=(', line 1, column 5: undefined",
        ),
        ("RULE_INVALID", "stop_rules[0].step_count.at_least is 0", "the rule 'steps=3' is 0"),
        ("RULE_INVALID", "stop_rules[7] is odd", "stop_rules[7] is odd"),
        (
            "CAPABILITY_MISSING",
            "stop_rules[0].cost looks at what this agent never tells (cost); set its on_unknown to IGNORE or STOP",
            "the rule 'steps=3' looks at what this agent never tells (cost); --on-unknown ignore takes it as one that "
            "never matches, --on-unknown stop stops at the first step",
        ),
    ],
)
def test_a_rule_that_is_refused_is_named_as_it_was_typed(reason: str, field: str, said: str) -> None:
    with pytest.raises(Refused) as caught, as_typed([parse("steps=3"), parse("expr=(")]):
        raise Refused(reason, field)
    assert caught.value.message == f"{said} ({reason})"
    assert caught.value.exit_code == (2 if reason == "RULE_INVALID" else 1)

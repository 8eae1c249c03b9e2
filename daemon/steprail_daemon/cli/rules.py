"""Stop rules in their short form, as `--stop-when` takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from steprail_daemon.cli.offers import items
from steprail_daemon.cli.problems import Refused, WrongRule
from steprail_daemon.config.values import duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

_MOST: Final = 2**63 - 1
_MICRO: Final = 1_000_000
_MAX_GLOB_BYTES: Final = 256
_MAX_CEL_BYTES: Final = 2048
_REASONS: Final = ("stop", "tool_calls", "length", "content_filter", "error", "other")
_SPAN: Final = duration()


@dataclass(frozen=True, repr=False)
class ShortRule:
    """A rule: the word before the `=`, and what follows as a value, money in millionths of a dollar, spans in ns.

    `on_unknown` is refuse, ignore or stop, empty for the daemon's choice.
    """

    kind: str
    value: int | str | tuple[str, ...]
    text: str
    on_unknown: str = ""

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Form:
    """What may follow a word: how it is read (`ValueError` says what is wrong with it), and that in words."""

    read: Callable[[str], int | str | tuple[str, ...]]
    accepted: str


def _count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            raise ValueError("is not a number of digits alone")
        # More digits than any number in bounds has are not worth reading.
        if len(text.lstrip("0")) > len(str(_MOST)) or not least <= int(text) <= _MOST:
            raise ValueError("is out of range")
        return int(text)

    return read


def _glob(text: str) -> str:
    return _bounded(text, _MAX_GLOB_BYTES)


def _cel(text: str) -> str:
    return _bounded(text, _MAX_CEL_BYTES)


def _bounded(text: str, most: int) -> str:
    if not text.strip():
        raise ValueError("is empty")
    size = len(text.encode("utf-8", "replace"))
    if size > most:
        raise ValueError(f"has {size} bytes")
    return text


def _micro_usd(text: str) -> int:
    try:
        amount = Decimal(text) * _MICRO if text.isascii() and set(text) <= set("0123456789.") else None
    except InvalidOperation:
        amount = None
    if amount is None:
        raise ValueError("is not an amount of digits with a point")
    if amount != amount.to_integral_value():
        raise ValueError("has more than six decimals")
    if not 1 <= amount <= _MOST:
        raise ValueError("is out of range")
    return int(amount)


def _reasons(text: str) -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in text.split(","))
    for name in names:
        if name not in _REASONS:
            raise ValueError(f"names {name!r}" if name else "is empty")
    return names


#: The short rules, each with what may follow.
FORMS: Final[dict[str, Form]] = {
    "steps": Form(_count(1), "a number of completed steps, 1 or more, such as steps=3"),
    "tool": Form(
        _glob,
        f"a tool that was called, with * and ?, at most {_MAX_GLOB_BYTES} bytes, such as tool=write_file",
    ),
    "tokens": Form(_count(1), "a number of tokens, 1 or more, such as tokens=40000"),
    "cost": Form(_micro_usd, "US dollars, 0.000001 or more, with at most six decimals, such as cost=2.00"),
    "duration": Form(_SPAN.read, f"working time, {_SPAN.accepted.replace(chr(34), '')}; such as duration=60s"),
    "finish": Form(
        _reasons, f"how a message ended, one or more of {', '.join(_REASONS)} with commas, such as finish=length"
    ),
    "failures": Form(_count(1), "a number of failed tool calls, 1 or more, such as failures=2"),
    "repeats": Form(_count(2), "how often the same call was made, 2 or more, such as repeats=3"),
    "expr": Form(_cel, f"a CEL expression, at most {_MAX_CEL_BYTES} bytes, such as expr='step.number > 3'"),
}

#: Said of the option.
HELP: Final = (
    "Stop at a boundary: steps=N, tool=GLOB, tokens=N, cost=USD, duration=SPAN, finish=REASON, failures=N, repeats=N or"
    " expr=CEL. Of several, any one stops."
)

#: What can become of a rule whose figures are not known.
ON_UNKNOWN: Final = ("refuse", "ignore", "stop")

#: What the daemon calls a rule, and the words of its advice. It gives the field of the first rule only beside its
#: sentence, so that they are looked for in there; a test has real sentences.
_FIELD: Final = re.compile(r"stop_rules\[(\d+)\](?:\.[a-z_.]+)?(?::(\d+):(\d+):?)?")
_UNSERVED: Final = "set its on_unknown to IGNORE or STOP"
_ACCEPTED_UNSERVED: Final = (
    "--on-unknown ignore takes it as one that never matches, --on-unknown stop stops at the first step"
)


@contextmanager
def as_typed(rules: Sequence[ShortRule]) -> Iterator[None]:
    """Say of rules what the daemon says within of the fields of its request.

    Raises:
        WrongRule: a rule is wrong.
        Refused: as within.
    """
    try:
        yield
    except Refused as refused:
        said = _FIELD.sub(partial(_named, rules), refused.said).replace(_UNSERVED, _ACCEPTED_UNSERVED)
        kind = WrongRule if refused.reason == "RULE_INVALID" else Refused
        raise kind(refused.reason, said, refused.about) from None


def _named(rules: Sequence[ShortRule], found: re.Match[str]) -> str:
    number, line, column = found.groups()
    if int(number) >= len(rules):
        return found.group()
    place = f", line {line}, column {column}:" if line else ""
    return f"the rule {rules[int(number)].text!r}{place}"


class StopWhen(click.ParamType[ShortRule]):
    """A short rule, such as `steps=3`."""

    name = "RULE"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Give the words that begin like this, and after `finish=` the reasons."""
        del ctx, param
        before, equals, _ = incomplete.rpartition("," if "," in incomplete else "=")
        if incomplete.startswith("finish="):
            return items([(f"{before}{equals}{reason}", "") for reason in _REASONS], incomplete)
        if equals:
            return []
        return items([(f"{word}=", form.accepted) for word, form in FORMS.items()], incomplete, "open")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ShortRule:
        """Read a rule."""
        if isinstance(value, ShortRule):
            return value
        text = str(value)
        kind, equals, limit = text.partition("=")
        form = FORMS.get(kind)
        if form is None:
            forms = "".join(f"\n  {name}=, {each.accepted}" for name, each in FORMS.items())
            self.fail(f"there is no rule {kind!r}; accepted are{forms}", param, ctx)
        if not equals:
            self.fail(f"{text!r} has no `=` and no limit; accepted after {kind}= is {form.accepted}", param, ctx)
        try:
            return ShortRule(kind, form.read(limit), text)
        except ValueError as error:
            wrong = str(error)
            said = f"{limit!r} {wrong}" if wrong[:1].islower() else wrong
            self.fail(f"in {text!r}, {said}; accepted after {kind}= is {form.accepted}", param, ctx)


def rules_options(function: F) -> F:
    """Add `--stop-when`, whose rules have what `--on-unknown` says."""

    @click.option("stop_when", "--stop-when", type=StopWhen(), multiple=True, help=HELP)
    @click.option(
        "--on-unknown",
        type=click.Choice(ON_UNKNOWN),
        help=(
            "What a rule does whose figures are not known: refuse, the default, is not to start where the agent never "
            "tells them, and to stop where it fails to tell tokens or cost; ignore goes on; stop stops."
        ),
    )
    @wraps(function)
    def with_rules(*, stop_when: tuple[ShortRule, ...], on_unknown: str | None, **others: Any) -> Any:
        rules = tuple(replace(rule, on_unknown=on_unknown or "") for rule in stop_when)
        return function(stop_when=rules, **others)

    return cast(F, with_rules)

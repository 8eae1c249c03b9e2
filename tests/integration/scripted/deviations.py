"""Comparison with the recordings, and the one table of what is not the same."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.integration.scripted.client import Message

GENERATED = [
    (re.compile(r"(?<![a-z])(session|turn|msg|changes|step|perm|dir)_(\d+)_\d{13}"), r"\1_\2"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d{13}"), "SAVED"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"plan-[0-9a-f]{8}\.md"), "PLAN"),
]
"""What differs from run to run: the numbers that count up are compared, the times in ids are not."""
MEASURED = {"duration", "durationMs"}


@dataclass(frozen=True)
class Deviation:
    """Where the agent is not like the CLI: patterns of recordings, and of `kind.key.key` as `differences` makes it."""

    recordings: str
    paths: tuple[str, ...]
    reason: str


WORDING = ("hook.sessionError.error", "error.message", "messageUpdate.delta", "messageEnd.content")
DEVIATIONS = (
    Deviation("*", ("stepEnd.usage", "turnEnd.usage"), "The announced extension: what the step and the turn used."),
    Deviation("*", ("agentStart.savedSessionId",), "An extension: sessions that begin at one time can be told apart."),
    Deviation("*", ("*.contextPercent",), "Computed from text sizes; the instructions are shorter than the CLI's."),
    Deviation("*", ("answer.authenticatedUser.*",), "There is no account behind the built-in agent."),
    Deviation("*", ("hook.rateLimit.provider", "error-answer.data.providerId"), "The provider is called `scripted`."),
    Deviation("h3-*", WORDING, "Failures of a provider are worded without the name of a real one."),
    Deviation("h3-*", ("hook.context*",), "Nothing is compacted: the events come with numbers of their own."),
    Deviation("l-*", ("answer.messages.*.id",), "Saved messages have their positions for ids, not random ones."),
    Deviation(
        "r*", ("hook.postTool.output", "toolEnd.output"), "Results of plan and question tools are worded differently."
    ),
)


def normal(value: Any, workspace: str, home: str, key: str = "") -> Any:
    """Bring a message into a form that is the same in every run."""
    if isinstance(value, dict):
        return {name: normal(item, workspace, home, name) for name, item in value.items() if name != "jsonrpc"}
    if isinstance(value, list):
        return [normal(item, workspace, home) for item in value]
    if isinstance(value, str):
        text = value.replace(workspace, "/workspace").replace(home, "/home/user/.autohand")
        for pattern, replacement in GENERATED:
            text = pattern.sub(replacement, text)
        return text
    return 0 if key in MEASURED else value


def name_of(message: Message) -> str:
    """Name a message: the method of a notification, or what kind of answer it is."""
    if "method" in message:
        return str(message["method"]).removeprefix("autohand.")
    return "error-answer" if "error" in message else "answer"


def differences(recorded: Any, actual: Any, path: str) -> Iterator[str]:
    """Name the places where two values differ, down to the deepest key; list members by their number."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for key in sorted(recorded.keys() | actual.keys()):
            if key not in recorded or key not in actual:
                yield f"{path}.{key}"
            else:
                yield from differences(recorded[key], actual[key], f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(actual, list) and len(recorded) == len(actual):
        for index, (one, other) in enumerate(zip(recorded, actual, strict=True)):
            yield from differences(one, other, f"{path}.{index}")
    elif recorded != actual:
        yield path


def explained(recording: str, path: str) -> Deviation | None:
    """Find the deviation that explains a difference."""
    return next(
        (
            deviation
            for deviation in DEVIATIONS
            if fnmatch.fnmatch(recording, deviation.recordings)
            and any(fnmatch.fnmatch(path, pattern) for pattern in deviation.paths)
        ),
        None,
    )


def in_call_order(messages: list[Message]) -> list[Message]:
    """Bring neighbouring ends of tool calls into one order: which of several ends first, nobody promises."""
    ordered: list[Message] = []
    ends: list[Message] = []
    for message in messages:
        if name_of(message) in ("hook.postTool", "toolEnd"):
            ends.append(message)
            continue
        ordered += [*sorted(ends, key=_end_key), message]
        ends.clear()
    return ordered + sorted(ends, key=_end_key)


def _end_key(message: Message) -> tuple[int, str]:
    return int(message["params"]["toolId"].removeprefix("call_")), name_of(message)

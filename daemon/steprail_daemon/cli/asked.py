"""What agents ask of people, as lines and sentences: permissions, questions, what became of them, how to answer.

Objects are those of `live`: proto JSON with the proto field names. Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from steprail_daemon.cli.output import readable_lines, shorten

Message = Mapping[str, Any]

#: Whoever allows a call should have seen it: what is longer is said to be cut.
_ARGUMENTS = 2000
_TITLE = 200
_ANSWERS = {
    "PERMISSION_ANSWER_ALLOW_ONCE": "allowed once",
    "PERMISSION_ANSWER_ALLOW_SESSION": "allowed for the session",
    "PERMISSION_ANSWER_DENY": "denied",
}
_SOURCES = {
    "RESOLUTION_SOURCE_POLICY": "by policy",
    "RESOLUTION_SOURCE_TIMEOUT": "as nobody answered in time",
    "RESOLUTION_SOURCE_ABORT": "as the run ends",
    "RESOLUTION_SOURCE_DRAIN": "as the daemon drains",
    "RESOLUTION_SOURCE_AGENT": "as the agent no longer asks",
}


def span_words(span: str) -> str:
    """Give a span of proto JSON such as `299.7s` in the two largest units that it has, such as `5m` or `1h 2m`."""
    try:
        seconds = round(float(span.removesuffix("s")))
    except ValueError:
        return span
    hours, minutes = divmod(seconds // 60, 60)
    parts = [(hours, "h"), (minutes, "m"), (0 if hours else seconds % 60, "s")]
    return " ".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def permission_lines(permission: Message, *, waits: bool = True) -> list[str]:
    """Give what leave is asked for: the tool, its title, its arguments on one line, and if it waits, until when."""
    tool, title = permission.get("tool") or "a tool", shorten(permission.get("title", ""), _TITLE)
    lines = [f"{click.style('?', fg='magenta', bold=True)} {click.style(tool, fg='cyan')} asks for permission"]
    if title:
        lines[0] += f": {title}"
    if arguments := arguments_line(permission):
        lines.append(f"  {arguments}")
    return [*lines, f"  {_unanswered('denied', permission)}"] if waits else lines


def arguments_line(permission: Message) -> str:
    """Give the arguments of a permission on one line; says so if that is not all of them."""
    text = permission.get("arguments_json", {})
    whole = str(text.get("value", ""))
    line = shorten(whole, _ARGUMENTS)
    if not text.get("blob_id") and len(line) < _ARGUMENTS:
        return line
    return f"{line} (cut; {text.get('full_size') or len(whole.encode())} bytes in all)"


def question_lines(question: Message, *, waits: bool = True) -> list[str]:
    """Give a question with its items and numbered options, and if it waits, until when."""
    lines = [f"{click.style('?', fg='magenta', bold=True)} the agent has a question"]
    for item in question.get("items", []):
        lines += [f"  {line}" for line in item_lines(item)]
    return [*lines, f"  {_unanswered('declined', question)}"] if waits else lines


def item_lines(item: Message) -> list[str]:
    """Give one item of a question, with its options numbered from 1."""
    header = shorten(item.get("header", ""))
    first, *more = readable_lines(item.get("text", "")) or [""]
    lines = [": ".join(part for part in (header, first) if part), *more]
    for number, option in enumerate(item.get("options", []), 1):
        description = shorten(option.get("description", ""), 300)
        label = shorten(option.get("label") or option.get("option_id", ""))
        lines.append(f"{number}. {label}{': ' + description if description else ''}")
    return lines


def _unanswered(becomes: str, asked: Message) -> str:
    after = f" after {span_words(asked['remaining'])}" if asked.get("remaining") else ""
    return click.style(f"unanswered, it is {becomes}{after}", dim=True)


def resolved_words(resolved: Message) -> str:
    """Say what became of a permission, and by whom, such as `allowed once by user:1000`."""
    answer = _ANSWERS.get(resolved.get("answer", ""))
    if alternative := resolved.get("alternative"):
        answer = f"replaced by {shorten(alternative.get('command') or alternative.get('arguments_json', ''))}"
    return _by(answer or "not allowed", resolved)


def question_resolved_words(resolved: Message) -> str:
    """Say what became of a question, and by whom. Answers are left out: some are secret."""
    return _by("declined" if resolved.get("declined") else "answered", resolved)


def _by(what: str, resolved: Message) -> str:
    source = str(resolved.get("source", ""))
    by = _SOURCES.get(source) or (f"by {shorten(resolved['identity'])}" if resolved.get("identity") else "")
    reason = "" if source in _SOURCES and source != "RESOLUTION_SOURCE_POLICY" else resolved.get("reason", "")
    words = " ".join(part for part in (what, by) if part)
    return f"{words}: {shorten(reason, 200)}" if reason else words


def how_to_answer(event: Message) -> str:
    """Say with which commands somebody answers what an event asks; empty if it asks nothing."""
    if permission := event.get("permission_requested", {}).get("permission"):
        identity = permission.get("permission_id", "")
        return f"answer with: steprail allow {identity}, or steprail deny {identity}"
    if question := event.get("question_requested", {}).get("question"):
        identity = question.get("question_id", "")
        return f"answer with: steprail answer {identity} TEXT, or steprail deny {identity}"
    return ""


def answer_to(item: Message, text: str) -> dict[str, Any]:
    """Read an answer to an item of a question: numbers or labels of options, with commas if several can be chosen.

    Anything else is text of one's own, where that is an answer.

    Raises:
        ValueError: it is no answer; with what is accepted.
    """
    options, item_id = item.get("options", []), item.get("item_id", "")
    whole = text.strip()
    several = item.get("multiple") and _option(options, whole) is None
    chosen = [_option(options, part.strip()) for part in (whole.split(",") if several else [whole])]
    if options and None not in chosen:
        return {"item_id": item_id, "option_ids": list(dict.fromkeys(chosen))}
    if whole and (item.get("free_text") or not options):
        return {"item_id": item_id, "text": text}
    accepted = f"a number from 1 to {len(options)}, or a label" if options else "a text"
    more = ", several with commas" if item.get("multiple") else ""
    raise ValueError(f"{text!r} is no answer; accepted: {accepted}{more}")


def _option(options: list[Message], named: str) -> str | None:
    for number, option in enumerate(options, 1):
        names = (str(number), option.get("option_id", ""), str(option.get("label", "")).strip())
        if named and named.casefold() in [name.casefold() for name in names]:
            return str(option.get("option_id", ""))
    return None

"""What waits for somebody: found by its id, and told in a line."""

from __future__ import annotations

import click

from steprail_daemon.cli.asked import arguments_line, span_words
from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.output import shorten
from steprail_daemon.cli.problems import Problem

#: The kinds of what waits, and the field with the id of each.
KINDS = {"permission": "permission_id", "question": "question_id", "decision": "step_id"}
_LONGEST_LIST = 5


def kind_of(item: Message) -> str:
    """Give the kind of an item of ListPending; empty for one of a newer version."""
    return next((kind for kind in KINDS if kind in item), "")


def id_of(item: Message) -> str:
    """Give the id of what waits."""
    kind = kind_of(item)
    return str(item[kind].get(KINDS[kind], "")) if kind else ""


def what_of(item: Message, step: str = "") -> str:
    """Give what waits in one line. `step` is the number of the step that a decision is about, empty if unknown."""
    kind = kind_of(item)
    if kind == "permission":
        permission = item[kind]
        return f"{permission.get('tool', '')} {arguments_line(permission) or permission.get('title', '')}".strip()
    if kind == "question":
        return " / ".join(part.get("text", "") for part in item[kind].get("items", []))
    if kind == "decision":
        return f"whether the run goes on after step {step}" if step else "whether the run goes on"
    return "something newer than this program"


async def step_of(daemon: Daemon, item: Message) -> str:
    """Give the number of the step that a decision is about; empty for what is none, or if it is gone meanwhile."""
    step_id = item.get("decision", {}).get("step_id")
    steps = await daemon.list_steps(item["run_id"]) if step_id else []
    return next((str(step.get("number", "")) for step in steps if step.get("step_id") == step_id), "")


def row_of(item: Message, step: str = "") -> list[str]:
    """Give the row of a table: kind, id, run, what (see `what_of`), and the time left."""
    kind = kind_of(item)
    left = item.get(kind, {}).get("remaining", "")
    return [
        kind or "?",
        id_of(item) or "?",
        item.get("run_id", ""),
        shorten(what_of(item, step), 60),
        span_words(left) if left else "?",
    ]


async def find(daemon: Daemon, wanted: str, *kinds: str) -> Message:
    """Give what waits under an id, which is one of these kinds.

    Only a whole id will do: one that fits whatever waits just now could answer something that nobody has seen.

    Raises:
        Problem: nothing waits under it, or something of another kind, or it names a run.
    """
    items = await daemon.list_pending()
    found = next((item for item in items if id_of(item) == wanted), None)
    if found is not None:
        if kind_of(found) in kinds:
            return found
        step = await step_of(daemon, found)
        raise Problem(f"{wanted} is a {kind_of(found)}; {_advice(found, step)}")
    of_run = [id_of(item) for item in items if item.get("run_id") == wanted and kind_of(item) in kinds]
    if of_run:
        more = f" and {len(of_run) - _LONGEST_LIST} more" if len(of_run) > _LONGEST_LIST else ""
        listed = ", ".join(of_run[:_LONGEST_LIST])
        raise Problem(f"{wanted} is a run; name what is meant of what waits there: {listed}{more}")
    what = " or ".join(kinds)
    raise Problem(
        f"no {what} {wanted!r} waits; it was answered or its time is over, or it never was: `steprail pending` shows "
        "what waits"
    )


def _advice(item: Message, step: str) -> str:
    kind, identity = kind_of(item), id_of(item)
    if kind == "permission":
        return f"`steprail allow {identity}` or `steprail deny {identity}` answers it"
    if kind == "question":
        return f"`steprail answer {identity} TEXT` or `steprail deny {identity}` answers it"
    return f"`steprail decide {item.get('run_id', 'RUN')} --step {step or 'N'} continue` or `stop` decides"


def say(identity: str, words: str) -> None:
    """Print what became of it."""
    click.echo(f"{identity}: {words}")

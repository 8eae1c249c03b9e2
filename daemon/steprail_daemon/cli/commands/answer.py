"""`steprail answer`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from steprail_daemon.cli.asked import answer_to, item_lines, question_resolved_words
from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.live import plural
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json
from steprail_daemon.cli.pending import find, say
from steprail_daemon.cli.problems import Problem
from steprail_daemon.cli.stdin import line


@click.command()
@click.argument("question_id", metavar="QUESTION", shell_complete=offers("questions"))
@click.argument("answers", metavar="ANSWER...", nargs=-1, required=True)
@address_option
@json_option
def command(*, question_id: str, answers: tuple[str, ...], address: str | None, as_json: bool) -> None:
    """Answer a question of the agent.

    One ANSWER for each item, in order: the number or the label of an option, several with commas where several can be
    chosen, or a text where that is an answer. `-` reads a line of stdin, as for a secret, which others could see in the
    list of processes. `deny` declines the question.
    """
    texts = [line("ANSWER") if given == "-" else given for given in answers]

    async def answer(daemon: Daemon) -> None:
        item = await find(daemon, question_id, "question")
        given = _answers(item["question"].get("items", []), texts)
        resolved = await daemon.answer_question(item["run_id"], question_id, given)
        if as_json:
            say_json({"question_resolved": resolved})
        else:
            say(question_id, question_resolved_words(resolved))

    call(address, answer)


def _answers(items: Sequence[Message], texts: Sequence[str]) -> list[Message]:
    if len(items) != len(texts):
        asked = "\n".join(f"  {line}" for item in items for line in item_lines(item))
        were = "answer was" if len(texts) == 1 else "answers were"
        raise Problem(f"the question has {plural(len(items), 'item')}, and {len(texts)} {were} given:\n{asked}")
    try:
        return [answer_to(item, text) for item, text in zip(items, texts, strict=True)]
    except ValueError as error:
        raise Problem(str(error)) from None

"""What a shell is offered for a word that is typed: agents and ids of a daemon that answers soon, words of rules.

Nothing here ever fails or prints: where no daemon answers there is nothing to offer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from steprail_daemon.cli.client import Daemon, Message

#: A word, and what it is.
Offer = tuple[str, str]
Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]

#: Seconds that somebody who pressed a key may wait for a daemon.
_LIMIT: Final = 1.0


def offers(*kinds: str) -> Complete:
    """Give what completes a parameter by things of a daemon, of each of these kinds: see `KINDS`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del param
        found: list[Offer] = []
        # A shell shows what is printed among the words that are typed, a traceback too.
        with suppress(Exception), ctx.scope(cleanup=False):
            found = _ask(ctx.params.get("address"), kinds)
        return items(found, incomplete)

    return complete


def items(offered: Iterable[Offer], incomplete: str, kind: str = "plain") -> list[CompletionItem]:
    """Give those that begin with what was typed. Of kind `open` the word goes on, so that no space follows."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell that completes needs it

    return [CompletionItem(word, kind, help=text) for word, text in offered if word.startswith(incomplete)]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave it to the shell, which knows the files."""
    del ctx, param
    return items([(incomplete, "")], incomplete, "file")


def directories(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave it to the shell, which knows the directories."""
    del ctx, param
    return items([(incomplete, "")], incomplete, "dir")


def _ask(address: str | None, kinds: Iterable[str]) -> list[Offer]:
    # Here and not above: every command that takes an id imports this module, and few are ever completed.
    import anyio  # noqa: PLC0415

    from steprail_daemon.cli.call import connect  # noqa: PLC0415
    from steprail_daemon.cli.configuration import find_address  # noqa: PLC0415

    where = find_address(address)
    found: list[Offer] = []

    async def ask() -> None:
        with anyio.move_on_after(_LIMIT):
            async with connect(where) as daemon:
                for kind in kinds:
                    found.extend(await KINDS[kind](daemon))

    # What was found before something failed is worth as much as the rest.
    with suppress(Exception):
        anyio.run(ask)
    return found


async def _agents(daemon: Daemon) -> list[Offer]:
    return [(str(agent["name"]), str(agent.get("driver", ""))) for agent in await daemon.list_agents()]


async def _sessions(daemon: Daemon, *, closed: bool = True) -> list[Offer]:
    return [
        (str(session["session_id"]), f"{_session_state(session)}, {session.get('agent', '')}")
        for session in await daemon.list_sessions()
        if closed or _session_state(session) != "closed"
    ]


def _session_state(session: Message) -> str:
    return str(session.get("state", "")).removeprefix("SESSION_STATE_").lower()


async def _open_sessions(daemon: Daemon) -> list[Offer]:
    return await _sessions(daemon, closed=False)


async def _runs(daemon: Daemon) -> list[Offer]:
    return [(str(run["run_id"]), _told(run)) for run in await daemon.list_runs("")]


async def _live_runs(daemon: Daemon) -> list[Offer]:
    from steprail_daemon.cli.live import has_ended  # noqa: PLC0415 - as in `_ask`

    return [(str(run["run_id"]), _told(run)) for run in await daemon.list_runs("") if not has_ended(run)]


async def _ended_runs(daemon: Daemon) -> list[Offer]:
    from steprail_daemon.cli.live import has_ended  # noqa: PLC0415 - as in `_ask`

    return [(str(run["run_id"]), _told(run)) for run in await daemon.list_runs("") if has_ended(run)]


async def _permissions(daemon: Daemon) -> list[Offer]:
    return await _pending(daemon, "permission", "permission_id", "tool")


async def _questions(daemon: Daemon) -> list[Offer]:
    return await _pending(daemon, "question", "question_id", "run_id")


async def _pending(daemon: Daemon, kind: str, name: str, about: str) -> list[Offer]:
    waiting = [item[kind] for item in await daemon.list_pending() if kind in item]
    return [(str(asked[name]), str(asked.get(about, ""))) for asked in waiting]


def _told(run: Message) -> str:
    from steprail_daemon.cli.live import prompt_of, state_of  # noqa: PLC0415 - as in `_ask`
    from steprail_daemon.cli.output import shorten  # noqa: PLC0415

    return f"{state_of(run).lower()}: {shorten(prompt_of(run), 40)}"


KINDS: Final[Mapping[str, Callable[[Daemon], Awaitable[list[Offer]]]]] = {
    "agents": _agents,
    "sessions": _sessions,
    "open sessions": _open_sessions,
    "runs": _runs,
    "live runs": _live_runs,
    "ended runs": _ended_runs,
    "permissions": _permissions,
    "questions": _questions,
}

"""`steprail run`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import click

from steprail_daemon.cli.call import call_with_daemon
from steprail_daemon.cli.client import Control, Daemon, Message
from steprail_daemon.cli.follow import Following, follow_asking, follow_new
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option, permissions_option
from steprail_daemon.cli.problems import Problem
from steprail_daemon.cli.rules import ShortRule, as_typed, rules_options
from steprail_daemon.cli.stdin import whole
from steprail_daemon.config.schema import SCRIPTED

MODES = ("ask", "accept_edits", "read_only", "bypass")


@click.command()
@click.argument("prompt")
@click.option(
    "-a",
    "--agent",
    default="",
    metavar="AGENT",
    shell_complete=offers("agents"),
    help="Agent to use; by default the first that is available and has a model.",
)
@click.option(
    "-C",
    "directory",
    default=".",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory to work in; by default this one.",
)
@rules_options
@click.option("--ask", is_flag=True, help="Ask me at every step boundary whether to go on.")
@click.option("--permission-mode", type=click.Choice(MODES), help="What the agent may do without asking.")
@permissions_option
@address_option
@json_option
def command(
    *,
    prompt: str,
    agent: str,
    directory: Path,
    stop_when: tuple[ShortRule, ...],
    ask: bool,
    permissions: str,
    permission_mode: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Start a run and show it as it happens.

    PROMPT is what the agent is asked to do; `-` reads it from stdin. Ctrl-C once stops the run at its next step
    boundary, twice aborts it. Where no daemon listens on the default address, one is started for the length of the run.
    """
    text = whole("PROMPT") if prompt == "-" else prompt
    cwd = directory.resolve()

    async def run(daemon: Daemon) -> int:
        following = Following.by(daemon, permissions=permissions, as_json=as_json)

        async def session() -> str:
            name = agent or await _first_available(daemon)
            made = await daemon.create_session(name, str(cwd), permission_mode or "")
            return str(made["session_id"])

        async def start() -> Message:
            async with AsyncExitStack() as unused:
                session_id = await session()
                unused.push_async_callback(daemon.discard_session, session_id)
                with as_typed(stop_when):
                    run = await daemon.start_run(session_id, text, stop_when)
                unused.pop_all()
                return run

        @asynccontextmanager
        async def start_asking() -> AsyncIterator[Control]:
            async with AsyncExitStack() as unused:
                session_id = await session()
                unused.push_async_callback(daemon.discard_session, session_id)
                with as_typed(stop_when):
                    async with daemon.control_new(session_id, text, stop_when) as control:
                        unused.pop_all()
                        yield control

        if ask:
            return await follow_asking(following, start_asking)
        return await follow_new(following, start)

    raise click.exceptions.Exit(call_with_daemon(address, run, root=cwd))


async def _first_available(daemon: Daemon) -> str:
    """Give the first agent that is available, or the first at all: the daemon looks at it anew and says what is wrong.

    A daemon that has just begun may not have looked at its agents yet. The built-in agent has no model and is never
    taken in place of one that was meant: it would seem to work.
    """
    agents = await daemon.list_agents()
    if not agents:
        raise Problem("the daemon's configuration names no agent")
    usable = [agent for agent in agents if agent.get("available")]
    with_model = [agent for agent in agents if agent.get("driver") != SCRIPTED]
    if with_model and usable and all(agent.get("driver") == SCRIPTED for agent in usable):
        reasons = "; ".join([f"{agent['name']}: {agent.get('unavailable_reason', '')}" for agent in with_model])
        raise Problem(f"no agent can be used: {reasons}. `-a {usable[0]['name']}` is the built-in one, without a model")
    found = [agent for agent in usable if agent in with_model] or usable or agents
    return str(found[0]["name"])

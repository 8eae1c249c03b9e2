"""`steprail agents`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call_with_daemon
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json, shorten, table


@click.command()
@address_option
@json_option
def command(*, address: str | None, as_json: bool) -> None:
    """List the agents, and whether they can be used."""

    async def list_agents(daemon: Daemon) -> None:
        agents = await daemon.list_agents()
        if as_json:
            for agent in agents:
                say_json({"agent": agent})
            return
        rows = []
        for agent in agents:
            gate = agent.get("capabilities", {}).get("step_gate", "STEP_GATE_UNSPECIFIED").removeprefix("STEP_GATE_")
            ready = "yes" if agent.get("available") else f"no: {shorten(agent.get('unavailable_reason', ''), 200)}"
            rows.append([agent["name"], agent.get("driver", ""), agent.get("version") or "?", gate, ready])
        table(["AGENT", "DRIVER", "VERSION", "STEP GATE", "AVAILABLE"], rows)

    call_with_daemon(address, list_agents, looks=True)

"""Makes all checks, theme by theme."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import click

from steprail_daemon.cli.doctor import agents, configuration, machine, reach, state
from steprail_daemon.cli.doctor.findings import Case, Check, Finding, Tell, problem

#: In this order; the agents come last, as they take longest.
CHECKS: Final[tuple[Check, ...]] = (
    *configuration.CHECKS,
    *state.CHECKS,
    *machine.CHECKS,
    *reach.CHECKS,
    *agents.CHECKS,
)


#: Seconds that a plain check may take: a directory of a server that is gone never answers.
_PLAIN_LIMIT: Final = 20.0


async def examine(case: Case, tell: Tell) -> None:
    """Make every check, telling what it finds as it is found. One that fails by itself does not keep others away."""
    for check in CHECKS:
        try:
            await _make(check, case, tell)
        except (click.exceptions.Exit, click.ClickException):
            raise  # the output cannot be written any more
        except Exception as error:  # noqa: BLE001 - whoever looks for what is wrong must not be left with a traceback
            text = f"the check {check.__name__} failed: {type(error).__name__}: {error}"
            tell(problem("doctor", text, "report it with the version of this program; the other checks are made"))


async def _make(check: Check, case: Case, tell: Tell) -> None:
    if inspect.iscoroutinefunction(check):
        await check(case, tell)
        return
    found: list[Finding] = []
    try:
        with anyio.fail_after(_PLAIN_LIMIT):
            await anyio.to_thread.run_sync(partial(check, case, found.append), abandon_on_cancel=True)
    except TimeoutError:
        text = f"the check {check.__name__} did not end within {_PLAIN_LIMIT:.0f} s"
        tell(problem("doctor", text, "see whether a file system that the configuration names does not answer"))
        return
    for finding in found:
        tell(finding)

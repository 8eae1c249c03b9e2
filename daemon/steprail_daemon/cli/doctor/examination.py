"""Makes all checks, theme by theme."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Final

import click

from steprail_daemon.cli.doctor import addresses, agents, configuration, machine, state
from steprail_daemon.cli.doctor.findings import Case, Check, Finding, Tell, problem
from steprail_daemon.cli.doctor.looks import SILENT_FILES, in_time, limit_words

#: In this order; the agents come last, as they take longest. `addresses.answer` writes `Case.server`, which
#: `addresses.draining` and `agents.view` read.
CHECKS: Final[tuple[Check, ...]] = (
    *configuration.CHECKS,
    *state.CHECKS,
    *machine.CHECKS,
    *addresses.CHECKS,
    *agents.CHECKS,
)


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
        await in_time(partial(check, case, found.append))
    except TimeoutError:
        tell(problem("doctor", f"the check {check.__name__} did not end within {limit_words()}", SILENT_FILES))
        return
    for finding in found:
        tell(finding)

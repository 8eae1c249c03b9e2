"""Conformance kit of drivers: what the daemon promises with every driver, as checks that a test runs over each agent.

    @pytest.mark.parametrize("check", checks_for("mine"), ids=lambda check: check.name)
    async def test_the_driver_conforms(check, parents, tmp_path):
        await conform(check, my_rig, parents, tmp_path)

`parents` is a fixture that gives what `parentage` does; one is enough for a whole file.

A check runs the real engine in this process and the agent as a real process under the real parent process, through the
verbs of `engine.facade`. What of the agent is scripted, and how often its model was asked, is the rig's to say
(`driver_rig.Rig`). A check raises AssertionError if driver or agent do otherwise than the daemon promises. Which checks
there are for a driver follows from its capabilities; the use of what it does not declare must be refused.

Each check ends with every session closed and no process left, and takes between a tenth of a second and a few seconds.
Two of them hold the agent, at a boundary and at a permission, for a moment; `STEPRAIL_KIT_HOLD_SECONDS` sets another
time. `docs/writing-a-driver.md` has the whole way to a driver.
"""

from __future__ import annotations

from pathlib import Path

from steprail_daemon.core.model import Capabilities
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.testing.driver_checks import asking, cutting, declaring, gating, leaving, saying, working
from steprail_daemon.testing.driver_checks.gating import HOLD_VARIABLE
from steprail_daemon.testing.driver_checks.registry import CHECKS, Check
from steprail_daemon.testing.driver_parent import Parentage, parentage
from steprail_daemon.testing.driver_rig import MakeRig, RequestLog, Rig, Work, as_json, from_json, text_after
from steprail_daemon.testing.driver_stage import Stage, stage

__all__ = [
    "CHECKS",
    "HOLD_VARIABLE",
    "Check",
    "MakeRig",
    "Parentage",
    "RequestLog",
    "Rig",
    "Stage",
    "Work",
    "as_json",
    "checks_for",
    "conform",
    "from_json",
    "parentage",
    "text_after",
    "unchecked",
]

#: Where the checks are; to import them is to have them in `CHECKS`.
THEMES = (working, gating, asking, cutting, leaving, saying, declaring)


def checks_for(driver: str, *, codec_too: bool = True) -> list[Check]:
    """Give the checks that concern a registered driver, by what it declares.

    Without `codec_too`, those are left out that show the same whatever the program is: enough for a second program.
    """
    capabilities = DRIVERS[driver].capabilities
    return [check for check in CHECKS if check.concerns(capabilities) and (codec_too or not check.codec_alone)]


async def conform(check: Check, make_rig: MakeRig, parents: Parentage, directory: Path) -> None:
    """Run one check in an empty directory.

    Raises:
        AssertionError: the agent with its driver does otherwise than the daemon promises.
        TimeoutError: something that the check waits for does not happen.
    """
    with make_rig(directory) as rig:
        async with stage(parents, rig, directory) as play:
            await check.run(play)


def unchecked() -> set[str]:
    """Give the fields of `Capabilities` of which no check shows that they are true, or that their lack is refused."""
    covered = {name for check in CHECKS for name in check.covers}
    return (set(Capabilities.__struct_fields__) - covered) | declaring.unaccounted()

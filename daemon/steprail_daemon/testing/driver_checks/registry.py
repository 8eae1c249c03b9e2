"""What a check is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from steprail_daemon.core.model import Capabilities, CostSupport, StepGate, UsageSupport
from steprail_daemon.testing.driver_stage import Stage

#: What of a capability that is no boolean counts as missing.
_MISSING: Final = (False, None, StepGate.BEST_EFFORT, StepGate.UNSUPPORTED, UsageSupport.UNSUPPORTED)


@dataclass(frozen=True)
class Check:
    """One thing that every driver must do. `needs` are the capabilities without which there is nothing to do.

    `covers` are the capabilities whose truth it shows. The name is a sentence. `codec_alone`: what happens comes from
    the kit's tap and not from the program, so that one program shows as much as another.
    """

    name: str
    run: Callable[[Stage], Awaitable[None]]
    needs: frozenset[str]
    covers: frozenset[str]
    codec_alone: bool = False

    def concerns(self, capabilities: Capabilities) -> bool:
        """Whether an agent that can do this much is checked."""
        return not any(is_missing(capabilities, name) for name in self.needs)


CHECKS: Final[list[Check]] = []


def check(
    *needs: str, covers: tuple[str, ...] = (), codec_alone: bool = False
) -> Callable[[Callable[[Stage], Awaitable[None]]], Check]:
    """Make a check of a function, whose name is the check's; what it needs, it covers."""

    def register(function: Callable[[Stage], Awaitable[None]]) -> Check:
        made = Check(function.__name__, function, frozenset(needs), frozenset((*needs, *covers)), codec_alone)
        CHECKS.append(made)
        return made

    return register


def is_missing(capabilities: Capabilities, name: str) -> bool:
    """Whether an agent does not have a capability, whatever its type."""
    value = getattr(capabilities, name)
    return value is CostSupport.UNSUPPORTED or any(value is missing for missing in _MISSING)

"""The drivers `autohand` and `scripted`: one protocol, two programs."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from steprail_daemon.core.model import SECOND, Capabilities, CostSupport, StepGate, UsageSupport
from steprail_daemon.drivers.autohand import launch
from steprail_daemon.drivers.autohand.codec import AutohandCodec
from steprail_daemon.drivers.autohand.permissions import HOLD_S
from steprail_daemon.drivers.base import (
    Codec,
    CodecSettings,
    LaunchPlan,
    LaunchSpec,
    ProbeResult,
    command_problem,
    version_range,
)

_CAPABILITIES: Final = Capabilities(
    step_gate=StepGate.EXACT,
    usage=UsageSupport.PER_RUN,
    cost=CostSupport.UNSUPPORTED,
    permissions=True,
    permission_alternatives=True,
    resume=True,
    plan_mode=True,
    # The source of 0.8.2 has no timer at a step, and 40 s were tried. A day stands for that it never gives up.
    max_decision_hold_ns=86_400 * SECOND,
    max_permission_hold_ns=HOLD_S * SECOND,
)
_SCRIPTED: Final = replace(_CAPABILITIES, usage=UsageSupport.PER_STEP, cost=CostSupport.REPORTED)


class AutohandDriver:
    """The Autohand CLI, version 0.8, or a program that speaks as it does, through JSON-RPC."""

    def __init__(self, name: str, capabilities: Capabilities) -> None:
        self._name = name
        self._capabilities = capabilities

    @property
    def name(self) -> str:
        """`autohand` or `scripted`."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """Exact steps, permissions, plans and resume; tokens for each run or, of the built-in agent, for each step."""
        return self._capabilities

    @property
    def options(self) -> frozenset[str]:
        """Instructions; which tools it has is the CLI's own affair, and those that only read ask for no leave."""
        return frozenset({"instructions"})

    @property
    def live_changes(self) -> frozenset[str]:
        """The modes; its switch of models says success and changes nothing."""
        return frozenset({"modes"})

    @property
    def versions(self) -> str:
        """The range that `launch` knows."""
        return version_range(launch.OLDEST, launch.BEYOND)

    def probe_argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Ask for the version."""
        return (*command, "--version")

    def read_probe(self, output: bytes, code: int | None) -> ProbeResult:
        """Read and judge the version."""
        return launch.read_version(output, code)

    def plan(self, spec: LaunchSpec) -> LaunchPlan:
        """Describe how to start it."""
        return launch.plan(spec)

    def codec(self, settings: CodecSettings) -> Codec:
        """Make the codec of one process."""
        return AutohandCodec(settings)

    def prompt_problem(self, text: str) -> str:
        """Refuse what the model would not get as a prompt."""
        return command_problem(text, self._name)


AUTOHAND: Final = AutohandDriver("autohand", _CAPABILITIES)
SCRIPTED: Final = AutohandDriver("scripted", _SCRIPTED)

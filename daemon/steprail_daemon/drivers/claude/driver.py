"""The driver `claude`."""

from __future__ import annotations

from typing import Final

from steprail_daemon.core.model import SECOND, Capabilities, CostSupport, StepGate, UsageSupport
from steprail_daemon.drivers.base import (
    Codec,
    CodecSettings,
    LaunchPlan,
    LaunchSpec,
    ProbeResult,
    command_problem,
    version_range,
)
from steprail_daemon.drivers.claude import launch
from steprail_daemon.drivers.claude.codec import ClaudeCodec

_CAPABILITIES: Final = Capabilities(
    step_gate=StepGate.EXACT,
    usage=UsageSupport.PER_STEP,
    cost=CostSupport.REPORTED,
    finish_reason=True,
    partial_text=True,
    permissions=True,
    permission_alternatives=True,
    questions=True,
    resume=True,
    steer=True,
    guidance=True,
    plan_mode=True,
    model_switch=True,
    stop_leaves_trace=True,
    abort_keeps_results=True,
    # The longest hold that was tried on 2.1.332; it is asked to wait for a day.
    max_decision_hold_ns=660 * SECOND,
    # Likewise: a permission and a question were held for as long, and it has no timeout of its own for them.
    max_permission_hold_ns=660 * SECOND,
)

_LIVE_CHANGES: Final = frozenset({"model", "modes"})


class ClaudeDriver:
    """Claude Code, version 2.1.332 or later, through stream-json and its control protocol."""

    @property
    def name(self) -> str:
        """`claude`."""
        return "claude"

    @property
    def capabilities(self) -> Capabilities:
        """Everything but images, forks, MCP servers by name, and going on without a prompt."""
        return _CAPABILITIES

    @property
    def options(self) -> frozenset[str]:
        """All three; see `launch.plan`."""
        return launch.OPTIONS

    @property
    def live_changes(self) -> frozenset[str]:
        """Both, by control requests."""
        return _LIVE_CHANGES

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
        return ClaudeCodec(settings)

    def prompt_problem(self, text: str) -> str:
        """Refuse what the model would not get as a prompt."""
        return command_problem(text, "Claude Code")

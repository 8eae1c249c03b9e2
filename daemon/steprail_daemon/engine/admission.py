"""What a request must hold before it becomes a session or a run: directories, prompts, rules, limits.

Every refusal names the field, what was wrong, and what is accepted.
"""

from __future__ import annotations

from pathlib import Path

from steprail_daemon.core.errors import Denied, Invalid, WrongState
from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    Decider,
    RunLimits,
    StepGate,
    StopRule,
)
from steprail_daemon.core.stops import already_met, problem
from steprail_daemon.drivers.base import Driver
from steprail_daemon.engine.facade import DeciderRequest, LimitsRequest
from steprail_daemon.engine.settings import EngineSettings

#: Kept between the longest wait that the agent provably holds and a decision's deadline.
DECISION_MARGIN_NS = 30 * SECOND


def admit_cwd(cwd: str, roots: tuple[str, ...]) -> str:
    """Give the directory with symlinks resolved.

    Raises:
        Invalid: CWD_INVALID.
        Denied: CWD_NOT_ALLOWED.
    """
    if "\0" in cwd or not Path(cwd).is_absolute():
        raise Invalid("CWD_INVALID", f"cwd must be an absolute path, not {cwd!r}", field="cwd")
    try:
        resolved = Path(cwd).resolve(strict=True)
    except OSError as error:
        raise Invalid("CWD_INVALID", f"cwd {cwd!r} cannot be used: {error.strerror}", field="cwd") from error
    if not resolved.is_dir():
        raise Invalid("CWD_INVALID", f"cwd {cwd!r} is no directory", field="cwd")
    real = str(resolved)
    if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots):
        raise Denied("CWD_NOT_ALLOWED", f"cwd {cwd!r} lies under none of server.workspace_roots: {', '.join(roots)}")
    return real


def admit_prompt(text: str, driver: Driver, settings: EngineSettings) -> str:
    """Give the prompt back.

    Raises:
        Invalid: PROMPT_INVALID, PROMPT_TOO_LARGE.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > settings.prompt_bytes:
        raise Invalid(
            "PROMPT_TOO_LARGE",
            f"the prompt has {size} bytes; at most {settings.prompt_bytes} are accepted",
            field="prompt",
            limit=str(settings.prompt_bytes),
            size=str(size),
        )
    wrong = driver.prompt_problem(text)
    if wrong:
        raise Invalid("PROMPT_INVALID", wrong, field="prompt")
    return text


def admit_rules(
    rules: tuple[StopRule, ...], capabilities: Capabilities, settings: EngineSettings, session_steps: int
) -> tuple[StopRule, ...]:
    """Give the rules back.

    Raises:
        Invalid: RULE_INVALID.
        WrongState: CAPABILITY_MISSING, RULE_ALREADY_MET.
    """
    if len(rules) > settings.max_rules:
        raise Invalid(
            "RULE_INVALID",
            f"{len(rules)} rules were given; at most {settings.max_rules} are accepted",
            field="stop_rules",
        )
    if rules and capabilities.step_gate is not StepGate.EXACT:
        raise _gate_missing("stop rules")
    for index, rule in enumerate(rules):
        wrong = problem(rule)
        if wrong:
            raise Invalid("RULE_INVALID", f"stop_rules[{index}]: {wrong}", field=f"stop_rules[{index}]")
    met = already_met(rules, session_steps)
    if met is not None:
        raise WrongState(
            "RULE_ALREADY_MET",
            f"rule {met.rule_id!r} is met before the run begins: {met.message}",
            rule_id=met.rule_id,
        )
    return rules


def admit_decider(
    request: DeciderRequest | None, capabilities: Capabilities, settings: EngineSettings
) -> Decider | None:
    """Give the decider with its time filled in.

    Raises:
        Invalid: FIELD_INVALID for a time longer than the agent provably waits.
        WrongState: CAPABILITY_MISSING.
    """
    if request is None:
        return None
    hold = capabilities.max_decision_hold_ns
    if capabilities.step_gate is not StepGate.EXACT or hold is None:
        raise _gate_missing("a client decider")
    longest = max(SECOND, hold - DECISION_MARGIN_NS)
    ceiling = min(settings.decision_timeout_ns, longest)
    if request.timeout_ns is None:
        return Decider(ceiling, request.on_timeout)
    if not 0 < request.timeout_ns <= ceiling:
        raise Invalid(
            "FIELD_INVALID",
            f"decider.timeout must be more than 0 and at most {ceiling / 1e9:g} s, not {request.timeout_ns / 1e9:g} s",
            field="decider.timeout",
        )
    return Decider(request.timeout_ns, request.on_timeout)


def admit_limits(request: LimitsRequest, settings: EngineSettings) -> RunLimits:
    """Give the limits with the configuration's filled in.

    Raises:
        Invalid: FIELD_INVALID.
    """
    max_steps = settings.max_steps if request.max_steps is None else request.max_steps
    if not 1 <= max_steps <= settings.max_steps:
        raise Invalid(
            "FIELD_INVALID",
            f"limits.max_steps must be between 1 and {settings.max_steps}, not {max_steps}",
            field="limits.max_steps",
        )
    hard = settings.hard_timeout_ns if request.hard_timeout_ns is None else request.hard_timeout_ns
    if not 0 < hard <= settings.hard_timeout_ns:
        raise Invalid(
            "FIELD_INVALID",
            f"limits.hard_timeout must be more than 0 and at most {settings.hard_timeout_ns / 1e9:g} s,"
            f" not {hard / 1e9:g} s",
            field="limits.hard_timeout",
        )
    return RunLimits(max_steps, hard, settings.stop_timeout_ns, settings.abort_timeout_ns, settings.prompt_timeout_ns)


def _gate_missing(what: str) -> WrongState:
    return WrongState(
        "CAPABILITY_MISSING",
        f"{what} needs an agent that can be held at a step boundary, and this one cannot be at present",
        capability="step_gate",
    )

"""What a request must hold before it becomes a session or a run: directories, prompts, rules, limits.

Every refusal names the field, what was wrong, and what is accepted.
"""

from __future__ import annotations

from pathlib import Path

from steprail_daemon.core.errors import Denied, Invalid, Unavailable, WrongState
from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    Decider,
    RunLimits,
    StepGate,
    StopRule,
)
from steprail_daemon.core.stops import already_met, expression_paths, expressions_of, problems, unserved
from steprail_daemon.core.stops.expressions import (
    Expression,
    ExpressionKind,
    ExpressionProblem,
    ExpressionsUnavailable,
    RuleEngine,
)
from steprail_daemon.core.views import SessionView
from steprail_daemon.drivers.base import Driver
from steprail_daemon.engine.facade import CreateSession, DeciderRequest, LimitsRequest
from steprail_daemon.engine.settings import EngineSettings

#: Kept between the longest wait that the agent provably holds and a deadline of ours.
HOLD_MARGIN_NS = 30 * SECOND


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


def admit_labels(asked: dict[str, str], pinned: dict[str, str]) -> dict[str, str]:
    """Give the labels that are asked for and those that are pinned to the caller.

    Raises:
        Invalid: FIELD_INVALID; a pinned one is asked for with another value.
    """
    for key, value in pinned.items():
        if asked.get(key, value) != value:
            field = f"labels[{key!r}]"
            message = (
                f"{field} is {asked[key]!r}; it is pinned to your identity: accepted is {value!r}, or leave it out"
            )
            raise Invalid("FIELD_INVALID", message, field=field)
    return {**asked, **pinned}


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


def has_expressions(rules: tuple[StopRule, ...]) -> bool:
    """Whether any of the rules, also within groups, is an expression."""
    return bool(expressions_of(rules))


async def check_expressions(rules: tuple[StopRule, ...], engine: RuleEngine) -> None:
    """See that every expression within rules can be evaluated.

    Raises:
        Invalid: RULE_INVALID, with the place in the expression.
        Unavailable: nothing can be checked now.
    """
    problems = await _problems([Expression(path, source) for path, source in expression_paths(rules)], engine)
    if problems:
        raise Invalid("RULE_INVALID", "; ".join([str(problem) for problem in problems[:8]]), field=problems[0].field)


async def permission_expression_problem(source: str, engine: RuleEngine) -> str:
    """Say what is wrong with the expression of a permission rule; empty if nothing is.

    Raises:
        Unavailable: nothing can be checked now.
    """
    problems = await _problems([Expression("cel", source, ExpressionKind.PERMISSION_RULE)], engine)
    return "; ".join([str(problem) for problem in problems])


async def _problems(expressions: list[Expression], engine: RuleEngine) -> list[ExpressionProblem]:
    try:
        return await engine.check(expressions)
    except ExpressionsUnavailable as error:
        raise Unavailable(
            "AGENT_STARTING", f"expressions cannot be checked now: {error}", retry_after_ns=SECOND
        ) from error


def admit_rules(
    rules: tuple[StopRule, ...], view: SessionView, settings: EngineSettings, *, inexact: bool
) -> tuple[StopRule, ...]:
    """Give the rules back. `inexact`: the caller takes a stop that is not exact.

    Raises:
        Invalid: RULE_INVALID.
        WrongState: CAPABILITY_MISSING, RULE_ALREADY_MET.
    """
    wrong = problems(rules, max_rules=settings.max_rules, max_depth=settings.max_rule_depth)
    if wrong:
        field, what = wrong[0]
        raise Invalid("RULE_INVALID", f"{field} {what}", field=field)
    capabilities = view.capabilities
    if rules and capabilities.step_gate is not StepGate.EXACT and not inexact:
        raise _gate_missing("stop rules", "; set allow_inexact_stop to take what it can do")
    for field, capability in unserved(rules, capabilities):
        raise WrongState(
            "CAPABILITY_MISSING",
            f"{field} looks at what this agent never tells ({capability}); set its on_unknown to IGNORE or STOP",
            capability=capability,
        )
    met = already_met(rules, view.steps_before, view.usage_before, view.cost_before)
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
    """Give the decider with its times filled in.

    Raises:
        Invalid: FIELD_INVALID for a time longer than the agent provably waits.
        WrongState: CAPABILITY_MISSING.
    """
    if request is None:
        return None
    hold = capabilities.max_decision_hold_ns
    if capabilities.step_gate is not StepGate.EXACT or hold is None:
        raise _gate_missing("a client decider")
    ceiling = min(settings.decision_timeout_ns, max(SECOND, hold - HOLD_MARGIN_NS))
    timeout = _within("decider.timeout", request.timeout_ns, ceiling)
    grace = settings.disconnect_grace_ns if request.disconnect_grace_ns is None else request.disconnect_grace_ns
    return Decider(timeout, request.on_timeout, request.on_disconnect, grace)


def admit_limits(request: LimitsRequest, capabilities: Capabilities, settings: EngineSettings) -> RunLimits:
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
    permission = _within("limits.permission_timeout", request.permission_timeout_ns, settings.permission_timeout_ns)
    hold = capabilities.max_permission_hold_ns
    if hold is not None:
        # The agent has a clock of its own; the default must come before it.
        permission = min(permission, max(SECOND, hold - HOLD_MARGIN_NS))
    return RunLimits(
        max_steps=max_steps,
        hard_timeout_ns=_within("limits.hard_timeout", request.hard_timeout_ns, settings.hard_timeout_ns),
        stop_timeout_ns=settings.stop_timeout_ns,
        abort_timeout_ns=settings.abort_timeout_ns,
        prompt_timeout_ns=settings.prompt_timeout_ns,
        permission_timeout_ns=permission,
        queue_timeout_ns=_within("limits.queue_timeout", request.queue_timeout_ns, settings.queue_timeout_ns),
    )


def _within(field: str, asked_ns: int | None, ceiling_ns: int) -> int:
    if asked_ns is None:
        return ceiling_ns
    if not 0 < asked_ns <= ceiling_ns:
        raise Invalid(
            "FIELD_INVALID",
            f"{field} must be more than 0 and at most {ceiling_ns / 1e9:g} s, not {asked_ns / 1e9:g} s",
            field=field,
        )
    return asked_ns


def admit_environment(asked: dict[str, str], settings: EngineSettings) -> dict[str, str]:
    """Give the variables back that a caller wants in the agent's environment.

    Raises:
        Denied: FORBIDDEN, one is not among those that the configuration lets callers set.
    """
    for name in asked:
        if name not in settings.caller_environment:
            names = ", ".join(settings.caller_environment) or "none"
            raise Denied("FORBIDDEN", f"environment {name!r} may not be set here; accepted are {names}")
    return dict(asked)


def admit_options(request: CreateSession, capabilities: Capabilities, driver: Driver) -> None:
    """See that the agent can do what a session is made with.

    Raises:
        WrongState: CAPABILITY_MISSING.
    """
    if request.resume and not capabilities.resume:
        raise WrongState("CAPABILITY_MISSING", "this agent takes up no earlier conversation", capability="resume")
    for option in ("allowed_tools", "disallowed_tools", "instructions"):
        if getattr(request, option) and option not in driver.options:
            raise WrongState("CAPABILITY_MISSING", f"this agent takes no {option}", capability=option)


def _gate_missing(what: str, advice: str = "") -> WrongState:
    return WrongState(
        "CAPABILITY_MISSING",
        f"{what} needs an agent that can be held at a step boundary, and this one cannot be at present{advice}",
        capability="step_gate",
    )

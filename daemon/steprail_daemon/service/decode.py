"""Requests of the public API as what the facade takes.

What cannot be translated is refused here, field by field. What a value means, and whether it is accepted, is judged
where it is used: rules by their kinds, prompts by the driver, numbers against the configuration by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from steprail.v1 import decisions_pb2, rules_pb2, runs_pb2, sessions_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import (
    DecisionAction,
    OnTimeout,
    OnUnknown,
    PermissionMode,
    RuleScope,
    StepCountRule,
    StopRule,
)
from steprail_daemon.core.stops import problem
from steprail_daemon.engine.facade import ContinueRun, CreateSession, DeciderRequest, LimitsRequest, StartRun
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import ID, NAME, REASON
from steprail_daemon.service.unsupported import refuse_unsupported

MAX_PROMPT_PARTS: Final = 256
_ACTIONS: Final = {int(action): action for action in DecisionAction}
#: A reason of so many characters is within its bound, whatever they are.
_SHORT_REASON: Final = REASON // 4


def create_session(request: sessions_pb2.CreateSessionRequest, identity: str) -> CreateSession:
    """Read a request for a session.

    Raises:
        Invalid: FIELD_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    refuse_unsupported(request)
    if not request.agent:
        raise checks.invalid("agent", "is required")
    if not request.cwd:
        raise Invalid("CWD_INVALID", "cwd is required: an absolute path", field="cwd")
    mode = request.permission_mode
    return CreateSession(
        agent=checks.text("agent", request.agent, NAME),
        cwd=checks.text("cwd", request.cwd, REASON),
        labels=checks.labels("labels", request.labels),
        permission_mode=checks.choice("permission_mode", mode, PermissionMode, None) if mode else None,
        model=checks.printable("model", request.model, NAME),
        identity=identity,
    )


def start_run(request: runs_pb2.StartRunRequest, identity: str) -> StartRun:
    """Read a request for a run.

    Raises:
        Invalid: FIELD_INVALID, PROMPT_INVALID, RULE_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    refuse_unsupported(request)
    return StartRun(
        session_id=checks.identifier("session_id", request.session_id),
        prompt=prompt(request.prompt),
        stop_rules=stop_rules("stop_rules", request.stop_rules),
        decider=decider(request.decider),
        limits=limits(request.limits),
        labels=checks.labels("labels", request.labels),
        request_id=checks.request_id(request.request_id),
        identity=identity,
    )


def continue_run(request: runs_pb2.ContinueRunRequest, identity: str) -> ContinueRun:
    """Read a request for a run that goes on after another. Absent parts are inherited.

    Raises:
        Invalid: FIELD_INVALID, PROMPT_INVALID, RULE_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    refuse_unsupported(request)
    rules = request.stop_rules.rules
    own_rules = request.HasField("stop_rules")
    return ContinueRun(
        run_id=checks.identifier("run_id", request.run_id),
        prompt=prompt(request.prompt) if request.HasField("prompt") else None,
        stop_rules=stop_rules("stop_rules.rules", rules) if own_rules else None,
        inherit_decider=not request.HasField("decider"),
        decider=decider(request.decider),
        limits=limits(request.limits) if request.HasField("limits") else None,
        labels=checks.labels("labels", request.labels),
        request_id=checks.request_id(request.request_id),
        identity=identity,
    )


def prompt(message: runs_pb2.Prompt) -> str:
    """Read a prompt: its texts, one after the other, each on a line of its own.

    Raises:
        Invalid: PROMPT_INVALID, FIELD_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    refuse_unsupported(message, "prompt")
    parts = message.parts
    if len(parts) > MAX_PROMPT_PARTS:
        problem = f"prompt.parts has {len(parts)} entries; at most {MAX_PROMPT_PARTS} are accepted"
        raise Invalid("PROMPT_INVALID", problem, field="prompt.parts")
    return "\n".join([_prompt_part(f"prompt.parts[{index}]", part) for index, part in enumerate(parts)])


def _prompt_part(path: str, part: runs_pb2.PromptPart) -> str:
    refuse_unsupported(part, path)
    if not part.HasField("text"):
        raise Invalid("PROMPT_INVALID", f"{path} is empty; accepted is text", field=path)
    if part.full_size or part.blob_id:
        raise checks.invalid(path, "has full_size or blob_id set, which only answers have")
    return part.text


def stop_rules(path: str, rules: Sequence[rules_pb2.StopRule]) -> tuple[StopRule, ...]:
    """Read a list of rules. Those without an id are numbered.

    Raises:
        Invalid: RULE_INVALID.
    """
    taken: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if rule.id and rule.id in taken:
            raise _rule_invalid(f"{path}[{index}].id", f"is {rule.id!r}, as that of {path}[{taken[rule.id]}]")
        taken.setdefault(rule.id, index)
    return tuple([_stop_rule(f"{path}[{index}]", rule, index, taken) for index, rule in enumerate(rules)])


def _stop_rule(path: str, message: rules_pb2.StopRule, index: int, taken: dict[str, int]) -> StopRule:
    accepted = ", ".join(CONDITIONS)
    kind = message.WhichOneof("kind")
    if kind is None:
        raise _rule_invalid(path, f"has no kind; accepted is {accepted}")
    if kind not in CONDITIONS:
        raise _rule_invalid(f"{path}.{kind}", f"cannot be evaluated by this version; accepted is {accepted}")
    try:
        on_unknown = checks.choice(f"{path}.on_unknown", message.on_unknown, OnUnknown, OnUnknown.REFUSE)
        condition = CONDITIONS[kind](f"{path}.{kind}", message)
    except Invalid as error:
        raise Invalid("RULE_INVALID", error.message, field=error.field) from None
    rule = StopRule(message.id or _numbered(index, taken), condition, message.reason, on_unknown)
    wrong = problem(rule)
    if wrong:
        # It begins with the field's place within the rule.
        field, _, what = wrong.partition(" ")
        raise _rule_invalid(f"{path}.{field}", what)
    return rule


def _step_count(path: str, message: rules_pb2.StopRule) -> StepCountRule:
    rule = message.step_count
    return StepCountRule(rule.at_least, checks.choice(f"{path}.scope", rule.scope, RuleScope, RuleScope.RUN))


#: How the parameters of each kind of rule that is evaluated are read, by the name of its field.
CONDITIONS: Final[Mapping[str, Callable[[str, rules_pb2.StopRule], StepCountRule]]] = {"step_count": _step_count}


def _numbered(index: int, taken: dict[str, int]) -> str:
    """Name a rule after its place; where a caller took that name for another rule, after a later one."""
    number = index + 1
    while taken.get(f"rule-{number}", index) != index:
        number += 1
    taken[f"rule-{number}"] = index
    return f"rule-{number}"


def _rule_invalid(field: str, problem: str) -> Invalid:
    return Invalid("RULE_INVALID", f"{field} {problem}", field=field)


def decider(message: decisions_pb2.Decider) -> DeciderRequest | None:
    """Read who is asked at boundaries; None if nobody is.

    Raises:
        Invalid: FIELD_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    refuse_unsupported(message, "decider")
    modes = decisions_pb2.DeciderMode
    if message.mode in (modes.DECIDER_MODE_UNSPECIFIED, modes.DECIDER_MODE_NO_DECIDER):
        if message.HasField("timeout") or message.on_timeout:
            raise checks.invalid("decider.mode", "must be DECIDER_MODE_CLIENT where timeout or on_timeout is set")
        return None
    if message.mode != modes.DECIDER_MODE_CLIENT:
        accepted = "DECIDER_MODE_NO_DECIDER, DECIDER_MODE_CLIENT"
        raise checks.invalid("decider.mode", f"is {message.mode}; accepted are {accepted}")
    timeout = checks.span("decider.timeout", message.timeout) if message.HasField("timeout") else None
    return DeciderRequest(timeout, checks.choice("decider.on_timeout", message.on_timeout, OnTimeout, OnTimeout.STOP))


def limits(message: rules_pb2.RunLimits) -> LimitsRequest:
    """Read ceilings.

    Raises:
        Invalid: FIELD_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    refuse_unsupported(message, "limits")
    return LimitsRequest(
        max_steps=message.max_steps if message.HasField("max_steps") else None,
        hard_timeout_ns=(
            checks.span("limits.hard_timeout", message.hard_timeout) if message.HasField("hard_timeout") else None
        ),
    )


def decision(request: runs_pb2.SubmitDecisionRequest) -> tuple[str, DecisionAction | None, str, str]:
    """Read a decision: step id, action (None with an error), reason, and the client's error.

    Raises:
        Invalid: FIELD_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    step_id, action, reason, error = request.step_id, request.action, request.reason, request.error
    known = _ACTIONS.get(action)
    if (
        known is not None
        and 0 < len(step_id) <= ID
        and step_id.isascii()
        and len(reason) <= _SHORT_REASON
        and not (error or request.guidance or request.model)
    ):
        # Nearly all are like this, and an agent waits: one look instead of a call for each field.
        return step_id, known, reason, ""
    refuse_unsupported(request)
    step_id = checks.identifier("step_id", step_id)
    reason = checks.reason(reason)
    if not error:
        return step_id, checks.choice("action", action, DecisionAction, None), reason, ""
    if action:
        raise checks.invalid("action", "must be left UNSPECIFIED where error is set")
    return step_id, None, reason, checks.text("error", error, REASON)

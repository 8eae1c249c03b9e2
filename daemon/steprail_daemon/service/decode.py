"""Requests of the public API as what the facade takes.

What cannot be translated is refused here, field by field. What a value means, and whether it is accepted, is judged
where it is used: rules by their kinds, prompts by the driver, numbers against the configuration by the engine.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from steprail.v1 import decisions_pb2, rules_pb2, runs_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import DecisionAction, OnDisconnect, OnTimeout, QueueMode
from steprail_daemon.engine.facade import NO_GUIDANCE, ContinueRun, DeciderRequest, Guidance, LimitsRequest, StartRun
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import ID, MAX_TEXT_BYTES, NAME, REASON
from steprail_daemon.service.rules import stop_rules
from steprail_daemon.service.unsupported import refuse_unsupported

MAX_PROMPT_PARTS: Final = 256
_ACTIONS: Final = {int(action): action for action in DecisionAction}
#: A reason of so many characters is within its bound, whatever they are.
_SHORT_REASON: Final = REASON // 4


def start_run(request: runs_pb2.StartRunRequest) -> StartRun:
    """Read a request for a run.

    Raises:
        Invalid: FIELD_INVALID, PROMPT_INVALID, RULE_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    return StartRun(
        session_id=checks.identifier("session_id", request.session_id),
        prompt=prompt(request.prompt),
        stop_rules=stop_rules("stop_rules", request.stop_rules),
        decider=decider(request.decider),
        limits=limits(request.limits),
        queue=checks.choice("queue", request.queue, QueueMode, QueueMode.REJECT),
        allow_inexact_stop=request.allow_inexact_stop,
        labels=checks.labels("labels", request.labels),
        request_id=checks.request_id(request.request_id),
    )


def continue_run(request: runs_pb2.ContinueRunRequest) -> ContinueRun:
    """Read a request for a run that goes on after another. Absent parts are inherited.

    Raises:
        Invalid: FIELD_INVALID, PROMPT_INVALID, RULE_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    rules = request.stop_rules.rules
    own_rules = request.HasField("stop_rules")
    return ContinueRun(
        run_id=checks.identifier("run_id", request.run_id),
        prompt=prompt(request.prompt) if request.HasField("prompt") else None,
        stop_rules=stop_rules("stop_rules.rules", rules) if own_rules else None,
        inherit_decider=not request.HasField("decider"),
        decider=decider(request.decider),
        limits=limits(request.limits) if request.HasField("limits") else None,
        queue=checks.choice("queue", request.queue, QueueMode, QueueMode.REJECT),
        allow_inexact_stop=request.allow_inexact_stop if request.HasField("allow_inexact_stop") else None,
        labels=checks.labels("labels", request.labels),
        request_id=checks.request_id(request.request_id),
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


def decider(message: decisions_pb2.Decider) -> DeciderRequest | None:
    """Read who is asked at boundaries; None if nobody is.

    Raises:
        Invalid: FIELD_INVALID.
    """
    modes = decisions_pb2.DeciderMode
    if message.mode in (modes.DECIDER_MODE_UNSPECIFIED, modes.DECIDER_MODE_NO_DECIDER):
        others = [field.name for field, _ in message.ListFields() if field.name != "mode"]
        if others:
            raise checks.invalid("decider.mode", f"must be DECIDER_MODE_CLIENT where {others[0]} is set")
        return None
    if message.mode != modes.DECIDER_MODE_CLIENT:
        accepted = "DECIDER_MODE_NO_DECIDER, DECIDER_MODE_CLIENT"
        raise checks.invalid("decider.mode", f"is {message.mode}; accepted are {accepted}")
    return DeciderRequest(
        _span("decider", message, "timeout"),
        checks.choice("decider.on_timeout", message.on_timeout, OnTimeout, OnTimeout.STOP),
        checks.choice("decider.on_disconnect", message.on_disconnect, OnDisconnect, OnDisconnect.WAIT),
        _span("decider", message, "disconnect_grace"),
    )


def limits(message: rules_pb2.RunLimits) -> LimitsRequest:
    """Read ceilings.

    Raises:
        Invalid: FIELD_INVALID.
    """
    return LimitsRequest(
        max_steps=message.max_steps if message.HasField("max_steps") else None,
        hard_timeout_ns=_span("limits", message, "hard_timeout"),
        permission_timeout_ns=_span("limits", message, "permission_timeout"),
        queue_timeout_ns=_span("limits", message, "queue_timeout"),
    )


def _span(path: str, message: decisions_pb2.Decider | rules_pb2.RunLimits, field: str) -> int | None:
    """Give a span in nanoseconds; None if it is not set."""
    if not message.HasField(field):  # type: ignore[arg-type]
        return None
    return checks.span(f"{path}.{field}", getattr(message, field))


class Choice(NamedTuple):
    """A decision as it is asked for: `action` None with the client's `error`."""

    step_id: str
    action: DecisionAction | None
    reason: str = ""
    error: str = ""
    guidance: Guidance = NO_GUIDANCE


def decision(request: runs_pb2.SubmitDecisionRequest) -> Choice:
    """Read a decision.

    Raises:
        Invalid: FIELD_INVALID.
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
        return Choice(step_id, known, reason)
    step_id = checks.identifier("step_id", step_id)
    reason = checks.reason(reason)
    chosen = None if error else checks.choice("action", action, DecisionAction, None)
    if error and action:
        raise checks.invalid("action", "must be left UNSPECIFIED where error is set")
    return Choice(step_id, chosen, reason, checks.text("error", error, REASON), _guidance(request, chosen))


def _guidance(request: runs_pb2.SubmitDecisionRequest, action: DecisionAction | None) -> Guidance:
    """Read what goes to the agent with a decision."""
    guidance = Guidance(
        checks.text("guidance", request.guidance, MAX_TEXT_BYTES), checks.printable("model", request.model, NAME)
    )
    if guidance != NO_GUIDANCE and action is not DecisionAction.CONTINUE:
        field = "guidance" if guidance.text else "model"
        raise checks.invalid(field, "is only accepted with DECISION_ACTION_CONTINUE")
    return guidance

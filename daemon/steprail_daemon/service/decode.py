"""Requests of the public API as what the facade takes.

What cannot be translated is refused here, field by field. What a value means, and whether it is accepted, is judged
where it is used: rules by their kinds, prompts by the driver, numbers against the configuration by the engine.
"""

from __future__ import annotations

from typing import Final

from steprail.v1 import decisions_pb2, rules_pb2, runs_pb2, sessions_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import (
    DecisionAction,
    OnTimeout,
    PermissionMode,
)
from steprail_daemon.engine.facade import ContinueRun, CreateSession, DeciderRequest, LimitsRequest, StartRun
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import NAME, REASON
from steprail_daemon.service.rules import stop_rules
from steprail_daemon.service.unsupported import refuse_unsupported

MAX_PROMPT_PARTS: Final = 256


def create_session(request: sessions_pb2.CreateSessionRequest) -> CreateSession:
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
    )


def start_run(request: runs_pb2.StartRunRequest) -> StartRun:
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
    )


def continue_run(request: runs_pb2.ContinueRunRequest) -> ContinueRun:
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
    refuse_unsupported(request)
    step_id = checks.identifier("step_id", request.step_id)
    reason = checks.reason(request.reason)
    action, error = request.action, request.error
    if not error:
        return step_id, checks.choice("action", action, DecisionAction, None), reason, ""
    if action:
        raise checks.invalid("action", "must be left UNSPECIFIED where error is set")
    return step_id, None, reason, checks.text("error", error, REASON)

"""How sessions, runs, agents and limits stand, as public resources."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from steprail.v1 import agents_pb2, decisions_pb2, events_pb2, rules_pb2, runs_pb2, sessions_pb2, steps_pb2
from steprail_daemon.core.model import Decider, Decision, RunLimits, RunSpec, SessionState
from steprail_daemon.core.replay import spans_at
from steprail_daemon.core.stops.expressions import MAX_SOURCE_BYTES
from steprail_daemon.core.usage import further_cost, further_usage
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.facade import AgentView, LimitsView, StoredStep
from steprail_daemon.service import values, waiting
from steprail_daemon.service.bounds import (
    MAX_STEP_BYTES,
    MAX_TEXT_BYTES,
    NAME,
    REASON,
    beginning,
    fitted,
    mended,
)
from steprail_daemon.service.capabilities import capabilities_message
from steprail_daemon.service.checks import MAX_LABELS
from steprail_daemon.service.contents import blob_id
from steprail_daemon.service.fields import duration, optional_timestamp, short, timestamp
from steprail_daemon.service.pages import MAX_PAGE
from steprail_daemon.service.request_ids import RETENTION_NS
from steprail_daemon.service.rules import stop_rule

MAX_MESSAGE_BYTES: Final = 1024 * 1024
VERSION: Final = version("steprail-daemon")


def session(view: SessionView, live: RunView | None = None) -> sessions_pb2.Session:
    """Give a `Session`. `live` is the run whose turn it is."""
    message = sessions_pb2.Session(
        session_id=view.session_id,
        agent=view.agent,
        tenant=view.tenant,
        owner=view.owner,
        cwd=view.cwd,
        state=events_pb2.SessionState.ValueType(view.state),
        broken_reason=short(view.state_reason, REASON) if view.state is SessionState.BROKEN else "",
        labels=view.labels,
        agent_session_id=short(view.agent_session_id, NAME),
        capabilities=capabilities_message(view.capabilities),
        permission_mode=sessions_pb2.PermissionMode.ValueType(view.permission_mode),
        plan_mode=view.plan_mode,
        model=short(view.model, NAME),
        active_run_id=view.active_run_id,
        queued_run_ids=view.queued_run_ids,
        queue_held=view.queue_held,
        epoch=view.epoch,
        last_seq=view.last_seq,
        create_time=timestamp(view.created_at),
        last_active_time=timestamp(view.last_active_at),
    )
    # What a run uses counts from the moment on at which the agent has its prompt.
    spends = live is not None and view.prompt_given
    usage = further_usage(view.usage_before, live.usage) if live is not None and spends else view.usage_before
    cost = further_cost(view.cost_before, live.cost) if live is not None and spends else view.cost_before
    if usage is not None:
        message.usage.MergeFromString(values.usage(usage))
    if cost is not None:
        message.cost.MergeFromString(values.cost(cost))
    return message


def run(view: RunView, now: int) -> runs_pb2.Run:
    """Give a `Run` as it is at `now`."""
    text = mended(view.text).encode()
    spans = spans_at(view, now)
    message = runs_pb2.Run(
        run_id=view.run_id,
        session_id=view.session_id,
        spec=_spec(view.spec),
        prompt_synthesized=view.spec.prompt_synthesized,
        state=events_pb2.RunState.ValueType(view.state),
        step_count=view.step_count,
        text=beginning(text, MAX_TEXT_BYTES).decode(),
        text_truncated=len(text) > MAX_TEXT_BYTES,
        final_verdicts=[rules_pb2.Verdict.FromString(values.verdict(fitted(item))) for item in view.final_verdicts],
        request_id=view.spec.request_id,
        continued_from=view.spec.continued_from,
        create_time=timestamp(view.created_at),
        start_time=optional_timestamp(view.started_at),
        end_time=optional_timestamp(view.ended_at),
        queued=duration(spans.queued_ns),
        active=duration(spans.active_ns),
        awaiting_decision=duration(spans.awaiting_decision_ns),
        awaiting_permission=duration(spans.awaiting_permission_ns),
    )
    _set_outcome(message, view, now)
    if view.asks:
        permissions, questions = waiting.of_run(view, now)
        message.pending_permissions.extend(permissions)
        message.pending_questions.extend(questions)
    return message


def _set_outcome(message: runs_pb2.Run, view: RunView, now: int) -> None:
    """Set what a run has only in some states."""
    if view.stop_requested is not None:
        message.stop_requested.MergeFromString(values.stop_request(fitted(view.stop_requested)))
    if view.stop_reason is not None:
        message.stop_reason.MergeFromString(values.stop_reason(fitted(view.stop_reason)))
    if view.failure is not None:
        message.failure.MergeFromString(values.failure(fitted(view.failure)))
    if view.pending_decision is not None:
        message.pending_decision.CopyFrom(waiting.decision(view.pending_decision, now))
    if view.usage is not None:
        message.usage.MergeFromString(values.usage(view.usage))
    if view.subagent_usage is not None:
        message.usage.subagents.MergeFromString(values.usage(view.subagent_usage))
    if view.side_usage is not None:
        message.usage.side_requests.MergeFromString(values.usage(view.side_usage))
    if view.cost is not None:
        message.cost.MergeFromString(values.cost(view.cost))


def _spec(spec: RunSpec) -> runs_pb2.RunSpec:
    prompt = mended(spec.prompt).encode()
    part = runs_pb2.PromptPart(text=beginning(prompt, MAX_TEXT_BYTES).decode(), full_size=len(prompt))
    if len(prompt) > MAX_TEXT_BYTES:
        part.blob_id = blob_id(prompt)
    return runs_pb2.RunSpec(
        prompt=runs_pb2.Prompt(parts=[part]),
        stop_rules=[stop_rule(rule) for rule in spec.stop_rules],
        decider=_decider(spec.decider),
        limits=_limits(spec.limits),
        labels=spec.labels,
        queue=runs_pb2.QueueMode.ValueType(spec.queue),
        allow_inexact_stop=spec.allow_inexact_stop,
    )


def _decider(decider: Decider | None) -> decisions_pb2.Decider:
    if decider is None:
        return decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_NO_DECIDER)
    return decisions_pb2.Decider(
        mode=decisions_pb2.DECIDER_MODE_CLIENT,
        timeout=duration(decider.timeout_ns),
        on_timeout=decisions_pb2.OnTimeout.ValueType(decider.on_timeout),
        on_disconnect=decisions_pb2.OnDisconnect.ValueType(decider.on_disconnect),
        disconnect_grace=duration(decider.disconnect_grace_ns),
    )


def _limits(limits: RunLimits) -> rules_pb2.RunLimits:
    return rules_pb2.RunLimits(
        max_steps=limits.max_steps,
        hard_timeout=duration(limits.hard_timeout_ns),
        permission_timeout=duration(limits.permission_timeout_ns),
        queue_timeout=duration(limits.queue_timeout_ns),
    )


def step(stored: StoredStep) -> steps_pb2.Step:
    """Give a completed step with its decision, if there is one."""
    message = events_pb2.Event.FromString(stored.event).step_end.step
    if stored.decision is not None:
        message.decision.CopyFrom(decision(stored.decision))
    return message


def decision(value: Decision) -> decisions_pb2.Decision:
    """Give a `Decision`."""
    return decisions_pb2.Decision.FromString(values.decision(fitted(value)))


def agent(view: AgentView) -> agents_pb2.Agent:
    """Give an `Agent`."""
    return agents_pb2.Agent(
        name=view.name,
        driver=view.driver,
        version=short(view.version, NAME),
        available=not view.unavailable_reason,
        unavailable_reason=short(view.unavailable_reason, REASON),
        capabilities=capabilities_message(view.capabilities),
    )


def server_limits(limits: LimitsView) -> agents_pb2.ServerLimits:
    """Give the bounds in force."""
    return agents_pb2.ServerLimits(
        max_message_bytes=MAX_MESSAGE_BYTES,
        max_text_bytes=MAX_TEXT_BYTES,
        max_step_bytes=MAX_STEP_BYTES,
        max_prompt_bytes=limits.max_prompt_bytes,
        max_sessions=limits.max_sessions,
        max_processes=limits.max_processes,
        max_queued_runs=limits.max_queued_runs,
        max_steps=limits.max_steps,
        max_rules=limits.max_rules,
        max_rule_depth=limits.max_rule_depth,
        max_cel_bytes=MAX_SOURCE_BYTES,
        max_page_size=MAX_PAGE,
        max_labels=MAX_LABELS,
        hard_timeout=duration(limits.hard_timeout_ns),
        decision_timeout=duration(limits.decision_timeout_ns),
        permission_timeout=duration(limits.permission_timeout_ns),
        queue_timeout=duration(limits.queue_timeout_ns),
        disconnect_grace=duration(limits.disconnect_grace_ns),
        stop_timeout=duration(limits.stop_timeout_ns),
        abort_timeout=duration(limits.abort_timeout_ns),
        silence_timeout=duration(limits.silence_ns),
        heartbeat_interval=duration(limits.heartbeat_ns),
        stalled_reader_timeout=duration(limits.stalled_reader_ns),
        request_id_retention=duration(RETENTION_NS),
    )

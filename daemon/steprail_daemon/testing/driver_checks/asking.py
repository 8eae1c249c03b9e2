"""Checks of what an agent asks: leave to use a tool, and questions to a person."""

from __future__ import annotations

from typing import Any

from steprail.v1 import decisions_pb2, steps_pb2
from steprail_daemon.core.model import (
    MILLISECOND,
    SECOND,
    Permission,
    PermissionAction,
    PermissionAlternative,
    PermissionAnswer,
    PermissionMode,
    PermissionRule,
    Question,
    QuestionItemAnswer,
    RunState,
)
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import LOCAL, LimitsRequest, SessionChange
from steprail_daemon.testing.driver_checks.gating import QUIET_S, hold_seconds
from steprail_daemon.testing.driver_checks.registry import check
from steprail_daemon.testing.driver_rig import WAIT, Work
from steprail_daemon.testing.driver_stage import Stage, steps_rule

ASK = PermissionMode.ASK
COMPLETED, AWAITING = RunState.COMPLETED, RunState.AWAITING_PERMISSION
ALLOW, DENY = PermissionAnswer.ALLOW_ONCE, PermissionAnswer.DENY
_SUCCEEDED, _DENIED = steps_pb2.TOOL_OUTCOME_SUCCEEDED, steps_pb2.TOOL_OUTCOME_DENIED


def answer(
    stage: Stage, run: RunView, given: PermissionAnswer, alternative: PermissionAlternative | None = None
) -> None:
    """Answer the permission that waits."""
    (permission,) = run.pending_permissions
    stage.facade.answer_permission(
        LOCAL, run.run_id, permission.permission_id, given, alternative=alternative, reason="so I say"
    )


async def _asked(stage: Stage, work: Work, **fields: Any) -> tuple[str, RunView]:
    """Start a run in the mode ASK and wait until it asks; gives session and run."""
    session_id = await stage.session(permission_mode=ASK)
    return session_id, await stage.asked(await stage.start(session_id, work, **fields), AWAITING)


async def _one_outcome(stage: Stage, run_id: str) -> steps_pb2.ToolResult:
    run = await stage.ended(run_id)
    assert run.state is COMPLETED, run
    (step,) = stage.steps(run_id)
    (result,) = step.tool_results
    return result


@check("permissions")
async def a_call_that_is_allowed_runs(stage: Stage) -> None:
    _, run = await _asked(stage, Work(asks=True, output="allowed"))
    (permission,) = run.pending_permissions
    assert permission.tool
    assert stage.rig.asking_command in permission.arguments_json
    await stage.quiet(QUIET_S)
    assert stage.rig.changes() in (None, 0)
    answer(stage, run, ALLOW)
    result = await _one_outcome(stage, run.run_id)
    assert result.outcome == _SUCCEEDED
    assert "allowed" in result.output.value
    assert stage.rig.changes() in (None, 1)
    events = await stage.events(run.run_id)
    (resolved,) = [event.permission_resolved for event in events if event.HasField("permission_resolved")]
    assert resolved.source == decisions_pb2.RESOLUTION_SOURCE_CLIENT


@check("permissions")
async def a_call_that_is_denied_does_not_run_and_the_model_is_told(stage: Stage) -> None:
    _, run = await _asked(stage, Work(asks=True))
    answer(stage, run, DENY)
    result = await _one_outcome(stage, run.run_id)
    assert result.outcome == _DENIED
    assert stage.rig.changes() in (None, 0)
    assert (stage.rig.requests(), stage.rig.carried()) == (2, 1)


@check("permissions")
async def each_call_is_asked_about_and_a_denial_is_of_that_call_alone(stage: Stage) -> None:
    _, run = await _asked(stage, Work(asks=True, calls=2))
    given: dict[str, PermissionAnswer] = {}
    while run.pending_permissions:
        for permission in run.pending_permissions:
            said = DENY if given else ALLOW
            given[permission.call_id] = said
            stage.facade.answer_permission(
                LOCAL, run.run_id, permission.permission_id, said, alternative=None, reason=""
            )
        run = await stage.facade.wait_run(LOCAL, run.run_id, attention=True, timeout_ns=round(WAIT * SECOND))
    assert run.state is COMPLETED, run
    (step,) = stage.steps(run.run_id)
    outcomes = {result.call_id: result.outcome for result in step.tool_results}
    assert outcomes == {call_id: _SUCCEEDED if said is ALLOW else _DENIED for call_id, said in given.items()}


@check("permissions")
async def a_permission_that_nobody_answers_is_denied_at_its_deadline(stage: Stage) -> None:
    limits = LimitsRequest(permission_timeout_ns=300 * MILLISECOND)
    _, run = await _asked(stage, Work(asks=True), limits=limits)
    result = await _one_outcome(stage, run.run_id)
    assert result.outcome == _DENIED
    events = await stage.events(run.run_id)
    (resolved,) = [event.permission_resolved for event in events if event.HasField("permission_resolved")]
    assert resolved.source == decisions_pb2.RESOLUTION_SOURCE_TIMEOUT


@check("permissions", covers=("max_permission_hold_ns",))
async def an_open_permission_is_waited_for(stage: Stage) -> None:
    _, run = await _asked(stage, Work(asks=True))
    await stage.quiet(hold_seconds(stage.capabilities.max_permission_hold_ns))
    longest = stage.capabilities.max_permission_hold_ns
    (permission,) = run.pending_permissions
    assert longest is None or permission.deadline_at - permission.asked_at < longest
    answer(stage, run, ALLOW)
    assert (await _one_outcome(stage, run.run_id)).outcome == _SUCCEEDED


@check("permission_alternatives")
async def another_command_runs_in_place_of_the_one_that_was_asked_for(stage: Stage) -> None:
    _, run = await _asked(stage, Work(asks=True))
    answer(stage, run, ALLOW, PermissionAlternative(command="printf instead"))
    result = await _one_outcome(stage, run.run_id)
    assert result.outcome == _SUCCEEDED
    assert "instead" in result.output.value
    assert stage.rig.changes() in (None, 0)


@check("permissions", "step_gate")
async def a_rule_of_the_session_denies_without_asking_anybody(stage: Stage) -> None:
    rule = PermissionRule(action=PermissionAction.DENY, command_prefix=stage.rig.asking_command)
    session_id = await stage.session(permission_mode=ASK, permission_rules=(rule,))
    run = await stage.run(session_id, Work(asks=True, steps=3), stop_rules=(steps_rule(1),))
    assert run.state is RunState.STOPPED, run
    (step,) = stage.steps(run.run_id)
    assert step.tool_results[0].outcome == _DENIED
    assert stage.rig.changes() in (None, 0)


@check("permissions")
async def an_abort_withdraws_the_open_permission_and_the_tool_never_runs(stage: Stage) -> None:
    session_id, run = await _asked(stage, Work(asks=True))
    stage.facade.abort_run(LOCAL, run.run_id, reason="no more")
    run = await stage.ended(run.run_id)
    assert run.state is RunState.ABORTED, run
    assert not run.pending_permissions
    events = await stage.events(run.run_id)
    (resolved,) = [event.permission_resolved for event in events if event.HasField("permission_resolved")]
    assert resolved.source == decisions_pb2.RESOLUTION_SOURCE_ABORT
    assert stage.rig.changes() in (None, 0)
    assert stage.rig.requests() == 1
    stage.facade.update_session(LOCAL, session_id, SessionChange(permission_mode=PermissionMode.BYPASS))
    await stage.usable(session_id)


def _pending_question(stage: Stage, session_id: str) -> Question:
    (pending,) = stage.facade.pending(LOCAL, session_id)
    assert not isinstance(pending.item, Permission)
    assert isinstance(pending.item, Question)
    return pending.item


@check("questions")
async def a_question_gets_the_answer_that_was_chosen(stage: Stage) -> None:
    session_id, run = await _asked(stage, Work(question=True))
    question = _pending_question(stage, session_id)
    (item,) = question.items
    chosen = item.options[-1]
    answers = (QuestionItemAnswer(item.item_id, (chosen.option_id,)),)
    stage.facade.answer_question(LOCAL, run.run_id, question.question_id, answers)
    result = await _one_outcome(stage, run.run_id)
    assert result.outcome == _SUCCEEDED
    assert (stage.rig.requests(), stage.rig.carried()) == (2, 1)
    assert chosen.label in result.output.value


@check("questions")
async def a_question_that_nobody_answers_is_declined_and_the_run_goes_on(stage: Stage) -> None:
    session_id, run = await _asked(stage, Work(question=True))
    stage.facade.answer_question(LOCAL, run.run_id, _pending_question(stage, session_id).question_id, None)
    ended = await stage.ended(run.run_id)
    assert ended.state in (COMPLETED, RunState.STOPPED), ended
    await stage.usable(session_id)


@check("questions")
async def an_abort_withdraws_the_open_question(stage: Stage) -> None:
    session_id, run = await _asked(stage, Work(question=True))
    stage.facade.abort_run(LOCAL, run.run_id, reason="no more")
    assert (await stage.ended(run.run_id)).state is RunState.ABORTED
    assert stage.rig.requests() == 1
    await stage.usable(session_id)


@check("plan_mode")
async def a_plan_is_told_and_one_that_is_not_accepted_changes_nothing(stage: Stage) -> None:
    session_id = await stage.session(permission_mode=ASK)
    stage.facade.update_session(LOCAL, session_id, SessionChange(plan_mode=True))
    run_id = await stage.start(session_id, Work(plan="First the otter, then the heron."))
    plan = (await stage.until(run_id, "plan_proposed")).plan_proposed
    assert plan.text == "First the otter, then the heron."
    run = await stage.facade.wait_run(LOCAL, run_id, attention=True, timeout_ns=round(WAIT * SECOND))
    if not run.ended:
        answer(stage, run, DENY)
    assert (await stage.ended(run_id)).state in (COMPLETED, RunState.STOPPED)
    assert stage.rig.changes() in (None, 0)
    change = SessionChange(plan_mode=False, permission_mode=PermissionMode.BYPASS)
    stage.facade.update_session(LOCAL, session_id, change)
    run = await stage.run(session_id, Work(asks=True))
    assert run.state is COMPLETED, run
    assert stage.rig.changes() in (None, 1)

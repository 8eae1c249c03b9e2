"""Checks that a driver declares no more than there is, and that the daemon refuses what an agent cannot do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from steprail_daemon.core.errors import WrongState
from steprail_daemon.core.model import (
    Capabilities,
    CostRule,
    FinishReason,
    FinishReasonRule,
    PermissionAlternative,
    PermissionMode,
    RunState,
    StopRule,
)
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.engine.facade import LOCAL, DeciderRequest, Guidance, SessionChange
from steprail_daemon.testing.driver_checks.asking import ALLOW, AWAITING, answer
from steprail_daemon.testing.driver_checks.gating import AWAITING_DECISION, CONTINUE, decide
from steprail_daemon.testing.driver_checks.registry import check, is_missing
from steprail_daemon.testing.driver_rig import AGENT, Work
from steprail_daemon.testing.driver_stage import Stage, refusal, steps_rule

#: Capabilities for which the engine has no verb yet: nothing could use them, so that none may be declared.
WITHOUT_A_VERB: Final = frozenset({"images", "fork", "mcp_servers", "loop_strategy", "max_iterations"})

#: Capabilities whose absence leaves nothing to refuse: the agent then just never does it.
_NOTHING_TO_REFUSE: Final = frozenset(
    {
        "usage",
        "partial_text",
        "permissions",
        "questions",
        "continue_without_prompt",
        "stop_leaves_trace",
        "abort_keeps_results",
        "max_permission_hold_ns",
    }
)


@check(covers=tuple(sorted(WITHOUT_A_VERB)))
async def nothing_is_declared_that_no_verb_reaches(stage: Stage) -> None:
    declared = {name for name in WITHOUT_A_VERB if getattr(stage.capabilities, name)}
    assert declared == set(), "declared, and the engine has no verb for it; a verb needs a check here first"


@check()
async def the_agent_is_available_in_the_version_that_it_tells(stage: Stage) -> None:
    (agent,) = await stage.facade.agents()
    assert (agent.name, agent.driver, agent.unavailable_reason) == (AGENT, stage.rig.driver, "")
    assert agent.version
    assert agent.capabilities == stage.capabilities
    session_id = await stage.session()
    assert stage.get_session(session_id).capabilities == stage.capabilities
    run = await stage.run(session_id, Work())
    told = [event.agent_start for event in await stage.events(run.run_id) if event.HasField("agent_start")]
    assert [one.version for one in told] == [agent.version]


@check()
async def what_holds_a_decision_is_declared_with_an_exact_gate_only(stage: Stage) -> None:
    can = stage.capabilities
    if is_missing(can, "step_gate"):
        assert can.max_decision_hold_ns is None
    if not can.permissions:
        assert not can.permission_alternatives
        assert can.max_permission_hold_ns is None


@check()
async def what_the_agent_cannot_do_is_refused_and_nothing_else_happens(stage: Stage) -> None:
    for name in sorted(missing_of(stage.capabilities)):
        error = await refusal(REFUSED[name](stage))
        assert error.reason == "CAPABILITY_MISSING", (name, error)
        assert error.metadata["capability"], (name, error)
    for session in stage.facade.list_sessions(LOCAL):
        if session.active_run_id:
            stage.facade.abort_run(LOCAL, session.active_run_id, reason="over")
            await stage.ended(session.active_run_id)


@check()
async def options_that_the_driver_does_not_take_are_refused(stage: Stage) -> None:
    taken = DRIVERS[stage.rig.driver].options
    options: dict[str, object] = {
        "allowed_tools": ("Read",),
        "disallowed_tools": ("Nothing",),
        "instructions": "Be brief.",
    }
    assert taken <= options.keys()
    for name, value in options.items():
        if name in taken:
            session_id = await stage.session(**{name: value})
            assert (await stage.run(session_id, Work(steps=0))).state is RunState.COMPLETED
            await stage.facade.close_session(LOCAL, session_id, force=False)
            continue
        error = await refusal(stage.new_session(**{name: value}))
        assert (error.reason, error.metadata["capability"]) == ("CAPABILITY_MISSING", name)


@check()
async def prompts_that_would_not_reach_the_model_are_refused(stage: Stage) -> None:
    driver = DRIVERS[stage.rig.driver]
    assert driver.prompt_problem("Please look around.") == ""
    for text in ("", "  \n\t ", "\ufeff"):
        assert driver.prompt_problem(text), f"{text!r} is no prompt"


def missing_of(capabilities: Capabilities) -> set[str]:
    """Give the capabilities that an agent lacks and whose use must be refused."""
    return {name for name in REFUSED if is_missing(capabilities, name)}


async def _rule(stage: Stage, rule: StopRule) -> None:
    await stage.start(await stage.session(), Work(), stop_rules=(rule,))


async def _decider(stage: Stage) -> None:
    await stage.start(await stage.session(), Work(), decider=DeciderRequest())


async def _guided(stage: Stage, guidance: Guidance) -> None:
    run_id = await stage.start(await stage.session(), Work(), decider=DeciderRequest())
    run = await stage.asked(run_id, AWAITING_DECISION)
    try:
        decide(stage, run, CONTINUE, guidance)
    finally:
        assert stage.get(run_id).state is AWAITING_DECISION, "a refused decision leaves it pending"


async def _another_command(stage: Stage) -> None:
    if not stage.capabilities.permissions:
        raise WrongState("CAPABILITY_MISSING", "it asks nobody", capability="permissions")
    session_id = await stage.session(permission_mode=PermissionMode.ASK)
    run = await stage.asked(await stage.start(session_id, Work(asks=True)), AWAITING)
    answer(stage, run, ALLOW, PermissionAlternative(command="true"))


async def _steer(stage: Stage) -> None:
    run_id = await stage.start(await stage.session(), Work(slow_model=True))
    await stage.until(run_id, "turn_start")
    stage.facade.steer_run(LOCAL, run_id, "Look here.")


async def _plan(stage: Stage) -> None:
    stage.facade.update_session(LOCAL, await stage.session(), SessionChange(plan_mode=True))


async def _resume(stage: Stage) -> None:
    await stage.new_session(resume="6f5f6f0e-5b55-4f6e-8f57-0d2f4c8f2b10")


#: What must be refused, by the capability without which it cannot be done.
REFUSED: Final[dict[str, Callable[[Stage], Awaitable[None]]]] = {
    "step_gate": lambda stage: _rule(stage, steps_rule(1)),
    "max_decision_hold_ns": _decider,
    "cost": lambda stage: _rule(stage, StopRule("cost", CostRule(1))),
    "finish_reason": lambda stage: _rule(stage, StopRule("finish", FinishReasonRule((FinishReason.STOP,)))),
    "permission_alternatives": _another_command,
    "resume": _resume,
    "steer": _steer,
    "guidance": lambda stage: _guided(stage, Guidance("Mind the gap.")),
    "model_switch": lambda stage: _guided(stage, Guidance(model="another")),
    "plan_mode": _plan,
}


def unaccounted() -> set[str]:
    """Give the capabilities of which this module says neither how their absence shows, nor that it does not."""
    return set(Capabilities.__struct_fields__) - REFUSED.keys() - _NOTHING_TO_REFUSE - WITHOUT_A_VERB

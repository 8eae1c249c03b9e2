"""Permissions and questions: what policy settles, what people are asked, and who hears of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import FakeProcess, Stage, engine_stage

from steprail_daemon.core.errors import Denied, WrongState
from steprail_daemon.core.model import (
    SECOND,
    Permission,
    PermissionAction,
    PermissionAlternative,
    PermissionAnswer,
    PermissionMode,
    PermissionRule,
    ResolutionSource,
    RunState,
)
from steprail_daemon.core.stops.expression_view import PermissionView
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult
from steprail_daemon.engine.facade import LOCAL, Caller, CreateSession, LimitsRequest, PendingView, Role, SessionChange

pytestmark = pytest.mark.anyio
ALLOW, DENY = PermissionAction.ALLOW, PermissionAction.DENY


async def asking(
    stage: Stage, rules: tuple[PermissionRule, ...] = (), **fields: object
) -> tuple[str, str, FakeProcess]:
    """Have a run in a session of mode ASK."""
    request = CreateSession(
        agent="claude", cwd=str(stage.directory), permission_mode=PermissionMode.ASK, permission_rules=rules
    )
    view = await stage.engine.create_session(LOCAL, request)
    process = await stage.launcher.next_process()
    process.handshake()
    run = await stage.start(view.session_id, "go", **fields)
    process.take_prompt()
    return view.session_id, run.run_id, process


def behaviour(process: FakeProcess, request_id: str) -> object:
    answer = process.answers()[request_id]
    assert isinstance(answer, dict)
    return answer["behavior"]


def only_pending(stage: Stage) -> PendingView:
    (found,) = stage.engine.pending(LOCAL, "")
    return found


async def test_what_policy_does_not_settle_waits_for_somebody_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await asking(stage)
        process.ask_permission("Bash", {"command": "make"}, "ask-1")
        view = stage.engine.get_run(LOCAL, run_id)
        states = [view.state]
        assert "ask-1" not in process.answers()
        permission = only_pending(stage).item
        assert isinstance(permission, Permission)
        assert permission == view.pending_permissions[0]

        resolved = stage.engine.answer_permission(
            LOCAL, run_id, permission.permission_id, PermissionAnswer.ALLOW_SESSION, alternative=None, reason="fine"
        )
        assert (resolved.source, resolved.identity) == (ResolutionSource.CLIENT, LOCAL.name)
        assert behaviour(process, "ask-1") == "allow"
        states.append(view.state)
        # The same call needs nobody's leave any more, another one does.
        process.ask_permission("Bash", {"command": "make"}, "ask-2")
        assert behaviour(process, "ask-2") == "allow"
        process.ask_permission("Bash", {"command": "make clean"}, "ask-3")
        states.append(view.state)
        assert states == [RunState.AWAITING_PERMISSION, RunState.RUNNING, RunState.AWAITING_PERMISSION]
        with pytest.raises(WrongState, match="PERMISSION_NOT_PENDING"):
            stage.engine.answer_permission(
                LOCAL, run_id, permission.permission_id, PermissionAnswer.DENY, alternative=None, reason=""
            )
        bodies = [event.WhichOneof("body") for event in stage.events(session_id)]
        assert bodies.count("permission_requested") == 2
        assert bodies.count("permission_resolved") == 2


async def test_what_is_given_in_place_of_a_call_is_ruled_on_like_a_call(tmp_path: Path) -> None:
    rules = (PermissionRule(action=DENY, command_prefix="rm"),)
    async with engine_stage(tmp_path, permission_rules=rules) as stage:
        _, run_id, process = await asking(stage)
        process.ask_permission("Bash", {"command": "make"}, "ask-1")
        permission = only_pending(stage).item
        assert isinstance(permission, Permission)

        def answer(alternative: PermissionAlternative) -> None:
            stage.engine.answer_permission(
                LOCAL,
                run_id,
                permission.permission_id,
                PermissionAnswer.ALLOW_ONCE,
                alternative=alternative,
                reason="",
            )

        for denied in (
            PermissionAlternative(command="rm -r ."),
            PermissionAlternative(arguments_json='{"command":"sudo rm -r ."}'),
        ):
            with pytest.raises(Denied, match="FORBIDDEN: alternative is denied"):
                answer(denied)
        assert "ask-1" not in process.answers()
        answer(PermissionAlternative(command="make -n"))
        assert behaviour(process, "ask-1") == "allow"


async def test_nobody_answers_and_it_is_denied_in_time(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        limits = LimitsRequest(permission_timeout_ns=SECOND // 50)
        _, run_id, process = await asking(stage, limits=limits)
        process.ask_permission("Bash", {"command": "make"}, "ask-1")
        await stage.until(lambda: "ask-1" in process.answers())
        assert behaviour(process, "ask-1") == "deny"
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.RUNNING
        assert stage.engine.pending(LOCAL, "") == []


async def test_an_abort_denies_what_is_open(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await asking(stage)
        process.ask_permission("Bash", {"command": "make"}, "ask-1")
        stage.engine.abort_run(LOCAL, run_id, reason="")
        assert behaviour(process, "ask-1") == "deny"
        (resolved,) = [event for event in stage.events(session_id) if event.HasField("permission_resolved")]
        assert resolved.permission_resolved.source == int(ResolutionSource.ABORT)


async def test_an_answer_after_the_end_of_the_run_is_refused_and_says_what_it_was_for(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await asking(stage)
        process.end_turn("completed")
        with pytest.raises(WrongState, match="PERMISSION_NOT_PENDING") as late:
            stage.engine.answer_permission(LOCAL, run_id, "perm-1", PermissionAnswer.DENY, alternative=None, reason="")
        assert late.value.metadata == {"run_id": run_id, "permission_id": "perm-1"}
        with pytest.raises(WrongState, match="QUESTION_NOT_PENDING") as later:
            stage.engine.answer_question(LOCAL, run_id, "question-1", None)
        assert later.value.metadata == {"run_id": run_id, "question_id": "question-1"}


async def test_rules_of_the_operator_come_before_those_of_the_caller(tmp_path: Path) -> None:
    operator = (PermissionRule(action=DENY, command_prefix="rm"), PermissionRule(action=ALLOW, tool="Bash"))
    async with engine_stage(tmp_path, permission_rules=operator) as stage:
        _, _, process = await asking(stage, (PermissionRule(action=DENY, command_prefix="curl"),))
        for request_id, command in (("a", "ls"), ("b", "rm x"), ("c", "ls && rm x"), ("d", "curl x")):
            process.ask_permission("Bash", {"command": command}, request_id)
        assert [behaviour(process, one) for one in "abcd"] == ["allow", "deny", "deny", "deny"]


async def test_paths_are_judged_with_symlinks_resolved(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "out").symlink_to("/")
    rules = (PermissionRule(action=ALLOW, path="**"),)
    async with engine_stage(tmp_path, permission_rules=rules) as stage:
        request = CreateSession(agent="claude", cwd=str(work), permission_mode=PermissionMode.ASK)
        view = await stage.engine.create_session(LOCAL, request)
        process = await stage.launcher.next_process()
        process.handshake()
        run = await stage.start(view.session_id)
        process.take_prompt()
        process.ask_permission("Write", {"file_path": "new/file"}, "inside")
        process.ask_permission("Write", {"file_path": "out/etc/passwd"}, "outside")
        assert behaviour(process, "inside") == "allow"
        assert "outside" not in process.answers()
        assert run.state is RunState.AWAITING_PERMISSION


async def test_a_path_from_home_is_from_the_home_that_the_agent_has(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    rules = (PermissionRule(action=DENY, path=f"{home}/**"),)
    async with engine_stage(tmp_path, permission_rules=rules) as stage:
        session_id, run_id, process = await asking(stage)
        stage.runner(session_id).host.environment = {"HOME": str(home)}
        process.ask_permission("Write", {"file_path": "~/.profile"}, "within")
        process.ask_permission("Write", {"file_path": "~root/.profile"}, "another's")
        assert behaviour(process, "within") == "deny"
        assert "another's" not in process.answers()
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.AWAITING_PERMISSION


async def test_an_expression_is_asked_and_a_permission_withdrawn_meanwhile_is_forgotten(tmp_path: Path) -> None:
    rules = (PermissionRule(action=ALLOW, cel="command.startsWith('ls')"),)
    async with engine_stage(tmp_path, permission_rules=rules) as stage:
        _, run_id, process = await asking(stage)
        source = rules[0].cel
        stage.rules.results[source] = ExpressionResult(ExpressionOutcome.MATCHED)
        process.ask_permission("Bash", {"command": "ls"}, "ask-1")
        await stage.until(lambda: "ask-1" in process.answers())
        assert behaviour(process, "ask-1") == "allow"
        seen = stage.rules.seen[0].view
        assert isinstance(seen, PermissionView)
        assert seen.command == "ls"

        gate = stage.rules.waits[source] = asyncio.Event()
        process.ask_permission("Bash", {"command": "ls"}, "ask-2")
        process.say({"type": "control_cancel_request", "request_id": "ask-2"})
        gate.set()
        process.ask_permission("Bash", {"command": "ls"}, "ask-3")
        await stage.until(lambda: "ask-3" in process.answers())
        assert "ask-2" not in process.answers()
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.RUNNING


async def test_a_role_chooses_among_its_modes(tmp_path: Path) -> None:
    modes = {Role.OPERATOR: frozenset({PermissionMode.ASK}), Role.ADMIN: frozenset(PermissionMode)}
    operator = Caller("ops", role=Role.OPERATOR)
    async with engine_stage(tmp_path, permission_modes=modes) as stage:
        request = CreateSession(agent="claude", cwd=str(stage.directory), permission_mode=PermissionMode.BYPASS)
        with pytest.raises(Denied, match="FORBIDDEN"):
            await stage.engine.create_session(operator, request)
        view = await stage.engine.create_session(LOCAL, request)
        with pytest.raises(Denied, match="FORBIDDEN"):
            stage.engine.update_session(
                operator,
                view.session_id,
                SessionChange(permission_mode=PermissionMode.BYPASS),
            )

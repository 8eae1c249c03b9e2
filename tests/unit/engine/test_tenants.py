"""What belongs to another tenant does not exist, in every verb."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, WatchedStore, engine_stage

from steprail_daemon.core.errors import Invalid, StepRailError
from steprail_daemon.core.model import DecisionAction, PermissionAnswer
from steprail_daemon.engine.facade import (
    LOCAL,
    Caller,
    ContinueRun,
    CreateSession,
    Cursor,
    DeciderRequest,
    EventFilter,
    Role,
    SessionChange,
    StartRun,
)
from steprail_daemon.service.resources import run as run_message

pytestmark = pytest.mark.anyio

OURS = Caller("payments", "acme", Role.OPERATOR, {"team": "payments"})
COLLEAGUE = Caller("looker", "acme", Role.VIEWER)
THEIRS = Caller("payments", "other", Role.OPERATOR)
ADMIN = Caller("root", "third", Role.ADMIN)


async def session_of(stage: Stage, caller: Caller, **labels: str) -> str:
    request = CreateSession(agent="claude", cwd=str(stage.directory), labels=labels)
    view = await stage.engine.create_session(caller, request)
    (await stage.launcher.next_process()).handshake()
    return view.session_id


async def _blob(stage: Stage, caller: Caller, blob_id: str) -> bytes:
    return b"".join([data async for data, *_ in stage.engine.read_blob(caller, blob_id, 0)])


Verb = Callable[[Stage, Caller, str, str], object]
VERBS: dict[str, Verb] = {
    "get_session": lambda stage, caller, session_id, _: stage.engine.get_session(caller, session_id),
    "close_session": lambda stage, caller, session_id, _: stage.engine.close_session(caller, session_id, force=True),
    "watch_session": lambda stage, caller, session_id, _: stage.engine.watch_session(caller, session_id, 0, ""),
    "update_session": lambda stage, caller, session_id, _: stage.engine.update_session(
        caller, session_id, SessionChange(model="m")
    ),
    "release_queue": lambda stage, caller, session_id, _: stage.engine.release_queue(caller, session_id),
    "delete_session": lambda stage, caller, session_id, _: stage.engine.delete_session(caller, session_id),
    "pending": lambda stage, caller, session_id, _: stage.engine.pending(caller, session_id),
    "register_decider": lambda stage, caller, _, run_id: stage.engine.register_decider(caller, run_id),
    "answer_permission": lambda stage, caller, _, run_id: stage.engine.answer_permission(
        caller, run_id, "p", PermissionAnswer.DENY, alternative=None, reason=""
    ),
    "answer_question": lambda stage, caller, _, run_id: stage.engine.answer_question(caller, run_id, "q", None),
    "steer_run": lambda stage, caller, _, run_id: stage.engine.steer_run(caller, run_id, "x"),
    "watch_events": lambda stage, caller, session_id, _: stage.engine.watch_events(
        caller, [Cursor(session_id, 0, "")], EventFilter()
    ),
    "start_run": lambda stage, caller, session_id, _: stage.engine.start_run(
        caller, StartRun(session_id=session_id, prompt="go")
    ),
    "list_runs": lambda stage, caller, session_id, _: stage.engine.list_runs(caller, session_id),
    "continue_run": lambda stage, caller, _, run_id: stage.engine.continue_run(caller, ContinueRun(run_id=run_id)),
    "stop_run": lambda stage, caller, _, run_id: stage.engine.stop_run(caller, run_id, reason=""),
    "abort_run": lambda stage, caller, _, run_id: stage.engine.abort_run(caller, run_id, reason=""),
    "submit_decision": lambda stage, caller, _, run_id: stage.engine.submit_decision(
        caller, run_id, "step", DecisionAction.STOP, reason="", error=""
    ),
    "get_run": lambda stage, caller, _, run_id: stage.engine.get_run(caller, run_id),
    "steps": lambda stage, caller, _, run_id: stage.engine.steps(caller, run_id, 0, 1),
    "wait_run": lambda stage, caller, _, run_id: stage.engine.wait_run(caller, run_id, attention=False, timeout_ns=0),
    "watch_run": lambda stage, caller, _, run_id: stage.engine.watch_run(caller, run_id, 0, ""),
}


async def _finished(given: Callable[[], object]) -> None:
    result = given()
    if isawaitable(result):
        await result


async def told(given: Callable[[], object], *ids: str) -> tuple[type[StepRailError], str, str]:
    with pytest.raises(StepRailError) as caught:
        await _finished(given)
    message = caught.value.message
    for own in ids:
        message = message.replace(own, "ID")
    return type(caught.value), caught.value.reason, message


@pytest.mark.parametrize("verb", list(VERBS))
async def test_what_another_tenant_has_is_refused_exactly_like_what_is_missing(tmp_path: Path, verb: str) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id = await session_of(stage, OURS)
        run_id = (await stage.engine.start_run(OURS, StartRun(session_id=session_id, prompt="go"))).run_id

        theirs = await told(lambda: VERBS[verb](stage, THEIRS, session_id, run_id), session_id, run_id)

        assert theirs == await told(lambda: VERBS[verb](stage, THEIRS, "ses_x", "run_x"), "ses_x", "run_x")
        assert theirs[1] in {"SESSION_NOT_FOUND", "RUN_NOT_FOUND"}
        assert stage.engine.get_session(OURS, session_id).active_run_id == run_id
        assert stage.engine.get_run(OURS, run_id).stop_requested is None


async def test_lists_have_what_the_caller_sees(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        ours, theirs = await session_of(stage, OURS), await session_of(stage, THEIRS)
        runs = {
            caller.tenant: (await stage.engine.start_run(caller, StartRun(session_id=session_id, prompt="go"))).run_id
            for caller, session_id in ((OURS, ours), (THEIRS, theirs))
        }

        for caller, sessions, tenants in (
            (COLLEAGUE, [ours], ["acme"]),
            (THEIRS, [theirs], ["other"]),
            (ADMIN, [theirs, ours], ["other", "acme"]),
            (LOCAL, [theirs, ours], ["other", "acme"]),
        ):
            assert [view.session_id for view in stage.engine.list_sessions(caller)] == sessions
            assert [view.run_id for view in stage.engine.list_runs(caller, "")] == [runs[tenant] for tenant in tenants]


async def test_who_made_a_session_is_its_owner_and_gives_it_its_tenant_also_after_a_restart(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as before:
        session_id = await session_of(before, OURS)
        view = before.engine.get_session(OURS, session_id)
        assert (view.owner, view.tenant) == ("payments", "acme")

    async with engine_stage(tmp_path, store) as after:
        after.recover()
        view = after.engine.get_session(OURS, session_id)
        assert (view.owner, view.tenant, view.labels) == ("payments", "acme", {"team": "payments"})
        assert (await told(lambda: after.engine.get_session(THEIRS, session_id)))[1] == "SESSION_NOT_FOUND"


async def test_who_stops_and_decides_is_told(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id = await session_of(stage, OURS)
        run_id = (await stage.engine.start_run(OURS, StartRun(session_id=session_id, prompt="go"))).run_id

        asked = stage.engine.stop_run(ADMIN, run_id, reason="enough").stop_requested

        assert asked is not None
        assert (asked.identity, asked.reason) == ("root", "enough")


async def test_a_content_is_read_by_the_tenants_that_have_it(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        content, missing = "x" * 100_000, f"sha256-{'0' * 64}"
        ours, theirs = await session_of(stage, OURS), await session_of(stage, THEIRS)
        run = await stage.engine.start_run(OURS, StartRun(session_id=ours, prompt=content))
        blob_id = run_message(run, stage.engine.now()).spec.prompt.parts[0].blob_id

        refused = await told(lambda: _blob(stage, THEIRS, blob_id), blob_id)
        assert refused == await told(lambda: _blob(stage, THEIRS, missing), missing)
        assert refused[1] == "BLOB_NOT_FOUND"
        for caller in (OURS, COLLEAGUE, ADMIN, LOCAL):
            assert await _blob(stage, caller, blob_id) == content.encode()

        await stage.engine.start_run(THEIRS, StartRun(session_id=theirs, prompt=content))
        assert await _blob(stage, THEIRS, blob_id) == content.encode()


async def test_pinned_labels_are_on_sessions_and_runs(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id = await session_of(stage, OURS, own="x", team="payments")
        assert stage.engine.get_session(OURS, session_id).labels == {"own": "x", "team": "payments"}

        run = await stage.engine.start_run(OURS, StartRun(session_id=session_id, prompt="go", labels={"more": "y"}))

        assert run.spec.labels == {"own": "x", "team": "payments", "more": "y"}


async def test_the_labels_pinned_to_who_starts_a_run_win_over_those_of_the_session(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id = await session_of(stage, OURS)
        sales = Caller("sales", "acme", Role.OPERATOR, {"team": "sales"})

        run = await stage.engine.start_run(sales, StartRun(session_id=session_id, prompt="go"))

        assert run.spec.labels == {"team": "sales"}


async def test_a_pinned_label_with_another_value_is_refused_by_its_name(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id = await session_of(stage, OURS)
        attempts: list[Callable[[], object]] = [
            lambda: session_of(stage, OURS, team="sales"),
            lambda: stage.engine.start_run(
                OURS, StartRun(session_id=session_id, prompt="go", labels={"team": "sales"})
            ),
        ]
        for attempt in attempts:
            with pytest.raises(Invalid) as caught:
                await _finished(attempt)
            assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", "labels['team']")
            assert caught.value.message == (
                "labels['team'] is 'sales'; it is pinned to your identity: accepted is 'payments', or leave it out"
            )
        assert stage.engine.list_runs(OURS, session_id) == []


async def test_a_decision_of_another_tenant_does_not_decide(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        pending = stage.engine.get_run(LOCAL, run_id).pending_decision
        assert pending is not None

        refused = await told(
            lambda: stage.engine.submit_decision(
                THEIRS, run_id, pending.step_id, DecisionAction.STOP, reason="", error=""
            )
        )

        assert refused[1] == "RUN_NOT_FOUND"
        assert stage.engine.get_run(LOCAL, run_id).pending_decision == pending

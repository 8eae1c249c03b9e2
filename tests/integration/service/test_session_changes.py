"""Sessions are made with all that can be asked for, changed, let go on, and removed."""

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.integration.service.conftest import Rig
from tests.integration.service.stubs import Stubs, refused

from steprail.client import Client
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, sessions_pb2
from steprail_daemon.core.model import PermissionAction, PermissionRule, RunState, Usage
from steprail_daemon.engine.facade import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
QUEUE = runs_pb2.QUEUE_MODE_QUEUE
PROMPT = runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text="go")])


async def update(
    stubs: Stubs, session: sessions_pb2.Session, *paths: str, request_id: str = ""
) -> sessions_pb2.Session:
    request = sessions_pb2.UpdateSessionRequest(
        session=session, update_mask=FieldMask(paths=paths), request_id=request_id
    )
    return (await stubs.sessions.UpdateSession(request, timeout=10)).session


async def test_what_a_session_is_asked_for_with_reaches_the_engine(rig: Rig, stubs: Stubs) -> None:
    request = sessions_pb2.CreateSessionRequest(
        agent="claude",
        cwd="/work",
        permission_rules=[
            decisions_pb2.PermissionRule(command_prefix="git push", action=decisions_pb2.PERMISSION_ACTION_DENY)
        ],
        allowed_tools=["Bash"],
        disallowed_tools=["WebFetch"],
        instructions="Be brief.",
        environment={"LANG": "C"},
        resume="conversation",
    )

    made = (await stubs.sessions.CreateSession(request, timeout=10)).session

    asked = rig.facade.asked_for[made.session_id]
    assert asked.permission_rules == (PermissionRule(action=PermissionAction.DENY, command_prefix="git push"),)
    assert (asked.allowed_tools, asked.disallowed_tools) == (("Bash",), ("WebFetch",))
    assert (asked.instructions, asked.environment, asked.resume) == ("Be brief.", {"LANG": "C"}, "conversation")
    assert made.agent_session_id == "conversation"


async def test_what_no_agent_can_be_given_yet_is_refused_by_name(stubs: Stubs) -> None:
    request = sessions_pb2.CreateSessionRequest(agent="claude", cwd="/work", mcp_servers=["db"])

    error = await refused(stubs.sessions.CreateSession(request, timeout=10))

    assert (error.reason, error.metadata["capability"]) == ("CAPABILITY_MISSING", "mcp_servers")


async def test_a_session_is_changed_in_what_the_mask_names(stubs: Stubs, session_id: str) -> None:
    wanted = sessions_pb2.Session(
        session_id=session_id,
        permission_mode=sessions_pb2.PERMISSION_MODE_ACCEPT_EDITS,
        plan_mode=True,
        model="m",
        labels={"team": "a"},
    )

    first = await update(stubs, wanted, "permission_mode", "labels")
    second = await update(stubs, wanted, "plan_mode", "model")

    assert (first.permission_mode, dict(first.labels)) == (sessions_pb2.PERMISSION_MODE_ACCEPT_EDITS, {"team": "a"})
    assert (first.plan_mode, first.model) == (False, "")
    assert (second.plan_mode, second.model, dict(second.labels)) == (True, "m", {"team": "a"})


async def test_a_change_that_names_nothing_or_something_else_is_refused(stubs: Stubs, session_id: str) -> None:
    wanted = sessions_pb2.Session(session_id=session_id, cwd="/other")

    for paths in ((), ("cwd",), ("model", "owner")):
        error = await refused(update(stubs, wanted, *paths))
        assert (error.reason, list(error.fields)) == ("FIELD_INVALID", ["update_mask"])
        assert "permission_mode, plan_mode, model, labels" in error.message


async def test_a_change_is_done_once_for_one_request_id(rig: Rig, stubs: Stubs, session_id: str) -> None:
    wanted = sessions_pb2.Session(session_id=session_id, model="m")
    await update(stubs, wanted, "model", request_id="one")
    rig.facade.get_session(LOCAL, session_id).model = "changed since"

    again = await update(stubs, wanted, "model", request_id="one")
    error = await refused(update(stubs, wanted, "labels", request_id="one"))

    assert again.model == "changed since"
    assert error.reason == "REQUEST_ID_REUSED"


async def test_why_a_session_is_closed_is_told(rig: Rig, stubs: Stubs, session_id: str) -> None:
    request = sessions_pb2.CloseSessionRequest(session_id=session_id, reason="done with it")
    await stubs.sessions.CloseSession(request, timeout=10)
    assert rig.facade.get_session(LOCAL, session_id).state_reason == "done with it"


async def test_a_closed_session_is_deleted_and_gone(stubs: Stubs, client: Client, session_id: str) -> None:
    request = sessions_pb2.DeleteSessionRequest(session_id=session_id, request_id="one")
    busy = await refused(stubs.sessions.DeleteSession(request, timeout=10))
    await client.close_session(session_id)

    await stubs.sessions.DeleteSession(request, timeout=10)
    await stubs.sessions.DeleteSession(request, timeout=10)

    gone = await refused(stubs.sessions.DeleteSession(sessions_pb2.DeleteSessionRequest(session_id=session_id)))
    assert (busy.reason, gone.reason) == ("SESSION_BUSY", "SESSION_NOT_FOUND")
    assert await client.list_sessions() == []


async def test_a_queue_that_is_held_goes_on_when_it_is_released(rig: Rig, stubs: Stubs, session_id: str) -> None:
    request = runs_pb2.StartRunRequest(session_id=session_id, prompt=PROMPT, queue=QUEUE)
    first, second, third = [(await stubs.runs.StartRun(request, timeout=10)).run for _ in range(3)]
    rig.facade.end_run(first.run_id, RunState.STOPPED)
    held = (await stubs.sessions.GetSession(sessions_pb2.GetSessionRequest(session_id=session_id))).session

    release = sessions_pb2.ReleaseQueueRequest(session_id=session_id, request_id="one")
    released = (await stubs.sessions.ReleaseQueue(release, timeout=10)).session
    again = (await stubs.sessions.ReleaseQueue(release, timeout=10)).session

    assert [run.state for run in (first, second)] == [events_pb2.RUN_STATE_RUNNING, events_pb2.RUN_STATE_QUEUED]
    assert second.spec.queue == QUEUE
    assert (held.queue_held, held.active_run_id) == (True, "")
    assert list(held.queued_run_ids) == [second.run_id, third.run_id]
    assert (released.queue_held, released.active_run_id) == (False, second.run_id)
    assert list(released.queued_run_ids) == [third.run_id]
    assert again == released


async def test_a_session_shows_what_it_used_with_the_live_run(rig: Rig, client: Client, session_id: str) -> None:
    fresh = await client.get_session(session_id)
    run_id = (await client.start_run(session_id, "go")).run_id
    rig.facade.get_session(LOCAL, session_id).prompt_given = True
    unknown = await client.get_session(session_id)
    rig.facade.get_run(LOCAL, run_id).usage = Usage(5, 0, 0, 2, 0)

    (listed,) = await client.list_sessions()

    assert (fresh.usage.total_tokens, fresh.usage.complete) == (0, True)
    assert not unknown.HasField("usage")
    assert listed.usage.total_tokens == 7
    assert listed == await client.get_session(session_id)

"""What each tenant sees of the others, which is nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.integration.service.callers import Site, refusal, token_of

from steprail import errors
from steprail.client import Client
from steprail.client._channel import answer
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, sessions_pb2, sessions_pb2_grpc
from steprail_daemon.core.events import ToolEnded
from steprail_daemon.core.model import ToolOutcome, ToolResult
from steprail_daemon.service.handlers import snake_case
from steprail_daemon.service.runs import RunService
from steprail_daemon.service.sessions import SessionService

pytestmark = pytest.mark.anyio


CONTINUE = decisions_pb2.DECISION_ACTION_CONTINUE
DENY = decisions_pb2.PERMISSION_ANSWER_DENY


class Possessions:
    """What a tenant has: a session, a run with a step that waits, and a content too large to be shown whole."""

    def __init__(self, session_id: str, run_id: str, step_id: str, blob_id: str) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.step_id = step_id
        self.blob_id = blob_id

    def change(self) -> sessions_pb2.UpdateSessionRequest:
        """Give a request that changes the session."""
        return sessions_pb2.UpdateSessionRequest(
            session=sessions_pb2.Session(session_id=self.session_id, model="m"), update_mask=FieldMask(paths=["model"])
        )

    def missing(self) -> "Possessions":
        """Give ids of the same form that nothing has."""
        session_id, run_id, step_id = (
            one[:-1] + ("x" if one[-1] != "x" else "y") for one in (self.session_id, self.run_id, self.step_id)
        )
        return Possessions(session_id, run_id, step_id, f"sha256-{'0' * 64}")


async def possessions(site: Site, client: Client) -> Possessions:
    session = await client.create_session("claude", "/work")
    run = await client.start_run(
        session.session_id, "go", decider=decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT)
    )
    whole = "x" * 100_000
    site.rig.facade.emit(run.run_id, ToolEnded(ToolResult("call", ToolOutcome.SUCCEEDED, whole), None))
    step = site.rig.facade.complete_step(run.run_id)
    blob_ids = [
        event.tool_end.result.output.blob_id
        async for event in _until_step(client, run.run_id)
        if event.HasField("tool_end")
    ]
    return Possessions(session.session_id, run.run_id, step.step_id, blob_ids[0])


async def _until_step(client: Client, run_id: str) -> AsyncIterator[events_pb2.Event]:
    async for event in client.watch_run(run_id):
        yield event
        if event.HasField("step_end"):
            return


async def _attach(client: Client, run_id: str) -> None:
    async with client.control(attach=run_id):
        pass


async def _first(stream: AsyncIterator[events_pb2.Event]) -> object:
    return await anext(stream)


VERBS: dict[str, Callable[[Client, Possessions], Awaitable[object]]] = {
    "GetSession": lambda client, of: client.get_session(of.session_id),
    "CloseSession": lambda client, of: client.close_session(of.session_id, force=True),
    "WatchSession": lambda client, of: _first(client.watch_session(of.session_id)),
    "StartRun": lambda client, of: client.start_run(of.session_id, "go"),
    "ListRuns": lambda client, of: client.list_runs(of.session_id),
    "ContinueRun": lambda client, of: client.continue_run(of.run_id),
    "ControlRun": lambda client, of: _attach(client, of.run_id),
    "WatchRun": lambda client, of: _first(client.watch_run(of.run_id)),
    "WaitRun": lambda client, of: client.wait_run(of.run_id, timeout=0),
    "GetRun": lambda client, of: client.get_run(of.run_id),
    "ListSteps": lambda client, of: client.list_steps(of.run_id),
    "GetStep": lambda client, of: client.get_step(of.run_id, 1),
    "StopRun": lambda client, of: client.stop_run(of.run_id),
    "AbortRun": lambda client, of: client.abort_run(of.run_id),
    "SubmitDecision": lambda client, of: client.submit_decision(of.run_id, of.step_id, CONTINUE),
    "UpdateSession": lambda client, of: answer(
        client._stubs.sessions.UpdateSession(of.change(), timeout=10), client.address
    ),
    "ListPending": lambda client, of: answer(
        client._stubs.runs.ListPending(runs_pb2.ListPendingRequest(session_id=of.session_id), timeout=10),
        client.address,
    ),
    "AnswerPermission": lambda client, of: answer(
        client._stubs.runs.AnswerPermission(
            runs_pb2.AnswerPermissionRequest(run_id=of.run_id, permission_id="p", answer=DENY), timeout=10
        ),
        client.address,
    ),
    "AnswerQuestion": lambda client, of: answer(
        client._stubs.runs.AnswerQuestion(
            runs_pb2.AnswerQuestionRequest(run_id=of.run_id, question_id="q", decline=True), timeout=10
        ),
        client.address,
    ),
    "SteerRun": lambda client, of: answer(
        client._stubs.runs.SteerRun(runs_pb2.SteerRunRequest(run_id=of.run_id, text="t"), timeout=10), client.address
    ),
    "ReadBlob": lambda client, of: client.read_blob(of.blob_id),
}


async def told(call: Awaitable[object], of: Possessions) -> tuple[str, str, str]:
    """Give how a call is refused, with the ids taken out of the message."""
    with pytest.raises(errors.Refused) as caught:
        await call
    message = caught.value.message
    for own in (of.session_id, of.run_id, of.blob_id):
        message = message.replace(own, "ID")
    return caught.value.code.name, caught.value.reason, message


@pytest.mark.parametrize("verb", list(VERBS))
async def test_what_another_tenant_has_looks_exactly_like_what_is_missing(open_site: Site, verb: str) -> None:
    owner, stranger = await open_site.client("payments"), await open_site.client("stranger")
    theirs = await possessions(open_site, owner)
    before = await owner.get_run(theirs.run_id)

    asked = await told(VERBS[verb](stranger, theirs), theirs)

    missing = theirs.missing()
    assert asked == await told(VERBS[verb](stranger, missing), missing)
    assert asked[0] == "NOT_FOUND"
    after = await owner.get_run(theirs.run_id)
    assert (after.state, after.step_count) == (before.state, before.step_count)
    assert (await owner.get_session(theirs.session_id)).active_run_id == theirs.run_id


def test_every_call_about_something_is_among_those_verbs() -> None:
    """Every one that is implemented, less those that name nothing that somebody has."""
    general = {"CreateSession", "ListSessions", "WatchEvents"}
    of_admins = {"DeleteSession", "ReleaseQueue"}
    implemented = {
        method.name
        for service, by in (
            (sessions_pb2.DESCRIPTOR.services_by_name["SessionService"], SessionService),
            (runs_pb2.DESCRIPTOR.services_by_name["RunService"], RunService),
        )
        for method in service.methods
        if hasattr(by, snake_case(method.name))
    }
    assert implemented - general - of_admins == set(VERBS)


async def test_lists_have_only_what_is_of_the_tenant_unless_for_an_admin(open_site: Site) -> None:
    ours = await possessions(open_site, await open_site.client("payments"))
    theirs = await possessions(open_site, await open_site.client("stranger"))

    for name, expected in (
        ("looker", [ours]),
        ("payments", [ours]),
        ("stranger", [theirs]),
        ("payments-of-other", [theirs]),
        ("root", [theirs, ours]),
    ):
        client = await open_site.client(name)
        assert [session.session_id for session in await client.list_sessions()] == [one.session_id for one in expected]
        assert [run.run_id for run in await client.list_runs()] == [one.run_id for one in expected]


async def test_others_of_the_tenant_share_what_it_has_as_far_as_their_role_goes(open_site: Site) -> None:
    ours = await possessions(open_site, await open_site.client("payments"))
    looker = await open_site.client("looker")

    assert (await looker.get_run(ours.run_id)).run_id == ours.run_id
    assert await looker.read_blob(ours.blob_id) == b"x" * 100_000
    assert await refusal(looker.stop_run(ours.run_id)) == ("PERMISSION_DENIED", "FORBIDDEN")


async def test_an_admin_acts_in_every_tenant_and_under_its_own_name(open_site: Site) -> None:
    ours = await possessions(open_site, await open_site.client("payments"))
    root = await open_site.client("root")

    run = await root.stop_run(ours.run_id, "enough")

    assert (run.stop_requested.identity, run.stop_requested.reason) == ("root", "enough")


async def test_a_content_that_two_tenants_have_is_read_by_both(open_site: Site) -> None:
    ours = await possessions(open_site, await open_site.client("payments"))
    stranger = await open_site.client("stranger")
    assert await refusal(stranger.read_blob(ours.blob_id)) == ("NOT_FOUND", "BLOB_NOT_FOUND")

    theirs = await possessions(open_site, stranger)

    assert theirs.blob_id == ours.blob_id
    assert await stranger.read_blob(ours.blob_id) == b"x" * 100_000


async def test_a_request_id_belongs_to_an_identity_of_a_tenant(open_site: Site) -> None:
    channel = await open_site.channel()
    stub = sessions_pb2_grpc.SessionServiceStub(channel)
    made = []
    for name in ("payments", "payments-of-other", "stranger", "payments"):
        request = sessions_pb2.CreateSessionRequest(agent="claude", cwd="/work", request_id="the-same")
        metadata = (("authorization", f"Bearer {token_of(name)}"),)
        made.append((await stub.CreateSession(request, metadata=metadata, timeout=10)).session.session_id)

    assert made[0] == made[3]
    assert len(set(made)) == 3


# --- pinned labels ---


async def test_a_pinned_label_cannot_be_given_another_value(open_site: Site) -> None:
    client = await open_site.client("payments")

    with pytest.raises(errors.InvalidArgument) as caught:
        await client.create_session("claude", "/work", labels={"team": "sales", "own": "x"})

    assert caught.value.reason == "FIELD_INVALID"
    assert caught.value.fields.keys() == {"labels['team']"}
    assert "it is pinned to your identity: accepted is 'payments', or leave it out" in caught.value.message


async def test_pinned_labels_are_on_sessions_and_runs_beside_ones_own(open_site: Site) -> None:
    client = await open_site.client("payments")
    session = await client.create_session("claude", "/work", labels={"own": "x", "team": "payments"})

    run = await client.start_run(session.session_id, "go", labels={"more": "y"})

    assert dict(session.labels) == {"own": "x", "team": "payments"}
    assert {"more": "y", "team": "payments"}.items() <= dict(run.spec.labels).items()
    with pytest.raises(errors.InvalidArgument, match="pinned"):
        await client.start_run(session.session_id, "go", labels={"team": "sales"})

"""The calls that take the daemon out of service."""

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.integration.service.callers import Site, token_of
from tests.integration.service.conftest import Rig
from tests.integration.service.stubs import Stubs, refused

from steprail.client import Client
from steprail.v1 import admin_pb2, admin_pb2_grpc, runs_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
PROMPT = runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text="go")])


async def status(stubs: Stubs) -> admin_pb2.DrainStatus:
    return (await stubs.admin.GetDrainStatus(admin_pb2.GetDrainStatusRequest(), timeout=10)).status


async def test_without_a_drain_there_is_no_time_and_no_name(stubs: Stubs, client: Client, session_id: str) -> None:
    await client.start_run(session_id, "go")

    found = await status(stubs)

    assert (found.phase, found.identity, found.reason) == (admin_pb2.DRAIN_PHASE_NOT_DRAINING, "", "")
    assert not found.HasField("start_time")
    assert not found.HasField("deadline")
    assert found.live_runs == 1


async def test_a_drain_begins_at_once_and_is_told(rig: Rig, stubs: Stubs, client: Client, session_id: str) -> None:
    first = await client.start_run(session_id, "go")
    queued = runs_pb2.StartRunRequest(session_id=session_id, prompt=PROMPT, queue=runs_pb2.QUEUE_MODE_QUEUE)
    await stubs.runs.StartRun(queued, timeout=10)
    rig.facade.ask_permission(first.run_id)
    before = (await client.get_server_info()).draining

    request = admin_pb2.DrainRequest(window=Duration(seconds=20), reason="deploy")
    begun = (await stubs.admin.Drain(request, timeout=10)).status

    assert begun.phase == admin_pb2.DRAIN_PHASE_STOPPING_RUNS
    assert (begun.identity, begun.reason) == ("local", "deploy")
    assert begun.deadline.ToNanoseconds() - begun.start_time.ToNanoseconds() == 20 * 10**9
    assert (begun.live_runs, begun.queued_runs, begun.awaiting_permission_runs) == (2, 1, 1)
    assert await status(stubs) == begun
    assert (before, (await client.get_server_info()).draining) == (False, True)
    error = await refused(stubs.runs.StartRun(queued, timeout=10))
    assert (error.reason, error.retry_after) == ("DRAINING", 1.0)


async def test_a_second_drain_changes_nothing(stubs: Stubs) -> None:
    first = (await stubs.admin.Drain(admin_pb2.DrainRequest(reason="one", request_id="id"), timeout=10)).status

    second = (await stubs.admin.Drain(admin_pb2.DrainRequest(window=Duration(), reason="two"), timeout=10)).status
    again = (await stubs.admin.Drain(admin_pb2.DrainRequest(reason="one", request_id="id"), timeout=10)).status
    reused = await refused(stubs.admin.Drain(admin_pb2.DrainRequest(reason="two", request_id="id"), timeout=10))

    assert (second.reason, second.deadline, again) == ("one", first.deadline, first)
    assert reused.reason == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (admin_pb2.DrainRequest(window=Duration(seconds=61)), "window"),
        (admin_pb2.DrainRequest(window=Duration(seconds=-1)), "window"),
        (admin_pb2.DrainRequest(reason="x" * 4097), "reason"),
        (admin_pb2.DrainRequest(request_id="x" * 65), "request_id"),
    ],
)
async def test_a_bad_drain_is_refused_and_does_not_begin(
    stubs: Stubs, request_: admin_pb2.DrainRequest, field: str
) -> None:
    error = await refused(stubs.admin.Drain(request_, timeout=10))

    assert (error.reason, list(error.fields)) == ("FIELD_INVALID", [field])
    assert (await status(stubs)).phase == admin_pb2.DRAIN_PHASE_NOT_DRAINING


async def test_it_is_for_admins(open_site: Site) -> None:
    stub = admin_pb2_grpc.AdminServiceStub(await open_site.channel())
    operator = (("authorization", f"Bearer {token_of('payments')}"),)
    for call in (
        stub.Drain(admin_pb2.DrainRequest(), metadata=operator, timeout=10),
        stub.GetDrainStatus(admin_pb2.GetDrainStatusRequest(), metadata=operator, timeout=10),
    ):
        error = await refused(call)
        assert (error.code.name, error.reason) == ("PERMISSION_DENIED", "FORBIDDEN")

    metadata = (("authorization", f"Bearer {token_of('root')}"),)
    begun = await stub.Drain(admin_pb2.DrainRequest(), metadata=metadata, timeout=10)
    assert begun.status.identity == "root"

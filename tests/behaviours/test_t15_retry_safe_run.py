"""T15, a retry-safe run: the same request is one run, however often, by however many, and whenever it comes."""

from __future__ import annotations

import anyio
import pytest
from tests.behaviours.stage import (
    ABORTED,
    COMPLETED,
    CONTINUE,
    STOPPED,
    Stage,
    bodies,
    client_decides,
    command,
    daemon_of_its_own,
    play,
    read,
    says,
    script,
)

from steprail.client import Client, steps
from steprail.errors import AlreadyExists, FailedPrecondition
from steprail.v1 import runs_pb2, sessions_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

LONG = script(command("echo once >> count"), command("sleep 0.2"), says("done"))


async def start(client: Client, request: runs_pb2.StartRunRequest) -> runs_pb2.Run:
    """Send a request for a run as it is."""
    return (await client._ask(client._stubs.runs.StartRun, request)).run


async def test_the_same_request_twice_is_one_run_as_it_is_now(stage: Stage) -> None:
    """T15: the same request id twice, while it runs and after its end."""
    request = stage.client.start_request(await stage.session(), LONG)
    first = await start(stage.client, request)
    again = await start(stage.client, request)
    assert again.run_id == first.run_id
    run = await stage.ended(first.run_id)
    late = await start(stage.client, request)
    assert (late.run_id, late.state, late.text) == (run.run_id, COMPLETED, "done")
    assert (stage.workspace / "count").read_text() == "once\n"
    assert [listed.run_id for listed in await stage.client.list_runs(run.session_id)] == [run.run_id]


async def test_the_same_request_at_one_time_is_one_run_for_everybody(stage: Stage) -> None:
    """T15: concurrently, over connections of their own and by both ways in."""
    session_id = await stage.session()
    request = stage.client.start_request(session_id, LONG)
    found: list[str] = []

    async def ask() -> None:
        async with Client(stage.daemon.address) as client:
            found.append((await start(client, request)).run_id)

    async def converse() -> None:
        async with (
            Client(stage.daemon.address) as client,
            client.control(start=request, events=runs_pb2.CONTROL_EVENTS_NO_EVENTS) as control,
        ):
            found.append(control.run_id)

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(ask)
            group.start_soon(converse)
    assert (len(found), len(set(found))) == (12, 1)
    assert (await stage.ended(found[0])).state == COMPLETED
    assert (stage.workspace / "count").read_text() == "once\n"
    assert len(await stage.client.list_runs(session_id)) == 1


async def test_another_body_under_the_same_id_is_refused_and_changes_nothing(stage: Stage) -> None:
    """T15: with a changed body."""
    request = stage.client.start_request(await stage.session(), LONG)
    first = await start(stage.client, request)
    for change in ("prompt", "rules", "session"):
        other = runs_pb2.StartRunRequest()
        other.CopyFrom(request)
        if change == "prompt":
            other.prompt.parts[0].text += " "
        elif change == "rules":
            other.stop_rules.append(steps(1))
        else:
            other.session_id = await stage.session()
        with pytest.raises(AlreadyExists) as refused:
            await start(stage.client, other)
        assert refused.value.reason == "REQUEST_ID_REUSED"
    run = await stage.ended(first.run_id)
    assert (run.state, run.step_count) == (COMPLETED, 2)


async def test_a_refusal_for_the_state_of_things_is_not_remembered(stage: Stage) -> None:
    """T15: the same request is tried anew once the session is free."""
    session_id = await stage.session()
    busy = await stage.client.start_run(session_id, script(read(), says("held")), decider=client_decides())
    await stage.asked(busy.run_id)
    request = stage.client.start_request(session_id, script(says("second try")))
    with pytest.raises(FailedPrecondition) as refused:
        await start(stage.client, request)
    assert refused.value.reason == "SESSION_BUSY"
    await stage.client.abort_run(busy.run_id)
    assert (await stage.ended(busy.run_id)).state == ABORTED
    assert (await stage.ended((await start(stage.client, request)).run_id)).text == "second try"


async def test_other_requests_that_change_something_are_safe_to_send_again_too(stage: Stage) -> None:
    """T15: a session, a decision, a stop and a continued run."""
    create = sessions_pb2.CreateSessionRequest(
        agent="scripted", cwd=str(stage.workspace), request_id=f"create-{stage.workspace.name}"
    )
    sessions = {(await stage.sessions.CreateSession(create, timeout=10)).session.session_id for _ in range(3)}
    (session_id,) = sessions
    prompt = script(read(), read(), says("never"))
    started = await stage.client.start_run(session_id, prompt, decider=client_decides())
    pending = (await stage.asked(started.run_id)).pending_decision
    decide = runs_pb2.SubmitDecisionRequest(
        run_id=started.run_id, step_id=pending.step_id, action=CONTINUE, request_id=f"decide-{started.run_id}"
    )
    first = (await stage.runs.SubmitDecision(decide, timeout=10)).decision
    await stage.asked(started.run_id)
    again = (await stage.runs.SubmitDecision(decide, timeout=10)).decision
    assert (again.action, again.time) == (first.action, first.time)
    stop = runs_pb2.StopRunRequest(run_id=started.run_id, request_id=f"stop-{started.run_id}")
    for _ in range(2):
        assert (await stage.runs.StopRun(stop, timeout=10)).run.run_id == started.run_id
    run = await stage.ended(started.run_id)
    assert (run.state, run.step_count) == (STOPPED, 2)
    assert len(bodies(await stage.events(run.run_id), "decision_recorded")) == 2
    onward = stage.client.continue_request(run.run_id, script(says("on")), decider=client_decides())
    runs = {(await stage.runs.ContinueRun(onward, timeout=10)).run.run_id for _ in range(3)}
    assert len(runs) == 1


async def test_after_a_restart_the_same_request_gives_the_same_run_and_another_body_is_refused() -> None:
    """T15: after a restart, by a kill of the worker and by an orderly one."""
    with daemon_of_its_own('[processes]\nworker_backoff = ["0.05s", "0.1s"]\n') as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            request = stage.client.start_request(await stage.session(), LONG)
            run = await stage.ended((await start(stage.client, request)).run_id)
            await daemon.kill_worker()
            await same(stage, request, run)
        assert daemon.stop() == 0
        await daemon.start()
        async with play(daemon) as stage:
            await same(stage, request, run)
            assert len(await stage.client.list_runs(run.session_id)) == 1
            assert (stage.workspace / "count").read_text() == "once\n"


async def same(stage: Stage, request: runs_pb2.StartRunRequest, run: runs_pb2.Run) -> None:
    """See that a request is still known."""
    again = await start(stage.client, request)
    assert (again.run_id, again.state, again.text) == (run.run_id, run.state, run.text)
    other = runs_pb2.StartRunRequest()
    other.CopyFrom(request)
    other.labels["changed"] = "yes"
    with pytest.raises(AlreadyExists) as refused:
        await start(stage.client, other)
    assert refused.value.reason == "REQUEST_ID_REUSED"

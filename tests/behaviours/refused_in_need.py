"""What a daemon refuses and which runs fail while it is itself in need: the cases of `test_refusals_in_need.py`."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import anyio
import grpc
from tests.behaviours import failed_runs, refused_calls
from tests.behaviours.refusal_status import Refused, refused, stream_refused
from tests.behaviours.scene import Scene
from tests.behaviours.stage import (
    STOP,
    STOPPED,
    WAIT,
    read,
    says,
    script,
)
from tests.framework.liveness import wait_gone
from tests.framework.waiting import until

from steprail.v1 import admin_pb2, errors_pb2, events_pb2, rules_pb2, runs_pb2

Code = grpc.StatusCode

#: On a daemon with a neighbour, who is not disturbed.
REFUSED: dict[str, refused_calls.Case] = {}
FAILED: dict[str, failed_runs.Case] = {}
#: What concerns all sessions of a daemon, so that each case has a daemon of its own.
REFUSED_TO_ALL: dict[str, refused_calls.Case] = {}
FAILED_FOR_ALL: dict[str, failed_runs.Case] = {}

_case = partial(refused_calls.case, table=REFUSED)
_fails = partial(failed_runs.case, table=FAILED)


@contextmanager
def limited(pid: int, kind: int, most: int) -> Iterator[None]:
    """Let a process have less of something for a while."""
    soft, hard = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (most, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, (soft, hard))


@contextmanager
def full_disk(scene: Scene) -> Iterator[None]:
    """Let the worker write to no file, as on a disk without room: what it tries fails with EFBIG."""
    with limited(scene.daemon.worker_pid(), resource.RLIMIT_FSIZE, 0):
        yield


@_case("JOURNAL_UNAVAILABLE", Code.UNAVAILABLE, retry=True)
async def a_run_while_the_disk_is_full(scene: Scene) -> Refused:
    session_id = await scene.session()
    prompt = script(says("there is room again"))
    with full_disk(scene):
        found = await refused(scene.start(session_id, prompt))
        assert (await scene.get_session(session_id)).active_run_id == ""
    assert (await scene.ran(session_id, prompt)).text == "there is room again"
    runs = await scene.runs.ListRuns(runs_pb2.ListRunsRequest(session_id=session_id), timeout=WAIT)
    assert len(runs.runs) == 1
    return found


@_case("JOURNAL_UNAVAILABLE", Code.UNAVAILABLE, retry=True)
async def a_session_while_the_disk_is_full(scene: Scene) -> Refused:
    with full_disk(scene):
        found = await refused(scene.create())
    await scene.session()
    return found


@_case("AGENT_STARTING", Code.UNAVAILABLE, retry=True)
async def an_expression_while_no_process_can_be_started(scene: Scene) -> Refused:
    session_id = await scene.session()
    await scene.ran(session_id, script(says("up")))
    rule = rules_pb2.StopRule(expression=rules_pb2.ExpressionRule(cel="step.number >= 1"))
    prompt = script(read(), says("x"))
    with limited(scene.daemon.pid, resource.RLIMIT_NOFILE, 3):
        found = await refused(scene.start(session_id, prompt, stop_rules=[rule]))
    assert (await scene.ran(session_id, prompt, stop_rules=[rule])).state == STOPPED
    return found


@_case("READER_STALLED", Code.RESOURCE_EXHAUSTED, "session_id", "after_seq", "epoch")
async def a_reader_that_takes_nothing(scene: Scene) -> Refused:
    run = await failed_runs.claude(scene, steps=0, deltas=1_500, text="0123456789" * 600_000)
    events = await scene.events(run.run_id)
    call = scene.runs.WatchRun(runs_pb2.WatchRunRequest(run_id=run.run_id), timeout=2 * WAIT)
    await call.initial_metadata()
    await until(lambda: "READER_STALLED" in scene.daemon.log.read_text())
    found = await stream_refused(call)
    after_seq = int(found.metadata["after_seq"])
    assert (found.metadata["session_id"], 0 < after_seq < events[-1].seq) == (run.session_id, True)
    request = runs_pb2.WatchRunRequest(run_id=run.run_id, after_seq=after_seq, epoch=found.metadata["epoch"])
    rest = [event async for answer in scene.runs.WatchRun(request, timeout=WAIT) for event in answer.events]
    assert rest == [event for event in events if event.seq > after_seq]
    return found


@_fails("JOURNAL_UNAVAILABLE", errors_pb2.FAILURE_FAULT_ENVIRONMENT, retryable=True, resumable_at=1)
async def a_disk_that_stays_full_while_an_agent_works(scene: Scene) -> runs_pb2.Run:
    wait = "echo $PPID > pid.new; mv pid.new pid; while test ! -e go; do sleep 0.02; done"
    # It hangs before the step is complete: with a tool that runs it could tell of a complete step when that is killed.
    hang = [{"at": "step", "hang": "turn"}]
    work = {"text": "work", "calls": [{"run_command": {"command": wait}}], "faults": hang}
    run_id = await scene.started(await scene.session(), script(read(), work))
    pid = scene.workspace / "pid"
    await until(pid.exists)
    with full_disk(scene):
        (scene.workspace / "go").touch()
        gone = partial(wait_gone, [int(pid.read_text())], WAIT)
        assert await anyio.to_thread.run_sync(gone) == set()
    return await scene.ended(run_id)


@refused_calls.case("DRAINING", Code.UNAVAILABLE, retry=True, table=REFUSED_TO_ALL)
async def a_run_during_a_drain_while_another_keeps_its_turn(scene: Scene) -> Refused:
    live = await scene.held(await scene.session())
    other = await scene.session()
    await scene.admin.Drain(admin_pb2.DrainRequest(reason="a test"), timeout=WAIT)
    found = await refused(scene.start(other, "x"))
    assert (await refused(scene.create())).reason == "DRAINING"
    assert (await scene.asked(live.run_id)).pending_decision.step_id == live.pending_decision.step_id
    await scene.decide(live, action=STOP)
    # The daemon ends with its last run, so that nothing else can be asked then.
    return found


@failed_runs.case(
    "DAEMON_RESTARTED", errors_pb2.FAILURE_FAULT_DAEMON, retryable=True, resumable_at=1, table=FAILED_FOR_ALL
)
async def a_worker_that_is_killed(scene: Scene) -> runs_pb2.Run:
    run = await scene.held(await scene.session())
    at_rest = await scene.session()
    await scene.ran(at_rest, script(says("before")))
    os.kill(scene.daemon.worker_pid(), signal.SIGKILL)
    await scene.daemon.answering()
    assert (await scene.get_session(at_rest)).state == events_pb2.SESSION_STATE_SUSPENDED
    assert (await scene.ran(at_rest, script(says("after")))).text == "after"
    return await scene.ended(run.run_id)

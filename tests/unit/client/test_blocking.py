"""The blocking client before a server that a test plays, message by message."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
import grpc_testing
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from steprail import errors
from steprail.client import Retry, SyncClient, _backoff
from steprail.v1 import agents_pb2, decisions_pb2, events_pb2, runs_pb2, sessions_pb2, steps_pb2

RUNS = runs_pb2.DESCRIPTOR.services_by_name["RunService"]
SESSIONS = sessions_pb2.DESCRIPTOR.services_by_name["SessionService"]
AGENTS = agents_pb2.DESCRIPTOR.services_by_name["AgentService"]
WAIT = 10.0
OK = grpc.StatusCode.OK


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backoff, "_FIRST_PAUSE", 0.0)


class Stage:
    """A client that calls on a thread, and the channel on which the test answers."""

    def __init__(self) -> None:
        time = grpc_testing.strict_real_time()
        self.channel: Any = grpc_testing.channel([RUNS, SESSIONS, AGENTS], time)
        self._pool = ThreadPoolExecutor(2)

    def client(self, **options: Any) -> SyncClient:
        return SyncClient("unix:/x", channel=self.channel, **options)

    def does(self, work: Callable[[], Any]) -> Future[Any]:
        """Let the client work while the test plays the server."""
        return self._pool.submit(work)

    def unary(self, name: str, service: Any = RUNS) -> tuple[Any, Any]:
        """Take the next call of a method: its request, and where to answer."""
        _, request, rpc = self.channel.take_unary_unary(service.methods_by_name[name])
        return request, rpc

    def stream(self, name: str, service: Any = RUNS) -> tuple[Any, Any]:
        _, request, rpc = self.channel.take_unary_stream(service.methods_by_name[name])
        rpc.send_initial_metadata(())
        return request, rpc

    def close(self) -> None:
        self._pool.shutdown(wait=False)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def refusal(code: grpc.StatusCode, reason: str, retry_after: float | None = None) -> tuple[tuple[str, bytes], ...]:
    info, retry = any_pb2.Any(), any_pb2.Any()
    info.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="steprail"))
    details = [info]
    if retry_after is not None:
        advice = error_details_pb2.RetryInfo()
        advice.retry_delay.FromNanoseconds(int(retry_after * 1e9))
        retry.Pack(advice)
        details.append(retry)
    status = status_pb2.Status(code=code.value[0], message="m", details=details)
    return (("grpc-status-details-bin", status.SerializeToString()),)


def test_a_call_gives_its_answer(stage: Stage) -> None:
    with stage.client() as client:
        made = stage.does(lambda: client.create_session("claude", "/work", labels={"a": "b"}))
        request, rpc = stage.unary("CreateSession", SESSIONS)
        rpc.terminate(sessions_pb2.CreateSessionResponse(session=sessions_pb2.Session(session_id="s")), (), OK, "")

        assert made.result(WAIT).session_id == "s"
        assert (request.agent, request.cwd, dict(request.labels)) == ("claude", "/work", {"a": "b"})
        assert request.request_id


def test_a_refusal_is_a_typed_error(stage: Stage) -> None:
    with stage.client() as client:
        asked = stage.does(lambda: client.get_run("r"))
        _, rpc = stage.unary("GetRun")
        rpc.terminate(None, refusal(grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND"), grpc.StatusCode.NOT_FOUND, "m")

        with pytest.raises(errors.NotFound) as caught:
            asked.result(WAIT)
        assert caught.value.reason == "RUN_NOT_FOUND"


def test_a_call_that_was_refused_for_a_while_is_made_again_under_the_same_id(stage: Stage) -> None:
    with stage.client(retry=Retry(attempts=3)) as client:
        started = stage.does(lambda: client.start_run("s", "go"))
        ids = set()
        for _ in range(2):
            request, rpc = stage.unary("StartRun")
            ids.add(request.request_id)
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            rpc.terminate(None, refusal(code, "RATE_LIMITED", 0.01), code, "m")
        request, rpc = stage.unary("StartRun")
        ids.add(request.request_id)
        rpc.terminate(runs_pb2.StartRunResponse(run=runs_pb2.Run(run_id="r")), (), OK, "")

        assert started.result(WAIT).run_id == "r"
        assert len(ids) == 1


def test_without_an_answer_nothing_is_made_twice_and_a_wait_that_is_too_long_is_not_begun(stage: Stage) -> None:
    with stage.client(retry=Retry(attempts=3, longest_pause=1.0)) as client:
        started = stage.does(lambda: client.start_run("s", "go"))
        _, rpc = stage.unary("StartRun")
        rpc.terminate(None, (), grpc.StatusCode.UNAVAILABLE, "Socket closed")
        with pytest.raises(errors.ConnectionFailed):
            started.result(WAIT)

        started = stage.does(lambda: client.start_run("s", "go"))
        _, rpc = stage.unary("StartRun")
        code = grpc.StatusCode.UNAVAILABLE
        rpc.terminate(None, refusal(code, "AGENT_STARTING", 60), code, "m")
        with pytest.raises(errors.Unavailable) as caught:
            started.result(WAIT)
        assert caught.value.retry_after == 60


def test_all_pages_are_read(stage: Stage) -> None:
    with stage.client() as client:
        listed = stage.does(lambda: client.list_runs("s"))
        _, rpc = stage.unary("ListRuns")
        rpc.terminate(runs_pb2.ListRunsResponse(runs=[runs_pb2.Run(run_id="b")], next_page_token="t"), (), OK, "")
        request, rpc = stage.unary("ListRuns")
        rpc.terminate(runs_pb2.ListRunsResponse(runs=[runs_pb2.Run(run_id="a")]), (), OK, "")

        assert [run.run_id for run in listed.result(WAIT)] == ["b", "a"]
        assert request.page_token == "t"


def test_a_watch_goes_on_where_a_lost_stream_ended(stage: Stage) -> None:
    with stage.client() as client:
        seen: queue.SimpleQueue[int] = queue.SimpleQueue()

        def watch() -> int:
            for event in client.watch_run("r"):
                seen.put(event.seq)
            return event.seq

        watched = stage.does(watch)
        _, rpc = stage.stream("WatchRun")
        rpc.send_response(runs_pb2.WatchRunResponse(heartbeat=events_pb2.Heartbeat(epoch="e1")))
        rpc.send_response(runs_pb2.WatchRunResponse(events=[events_pb2.Event(seq=1), events_pb2.Event(seq=2)]))
        assert [seen.get(timeout=WAIT) for _ in range(2)] == [1, 2]
        rpc.terminate((), grpc.StatusCode.UNAVAILABLE, "Socket closed")
        request, rpc = stage.stream("WatchRun")
        rpc.send_response(runs_pb2.WatchRunResponse(events=[events_pb2.Event(seq=3)]))
        assert seen.get(timeout=WAIT) == 3
        rpc.terminate((), OK, "")

        assert watched.result(WAIT) == 3
        assert (request.after_seq, request.epoch) == (2, "e1")


def test_a_run_is_decided_about_by_a_function_that_may_block(stage: Stage) -> None:
    threads: list[str] = []

    def decide(step: steps_pb2.Step) -> bool:
        threads.append(threading.current_thread().name)
        return step.number < 2

    with stage.client() as client:
        ended = stage.does(lambda: client.run("go", session="s", decide=decide).wait())
        started, rpc = stage.unary("StartRun")
        rpc.terminate(runs_pb2.StartRunResponse(run=runs_pb2.Run(run_id="r", session_id="s")), (), OK, "")
        _, control = stage.channel.take_stream_stream(RUNS.methods_by_name["ControlRun"])
        control.send_initial_metadata(())
        opening = control.take_request()
        control.send_response(
            runs_pb2.ControlRunResponse(opened=runs_pb2.ControlOpened(run=runs_pb2.Run(run_id="r"), epoch="e1"))
        )
        actions = []
        for number in (1, 2):
            step = steps_pb2.Step(number=number, step_id=f"step_{number}", run_id="r")
            control.send_response(runs_pb2.ControlRunResponse(decision_requested=runs_pb2.DecisionRequest(step=step)))
            decided, rpc = stage.unary("SubmitDecision")
            rpc.terminate(runs_pb2.SubmitDecisionResponse(), (), OK, "")
            actions.append((decided.step_id, decided.action))
        run = runs_pb2.Run(run_id="r", state=events_pb2.RUN_STATE_STOPPED)
        control.send_response(runs_pb2.ControlRunResponse(finished=runs_pb2.ControlFinished(run=run)))
        control.terminate((), OK, "")

        assert ended.result(WAIT).state == events_pb2.RUN_STATE_STOPPED
        assert started.decider.mode == decisions_pb2.DECIDER_MODE_CLIENT
        assert (opening.WhichOneof("body"), opening.attach.run_id, opening.decide) == ("attach", "r", True)
        assert actions == [("step_1", 1), ("step_2", 2)]
        assert threads == ["steprail-callable"] * 2


def test_a_blocking_method_in_a_coroutine_function_of_the_client_is_refused_and_does_not_hang(stage: Stage) -> None:
    with stage.client() as client:
        caught: list[str] = []

        async def on_the_loop() -> None:
            try:
                client.get_run("r")
            except RuntimeError as error:
                caught.append(str(error))

        client._portal.wait(on_the_loop())

    assert caught == ["a blocking method was called in a coroutine function that a SyncClient calls"]


def test_a_client_that_is_not_open_says_so(stage: Stage) -> None:
    client = stage.client()
    for use in (
        client.list_agents,
        client.with_options,
        lambda: client.run("go", agent="a"),
        lambda: client.watch_run("r"),
    ):
        with pytest.raises(RuntimeError, match="the client is not open; use it with"):
            use()
    with client:
        pass
    with pytest.raises(RuntimeError, match="closed client"):
        client.get_run("r")


def test_leaving_a_watch_leaves_the_call(stage: Stage) -> None:
    with stage.client() as client:
        watch = client.watch_run("r")
        first = stage.does(lambda: next(watch))
        _, rpc = stage.stream("WatchRun")
        rpc.send_response(runs_pb2.WatchRunResponse(events=[events_pb2.Event(seq=1)]))
        assert first.result(WAIT).seq == 1
        watch.close()  # type: ignore[attr-defined]
        stage.does(rpc.cancelled).result(WAIT)

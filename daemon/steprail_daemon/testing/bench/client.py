"""The clients of the bench, each a process of its own that uses the public API and nothing else.

A role prints one line to stdout once it is ready, and writes what it saw to the file `--report`, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import click
import grpc
import grpc.aio

from steprail.v1 import decisions_pb2, runs_pb2, runs_pb2_grpc, sessions_pb2, sessions_pb2_grpc

#: A bound on everything here, in seconds.
DEADLINE = 120.0
_UNBOUNDED = (("grpc.max_receive_message_length", -1),)


@click.group()
def main() -> None:
    """Be one of the clients."""


@main.command("watch")
@click.option("--address", required=True)
@click.option("--session", "session_id", required=True)
@click.option("--after-seq", type=int, required=True)
@click.option("--epoch", required=True)
@click.option("--count", type=int, required=True, help="results of tools to wait for")
@click.option("--watchers", type=int, default=1)
@click.option("--report", type=Path, required=True)
def watch(address: str, report: Path, **options: Any) -> None:
    """Follow a session until COUNT results of tools were seen, by every watcher."""
    report.write_text(json.dumps(asyncio.run(asyncio.wait_for(_watch(address, **options), DEADLINE))))


class _Seen:
    """What one watcher saw. Events without a gap, or it raises."""

    def __init__(self, after_seq: int, count: int) -> None:
        self.last_seq = after_seq
        self.missing = count
        self.messages = 0

    def take(self, response: sessions_pb2.WatchSessionResponse) -> None:
        """Check and count the events of one message."""
        self.messages += 1
        seq = self.last_seq
        results = 0
        for event in response.events:
            seq += 1
            if event.seq != seq:
                raise RuntimeError(f"event {event.seq} came after {seq - 1}")
            if event.HasField("tool_end"):
                results += 1
        self.last_seq = seq
        self.missing -= results


async def _watch(
    address: str, *, session_id: str, after_seq: int, epoch: str, count: int, watchers: int
) -> dict[str, int]:
    async with grpc.aio.insecure_channel(address, options=_UNBOUNDED) as channel:
        stub = sessions_pb2_grpc.SessionServiceStub(channel)
        request = sessions_pb2.WatchSessionRequest(session_id=session_id, after_seq=after_seq, epoch=epoch)
        started = [asyncio.Event() for _ in range(watchers)]
        seen = [_Seen(after_seq, count) for _ in range(watchers)]
        async with asyncio.TaskGroup() as tasks:
            for one, event in zip(seen, started, strict=True):
                tasks.create_task(_follow(stub, request, one, event))
            for event in started:
                await event.wait()
            _say_ready()
        return {"ended_ns": time.monotonic_ns(), "messages": sum(one.messages for one in seen)}


async def _follow(stub: Any, request: Any, seen: _Seen, started: asyncio.Event) -> None:
    call = stub.WatchSession(request)
    try:
        async for response in call:
            # The first message is a heartbeat: from now on nothing is missed.
            started.set()
            seen.take(response)
            if seen.missing <= 0:
                return
        raise RuntimeError(f"the stream ended with {seen.missing} events missing")
    finally:
        call.cancel()


@main.command("decide")
@click.option("--address", required=True)
@click.option("--session", "session_id", required=True)
@click.option("--prompt", required=True)
def decide(address: str, session_id: str, prompt: str) -> None:
    """Start a run and let the agent go on at each boundary."""
    asyncio.run(asyncio.wait_for(_decide(address, session_id, prompt), DEADLINE))


async def _decide(address: str, session_id: str, prompt: str) -> None:
    async with grpc.aio.insecure_channel(address, options=_UNBOUNDED) as channel:
        call = runs_pb2_grpc.RunServiceStub(channel).ControlRun()
        start = runs_pb2.StartRunRequest(
            session_id=session_id,
            prompt=runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=prompt)]),
            decider=decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT),
        )
        try:
            await call.write(
                runs_pb2.ControlRunRequest(start=start, decide=True, events=runs_pb2.CONTROL_EVENTS_NO_EVENTS)
            )
            await _answer_all(call)
        finally:
            call.cancel()


async def _answer_all(call: Any) -> None:
    run_id = ""
    while True:
        response = await call.read()
        if response is grpc.aio.EOF:
            raise RuntimeError("the stream ended before the run")
        body = response.WhichOneof("body")
        if body == "decision_requested":
            decision = runs_pb2.SubmitDecisionRequest(
                run_id=run_id,
                step_id=response.decision_requested.step.step_id,
                action=decisions_pb2.DECISION_ACTION_CONTINUE,
            )
            await call.write(runs_pb2.ControlRunRequest(decision=decision))
        elif body == "opened":
            run_id = response.opened.run.run_id
            _say_ready()
        elif body == "rejected":
            raise RuntimeError(f"refused: {response.rejected.reason} {response.rejected.message}")
        elif body == "finished":
            return


def _say_ready() -> None:
    click.echo("ready")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

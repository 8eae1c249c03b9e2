"""Bare ping-pong over grpc.aio: what any question to a client on an open stream costs, whoever asks it.

`serve` asks and times, `answer` is the client, each a process of its own. Messages are bytes of the size that the
daemon's question and a client's answer have; nothing is encoded.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import click
import grpc
import grpc.aio

METHOD = "/bench.PingPong/Ask"
QUESTION = bytes(600)
ANSWER = bytes(80)
#: A bound on everything here, in seconds.
DEADLINE = 60.0


@click.group()
def main() -> None:
    """Be one of the two sides."""


@main.command("serve")
@click.option("--socket", required=True)
@click.option("--count", type=int, required=True)
@click.option("--gap-ns", type=int, required=True)
@click.option("--report", type=Path, required=True)
def serve(socket: str, count: int, gap_ns: int, report: Path) -> None:
    """Ask COUNT times and write the waits."""
    waits = asyncio.run(asyncio.wait_for(_serve(socket, count, gap_ns), DEADLINE))
    report.write_text(json.dumps({"waits_ns": waits}))


async def _serve(socket: str, count: int, gap_ns: int) -> list[int]:
    done = asyncio.Event()
    waits: list[int] = []

    async def ask(answers: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        for _ in range(count):
            begun = time.perf_counter_ns()
            await context.write(QUESTION)
            await anext(answers)
            waits.append(time.perf_counter_ns() - begun)
            if gap_ns:
                await asyncio.sleep(2 * gap_ns / 1e9)
        done.set()

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(ask)
    service, method = METHOD.strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await done.wait()
    await server.stop(1.0)
    return waits


@main.command("answer")
@click.option("--socket", required=True)
def answer(socket: str) -> None:
    """Answer until there are no more questions."""
    asyncio.run(asyncio.wait_for(_answer(socket), DEADLINE))


async def _answer(socket: str) -> None:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(METHOD)(wait_for_ready=True)
        try:
            while await call.read() is not grpc.aio.EOF:
                await call.write(ANSWER)
        finally:
            call.cancel()


if __name__ == "__main__":
    sys.exit(main())

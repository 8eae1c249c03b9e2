"""A web service that streams runs to browsers and programs, as server-sent events.

    steprail serve                                   # in a directory above the one that the agent is to work in
    python stream_server.py --agent scripted --cwd some/directory
    curl -N localhost:8080/runs -H 'Content-Type: application/json' -d '{"prompt": "Look around"}'

An event has the name and fields of `steprail.v1`, in JSON; the last one is `agent_end`, or `failed` with a sentence.
`--on-disconnect` says what becomes of a run whose reader leaves: `stop` at its next boundary, `abort`, or `detach`.
It listens on this machine only; who may not start agents here has to be kept out by what stands before it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from asyncio import StreamReader, StreamWriter

from steprail import InvalidArgument, StepRailError
from steprail.client import Client, LiveRun
from steprail.plain import to_plain

REQUEST_BYTES = 65536  # a request's body may have
READ_SECONDS = 10  # within which a request has to be there
WRITE_SECONDS = 30  # after which a reader that takes nothing is one that left
PING_SECONDS = 15  # between signs of life, where there is no event
HEAD = "HTTP/1.1 {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"


async def read_prompt(reader: StreamReader) -> str:
    """Give the prompt of a request; a ValueError says why it is refused."""
    async with asyncio.timeout(READ_SECONDS):
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = [line.partition(":") for line in lines]
        headers = {name.lower(): value.strip() for name, _, value in fields}
        # A page of another site can make a browser send requests here, but not with our name and this type.
        ours = headers.get("host", "").partition(":")[0] in {"localhost", "127.0.0.1"}
        if not (first.startswith("POST /runs ") and ours and headers.get("content-type") == "application/json"):
            raise ValueError("accepted is POST /runs, to localhost or 127.0.0.1, of type application/json")
        size = int(headers.get("content-length", 0))
        if not 0 <= size <= REQUEST_BYTES:
            raise ValueError(f"a body may have {REQUEST_BYTES} bytes")
        match json.loads(await reader.readexactly(size)):
            case {"prompt": str(prompt)}:
                return prompt
    raise ValueError('the body has to be {"prompt": "..."}')


async def stream(run: LiveRun, reader: StreamReader, writer: StreamWriter) -> None:
    """Send the events of a run until its end, or until its reader leaves or takes none."""

    async def send() -> None:
        try:
            async for event in run:
                data = json.dumps(to_plain(event))
                writer.write(f"id: {event.seq}\nevent: {event.WhichOneof('body')}\ndata: {data}\n\n".encode())
                async with asyncio.timeout(WRITE_SECONDS):
                    await writer.drain()
        except StepRailError as error:
            writer.write(f"event: failed\ndata: {json.dumps(str(error))}\n\n".encode())
        except OSError:
            writer.transport.abort()

    async def left() -> None:
        with contextlib.suppress(OSError):
            while await reader.read(1024):
                pass  # nothing is expected from there but the end

    writer.write(HEAD.format("200 OK", "text/event-stream").encode())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(send()), group.create_task(left())]
        done: set[asyncio.Task[None]] = set()
        while not done:
            done, _ = await asyncio.wait(tasks, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                writer.write(b": still here\n\n")
        for task in tasks:
            task.cancel()


async def main(options: argparse.Namespace) -> None:
    """Serve until it is cancelled; open streams then end as if their readers had left."""
    places = asyncio.Semaphore(max(1, options.streams))
    settings = {
        "agent": options.agent,
        "cwd": options.cwd,
        "permissions": lambda _: options.allow,
        "on_exit": options.on_disconnect,
    }

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):  # it left, or is too slow
            try:
                prompt = await read_prompt(reader)
                if places.locked():
                    raise StepRailError("no more streams are served at one time")
                async with places, client.run(prompt, **settings) as run:
                    await stream(run, reader, writer)
                    ended = (await run.get()).HasField("end_time")
                if ended:
                    # Nobody goes on with it, and its agent would wait for that.
                    await client.close_session(run.session_id)
            except (StepRailError, ValueError, RecursionError, asyncio.LimitOverrunError) as error:
                ours = isinstance(error, StepRailError) and not isinstance(error, InvalidArgument)
                status = "503 Service Unavailable" if ours else "400 Bad Request"
                body = json.dumps({"error": str(error)})
                writer.write(f"{HEAD.format(status, 'application/json')}{body}\n".encode())

    async with Client(options.address) as client:
        agents = [agent.name for agent in await client.list_agents()]
        if options.agent not in agents:
            sys.exit(f"stream_server: the daemon has no agent {options.agent!r}; it has: {', '.join(agents)}")
        group = asyncio.TaskGroup()
        server = await asyncio.start_server(lambda *ends: group.create_task(serve(*ends)), "127.0.0.1", options.port)
        port = server.sockets[0].getsockname()[1]
        print(f"listening on http://127.0.0.1:{port}/runs", flush=True)
        this = asyncio.current_task()
        assert this is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
        async with group:
            with contextlib.closing(server):
                await asyncio.Future()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Stream runs as server-sent events.")
    parser.add_argument("--on-disconnect", choices=["stop", "abort", "detach"], default="stop", help="(default: stop)")
    parser.add_argument("--streams", type=int, default=16, metavar="N", help="at one time, 1 or more (default: 16)")
    parser.add_argument("--port", type=int, default=8080, help="port on 127.0.0.1 (default: 8080)")
    parser.add_argument("--agent", default="claude", help="an agent of the daemon's configuration (default: claude)")
    parser.add_argument("--cwd", default=".", help="directory that the agent works in (default: this one)")
    parser.add_argument("--address", help="where the daemon listens (default: $STEPRAIL_ADDRESS, or its usual socket)")
    parser.add_argument("--allow", action="store_true", help="allow what the agent asks permission for; else deny it")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(main(arguments()))
    except (StepRailError, OSError, OverflowError) as error:
        sys.exit(f"stream_server: {error}")

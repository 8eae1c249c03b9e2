"""The worker process: `python -m steprail_daemon.expressions.worker --cpu-ms N --memory BYTES`.

Takes requests on stdin and answers on stdout (`messages/worker.proto`), one at a time, until stdin ends. The first
process never evaluates. It forks a child that does, waits for the child's end, and

- after the CPU timer (SIGPROF) or a full memory, tells what was being evaluated, and forks the next child;
- after a child that had grown and left between two requests, forks the next: each evaluation finds memory free;
- after the end of stdin, ends;
- after anything else, ends with code 1: whether a request was half read then, nobody knows.

The child remembers programs by their source, and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import mmap
import os
import resource
import signal
import struct
import sys
from collections import OrderedDict

from steprail_daemon.expressions.compiler import Environment, OverMemory, Program, SourceProblem, environments
from steprail_daemon.expressions.frames import LENGTH_BYTES, MAX_REQUEST_BYTES, frame, read_length
from steprail_daemon.expressions.messages import worker_pb2

OVER_MEMORY = 3
RETIRED = 4

_STDIN, _STDOUT = 0, 1
_PIPE_BYTES = 1 << 20
_MAX_PROGRAMS = 256
_UNDER_WAY = struct.Struct("<QI")


class Shared:
    """What a child is busy with, where its forker can see it: request and index."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _UNDER_WAY.size)

    def set(self, request_id: int, index: int) -> None:
        """Note what comes next."""
        _UNDER_WAY.pack_into(self._memory, 0, request_id, index)

    def get(self) -> tuple[int, int]:
        """Give what was noted last."""
        request_id, index = _UNDER_WAY.unpack_from(self._memory)
        return request_id, index


class Evaluator:
    """A child's part: answers requests until there are no more."""

    def __init__(self, environments: dict[int, Environment], shared: Shared, cpu_seconds: float) -> None:
        self._environments = environments
        self._shared = shared
        self._cpu_seconds = cpu_seconds
        self._programs: OrderedDict[tuple[int, str], Program] = OrderedDict()

    def serve(self, memory: int) -> int:
        """Answer requests until stdin ends or half of what was free of `memory` bytes is gone; give the exit code.

        Raises:
            OverMemory: a bound that this process cannot go on after; the answer is for the forker to give.
        """
        enough = (address_space() + memory) // 2
        while (data := read_frame()) is not None:
            self._answer(worker_pb2.Request.FromString(data))
            if address_space() > enough:
                return RETIRED
        return 0

    def _answer(self, request: worker_pb2.Request) -> None:
        environment = self._environments[request.kind]
        activation = None
        for index, source in enumerate(request.sources):
            self._shared.set(request.id, index)
            reply = worker_pb2.Reply(id=request.id, index=index)
            # The timer ends this process: its default action is what the forker waits for.
            signal.setitimer(signal.ITIMER_PROF, self._cpu_seconds)
            try:
                if request.HasField("view") and activation is None:
                    activation = environment.bind(request.view)
                program = self._program(request.kind, environment, source)
                reply.uses_steps = program.uses_steps
                if activation is None:
                    reply.checked.SetInParent()
                else:
                    reply.result.CopyFrom(program.evaluate(activation))
            except SourceProblem as error:
                _tell_problem(reply, error, checking=activation is None)
            except MemoryError as error:
                raise OverMemory from error
            signal.setitimer(signal.ITIMER_PROF, 0)
            write(reply)

    def _program(self, kind: int, environment: Environment, source: str) -> Program:
        key = (kind, source)
        program = self._programs.get(key)
        if program is None:
            program = environment.compile(source)
            self._programs[key] = program
            if len(self._programs) > _MAX_PROGRAMS:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(key)
        return program


def _tell_problem(reply: worker_pb2.Reply, error: SourceProblem, *, checking: bool) -> None:
    if checking:
        reply.checked.problems.extend(error.problems)
    else:
        reply.result.outcome = worker_pb2.OUTCOME_ERROR
        reply.result.text = error.problems[0].message


def address_space() -> int:
    """Give the bytes of address space that this process has."""
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 64).split()[0]) * mmap.PAGESIZE
    finally:
        os.close(descriptor)


def read_frame() -> bytes | None:
    """Read one message from stdin; None at its end."""
    head = _read(LENGTH_BYTES)
    if head is None:
        return None
    length = read_length(head)
    if length > MAX_REQUEST_BYTES:
        raise ValueError(f"a request claims {length} bytes; accepted are at most {MAX_REQUEST_BYTES}")
    return _read(length)


def _read(size: int) -> bytes | None:
    """Read exactly `size` bytes: the next child reads on where this one stopped."""
    data = bytearray()
    while len(data) < size:
        more = os.read(_STDIN, size - len(data))
        if not more:
            return None
        data += more
    return bytes(data)


def write(reply: worker_pb2.Reply) -> None:
    """Write one message to stdout."""
    os.write(_STDOUT, frame(reply.SerializeToString()))


def evaluate_in_child(evaluator: Evaluator, memory: int) -> int:
    """Fork a child that serves; give its wait status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            code = evaluator.serve(memory)
        except OverMemory:
            code = OVER_MEMORY
        finally:
            # Not `sys.exit`: what the forker has open or has to clean up is not the child's.
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def bound_of(status: int, cpu_ms: int, memory: int) -> str | None:
    """Word which bound ended a child; None if it was none."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return f"over the bound: {cpu_ms} ms of CPU time"
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == OVER_MEMORY:
        return f"over the bound: {memory >> 20} MiB of memory"
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the worker; gives its exit code."""
    parser = argparse.ArgumentParser(prog="steprail-expressions", description="Evaluates CEL for the daemon.")
    parser.add_argument("--cpu-ms", type=int, required=True, help="CPU time of one evaluation")
    parser.add_argument("--memory", type=int, required=True, help="address space of the evaluating process in bytes")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        fcntl.fcntl(_STDIN, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    shared = Shared()
    evaluator = Evaluator(environments(), shared, options.cpu_ms / 1000)
    gc.freeze()
    write(worker_pb2.Reply(ready=worker_pb2.Ready()))
    while status := evaluate_in_child(evaluator, options.memory):
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == RETIRED:
            continue
        bound = bound_of(status, options.cpu_ms, options.memory)
        if bound is None:
            return 1
        request_id, index = shared.get()
        write(worker_pb2.Reply(id=request_id, index=index, passed=worker_pb2.Passed(bound=bound)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

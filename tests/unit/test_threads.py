"""A thread that may be left behind."""

import subprocess
import sys
import threading

import anyio
import pytest

from steprail_daemon.threads import run_apart

pytestmark = pytest.mark.anyio

#: Leaves a function behind that never comes back.
LEAVING = """
import anyio, os
from steprail_daemon.threads import run_apart
reading, writing = os.pipe()
async def leave():
    with anyio.move_on_after(0.01):
        await run_apart(lambda: os.read(reading, 1))
    print("left")
anyio.run(leave)
"""


async def test_it_gives_what_the_function_gives() -> None:
    assert await run_apart(lambda: 3) == 3


async def test_it_raises_what_the_function_raises() -> None:
    def broken() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        await run_apart(broken)


async def test_the_loop_goes_on_meanwhile_and_whoever_is_cancelled_leaves_it() -> None:
    free, ended = threading.Event(), anyio.Event()

    def wait() -> bool:
        return free.wait()

    async with anyio.create_task_group() as tasks:

        async def waiter() -> None:
            assert await run_apart(wait)
            ended.set()

        tasks.start_soon(waiter)
        with anyio.move_on_after(0.01) as left:
            await run_apart(wait)
        assert left.cancelled_caught
        free.set()
        with anyio.fail_after(5):
            await ended.wait()


def test_the_interpreter_does_not_wait_for_one_that_was_left() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")

"""The example of a batch: many directories side by side, with limits on cost."""

from __future__ import annotations

import re
from functools import partial
from itertools import accumulate

import anyio
import anyio.to_thread
import pytest
from tests.framework.daemon import Daemon
from tests.framework.examples import LIMIT, Examples, script
from tests.framework.gates import gate
from tests.framework.waiting import until

from steprail.client import Client
from steprail.v1 import events_pb2

USAGE = {"input_tokens": 10, "output_tokens": 10, "cost_micro_usd": 400}
WRITES = {"run_command": {"command": "echo did >> done"}}
DONE = {"text": "done"}
#: Three messages, two of them steps: 1,200 millionths of a dollar.
PRICED = script(
    {"text": "first", "calls": [WRITES], "usage": USAGE},
    {"text": "second", "calls": [WRITES], "usage": USAGE},
    {"text": "all done", "usage": USAGE},
)


def made(examples: Examples, *names: str) -> list[str]:
    for name in names:
        (examples.cwd / name).mkdir()
    return list(names)


def rows(table: str) -> dict[str, tuple[str, int, str]]:
    """Read outcome, steps and cost of each directory from a table."""
    found = re.findall(
        r"^(\S+) +(completed|stopped|failed|not begun) +(\d+) steps +(unknown|\S+ USD)  ", table, re.MULTILINE
    )
    assert len(found) == len(table.splitlines()), table
    return {name: (outcome, int(steps), cost) for name, outcome, steps, cost in found}


def did(examples: Examples, name: str) -> int:
    path = examples.cwd / name / "done"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_each_directory_gets_its_run_and_its_row(examples: Examples) -> None:
    names = made(examples, "a", "b", "c")
    done = examples.run("batch", PRICED, *names, "--agent", "scripted", "--at-once", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done.stdout) == dict.fromkeys(names, ("completed", 2, "0.001200 USD"))
    assert [did(examples, name) for name in names] == [2, 2, 2]
    assert "all done" in done.stdout


def test_a_run_stops_at_the_boundary_at_which_it_has_cost_what_it_may(examples: Examples) -> None:
    names = made(examples, "a", "b")
    done = examples.run("batch", PRICED, *names, "--agent", "scripted", "--each", "0.0003")
    assert done.returncode == 1
    assert rows(done.stdout) == dict.fromkeys(names, ("stopped", 1, "0.000400 USD"))
    assert "Cost of the run: 0.0004 USD of 0.0003 USD." in done.stdout


def test_all_together_cost_no_more_than_they_may_and_what_is_given_back_is_used(examples: Examples) -> None:
    names = made(examples, "a", "b", "c", "d")
    # In millionths: the first one may have all 1,700, and needs 1,200. The second gets the 500 that are given back, and
    # stops when it has cost more. Then nothing is left.
    done = examples.run(
        "batch", PRICED, *names, "--agent", "scripted", "--each", "0.002", "--total", "0.0017", "--at-once", "1"
    )
    assert done.returncode == 1
    assert rows(done.stdout) == {
        "a": ("completed", 2, "0.001200 USD"),
        "b": ("stopped", 2, "0.000800 USD"),
        "c": ("not begun", 0, "0.000000 USD"),
        "d": ("not begun", 0, "0.000000 USD"),
    }
    assert did(examples, "d") == 0


def test_side_by_side_no_run_has_money_that_another_one_has(examples: Examples) -> None:
    names = made(examples, "a", "b", "c", "d")
    done = examples.run(
        "batch", PRICED, *names, "--agent", "scripted", "--each", "0.001", "--total", "0.0012", "--at-once", "4"
    )
    spent = sum(float(cost.split()[0]) for _, _, cost in rows(done.stdout).values())
    # Each of at most three may be over by its last step, of which none costs more than 400 millionths.
    assert 0.0012 <= spent <= 0.0012 + 3 * 0.0004
    assert ("not begun", 0, "0.000000 USD") in rows(done.stdout).values()


def test_what_goes_wrong_in_one_directory_ends_no_other(examples: Examples) -> None:
    names = made(examples, "a", "b")
    done = examples.run("batch", PRICED, "a", "nowhere", "b", "--agent", "scripted", "--at-once", "1")
    assert (done.returncode, done.stderr) == (1, "")
    assert rows(done.stdout)["nowhere"] == ("failed", 0, "0.000000 USD")
    assert "CWD_INVALID" in done.stdout
    assert [rows(done.stdout)[name] for name in names] == [("completed", 2, "0.001200 USD")] * 2


def test_a_run_that_fails_is_a_row_too(examples: Examples) -> None:
    made(examples, "a")
    prompt = script({"error": {"status": 401, "message": "who are you?"}})
    done = examples.run("batch", prompt, "a", "--agent", "scripted")
    assert done.returncode == 1
    assert rows(done.stdout)["a"][:2] == ("failed", 0)
    assert "who are you?" in done.stdout


def test_a_cost_that_is_not_known_stops_a_run_and_takes_all_that_it_might_have_cost(examples: Examples) -> None:
    names = made(examples, "a", "b")
    prompt = script({"text": "first", "calls": [WRITES]}, DONE)
    options = ("--agent", "scripted", "--each", "1", "--total", "1", "--at-once", "1")
    done = examples.run("batch", prompt, *names, *options)
    assert rows(done.stdout) == {"a": ("stopped", 1, "unknown"), "b": ("not begun", 0, "0.000000 USD")}
    done = examples.run("batch", prompt, *names, *options, "--unknown-cost", "ignore")
    assert rows(done.stdout)["a"] == ("completed", 1, "unknown")


@pytest.mark.anyio
async def test_no_more_runs_than_were_said_are_side_by_side_and_their_sessions_are_closed(
    daemon: Daemon, examples: Examples
) -> None:
    names = made(examples, "a", "b", "c", "d", "e")
    log = examples.cwd / "log"
    log.touch()

    def logged(begun: int, ended: int) -> bool:
        words = log.read_text().split()
        return words.count("begin") >= begun and words.count("end") >= ended

    async def work(prompt: str) -> None:
        options = ("--agent", "scripted", "--unknown-cost", "ignore", "--at-once", "2")
        batch = await anyio.to_thread.run_sync(lambda: examples.run("batch", prompt, *names, *options))
        assert batch.returncode == 0

    async with anyio.create_task_group() as tasks:
        with gate(examples.cwd / "gate") as end:
            command = f"echo begin >> ../log; {end.command}; echo end >> ../log"
            tasks.start_soon(work, script({"text": "work", "calls": [{"run_command": {"command": command}}]}, DONE))
            # No run ends before as many as may be side by side are.
            for done in range(len(names)):
                await until(partial(logged, min(done + 2, len(names)), done), LIMIT)
                end.let()
            await until(partial(logged, len(names), len(names)), LIMIT)
    async with Client(daemon.address) as client:
        sessions = [each for each in await client.list_sessions() if each.cwd.startswith(f"{examples.cwd}/")]
        runs = [run for each in sessions for run in await client.list_runs(session_id=each.session_id)]
    assert [session.state for session in sessions] == [events_pb2.SESSION_STATE_CLOSED] * 5
    begun = [(run.create_time.ToNanoseconds(), 1) for run in runs]
    ended = [(run.end_time.ToNanoseconds(), -1) for run in runs]
    side_by_side = list(accumulate(change for _, change in sorted(begun + ended)))
    assert (len(runs), max(side_by_side)) == (5, 2)


@pytest.mark.parametrize("option", ["each", "total", "at-once"])
def test_a_limit_that_is_none_is_refused(option: str, examples: Examples) -> None:
    done = examples.run("batch", "x", ".", f"--{option}", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--{option} is 0" in done.stderr
    assert "accepted is a number above 0" in done.stderr

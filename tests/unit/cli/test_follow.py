"""Following a run: what is shown, what Ctrl-C does, who is asked."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import anyio
import anyio.lowlevel
import click
import pytest
from tests.unit.cli.fakes import RUN, FakeControl, FakeDaemon, ended

from steprail_daemon.cli.ask import Person, Terminal
from steprail_daemon.cli.attend import Attendant
from steprail_daemon.cli.client import Message
from steprail_daemon.cli.follow import Following, JsonLines, Lines, Output, follow_asking, follow_new
from steprail_daemon.cli.problems import LEFT, Refused

pytestmark = pytest.mark.anyio

MESSAGE: Message = {"message_end": {"kind": "MESSAGE_KIND_TEXT", "content": {"value": "Hello."}}}
STEP = {"number": "1", "step_id": "step_1"}


def given(control: FakeControl) -> Callable[[], AbstractAsyncContextManager[FakeControl]]:
    return lambda: nullcontext(control)


def shown(daemon: FakeDaemon, output: Output | None = None, person: Person | None = None) -> Following:
    output = output or Lines()
    return Following(daemon, output, person or Terminal(), Attendant(daemon, output.note, "ask", None))


async def started() -> Message:
    return dict(RUN)


def interrupting(times: int) -> Callable[[int], None]:
    def during(number: int) -> None:
        if number < times:
            signal.raise_signal(signal.SIGINT)

    return during


@pytest.mark.parametrize(("state", "status"), [("COMPLETED", 0), ("STOPPED", 10), ("ABORTED", 11), ("FAILED", 1)])
async def test_the_status_is_that_of_the_runs_end(state: str, status: int) -> None:
    assert await follow_new(shown(FakeDaemon(ends_as=ended(state))), started) == status


async def test_lines_show_the_run_from_its_ids_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    await follow_new(shown(FakeDaemon([MESSAGE], ended("STOPPED"))), started)
    assert click.unstyle(capsys.readouterr().out).splitlines() == [
        "run run_1 of session ses_1",
        "Hello.",
        "stopped after 1 step",
        "go on with: steprail continue run_1",
    ]


async def test_json_is_one_object_a_line_run_events_run(capsys: pytest.CaptureFixture[str]) -> None:
    await follow_new(shown(FakeDaemon([MESSAGE]), JsonLines()), started)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"run": RUN}, {"event": MESSAGE}, {"run": ended("COMPLETED")}]


async def test_ctrl_c_once_asks_for_a_stop_at_the_boundary(capsys: pytest.CaptureFixture[str]) -> None:
    daemon = FakeDaemon([MESSAGE], ended("STOPPED"), interrupting(1), wait_for="stop run_1")
    assert await follow_new(shown(daemon), started) == 10
    assert daemon.asked == ["stop run_1"]
    assert "stopping at the next step boundary; Ctrl-C again aborts" in capsys.readouterr().err


async def test_ctrl_c_twice_aborts() -> None:
    daemon = FakeDaemon([MESSAGE, MESSAGE], ended("ABORTED"), interrupting(2), wait_for="abort run_1")
    assert await follow_new(shown(daemon), started) == 11
    assert daemon.asked == ["stop run_1", "abort run_1"]


async def test_ctrl_c_three_times_leaves_the_run_to_the_daemon() -> None:
    daemon = FakeDaemon([MESSAGE] * 3, ended("ABORTED"), interrupting(3), wait_for="nothing that ever comes")
    with pytest.raises(click.exceptions.Exit) as left:
        await follow_new(shown(daemon), started)
    assert left.value.exit_code == LEFT
    assert daemon.asked == ["stop run_1", "abort run_1"]


async def test_ctrl_c_after_the_end_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Pressed(FakeDaemon):
        async def get_run(self, run_id: str) -> Message:
            signal.raise_signal(signal.SIGINT)
            await anyio.lowlevel.checkpoint()
            return await super().get_run(run_id)

    daemon = Pressed([MESSAGE])
    assert await follow_new(shown(daemon), started) == 0
    assert (daemon.asked, capsys.readouterr().err) == ([], "")


class Deaf(FakeDaemon):
    """A daemon that takes calls and does not answer them."""

    async def stop_run(self, run_id: str, reason: str) -> Message:
        await super().stop_run(run_id, reason)
        await anyio.sleep_forever()
        raise AssertionError

    async def abort_run(self, run_id: str, reason: str) -> Message:
        await super().abort_run(run_id, reason)
        await anyio.sleep_forever()
        raise AssertionError


async def test_ctrl_c_three_times_leaves_also_a_daemon_that_does_not_answer() -> None:
    daemon = Deaf([MESSAGE] * 3, ended("ABORTED"), interrupting(3), wait_for="nothing that ever comes")
    with anyio.fail_after(5), pytest.raises(click.exceptions.Exit) as left:
        await follow_new(shown(daemon), started)
    assert left.value.exit_code == LEFT


class Refusing(FakeDaemon):
    """A daemon that refuses to stop anything."""

    async def stop_run(self, run_id: str, reason: str) -> Message:
        await super().stop_run(run_id, reason)
        raise Refused("RUN_NOT_FOUND", "there is no such run")


async def test_a_stop_that_is_refused_is_said_and_the_run_is_followed_on(capsys: pytest.CaptureFixture[str]) -> None:
    daemon = Refusing([MESSAGE], ended("COMPLETED"), interrupting(1), wait_for="stop run_1")
    assert await follow_new(shown(daemon), started) == 0
    assert "the stop came to nothing: there is no such run (RUN_NOT_FOUND)" in capsys.readouterr().err


def lines_in(tmp_path: Path, text: str) -> int:
    path = tmp_path / "answers"
    path.write_text(text)
    return os.open(path, os.O_RDONLY)


def asked(*more: tuple[str, Message], end: str) -> FakeControl:
    request = ("decision_requested", {"step": STEP})
    return FakeControl([("opened", {"run": RUN}), request, *more, ("finished", {"run": ended(end)})])


@pytest.mark.parametrize(
    ("answers", "decision"),
    [("c\n", True), ("Continue\n", True), ("s\n", False), ("perhaps\nst\n", False), ("c", True), ("", False)],
)
async def test_a_person_decides_by_lines_and_the_end_of_input_stops(
    answers: str, decision: bool, tmp_path: Path
) -> None:
    control = asked(("(wait)", {}), end="STOPPED")
    descriptor = lines_in(tmp_path, answers)

    assert await follow_asking(shown(FakeDaemon(), person=Terminal(descriptor)), given(control)) == 10
    os.close(descriptor)
    assert control.decisions == [("step_1", decision)]


async def test_lines_that_came_together_answer_one_step_each(tmp_path: Path) -> None:
    request = ("decision_requested", {"step": {"number": "2", "step_id": "step_2"}})
    control = asked(("(wait)", {}), request, ("(wait)", {}), end="STOPPED")
    descriptor = lines_in(tmp_path, "c\ns\n")

    await follow_asking(shown(FakeDaemon(), person=Terminal(descriptor)), given(control))
    os.close(descriptor)
    assert control.decisions == [("step_1", True), ("step_2", False)]


async def test_a_question_that_somebody_else_answered_is_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    control = asked(("decision_recorded", {"step_id": "step_1"}), end="COMPLETED")
    reading, writing = os.pipe()

    assert await follow_asking(shown(FakeDaemon(), person=Terminal(reading)), given(control)) == 0
    os.close(reading)
    os.close(writing)
    assert control.decisions == []


@pytest.mark.parametrize("pressed", [False, True])
async def test_a_question_that_one_s_own_ctrl_c_answered_is_taken_back_silently(
    pressed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = FakeDaemon()

    class Pressing(FakeControl):
        async def _give(self) -> AsyncIterator[tuple[str, Message]]:
            async for kind, message in super()._give():
                if kind == "decision_recorded" and pressed:
                    signal.raise_signal(signal.SIGINT)
                await anyio.wait_all_tasks_blocked()
                yield kind, message

    recorded = ("decision_recorded", {"step_id": "step_1"})
    control = Pressing(asked(recorded, end="STOPPED").messages)
    reading, writing = os.pipe()
    assert await follow_asking(shown(daemon, person=Terminal(reading)), given(control)) == 10
    os.close(reading)
    os.close(writing)
    assert ("decided elsewhere" in capsys.readouterr().err) != pressed
    assert daemon.asked == (["stop run_1"] if pressed else [])


async def test_a_refused_decision_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rejected = ("rejected", {"reason": "DECISION_NOT_PENDING", "message": "too late"})
    control = asked(("(wait)", {}), rejected, end="COMPLETED")
    descriptor = lines_in(tmp_path, "c\n")

    await follow_asking(shown(FakeDaemon(), person=Terminal(descriptor)), given(control))
    os.close(descriptor)
    assert "refused: DECISION_NOT_PENDING: too late" in capsys.readouterr().err


def denied(*outcomes: str) -> list[Message]:
    return [{"tool_end": {"result": {"outcome": f"TOOL_OUTCOME_{outcome}"}}} for outcome in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "mode", "said"),
    [
        (["DENIED", "SUCCEEDED"], "ASK", "1 tool call was denied; "),
        (["DENIED", "DENIED"], "ACCEPT_EDITS", "2 tool calls were denied; "),
        (["DENIED"], "BYPASS", ""),
        (["FAILED"], "ASK", ""),
    ],
)
async def test_denied_tools_end_with_what_allows_them(
    outcomes: list[str], mode: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await follow_new(shown(FakeDaemon(denied(*outcomes), mode=mode)), started)
    advice = "--permission-mode accept_edits allows edits, bypass everything\n"
    assert click.unstyle(capsys.readouterr().err) == (said + advice if said else "")


async def test_calls_that_somebody_denied_need_no_advice(capsys: pytest.CaptureFixture[str]) -> None:
    resolved = {"source": "RESOLUTION_SOURCE_CLIENT", "answer": "PERMISSION_ANSWER_DENY"}
    await follow_new(shown(FakeDaemon([{"permission_resolved": resolved}, *denied("DENIED")])), started)
    assert capsys.readouterr().err == ""


async def test_denied_tools_are_left_to_the_reader_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    await follow_new(shown(FakeDaemon(denied("DENIED")), JsonLines()), started)
    assert capsys.readouterr().err == ""

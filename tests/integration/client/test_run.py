"""A run as an object, on a real daemon: decided about, allowed, watched, left and continued."""

from __future__ import annotations

import asyncio
import threading

import anyio
import anyio.lowlevel
import pytest
from tests.framework.waiting import until
from tests.integration.client.conftest import THREE_STEPS, Play, command, says, script

from steprail.client import Allow, Decision, Deny, steps, tool
from steprail.errors import CallbackFailed, FailedPrecondition, InvalidArgument, NotFound
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, steps_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.timeout(120)]

COMPLETED, STOPPED = events_pb2.RUN_STATE_COMPLETED, events_pb2.RUN_STATE_STOPPED
ABORTED, FAILED = events_pb2.RUN_STATE_ABORTED, events_pb2.RUN_STATE_FAILED
AWAITING_DECISION = events_pb2.RUN_STATE_AWAITING_DECISION
CONTINUE = decisions_pb2.DECISION_ACTION_CONTINUE
WAIT = 30.0


async def test_a_run_is_awaited_for_its_end(play: Play) -> None:
    run = await play.client.run(script(command("echo hi"), says("all done")), **play.new)
    assert (run.state, run.step_count, run.text) == (COMPLETED, 1, "all done")


async def test_a_rule_stops_it_and_it_goes_on_from_there(play: Play) -> None:
    async with play.client.run(THREE_STEPS, stop_when=[tool("nothing"), steps(1)], **play.new) as run:
        stopped = await run
        assert (stopped.state, stopped.stop_reason.observed, play.count()) == (STOPPED, "1", ["one"])
        rest = run.continue_run(stop_when=[])
    done = await rest
    assert (done.state, done.continued_from) == (COMPLETED, stopped.run_id)


async def test_a_function_decides_about_each_step_and_may_block_without_holding_the_loop_up(play: Play) -> None:
    asked: list[int] = []
    free = threading.Event()

    def decide(step: steps_pb2.Step) -> bool:
        asked.append(step.number)
        assert free.wait(WAIT)
        return step.number < 2

    async with play.client.run(THREE_STEPS, decide=decide, **play.new) as run:
        await until(lambda: bool(asked), WAIT)
        free.set()
        stopped = await run
    assert (stopped.state, asked, play.count()) == (STOPPED, [1, 2], ["one", "two"])
    assert stopped.stop_reason.source == decisions_pb2.DECISION_SOURCE_CLIENT


async def test_a_coroutine_function_decides_with_a_reason_that_people_read(play: Play) -> None:
    async def decide(step: steps_pb2.Step) -> Decision:
        await asyncio.sleep(0)
        return Decision(go_on=False, reason=f"{step.tool_calls[0].tool} is enough")

    run = await play.client.run(THREE_STEPS, decide=decide, **play.new)
    assert (run.state, run.stop_reason.reason) == (STOPPED, "run_command is enough")


async def test_a_function_that_raises_fails_the_run_and_reaches_the_caller(play: Play) -> None:
    def decide(_: steps_pb2.Step) -> bool:
        raise LookupError("no such table")

    with pytest.raises(CallbackFailed, match="`decide` failed") as caught:
        await play.client.run(THREE_STEPS, decide=decide, **play.new)

    assert isinstance(caught.value.__cause__, LookupError)
    failed = caught.value.run
    assert (failed.state, failed.failure.reason) == (FAILED, "DECIDER_ERROR")
    assert "LookupError: no such table" in failed.failure.message
    run = await play.client.run(script(says("again")), session=failed.session_id)
    assert run.state == COMPLETED


async def test_a_function_that_forgets_to_return_neither_stops_nor_goes_on(play: Play) -> None:
    with pytest.raises(CallbackFailed) as caught:
        await play.client.run(THREE_STEPS, decide=lambda _: None, **play.new)  # type: ignore[arg-type, return-value]
    assert isinstance(caught.value.__cause__, TypeError)
    assert caught.value.run.failure.reason == "DECIDER_ERROR"


async def test_guidance_that_the_agent_cannot_take_fails_the_run_and_does_not_hang(play: Play) -> None:
    with pytest.raises(CallbackFailed) as caught:
        await play.client.run(THREE_STEPS, decide=lambda _: "write it in one file", **play.new)
    assert isinstance(caught.value.__cause__, FailedPrecondition)
    assert caught.value.__cause__.reason == "CAPABILITY_MISSING"
    assert caught.value.run.failure.reason == "DECIDER_ERROR"


async def test_who_is_no_longer_asked_is_cancelled_when_somebody_else_decided(play: Play) -> None:
    began, cancelled = anyio.Event(), anyio.Event()

    async def decide(step: steps_pb2.Step) -> bool:
        if step.number > 1:
            return False
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return True

    async with play.client.run(THREE_STEPS, decide=decide, **play.new) as run:
        with anyio.fail_after(WAIT):
            await began.wait()
            (pending,) = await play.client.list_pending(run.session_id)
            await play.client.submit_decision(run.run_id, pending.decision.step_id, CONTINUE)
            await cancelled.wait()
        ended = await run
    assert (ended.state, ended.step_count) == (STOPPED, 2)


async def test_an_abort_cancels_who_is_asked_and_the_late_answer_of_a_thread_is_dropped(play: Play) -> None:
    began, free = threading.Event(), threading.Event()

    def decide(_: steps_pb2.Step) -> bool:
        began.set()
        free.wait(WAIT)
        raise AssertionError("nobody hears this")

    async with play.client.run(THREE_STEPS, decide=decide, **play.new) as run:
        await anyio.to_thread.run_sync(began.wait, WAIT)
        await run.abort("changed my mind")
        ended = await run
        free.set()
    assert (ended.state, play.count()) == (ABORTED, ["one"])


async def test_permissions_are_asked_for_and_given_once_for_the_session_or_not_at_all(play: Play) -> None:
    asked: list[tuple[str, str]] = []

    def permit(permission: decisions_pb2.Permission) -> bool | Allow | Deny:
        asked.append((permission.tool, permission.arguments_json.value))
        if "two" in permission.arguments_json.value:
            return Deny("not that one")
        return Allow(session=True)

    twice = command("echo one >> count")
    run = await play.client.run(
        script(twice, command("echo two >> count"), twice, says("done")), permissions=permit, **play.asking
    )
    assert (run.state, play.count()) == (COMPLETED, ["one", "one"])
    assert [tool for tool, _ in asked] == ["run_command", "run_command"]


async def test_a_permission_function_that_raises_denies_and_reaches_the_caller(play: Play) -> None:
    async def permit(_: decisions_pb2.Permission) -> bool:
        raise OSError("no terminal")

    with pytest.raises(CallbackFailed, match="`permissions` failed") as caught:
        await play.client.run(script(command("echo one >> count"), says("done")), permissions=permit, **play.asking)
    assert isinstance(caught.value.__cause__, OSError)
    assert (caught.value.run.state in (COMPLETED, STOPPED), play.count()) == (True, [])


async def test_who_asks_for_a_permission_that_somebody_else_gave_is_cancelled(play: Play) -> None:
    cancelled, began = anyio.Event(), anyio.Event()

    async def permit(_: decisions_pb2.Permission) -> bool:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return False

    async with play.client.run(
        script(command("echo one >> count"), says("done")), permissions=permit, **play.asking
    ) as run:
        with anyio.fail_after(WAIT):
            await began.wait()
            (pending,) = await play.client.list_pending(run.session_id)
            allow = decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE
            await play.client.answer_permission(run.run_id, pending.permission.permission_id, allow)
            await cancelled.wait()
        assert (await run).state == COMPLETED
    assert play.count() == ["one"]


async def test_events_and_steps_come_to_each_who_iterates_from_the_first_to_the_last(play: Play) -> None:
    async with play.client.run(THREE_STEPS, **play.new) as run:
        numbers = [step.number async for step in run.steps()]
        events = [event async for event in run]
        assert (await run.get()).state == COMPLETED
    assert numbers == [1, 2, 3]
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    assert events[-1].WhichOneof("body") == "agent_end"


@pytest.mark.parametrize("on_exit", ["detach", "stop", "abort"])
async def test_leaving_a_run_ends_it_only_as_asked(play: Play, on_exit: str) -> None:
    long = script(command("sleep 1; echo one >> count"), command("echo two >> count"), says("done"))
    async with play.client.run(long, on_exit=on_exit, **play.new) as run:  # type: ignore[arg-type]
        async for event in run:
            if event.WhichOneof("body") == "tool_start":
                break
    ended = await play.client.wait_run(run.run_id, timeout=WAIT)
    expected = {"detach": (COMPLETED, ["one", "two"]), "stop": (STOPPED, ["one"]), "abort": (ABORTED, [])}
    assert (ended.state, play.count()) == expected[on_exit]


async def test_a_caller_that_is_cancelled_leaves_the_run_alone_and_one_that_wants_a_stop_gets_it(play: Play) -> None:
    for on_exit, state in (("detach", COMPLETED), ("stop", STOPPED)):
        run = play.client.run(script(command("sleep 1"), says("x")), on_exit=on_exit, **play.new)  # type: ignore[arg-type]
        with anyio.move_on_after(0.6) as scope:
            await run
        assert scope.cancelled_caught
        assert (await play.client.wait_run(run.run_id, timeout=WAIT)).state == state


@pytest.mark.parametrize("kind", ["a task", "a scope"])
async def test_who_is_cancelled_while_it_leaves_a_run_still_ends_it_as_it_said(
    play: Play, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, goes_on = asyncio.Event(), asyncio.Event()
    abort_run = play.client.abort_run

    async def abort_slowly(run_id: str, reason: str = "") -> runs_pb2.Run:
        leaving.set()
        await goes_on.wait()
        return await abort_run(run_id, reason)

    monkeypatch.setattr(play.client, "abort_run", abort_slowly)
    run = play.client.run(script(command("sleep 30"), says("x")), on_exit="abort", **play.new)
    after: list[str] = []

    async def leave() -> None:
        with scope:
            async with run:
                pass
            await anyio.lowlevel.checkpoint()
            after.append("a cancellation takes effect")

    scope = anyio.CancelScope()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(leave())
        await leaving.wait()
        task.cancel() if kind == "a task" else scope.cancel()
        # Time to act on it, for as long as it takes.
        for _ in range(10):
            await asyncio.sleep(0)
        goes_on.set()
    assert after == []
    assert (await play.client.wait_run(run.run_id, timeout=WAIT)).state == ABORTED


async def never(_: steps_pb2.Step) -> bool:
    await asyncio.Event().wait()
    return True


async def test_a_run_that_waits_for_a_decider_that_left_is_followed_and_decided_by_another(play: Play) -> None:
    async with play.client.run(THREE_STEPS, decide=never, **play.new) as run:
        attention = runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION
        waiting = await play.client.wait_run(run.run_id, until=attention, timeout=WAIT)
        assert waiting.state == AWAITING_DECISION
    ended = await play.client.follow(run.run_id, decide=lambda _: False)
    assert (ended.state, ended.step_count) == (STOPPED, 1)


async def test_a_second_run_of_a_session_may_wait_for_its_turn(play: Play) -> None:
    async with play.client.run(script(command("sleep 0.5"), says("first")), **play.new) as first:
        second = await play.client.run(script(says("second")), session=first.session_id, queue=True)
        assert ((await first).state, second.state, second.text) == (COMPLETED, COMPLETED, "second")


async def test_what_is_refused_raises_and_what_is_wrong_is_named(play: Play) -> None:
    with pytest.raises(NotFound):
        await play.client.run("go", session="session_none")
    with pytest.raises(ValueError, match="either agent"):
        _ = play.client.run("go")
    with pytest.raises(ValueError, match="on_exit is 'kill'; accepted are detach, stop, abort"):
        _ = play.client.run("go", on_exit="kill", **play.new)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="has not begun"):
        _ = play.client.run("go", **play.new).run_id


async def test_a_session_that_was_made_for_a_run_which_is_refused_goes(play: Play) -> None:
    before = [session.session_id for session in await play.client.list_sessions()]
    with pytest.raises(InvalidArgument):
        await play.client.run("", **play.new)
    assert [session.session_id for session in await play.client.list_sessions()] == before
    own = await play.client.create_session("scripted", str(play.workspace))
    with pytest.raises(InvalidArgument):
        await play.client.run("", session=own)
    assert (await play.client.get_session(own.session_id)).session_id == own.session_id

"""Retries act once."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from steprail.v1 import runs_pb2
from steprail_daemon.core.errors import AlreadyExists, WrongState
from steprail_daemon.engine.facade import Caller
from steprail_daemon.service.request_ids import RETENTION_NS, RequestIds

pytestmark = pytest.mark.anyio

ONE = runs_pb2.StopRunRequest(run_id="one", request_id="key")
ME, YOU = Caller("me"), Caller("you")
TWO = runs_pb2.StopRunRequest(run_id="two", request_id="key")


class Clock:
    def __init__(self) -> None:
        self.at = 10**18

    def __call__(self) -> int:
        return self.at


class Acts:
    """Counts what was done."""

    def __init__(self) -> None:
        self.done = 0

    def giving(self, result: str) -> Callable[[], Awaitable[str]]:
        async def act() -> str:
            self.done += 1
            return result

        return act

    async def refusing(self) -> str:
        self.done += 1
        raise WrongState("SESSION_BUSY", "not now")


async def test_the_same_id_and_body_give_what_was_given_and_do_nothing() -> None:
    ids, acts = RequestIds(Clock()), Acts()

    first = await ids.once(ME, "key", ONE, acts.giving("a"))
    second = await ids.once(ME, "key", ONE, acts.giving("b"))

    assert (first, second, acts.done) == ("a", "a", 1)


async def test_without_an_id_each_request_acts() -> None:
    ids, acts = RequestIds(Clock()), Acts()

    assert [await ids.once(ME, "", ONE, acts.giving(text)) for text in "ab"] == ["a", "b"]


@pytest.mark.parametrize("other", [YOU, Caller("me", "another-tenant")])
async def test_an_id_belongs_to_one_identity_of_one_tenant(other: Caller) -> None:
    ids, acts = RequestIds(Clock()), Acts()

    assert await ids.once(ME, "key", ONE, acts.giving("a")) == "a"
    assert await ids.once(other, "key", TWO, acts.giving("b")) == "b"
    assert await ids.once(ME, "key", ONE, acts.giving("c")) == "a"


@pytest.mark.parametrize("other", [TWO, runs_pb2.AbortRunRequest(run_id="one", request_id="key")])
async def test_another_body_or_another_call_with_the_id_is_refused(
    other: runs_pb2.StopRunRequest | runs_pb2.AbortRunRequest,
) -> None:
    ids, acts = RequestIds(Clock()), Acts()
    await ids.once(ME, "key", ONE, acts.giving("a"))

    with pytest.raises(AlreadyExists) as caught:
        await ids.once(ME, "key", other, acts.giving("b"))

    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert acts.done == 1


async def test_a_refusal_is_not_remembered() -> None:
    ids, acts = RequestIds(Clock()), Acts()
    with pytest.raises(WrongState):
        await ids.once(ME, "key", ONE, acts.refusing)

    assert await ids.once(ME, "key", TWO, acts.giving("b")) == "b"


async def test_twins_wait_for_the_first() -> None:
    ids, acts, gate = RequestIds(Clock()), Acts(), anyio.Event()
    results: list[str] = []

    async def slow() -> str:
        acts.done += 1
        await gate.wait()
        return f"result {acts.done}"

    async def ask() -> None:
        results.append(await ids.once(ME, "key", ONE, slow))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            gate.set()

    assert results == ["result 1"] * 5


async def test_after_a_first_that_is_refused_the_next_twin_tries() -> None:
    ids, acts, gate = RequestIds(Clock()), Acts(), anyio.Event()
    results: list[str] = []

    async def first_fails() -> str:
        acts.done += 1
        mine = acts.done
        await gate.wait()
        if mine == 1:
            raise WrongState("SESSION_BUSY", "not now")
        return "second try"

    async def ask() -> None:
        try:
            results.append(await ids.once(ME, "key", ONE, first_fails))
        except WrongState:
            results.append("refused")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            gate.set()

    assert sorted(results) == ["refused", "second try", "second try"]


async def test_one_that_is_cut_off_leaves_the_id_free() -> None:
    ids, acts = RequestIds(Clock()), Acts()
    with anyio.move_on_after(0.01):
        await ids.once(ME, "key", ONE, lambda: anyio.sleep(10))  # type: ignore[arg-type, return-value]

    assert await ids.once(ME, "key", TWO, acts.giving("b")) == "b"


async def test_an_id_is_forgotten_after_a_day() -> None:
    clock = Clock()
    ids, acts = RequestIds(clock), Acts()
    await ids.once(ME, "key", ONE, acts.giving("a"))

    clock.at += RETENTION_NS
    assert await ids.once(ME, "key", ONE, acts.giving("b")) == "a"
    clock.at += 1
    assert await ids.once(ME, "key", TWO, acts.giving("c")) == "c"


async def test_what_takes_no_time_acts_once_too() -> None:
    clock = Clock()
    ids, done = RequestIds(clock), []

    def giving(result: str) -> Callable[[], str]:
        def act() -> str:
            done.append(result)
            return result

        return act

    assert [ids.once_now(ME, "key", ONE, giving(text)) for text in "ab"] == ["a", "a"]
    assert [ids.once_now(ME, "", ONE, giving(text)) for text in "cd"] == ["c", "d"]
    with pytest.raises(AlreadyExists):
        ids.once_now(ME, "key", TWO, giving("e"))
    clock.at += RETENTION_NS + 1
    assert ids.once_now(ME, "key", TWO, giving("f")) == "f"
    assert done == ["a", "c", "d", "f"]


async def test_a_refusal_of_what_takes_no_time_is_not_remembered() -> None:
    ids = RequestIds(Clock())

    def refuse() -> str:
        raise WrongState("SESSION_BUSY", "not now")

    with pytest.raises(WrongState):
        ids.once_now(ME, "key", ONE, refuse)

    assert ids.once_now(ME, "key", TWO, lambda: "b") == "b"


async def test_long_bodies_are_told_apart() -> None:
    ids = RequestIds(Clock())
    one, two = (runs_pb2.StopRunRequest(run_id="run", reason="x" * 1000 + end) for end in "ab")

    assert ids.once_now(ME, "key", one, lambda: "a") == "a"
    with pytest.raises(AlreadyExists):
        ids.once_now(ME, "key", two, lambda: "b")

"""Retries act once."""

from collections.abc import Awaitable, Callable

import anyio
import msgspec
import pytest

from steprail.v1 import runs_pb2
from steprail_daemon.core.errors import AlreadyExists, WrongState
from steprail_daemon.engine.facade import Caller, Request
from steprail_daemon.engine.requests import Requests, row_of
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


class Memory:
    """Remembers as the engine does."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.requests = Requests()

    def remembered(self, caller: Caller, request_id: str) -> Request | None:
        return self.requests.find(caller, request_id, self.clock())

    def remember(self, caller: Caller, result: str) -> None:
        row = row_of(caller, result, self.clock())
        assert row is not None
        self.requests.add(row)


def request_ids(clock: Clock | None = None) -> RequestIds:
    return RequestIds(Memory(clock or Clock()))


class Acts:
    """Counts what was done."""

    def __init__(self) -> None:
        self.done = 0

    def giving(self, result: str) -> Callable[[Caller], Awaitable[str]]:
        async def act(_: Caller) -> str:
            self.done += 1
            return result

        return act

    async def refusing(self, _: Caller) -> str:
        self.done += 1
        raise WrongState("SESSION_BUSY", "not now")


async def test_the_same_id_and_body_give_what_was_given_and_do_nothing() -> None:
    ids, acts = request_ids(), Acts()

    first = await ids.once(ME, "key", ONE, acts.giving("a"))
    second = await ids.once(ME, "key", ONE, acts.giving("b"))

    assert (first, second, acts.done) == ("a", "a", 1)


async def test_without_an_id_each_request_acts() -> None:
    ids, acts = request_ids(), Acts()

    assert [await ids.once(ME, "", ONE, acts.giving(text)) for text in "ab"] == ["a", "b"]


@pytest.mark.parametrize("other", [YOU, Caller("me", "another-tenant")])
async def test_an_id_belongs_to_one_identity_of_one_tenant(other: Caller) -> None:
    ids, acts = request_ids(), Acts()

    assert await ids.once(ME, "key", ONE, acts.giving("a")) == "a"
    assert await ids.once(other, "key", TWO, acts.giving("b")) == "b"
    assert await ids.once(ME, "key", ONE, acts.giving("c")) == "a"


@pytest.mark.parametrize("other", [TWO, runs_pb2.AbortRunRequest(run_id="one", request_id="key")])
async def test_another_body_or_another_call_with_the_id_is_refused(
    other: runs_pb2.StopRunRequest | runs_pb2.AbortRunRequest,
) -> None:
    ids, acts = request_ids(), Acts()
    await ids.once(ME, "key", ONE, acts.giving("a"))

    with pytest.raises(AlreadyExists) as caught:
        await ids.once(ME, "key", other, acts.giving("b"))

    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert acts.done == 1


async def test_a_refusal_is_not_remembered() -> None:
    ids, acts = request_ids(), Acts()
    with pytest.raises(WrongState):
        await ids.once(ME, "key", ONE, acts.refusing)

    assert await ids.once(ME, "key", TWO, acts.giving("b")) == "b"


async def test_twins_wait_for_the_first() -> None:
    ids, acts, gate = request_ids(), Acts(), anyio.Event()
    results: list[str] = []

    async def slow(_: Caller) -> str:
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
    ids, acts, gate = request_ids(), Acts(), anyio.Event()
    results: list[str] = []

    async def first_fails(_: Caller) -> str:
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
    ids, acts = request_ids(), Acts()
    with anyio.move_on_after(0.01):
        await ids.once(ME, "key", ONE, lambda _: anyio.sleep(10))  # type: ignore[arg-type, return-value]

    assert await ids.once(ME, "key", TWO, acts.giving("b")) == "b"


async def test_an_id_is_forgotten_after_a_day() -> None:
    clock = Clock()
    ids, acts = request_ids(clock), Acts()
    await ids.once(ME, "key", ONE, acts.giving("a"))

    clock.at += RETENTION_NS
    assert await ids.once(ME, "key", ONE, acts.giving("b")) == "a"
    clock.at += 1
    assert await ids.once(ME, "key", TWO, acts.giving("c")) == "c"


async def test_what_takes_no_time_acts_once_too() -> None:
    clock = Clock()
    ids, done = request_ids(clock), []

    def giving(result: str) -> Callable[[Caller], str]:
        def act(_: Caller) -> str:
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
    ids = request_ids()

    def refuse(_: Caller) -> str:
        raise WrongState("SESSION_BUSY", "not now")

    with pytest.raises(WrongState):
        ids.once_now(ME, "key", ONE, refuse)

    assert ids.once_now(ME, "key", TWO, lambda _: "b") == "b"


async def test_long_bodies_are_told_apart() -> None:
    ids = request_ids()
    one, two = (runs_pb2.StopRunRequest(run_id="run", reason="x" * 1000 + end) for end in "ab")

    assert ids.once_now(ME, "key", one, lambda _: "a") == "a"
    with pytest.raises(AlreadyExists):
        ids.once_now(ME, "key", two, lambda _: "b")


async def test_what_was_committed_with_what_it_did_is_not_remembered_again() -> None:
    memory = Memory(Clock())
    ids = RequestIds(memory)

    async def commits(caller: Caller) -> str:
        assert caller == msgspec.structs.replace(ME, request=caller.request)
        assert caller.request is not None
        assert (caller.request.request_id, caller.request.method) == ("key", "steprail.v1.StopRunRequest")
        memory.remember(caller, "committed")
        return "committed"

    assert await ids.once(ME, "key", ONE, commits) == "committed"
    assert RequestIds(memory).once_now(ME, "key", ONE, lambda _: "again") == "committed"


async def test_a_call_that_takes_time_keeps_its_id_from_one_that_takes_none() -> None:
    ids, gate = request_ids(), anyio.Event()

    async def slow(_: Caller) -> str:
        await gate.wait()
        return "slow"

    async def ask() -> None:
        await ids.once(ME, "key", ONE, slow)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(AlreadyExists):
                ids.once_now(ME, "key", TWO, lambda _: "b")
            with pytest.raises(AlreadyExists):
                await ids.once(ME, "key", TWO, slow)
            gate.set()

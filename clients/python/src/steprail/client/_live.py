"""A run as an object: awaited for its end, iterated for what happens, decided about by callables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from steprail.client import _messages as messages
from steprail.client._attend import Attendant, Callables, Links
from steprail.client._tasks import Tasks, outlasting
from steprail.errors import CallbackFailed, CallTimeout, ConnectionFailed, CursorInvalid, StepRailError
from steprail.v1 import events_pb2, rules_pb2, runs_pb2, steps_pb2

if TYPE_CHECKING:
    from steprail.client._client import Client

log = logging.getLogger("steprail.client")

#: What leaving an `async with` does to a run that has not ended.
OnExit: TypeAlias = Literal["detach", "stop", "abort"]
_ON_EXIT = ("detach", "stop", "abort")
#: Seconds for which the end of a run is asked for in one call.
_WAIT_SECONDS = 60.0
#: Seconds that asking for a stop or an abort may take when the `async with` is left.
_EXIT_SECONDS = 10.0


class LiveRun:
    """A run that `Client.run` begins.

    `await run` begins it and gives the `Run` once it has ended. For more, use it with `async with`: within,
    `async for event in run` gives every event from the first one, `run.steps()` the completed steps, and it can be
    stopped, steered, aborted and continued. Each iteration is a watch of its own: a slow reader holds nothing up.

    The callables are asked from the beginning of the `async with` to its end. Leaving it, or cancelling who waits, does
    not end the run, unless `on_exit` says so.
    """

    def __init__(
        self,
        client: Client,
        links: Callable[[], Links],
        begin: Callable[[], Awaitable[runs_pb2.Run]],
        callables: Callables,
        on_exit: OnExit = "detach",
    ) -> None:
        if on_exit not in _ON_EXIT:
            raise ValueError(f"on_exit is {on_exit!r}; accepted are {', '.join(_ON_EXIT)}")
        self._client = client
        self._links = links
        self._begin = begin
        self._callables = callables
        self._on_exit: OnExit = on_exit
        self._run: runs_pb2.Run | None = None
        self._left = False
        self._tasks = Tasks()
        self._ended = asyncio.Event()
        self._final: runs_pb2.Run | None = None
        #: Why the end is not known.
        self._lost: Exception | None = None
        self._attendant: Attendant | None = None
        self._following: asyncio.Task[None] | None = None

    # --- its life ---

    async def __aenter__(self) -> LiveRun:
        """Begin the run.

        Raises:
            StepRailError: it was refused.
        """
        if self._run is not None:
            raise RuntimeError("this run was begun before; call `run` again for another one")
        self._run = await self._begin()
        self._attendant = Attendant(self._links(), self._callables, self._tasks, self._run.run_id)
        self._following = self._tasks.start(self._follow(self._attendant))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the run, or end it, as `on_exit` says."""
        self._left = True
        try:
            if not self._ended.is_set() and self._on_exit != "detach":
                # Whoever is cancelled while it leaves, by the end of its program for one, still means what it said.
                await outlasting(self._tasks.start(self._ask_for_end()))
        finally:
            await self._tasks.close()

    def __await__(self) -> Generator[Any, None, runs_pb2.Run]:
        """See `wait`."""
        return self.wait().__await__()

    async def wait(self) -> runs_pb2.Run:
        """Wait for the end of the run, and begin it where no `async with` did.

        The bound of this wait is the run's own `hard_timeout`, and the client's `patience` where the daemon is gone.

        Raises:
            CallbackFailed: a callable raised, or gave what is no answer; the run has ended.
            StepRailError: the run was refused, or the daemon did not come back; the run may go on.
        """
        if self._run is None:
            async with self:
                return await self._result()
        return await self._result()

    async def _result(self) -> runs_pb2.Run:
        if self._left and not self._ended.is_set():
            raise RuntimeError("the run was left before it ended; client.wait_run waits for its end")
        await self._ended.wait()
        if self._final is None:
            raise self._lost or StepRailError("the run was left before it ended")
        failed = self._attendant.failed if self._attendant is not None else None
        if failed is not None:
            name, error = failed
            raise CallbackFailed(name, self._final) from error
        return self._final

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._begun.run_id

    @property
    def session_id(self) -> str:
        """The session that it runs on."""
        return self._begun.session_id

    @property
    def _begun(self) -> runs_pb2.Run:
        if self._run is None:
            raise RuntimeError("the run has not begun; use `async with` (SyncClient: `with`), or wait for it")
        return self._run

    # --- what happens ---

    async def __aiter__(self) -> AsyncIterator[events_pb2.Event]:
        """Give every event of the run, until its end; see `Client.watch_run`."""
        async for event in self._client.watch_run(self.run_id):
            yield event

    async def steps(self) -> AsyncIterator[steps_pb2.Step]:
        """Give each step when it is complete, until the run ends. What was decided about it is not in it yet."""
        async for event in self:
            if event.WhichOneof("body") == "step_end":
                yield event.step_end.step

    async def get(self) -> runs_pb2.Run:
        """Give the run as it is now."""
        return await self._client.get_run(self.run_id)

    # --- what is asked of it ---

    async def stop(self, reason: str = "") -> runs_pb2.Run:
        """Ask for a stop at the next boundary."""
        return await self._client.stop_run(self.run_id, reason)

    async def abort(self, reason: str = "") -> runs_pb2.Run:
        """Cut it off."""
        return await self._client.abort_run(self.run_id, reason)

    async def steer(self, text: str) -> str:
        """Give text to the running turn; see `Client.steer_run`."""
        return await self._client.steer_run(self.run_id, text)

    def continue_run(
        self,
        prompt: messages.Prompt | None = None,
        *,
        stop_when: Iterable[rules_pb2.StopRule] | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
    ) -> LiveRun:
        """Give the run that goes on after this one has ended, with the same callables and the same `on_exit`.

        Rules and limits are inherited unless given; an empty list of rules means none. A prompt is needed after
        COMPLETED.
        """
        request = self._client.continue_request(
            self.run_id, prompt, stop_rules=stop_when, limits=limits, labels=labels, queue=queue
        )

        async def begin() -> runs_pb2.Run:
            return await self._links().begin(request)

        return LiveRun(self._client, self._links, begin, self._callables, self._on_exit)

    # --- following it ---

    async def _follow(self, attendant: Attendant) -> None:
        """Wait for the end, and let the callables answer meanwhile."""
        try:
            self._final = await (self._converse(attendant) if self._callables.asked else self._wait_for_end())
        except Exception as error:  # noqa: BLE001 - whoever waits for the end is told
            self._lost = error
        finally:
            attendant.dismiss()
            self._ended.set()

    async def _wait_for_end(self) -> runs_pb2.Run:
        comeback = self._links().comeback("WaitRun", self.run_id)
        while True:
            try:
                run = await self._client.wait_run(self.run_id, timeout=_WAIT_SECONDS)
            except StepRailError as error:
                await comeback.after(self._as_lost(error))
            else:
                comeback.answered()
                if run.HasField("end_time"):
                    return run

    async def _converse(self, attendant: Attendant) -> runs_pb2.Run:
        comeback = self._links().comeback("ControlRun", self.run_id)
        wanted = runs_pb2.CONTROL_EVENTS_ALL if self._callables.needs_events else runs_pb2.CONTROL_EVENTS_NO_EVENTS
        decides = self._callables.decide is not None
        misplaced = False
        while True:
            try:
                try:
                    async with self._client.control(attach=self.run_id, decide=decides, events=wanted) as control:
                        comeback.answered()
                        async for message in control:
                            if message.WhichOneof("body") == "finished":
                                return message.finished.run
                            attendant.heed(message)
                            misplaced = False
                except CursorInvalid as error:
                    log.info("run %s: the place in the events is no more: %s", self.run_id, error)
                    again, misplaced = misplaced, True
                    if not again:
                        comeback.answered()
                    # A run that ended long ago may have no events any more, not even from the beginning.
                    run = await self.get()
                    if run.HasField("end_time"):
                        return run
                    if again:
                        raise
                    # Events are wanted only for what became of questions; from the beginning is as good.
            except StepRailError as error:
                await comeback.after(self._as_lost(error))

    def _as_lost(self, error: StepRailError) -> StepRailError:
        return ConnectionFailed(self._client.address, str(error)) if isinstance(error, CallTimeout) else error

    async def _ask_for_end(self) -> None:
        ask = self._client.stop_run if self._on_exit == "stop" else self._client.abort_run
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                await ask(self.run_id, "the client left")
        except (StepRailError, TimeoutError) as error:
            log.warning("run %s could not be asked to %s: %s", self.run_id, self._on_exit, error)

"""Generated from `steprail.client._live` by scripts/blocking.py; never edited by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType

from steprail.client import _messages as messages
from steprail.client._blocking.portal import Blocking
from steprail.client._live import LiveRun
from steprail.v1 import events_pb2, rules_pb2, runs_pb2, steps_pb2


class SyncRun(Blocking[LiveRun]):
    """A run that `Client.run` begins.

    `run.wait()` begins it and gives the `Run` once it has ended. For more, use it with `with`: within,
    `for event in run` gives every event from the first one, `run.steps()` the completed steps, and it can be
    stopped, steered, aborted and continued. Each iteration is a watch of its own: a slow reader holds nothing up.

    The callables are asked from the beginning of the `with` to its end. Leaving it, or cancelling who waits, does
    not end the run, unless `on_exit` says so.
    """

    def __enter__(self) -> SyncRun:
        """Begin the run.

        Raises:
            StepRailError: it was refused.
        """
        _ = self._portal.wait(self._calls.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the run, or end it, as `on_exit` says."""
        self._portal.wait(self._calls.__aexit__(kind, error, trace))

    def wait(self) -> runs_pb2.Run:
        """Wait for the end of the run, and begin it where no `with` did.

        The bound of this wait is the run's own `hard_timeout`, and the client's `patience` where the daemon is gone.

        Raises:
            CallbackFailed: a callable raised, or gave what is no answer; the run has ended.
            StepRailError: the run was refused, or the daemon did not come back; the run may go on.
        """
        return self._portal.wait(self._calls.wait())

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._calls.run_id

    @property
    def session_id(self) -> str:
        """The session that it runs on."""
        return self._calls.session_id

    def __iter__(self) -> Iterator[events_pb2.Event]:
        """Give every event of the run, until its end; see `Client.watch_run`."""
        return self._portal.iterate(self._calls.__aiter__())

    def steps(self) -> Iterator[steps_pb2.Step]:
        """Give each step when it is complete, until the run ends. What was decided about it is not in it yet."""
        return self._portal.iterate(self._calls.steps())

    def get(self) -> runs_pb2.Run:
        """Give the run as it is now."""
        return self._portal.wait(self._calls.get())

    def stop(self, reason: str = "") -> runs_pb2.Run:
        """Ask for a stop at the next boundary."""
        return self._portal.wait(self._calls.stop(reason))

    def abort(self, reason: str = "") -> runs_pb2.Run:
        """Cut it off."""
        return self._portal.wait(self._calls.abort(reason))

    def steer(self, text: str) -> str:
        """Give text to the running turn; see `Client.steer_run`."""
        return self._portal.wait(self._calls.steer(text))

    def continue_run(
        self,
        prompt: messages.Prompt | None = None,
        *,
        stop_when: Iterable[rules_pb2.StopRule] | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
    ) -> SyncRun:
        """Give the run that goes on after this one has ended, with the same callables and the same `on_exit`.

        Rules and limits are inherited unless given; an empty list of rules means none. A prompt is needed after
        COMPLETED.
        """
        return SyncRun(
            self._calls.continue_run(prompt, stop_when=stop_when, limits=limits, labels=labels, queue=queue),
            self._portal,
        )

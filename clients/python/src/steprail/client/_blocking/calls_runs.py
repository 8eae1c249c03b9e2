"""Generated from `steprail.client._runs` by scripts/blocking.py; never edited by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steprail.client import _messages as messages
from steprail.client._blocking.portal import Blocking
from steprail.client._client import Client
from steprail.v1 import decisions_pb2, events_pb2, rules_pb2, runs_pb2, steps_pb2


class SyncRunCalls(Blocking[Client]):
    """Starts, shows, waits for and ends runs. No deadline or cancellation of a call ever ends a run."""

    def start_run(
        self,
        session_id: str,
        prompt: messages.Prompt,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] = (),
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
        allow_inexact_stop: bool = False,
        request_id: str = "",
    ) -> runs_pb2.Run:
        """Start a run; it returns once it is recorded. With `queue` it may wait for its turn.

        Raises:
            InvalidArgument: RULE_INVALID, PROMPT_INVALID, PROMPT_TOO_LARGE.
            FailedPrecondition: SESSION_BUSY, CAPABILITY_MISSING, AGENT_UNAVAILABLE, RULE_ALREADY_MET.
            ResourceExhausted: QUEUE_FULL, RATE_LIMITED, BUDGET_EXHAUSTED.
            ConnectionFailed: it may have begun all the same; `find_run` tells.
        """
        return self._portal.wait(
            self._calls.start_run(
                session_id,
                prompt,
                stop_rules=stop_rules,
                decider=decider,
                limits=limits,
                labels=labels,
                queue=queue,
                allow_inexact_stop=allow_inexact_stop,
                request_id=request_id,
            )
        )

    def start_request(
        self,
        session_id: str,
        prompt: messages.Prompt,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] = (),
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
        allow_inexact_stop: bool = False,
        request_id: str = "",
    ) -> runs_pb2.StartRunRequest:
        """Give the request of `start_run`, for `control`."""
        return self._calls.start_request(
            session_id,
            prompt,
            stop_rules=stop_rules,
            decider=decider,
            limits=limits,
            labels=labels,
            queue=queue,
            allow_inexact_stop=allow_inexact_stop,
            request_id=request_id,
        )

    def continue_run(
        self,
        run_id: str,
        prompt: messages.Prompt | None = None,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] | None = None,
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
        allow_inexact_stop: bool | None = None,
        request_id: str = "",
    ) -> runs_pb2.Run:
        """Go on after a run that ended. What is None is inherited; an empty list of rules means none.

        Raises:
            FailedPrecondition: NOT_LATEST_RUN, SESSION_BUSY, SESSION_CLOSED, SESSION_BROKEN.
            InvalidArgument: PROMPT_INVALID without a prompt after COMPLETED.
            ConnectionFailed: it may have begun all the same; `find_run` tells.
        """
        return self._portal.wait(
            self._calls.continue_run(
                run_id,
                prompt,
                stop_rules=stop_rules,
                decider=decider,
                limits=limits,
                labels=labels,
                queue=queue,
                allow_inexact_stop=allow_inexact_stop,
                request_id=request_id,
            )
        )

    def continue_request(
        self,
        run_id: str,
        prompt: messages.Prompt | None = None,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] | None = None,
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
        allow_inexact_stop: bool | None = None,
        request_id: str = "",
    ) -> runs_pb2.ContinueRunRequest:
        """Give the request of `continue_run`, for `control`."""
        return self._calls.continue_request(
            run_id,
            prompt,
            stop_rules=stop_rules,
            decider=decider,
            limits=limits,
            labels=labels,
            queue=queue,
            allow_inexact_stop=allow_inexact_stop,
            request_id=request_id,
        )

    def find_run(self, session_id: str, request_id: str) -> runs_pb2.Run | None:
        """Give the run that a request id started, None if none of the session's 50 newest was.

        A run keeps the request id that it was started with over a restart of the daemon.
        """
        return self._portal.wait(self._calls.find_run(session_id, request_id))

    def stop_run(self, run_id: str, reason: str = "", *, request_id: str = "") -> runs_pb2.Run:
        """Ask for a stop at the next boundary; wait for the end. An ended run is given as it is."""
        return self._portal.wait(self._calls.stop_run(run_id, reason, request_id=request_id))

    def abort_run(self, run_id: str, reason: str = "", *, request_id: str = "") -> runs_pb2.Run:
        """Cut a run off; wait for the end. An ended run is given as it is."""
        return self._portal.wait(self._calls.abort_run(run_id, reason, request_id=request_id))

    def steer_run(self, run_id: str, text: str, *, request_id: str = "") -> str:
        """Give text to the running turn; gives the id under which events tell whether it got there.

        Raises:
            FailedPrecondition: STEER_NOT_POSSIBLE at a boundary or with a stop requested, CAPABILITY_MISSING.
        """
        return self._portal.wait(self._calls.steer_run(run_id, text, request_id=request_id))

    def get_run(self, run_id: str) -> runs_pb2.Run:
        """Give a run."""
        return self._portal.wait(self._calls.get_run(run_id))

    def list_runs(
        self,
        session_id: str = "",
        *,
        states: Iterable[events_pb2.RunState.ValueType] = (),
        agents: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[runs_pb2.Run]:
        """Give the runs of a session, or of all, newest first; filters that are given must all hold."""
        return self._portal.wait(self._calls.list_runs(session_id, states=states, agents=agents, labels=labels))

    def list_steps(self, run_id: str) -> list[steps_pb2.Step]:
        """Give the completed steps of a run, by number."""
        return self._portal.wait(self._calls.list_steps(run_id))

    def get_step(self, run_id: str, step: int | str) -> steps_pb2.Step:
        """Give one step, by its number or its id."""
        return self._portal.wait(self._calls.get_step(run_id, step))

    def wait_run(
        self, run_id: str, *, until: runs_pb2.WaitUntil.ValueType = runs_pb2.WAIT_UNTIL_ENDED, timeout: float = 60.0
    ) -> runs_pb2.Run:
        """Wait until a run ended (or needs attention), at most `timeout` seconds; gives it as it is then."""
        return self._portal.wait(self._calls.wait_run(run_id, until=until, timeout=timeout))

"""The calls about runs and what they left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steprail.client import _messages as messages
from steprail.client._connection import Connection, key
from steprail.errors import ConnectionFailed
from steprail.v1 import decisions_pb2, events_pb2, rules_pb2, runs_pb2, steps_pb2

#: How many of the newest runs of a session are looked through for a request id.
_NEWEST = 50


class RunCalls(Connection):
    """Starts, shows, waits for and ends runs. No deadline or cancellation of a call ever ends a run."""

    async def start_run(
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
        request = self.start_request(
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
        return await self._start(request)

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
        return runs_pb2.StartRunRequest(
            session_id=session_id,
            prompt=messages.prompt(prompt),
            stop_rules=list(stop_rules),
            decider=decider,
            limits=limits,
            labels=dict(labels or {}),
            queue=runs_pb2.QUEUE_MODE_QUEUE if queue else runs_pb2.QUEUE_MODE_UNSPECIFIED,
            allow_inexact_stop=allow_inexact_stop,
            request_id=key(request_id),
        )

    async def continue_run(
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
        request = self.continue_request(
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
        return await self._continue(request)

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
        return runs_pb2.ContinueRunRequest(
            run_id=run_id,
            prompt=None if prompt is None else messages.prompt(prompt),
            stop_rules=None if stop_rules is None else rules_pb2.StopRuleSet(rules=list(stop_rules)),
            decider=decider,
            limits=limits,
            labels=dict(labels or {}),
            queue=runs_pb2.QUEUE_MODE_QUEUE if queue else runs_pb2.QUEUE_MODE_UNSPECIFIED,
            allow_inexact_stop=allow_inexact_stop,
            request_id=key(request_id),
        )

    async def find_run(self, session_id: str, request_id: str) -> runs_pb2.Run | None:
        """Give the run that a request id started, None if none of the session's 50 newest was.

        A run keeps the request id that it was started with over a restart of the daemon.
        """
        request = runs_pb2.ListRunsRequest(session_id=session_id)
        seen = 0
        async for run in self._pages(self._stubs.runs.ListRuns, request, "runs"):
            if isinstance(run, runs_pb2.Run) and run.request_id == request_id:
                return run
            seen += 1
            if seen == _NEWEST:
                break
        return None

    async def stop_run(self, run_id: str, reason: str = "", *, request_id: str = "") -> runs_pb2.Run:
        """Ask for a stop at the next boundary; wait for the end. An ended run is given as it is."""
        request = runs_pb2.StopRunRequest(run_id=run_id, reason=reason, request_id=key(request_id))
        return (await self._ask(self._stubs.runs.StopRun, request)).run

    async def abort_run(self, run_id: str, reason: str = "", *, request_id: str = "") -> runs_pb2.Run:
        """Cut a run off; wait for the end. An ended run is given as it is."""
        request = runs_pb2.AbortRunRequest(run_id=run_id, reason=reason, request_id=key(request_id))
        return (await self._ask(self._stubs.runs.AbortRun, request)).run

    async def steer_run(self, run_id: str, text: str, *, request_id: str = "") -> str:
        """Give text to the running turn; gives the id under which events tell whether it got there.

        Raises:
            FailedPrecondition: STEER_NOT_POSSIBLE at a boundary or with a stop requested, CAPABILITY_MISSING.
        """
        request = runs_pb2.SteerRunRequest(run_id=run_id, text=text, request_id=key(request_id))
        return (await self._ask(self._stubs.runs.SteerRun, request)).steer_id

    async def get_run(self, run_id: str) -> runs_pb2.Run:
        """Give a run."""
        return (await self._ask(self._stubs.runs.GetRun, runs_pb2.GetRunRequest(run_id=run_id))).run

    async def list_runs(
        self,
        session_id: str = "",
        *,
        states: Iterable[events_pb2.RunState.ValueType] = (),
        agents: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[runs_pb2.Run]:
        """Give the runs of a session, or of all, newest first; filters that are given must all hold."""
        request = runs_pb2.ListRunsRequest(
            session_id=session_id, states=states, agents=agents, labels=dict(labels or {})
        )
        return [item async for item in self._pages(self._stubs.runs.ListRuns, request, "runs")]

    async def list_steps(self, run_id: str) -> list[steps_pb2.Step]:
        """Give the completed steps of a run, by number."""
        request = runs_pb2.ListStepsRequest(run_id=run_id)
        return [item async for item in self._pages(self._stubs.runs.ListSteps, request, "steps")]

    async def get_step(self, run_id: str, step: int | str) -> steps_pb2.Step:
        """Give one step, by its number or its id."""
        request = (
            runs_pb2.GetStepRequest(run_id=run_id, number=step)
            if isinstance(step, int)
            else runs_pb2.GetStepRequest(run_id=run_id, step_id=step)
        )
        return (await self._ask(self._stubs.runs.GetStep, request)).step

    async def wait_run(
        self,
        run_id: str,
        *,
        until: runs_pb2.WaitUntil.ValueType = runs_pb2.WAIT_UNTIL_ENDED,
        timeout: float = 60.0,
    ) -> runs_pb2.Run:
        """Wait until a run ended (or needs attention), at most `timeout` seconds; gives it as it is then."""
        request = runs_pb2.WaitRunRequest(run_id=run_id, until=until, timeout=messages.span(timeout))
        return (await self._ask(self._stubs.runs.WaitRun, request, timeout + self.timeout)).run

    async def _start(self, request: runs_pb2.StartRunRequest) -> runs_pb2.Run:
        return (await self._ask(self._stubs.runs.StartRun, request, creates=True)).run

    async def _continue(self, request: runs_pb2.ContinueRunRequest) -> runs_pb2.Run:
        return (await self._ask(self._stubs.runs.ContinueRun, request, creates=True)).run

    async def _begin(self, request: runs_pb2.StartRunRequest | runs_pb2.ContinueRunRequest) -> runs_pb2.Run:
        """Start or continue, once, also if the daemon goes away meanwhile and comes back."""
        comeback = self._comeback("StartRun")
        lost = False
        while True:
            try:
                if lost and (found := await self._begun(request)) is not None:
                    return found
                if isinstance(request, runs_pb2.StartRunRequest):
                    return await self._start(request)
                return await self._continue(request)
            except ConnectionFailed as error:
                lost = True
                await comeback.after(error)

    async def _begun(self, request: runs_pb2.StartRunRequest | runs_pb2.ContinueRunRequest) -> runs_pb2.Run | None:
        if isinstance(request, runs_pb2.StartRunRequest):
            session_id = request.session_id
        else:
            session_id = (await self.get_run(request.run_id)).session_id
        return await self.find_run(session_id, request.request_id)

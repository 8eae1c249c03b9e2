"""RunService: starts, shows, steers and watches runs. Its bidirectional call is in `control`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from steprail.v1 import runs_pb2
from steprail_daemon.core.errors import NotFound
from steprail_daemon.core.model import RunState
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import Caller, Facade, StoredStep
from steprail_daemon.service import asks, checks, resources, waiting
from steprail_daemon.service.bounds import NAME
from steprail_daemon.service.calls import Call, Calls
from steprail_daemon.service.control import Conversation
from steprail_daemon.service.pages import Page
from steprail_daemon.service.streams import Watch, check_cursor, send_all
from steprail_daemon.service.verbs import Verbs

#: How long WaitRun waits if it is told nothing, and how long before the call's deadline it answers.
_WAIT_NS: Final = 60_000_000_000
_WAIT_MARGIN_NS: Final = 500_000_000
#: Steps read from the journal at a time.
_STEPS_AT_ONCE: Final = 16


class RunService:
    """Implements `steprail.v1.RunService`, as far as its methods go."""

    def __init__(self, facade: Facade, verbs: Verbs, calls: Calls) -> None:
        self._facade = facade
        self._verbs = verbs
        self._calls = calls

    async def start_run(self, request: runs_pb2.StartRunRequest, call: Call) -> runs_pb2.StartRunResponse:
        """Start a run."""
        return runs_pb2.StartRunResponse(run=self._run(call, await self._verbs.start(request, call.caller)))

    async def continue_run(self, request: runs_pb2.ContinueRunRequest, call: Call) -> runs_pb2.ContinueRunResponse:
        """Start a run that goes on after another."""
        return runs_pb2.ContinueRunResponse(run=self._run(call, await self._verbs.continue_run(request, call.caller)))

    async def stop_run(self, request: runs_pb2.StopRunRequest, call: Call) -> runs_pb2.StopRunResponse:
        """Ask for a stop at the next boundary."""
        return runs_pb2.StopRunResponse(run=self._run(call, self._verbs.stop(request, call.caller)))

    async def abort_run(self, request: runs_pb2.AbortRunRequest, call: Call) -> runs_pb2.AbortRunResponse:
        """Cut a run off."""
        return runs_pb2.AbortRunResponse(run=self._run(call, self._verbs.abort(request, call.caller)))

    async def submit_decision(
        self, request: runs_pb2.SubmitDecisionRequest, call: Call
    ) -> runs_pb2.SubmitDecisionResponse:
        """Decide about the step that waits."""
        decision = self._verbs.decide(request, call.caller)
        return runs_pb2.SubmitDecisionResponse(decision=resources.decision(decision))

    async def answer_permission(
        self, request: runs_pb2.AnswerPermissionRequest, call: Call
    ) -> runs_pb2.AnswerPermissionResponse:
        """Answer a permission that waits."""
        resolved = self._verbs.answer_permission(request, call.caller)
        return runs_pb2.AnswerPermissionResponse(resolved=asks.resolved_permission(resolved))

    async def answer_question(
        self, request: runs_pb2.AnswerQuestionRequest, call: Call
    ) -> runs_pb2.AnswerQuestionResponse:
        """Answer a question that waits."""
        resolved = self._verbs.answer_question(request, call.caller)
        return runs_pb2.AnswerQuestionResponse(resolved=asks.resolved_question(resolved))

    async def steer_run(self, request: runs_pb2.SteerRunRequest, call: Call) -> runs_pb2.SteerRunResponse:
        """Give a text to the running turn."""
        return runs_pb2.SteerRunResponse(steer_id=self._verbs.steer(request, call.caller))

    async def list_pending(self, request: runs_pb2.ListPendingRequest, call: Call) -> runs_pb2.ListPendingResponse:
        """Give what waits for somebody, the nearest deadline first."""
        page = Page(request, request.page_size, request.page_token)
        views = sorted(self._facade.pending(call.caller, request.session_id), key=waiting.pending_key)
        now = self._facade.now()
        found = (view for view in views if waiting.pending_key(view) > page.after)
        items, token = page.fill(found, waiting.pending_key, lambda view: waiting.pending_item(view, now))
        return runs_pb2.ListPendingResponse(items=items, next_page_token=token)

    async def get_run(self, request: runs_pb2.GetRunRequest, call: Call) -> runs_pb2.GetRunResponse:
        """Give a run."""
        return runs_pb2.GetRunResponse(run=self._run(call, request.run_id))

    async def wait_run(self, request: runs_pb2.WaitRunRequest, call: Call) -> runs_pb2.WaitRunResponse:
        """Wait until a run has ended or needs attention."""
        attention = _attention(request.until)
        timeout_ns = _wait_time(request, call)
        with self._calls.waiting(call):
            await self._facade.wait_run(call.caller, request.run_id, attention=attention, timeout_ns=timeout_ns)
        return runs_pb2.WaitRunResponse(run=self._run(call, request.run_id))

    async def list_runs(self, request: runs_pb2.ListRunsRequest, call: Call) -> runs_pb2.ListRunsResponse:
        """Give runs, newest first."""
        page = Page(request, request.page_size, request.page_token)
        selects = _Filter(request, self._facade, call.caller)
        seen = self._facade.list_runs(call.caller, request.session_id)
        views = [view for view in seen if not page.after or view.run_id < page.after]
        now = self._facade.now()
        found = (view for view in views if selects(view))
        runs, token = page.fill(found, lambda view: view.run_id, lambda view: resources.run(view, now))
        return runs_pb2.ListRunsResponse(runs=runs, next_page_token=token)

    async def list_steps(self, request: runs_pb2.ListStepsRequest, call: Call) -> runs_pb2.ListStepsResponse:
        """Give the completed steps of a run, by number."""
        page = Page(request, request.page_size, request.page_token)
        stored = self._facade.steps(
            call.caller, request.run_id, int(page.after or 0), min(page.size + 1, _STEPS_AT_ONCE)
        )
        steps, token = page.fill(stored, lambda step: str(step.number), resources.step)
        if not token and len(stored) == _STEPS_AT_ONCE:
            token = page.token(str(stored[-1].number))
        return runs_pb2.ListStepsResponse(steps=steps, next_page_token=token)

    async def get_step(self, request: runs_pb2.GetStepRequest, call: Call) -> runs_pb2.GetStepResponse:
        """Give a step."""
        return runs_pb2.GetStepResponse(step=resources.step(self._stored_step(request, call.caller)))

    async def watch_run(self, request: runs_pb2.WatchRunRequest, call: Call) -> None:
        """Send the events of a run."""
        check_cursor(request.after_seq, request.epoch)
        caller = call.caller
        session = self._facade.get_session(caller, self._facade.get_run(caller, request.run_id).session_id)
        subscription = self._facade.watch_run(caller, request.run_id, request.after_seq, request.epoch)
        await send_all(Watch(self._facade, caller, session, subscription, request.run_id), call)

    async def control_run(
        self, receive: Callable[[], Awaitable[runs_pb2.ControlRunRequest | None]], call: Call
    ) -> None:
        """Start, continue or attach to a run, and decide about it."""
        await Conversation(self._facade, self._verbs, call, receive).hold()

    async def read_blob(self, request: runs_pb2.ReadBlobRequest, call: Call) -> None:
        """Send the whole of a content."""
        if request.offset < 0:
            raise checks.invalid("offset", f"is {request.offset}; accepted are 0 and more")
        blob_id = checks.text("blob_id", request.blob_id, NAME)
        parts = self._facade.read_blob(call.caller, blob_id, request.offset)
        async for data, offset, full_size, mime_type in parts:
            await call.send(
                runs_pb2.ReadBlobResponse(data=data, offset=offset, full_size=full_size, mime_type=mime_type)
            )

    def _run(self, call: Call, run_id: str) -> runs_pb2.Run:
        return resources.run(self._facade.get_run(call.caller, run_id), self._facade.now())

    def _stored_step(self, request: runs_pb2.GetStepRequest, caller: Caller) -> StoredStep:
        selector = request.WhichOneof("selector")
        if selector is None:
            raise checks.invalid("selector", "is required: number or step_id")
        view = self._facade.get_run(caller, request.run_id)
        number = request.number
        if selector == "step_id":
            number = next((step.number for step in view.steps if step.step_id == request.step_id), 0)
        found = self._facade.steps(caller, request.run_id, number - 1, 1) if number >= 1 else []
        if not found:
            wanted = request.step_id if selector == "step_id" else str(request.number)
            raise NotFound("STEP_NOT_FOUND", f"run {request.run_id} has no completed step {wanted!r}", step_id=wanted)
        return found[0]


class _Filter:
    """Which runs a list request wants; FIELD_INVALID, when it is made, if it cannot be read."""

    def __init__(self, request: runs_pb2.ListRunsRequest, facade: Facade, caller: Caller) -> None:
        self._facade = facade
        self._caller = caller
        self._states = {
            checks.choice(f"states[{index}]", state, RunState, None) for index, state in enumerate(request.states)
        }
        self._agents = checks.agent_names(request.agents)
        self._labels = checks.labels("labels", request.labels)

    def __call__(self, view: RunView) -> bool:
        """Whether it wants this one."""
        return (
            (not self._states or view.state in self._states)
            and (not self._agents or self._facade.get_session(self._caller, view.session_id).agent in self._agents)
            and self._labels.items() <= view.spec.labels.items()
        )


def _attention(until: int) -> bool:
    if until not in runs_pb2.WaitUntil.values():
        raise checks.invalid("until", f"is {until}; accepted are WAIT_UNTIL_ENDED and WAIT_UNTIL_NEEDS_ATTENTION")
    return until == runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION


def _wait_time(request: runs_pb2.WaitRunRequest, call: Call) -> int:
    """Give how long to wait: as asked, and never so long that the answer misses the call's deadline."""
    remaining = call.time_remaining_ns()
    until_deadline = None if remaining is None else max(0, remaining - _WAIT_MARGIN_NS)
    if not request.HasField("timeout"):
        return _WAIT_NS if until_deadline is None else until_deadline
    asked = checks.span("timeout", request.timeout)
    return asked if until_deadline is None else min(asked, until_deadline)

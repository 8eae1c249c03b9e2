"""Folds what the agent's main loop says into steps. Sub-agents are told apart by their ids and left out.

A step is one message of the model with its tool calls and their results. The agent says when it is complete
(`BoundaryReached`); until then the parts are collected as they come:

- text and thought from whole messages, several of a kind joined by a line break; the last finish reason and model;
- calls in the model's order where the boundary lists it, else in the order in which they began;
- results in the order of their completion, exactly one for each call. A call without any result at the boundary gets
  CANCELLED with an error that says so: the agent is done with the step, so none will come, and what came of the tool is
  not known. A result without a call, such as a late one of an earlier step, belongs to no step and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.events import BoundaryReached, MessageEnded, PassiveEvent, ToolEnded, ToolStarted
from steprail_daemon.core.model import (
    FinishReason,
    MessageKind,
    Step,
    StepBoundary,
    ToolCall,
    ToolOutcome,
    ToolResult,
)

# A member of an enumeration costs a function call to look up.
_NO_REASON = FinishReason.UNKNOWN
_OBSERVED = StepBoundary.OBSERVED
_THOUGHT = MessageKind.THOUGHT

#: What a result says that had to be made up.
NO_RESULT = "the agent reported no result of this call"


class StepAssembly:
    """Collects the parts of one step after the other. `feed` is called for every passive event and costs one store."""

    __slots__ = ("_calls", "_finish", "_finish_raw", "_model", "_results", "_since", "_texts", "_thoughts")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything; what comes next belongs to another run."""
        self._since: int | None = None
        self._calls: dict[str, ToolCall] = {}
        self._results: dict[str, ToolResult] = {}
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._finish = _NO_REASON
        self._finish_raw = ""
        self._model = ""

    def begin(self, at: int) -> None:
        """Note that the agent took the run's prompt, from when its first step lasts."""
        self._since = at

    @property
    def finish_reason(self) -> FinishReason:
        """Why the latest message of the step under way ended; at the end of a turn that of its last message."""
        return self._finish

    def feed(self, event: PassiveEvent) -> None:
        """Take a part. What makes no part of a step, or is of a sub-agent, is ignored."""
        if type(event) is ToolEnded:
            if not (event.parent_call_id or event.subagent_id):
                self._results[event.result.call_id] = event.result
        elif type(event) is ToolStarted:
            if not (event.parent_call_id or event.subagent_id):
                self._calls[event.call.call_id] = event.call
        elif type(event) is MessageEnded and not (event.parent_call_id or event.subagent_id):
            self._message(event)

    def extend(self, events: Iterable[PassiveEvent]) -> None:
        """Take parts, as `feed` does: most chunks are results of tools and nothing else."""
        results, feed = self._results, self.feed
        for event in events:
            if type(event) is ToolEnded and not event.parent_call_id and not event.subagent_id:
                results[event.result.call_id] = event.result
            else:
                feed(event)

    def _message(self, event: MessageEnded) -> None:
        if event.text:
            (self._thoughts if event.kind is _THOUGHT else self._texts).append(event.text)
        if event.finish_reason is not _NO_REASON or event.finish_reason_raw:
            self._finish = event.finish_reason
            self._finish_raw = event.finish_reason_raw
        self._model = event.model or self._model

    def complete(self, boundary: BoundaryReached, number: int, run_id: str, at: int) -> Step:
        """Give step `number` of the run, complete at `at`, and begin with the next one.

        Ids of a run's steps sort by their numbers. Its duration counts from the step before, or from `begin`. It is
        zero if the agent took no prompt before; such a step is out of order and its run fails.
        """
        calls, results, since = self._calls, self._results, self._since
        if boundary.call_ids and boundary.call_ids != tuple(calls):
            calls = self._ordered(boundary.call_ids)
        # Whoever calls this holds up the agent: positional, for names are looked up one by one.
        step = Step(
            number,
            f"{run_id}.{str(number).zfill(6)}",  # a format for numbers is dearer when it was not used for a while
            "\n".join(self._texts),
            "\n".join(self._thoughts),
            tuple(calls.values()),
            tuple(results.values()) if results.keys() == calls.keys() else self._completed(),
            self._finish,
            self._finish_raw,
            boundary.usage,
            boundary.cost,
            self._model,
            at - since if since is not None and since < at else 0,
            at,
            _OBSERVED,
        )
        # What a next step begins with, as in `reset`; few steps have texts.
        self._calls, self._results = {}, {}
        if self._texts or self._thoughts:
            self._texts, self._thoughts = [], []
        self._finish, self._finish_raw, self._model = _NO_REASON, "", ""
        self._since = at
        return step

    def _ordered(self, call_ids: tuple[str, ...]) -> dict[str, ToolCall]:
        calls = self._calls
        listed = {call_id: calls[call_id] for call_id in call_ids if call_id in calls}
        return listed | calls

    def _completed(self) -> tuple[ToolResult, ...]:
        known = [result for call_id, result in self._results.items() if call_id in self._calls]
        missing = [call_id for call_id in self._calls if call_id not in self._results]
        return (*known, *[ToolResult(call_id, ToolOutcome.CANCELLED, error=NO_RESULT) for call_id in missing])

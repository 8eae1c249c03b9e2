"""What expressions see: the published view, version 1, as plain values, and how it is made of a run.

Names are those of the public `Step`. Counts are int, money is US dollars and spans are seconds, both double. `None` is
absent: an expression that reads it has the outcome UNKNOWN. Enumerations are their names in lower case without prefix.
Texts are cut, with their `size` beside them; built-in rules see them whole. docs/expressions.md is the user's page.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steprail_daemon.core.model import Cost, Step, ToolOutcome, ToolResult, Usage
from steprail_daemon.core.usage import add_cost, add_usage

if TYPE_CHECKING:
    from steprail_daemon.core.views import RunView, SessionView

#: Version of the view. Adding a field keeps it; anything that gives an old expression another meaning raises it.
VERSION = 1
#: How many of the latest steps are seen.
WINDOW = 200
#: Bytes of UTF-8 that are kept of one text.
MAX_TEXT_BYTES = 16 << 10
#: Bytes of UTF-8 that are kept of all texts in the window; beyond it those of the oldest steps are left out.
MAX_WINDOW_TEXT_BYTES = 1 << 20
#: Bytes that are kept of names, titles and ids, whose size is not told.
MAX_NAME_BYTES = 1 << 10
#: How many tools are counted by name. Calls of further tools are in the sums only.
MAX_TOOLS = 256


class TextValue(msgspec.Struct, frozen=True):
    """A text: its first part, its whole size in bytes of UTF-8, and whether something was cut."""

    value: str = ""
    size: int = 0
    truncated: bool = False


NO_TEXT = TextValue()


class CallValue(msgspec.Struct, frozen=True):
    """One call of a tool."""

    call_id: str
    tool: str
    tool_kind: str | None
    title: str
    arguments_json: TextValue


class ResultValue(msgspec.Struct, frozen=True):
    """The result of one call, with the tool's name and kind from the call."""

    call_id: str
    tool: str
    tool_kind: str | None
    outcome: str
    output: TextValue
    error: TextValue


class StepValue(msgspec.Struct, frozen=True, weakref=True):
    """One step. `end_time` is Unix nanoseconds, `duration` seconds."""

    number: int
    step_id: str
    text: TextValue
    thought: TextValue
    tool_calls: tuple[CallValue, ...]
    tool_results: tuple[ResultValue, ...]
    finish_reason: str | None
    finish_reason_raw: str | None
    usage: Usage | None
    cost_usd: float | None
    model: str | None
    duration: float
    end_time: int
    boundary: str


class ToolTotals(msgspec.Struct, frozen=True):
    """Calls of one tool in the run, by what came of them. `calls` is their sum, for a step has a result per call."""

    tool: str
    calls: int = 0
    succeeded: int = 0
    failed: int = 0
    denied: int = 0
    cancelled: int = 0


class Totals(msgspec.Struct, frozen=True):
    """Sums over all steps of the run, also those that left the window.

    `consecutive_failures` counts the failed results since the last that succeeded; denied and cancelled calls neither
    count nor interrupt.
    """

    steps: int = 0
    tool_calls: int = 0
    succeeded: int = 0
    failed: int = 0
    denied: int = 0
    cancelled: int = 0
    consecutive_failures: int = 0
    tools: tuple[ToolTotals, ...] = ()


class SessionValue(msgspec.Struct, frozen=True):
    """The session. `steps` counts the completed steps of all its runs, this one's included."""

    session_id: str
    agent: str
    model: str | None
    cwd: str
    permission_mode: str
    steps: int


class ExpressionView(msgspec.Struct, frozen=True):
    """What a stop rule sees at a boundary. `step` is the step just completed, absent before the first.

    `usage` and `cost_usd` are the run's as far as they are known; `elapsed` is its active time.
    """

    step: StepValue | None
    steps: tuple[StepValue, ...]
    totals: Totals
    usage: Usage | None
    cost_usd: float | None
    elapsed: float
    session: SessionValue
    labels: dict[str, str]
    version: int = VERSION


class PermissionView(msgspec.Struct, frozen=True):
    """What a permission rule sees of a tool call.

    `command` is empty for a call that runs none; `paths` are absolute, after symlinks were resolved.
    """

    tool: str
    tool_kind: str | None
    command: str
    paths: tuple[str, ...]
    labels: dict[str, str]
    version: int = VERSION


class ExpressionHistory:
    """Collects the steps of one run for its expressions, within bounds."""

    def __init__(self) -> None:
        self._steps: deque[StepValue] = deque()
        #: Bytes of text of each step in the window, and their sum.
        self._sizes: deque[int] = deque()
        self._size = 0
        self._latest: Step | None = None
        self._totals = Totals()
        self._tools: dict[str, ToolTotals] = {}

    def add(self, step: Step) -> None:
        """Take a completed step."""
        self._latest = step
        value = step_value(step)
        self._steps.append(value)
        self._sizes.append(_text_bytes(value))
        self._size += self._sizes[-1]
        if len(self._steps) > WINDOW:
            self._steps.popleft()
            self._size -= self._sizes.popleft()
        self._shrink()
        self._count(value)

    def view(self, run: RunView, session: SessionValue, active_ns: int) -> ExpressionView:
        """Give the view of `run`, whose latest step is the one added last, after `active_ns` of active time.

        The run may have that step in it already, or be about to get it.
        """
        steps = tuple(self._steps)
        usage, cost = self._used(run)
        return ExpressionView(
            step=steps[-1] if steps else None,
            steps=steps,
            totals=replace(self._totals, tools=tuple(self._tools.values())),
            usage=usage,
            cost_usd=_dollars(cost),
            elapsed=active_ns / 1e9,
            session=session,
            labels=run.spec.labels,
        )

    def _used(self, run: RunView) -> tuple[Usage | None, Cost | None]:
        """Give what the run used, the latest step included."""
        latest = self._latest
        if latest is None or run.step_count == self._totals.steps:
            return run.usage, run.cost
        if run.step_count == 0:
            return latest.usage, latest.cost
        usage = add_usage(run.usage, latest.usage) if run.usage or latest.usage else None
        cost = add_cost(run.cost, latest.cost) if run.cost or latest.cost else None
        return usage, cost

    def _shrink(self) -> None:
        """Leave out the texts of the oldest steps until the window fits; the latest step keeps its own."""
        for index in range(len(self._steps) - 1):
            if self._size <= MAX_WINDOW_TEXT_BYTES:
                return
            if self._sizes[index]:
                self._steps[index] = _without_texts(self._steps[index])
                self._size -= self._sizes[index]
                self._sizes[index] = 0

    def _count(self, step: StepValue) -> None:
        totals = self._totals
        counts = {name: getattr(totals, name) for name in ("succeeded", "failed", "denied", "cancelled")}
        consecutive = totals.consecutive_failures
        for result in step.tool_results:
            counts[result.outcome] += 1
            if result.outcome == "failed":
                consecutive += 1
            elif result.outcome == "succeeded":
                consecutive = 0
            self._count_tool(result)
        self._totals = Totals(
            steps=totals.steps + 1,
            tool_calls=totals.tool_calls + len(step.tool_calls),
            consecutive_failures=consecutive,
            **counts,
        )

    def _count_tool(self, result: ResultValue) -> None:
        known = self._tools.get(result.tool)
        if known is None:
            if len(self._tools) >= MAX_TOOLS:
                return
            known = ToolTotals(result.tool)
        more = {"calls": known.calls + 1, result.outcome: getattr(known, result.outcome) + 1}
        self._tools[result.tool] = replace(known, **more)


def step_value(step: Step) -> StepValue:
    """Give what expressions see of a step."""
    calls = tuple(
        [
            CallValue(
                call.call_id, _name(call.tool), _word(call.tool_kind), _name(call.title), clip(call.arguments_json)
            )
            for call in step.tool_calls
        ]
    )
    by_id = {call.call_id: call for call in calls}
    return StepValue(
        number=step.number,
        step_id=step.step_id,
        text=clip(step.text),
        thought=clip(step.thought),
        tool_calls=calls,
        tool_results=tuple([_result(result, by_id.get(result.call_id)) for result in step.tool_results]),
        finish_reason=_word(step.finish_reason),
        finish_reason_raw=_name(step.finish_reason_raw) or None,
        usage=step.usage,
        cost_usd=_dollars(step.cost),
        model=_name(step.model) or None,
        duration=step.duration_ns / 1e9,
        end_time=step.ended_at,
        boundary=step.boundary.name.lower(),
    )


def session_value(session: SessionView, steps: int) -> SessionValue:
    """Give what expressions see of a session in which `steps` steps are complete."""
    return SessionValue(
        session_id=session.session_id,
        agent=session.agent,
        model=_name(session.model) or None,
        cwd=session.cwd,
        permission_mode=session.permission_mode.name.lower(),
        steps=steps,
    )


def clip(text: str, limit: int = MAX_TEXT_BYTES) -> TextValue:
    """Cut a text to `limit` bytes of UTF-8, never within a character."""
    data = text.encode()
    size = len(data)
    if size <= limit:
        return TextValue(text, size) if size else NO_TEXT
    return TextValue(data[:limit].decode(errors="ignore"), size, truncated=True)


def _result(result: ToolResult, call: CallValue | None) -> ResultValue:
    return ResultValue(
        call_id=result.call_id,
        tool="" if call is None else call.tool,
        tool_kind=None if call is None else call.tool_kind,
        outcome=ToolOutcome(result.outcome).name.lower(),
        output=clip(result.output or ""),
        error=clip(result.error or ""),
    )


def _without_texts(step: StepValue) -> StepValue:
    return replace(
        step,
        text=_emptied(step.text),
        thought=_emptied(step.thought),
        tool_calls=tuple([replace(call, arguments_json=_emptied(call.arguments_json)) for call in step.tool_calls]),
        tool_results=tuple(
            [
                replace(result, output=_emptied(result.output), error=_emptied(result.error))
                for result in step.tool_results
            ]
        ),
    )


def _emptied(text: TextValue) -> TextValue:
    return TextValue("", text.size, truncated=True) if text.size else text


def _text_bytes(step: StepValue) -> int:
    """Add up what is kept of a step's texts."""
    texts = [step.text, step.thought]
    texts += [call.arguments_json for call in step.tool_calls]
    for result in step.tool_results:
        texts += (result.output, result.error)
    return sum(min(text.size, MAX_TEXT_BYTES) for text in texts)


def _name(text: str) -> str:
    return clip(text, MAX_NAME_BYTES).value


def _word(value: IntEnum) -> str | None:
    return value.name.lower() if value else None


def _dollars(cost: Cost | None) -> float | None:
    return None if cost is None or cost.micro_usd is None else cost.micro_usd / 1e6

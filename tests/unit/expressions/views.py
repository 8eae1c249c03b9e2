"""Views for tests of expressions."""

from __future__ import annotations

from msgspec.structs import replace

from steprail_daemon.core.model import SECOND, Usage
from steprail_daemon.core.stops.expression_view import (
    NO_TEXT,
    CallValue,
    ExpressionView,
    PermissionView,
    ResultValue,
    SessionValue,
    StepValue,
    TextValue,
    ToolTotals,
    Totals,
)


def text(value: str) -> TextValue:
    return TextValue(value, len(value.encode()))


#: Everything that can be absent is.
BARE_STEP = StepValue(
    number=1,
    step_id="step_1",
    text=NO_TEXT,
    thought=NO_TEXT,
    tool_calls=(CallValue("call_1", "mystery", None, "", NO_TEXT),),
    tool_results=(ResultValue("call_1", "mystery", None, "succeeded", NO_TEXT, NO_TEXT),),
    finish_reason=None,
    finish_reason_raw=None,
    usage=None,
    cost_usd=None,
    model=None,
    duration=0.0,
    end_time=0,
    boundary="inferred",
)

FULL_STEP = StepValue(
    number=2,
    step_id="step_2",
    text=text("I run it."),
    thought=text("hm"),
    tool_calls=(CallValue("call_2", "Bash", "execute", "make test", text('{"command":"make test"}')),),
    tool_results=(
        ResultValue("call_2", "Bash", "execute", "failed", text("boom"), TextValue("exit 2", 99, truncated=True)),
    ),
    finish_reason="tool_calls",
    finish_reason_raw="tool_use",
    usage=Usage(100, 50, None, 20, None),
    cost_usd=0.25,
    model="opus",
    duration=1.5,
    end_time=1_700_000_000 * SECOND + 5,
    boundary="observed",
)

EMPTY_VIEW = ExpressionView(
    step=None,
    steps=(),
    totals=Totals(),
    usage=None,
    cost_usd=None,
    elapsed=0.0,
    session=SessionValue("session_1", "claude", None, "/project", "ask", 0),
    labels={},
)

VIEW = ExpressionView(
    step=FULL_STEP,
    steps=(BARE_STEP, FULL_STEP),
    totals=Totals(
        steps=2,
        tool_calls=2,
        succeeded=1,
        failed=1,
        consecutive_failures=1,
        tools=(ToolTotals("mystery", calls=1, succeeded=1), ToolTotals("Bash", calls=1, failed=1)),
    ),
    usage=Usage(100, 50, None, 20, None, complete=False),
    cost_usd=1.25,
    elapsed=61.5,
    session=SessionValue("session_1", "claude", "opus", "/project", "ask", 5),
    labels={"team": "core"},
)

BARE_VIEW = replace(VIEW, step=BARE_STEP, steps=(BARE_STEP,), usage=None, cost_usd=None)

PERMISSION = PermissionView("Bash", "execute", "git push", ("/project/a.txt",), {"team": "core"})

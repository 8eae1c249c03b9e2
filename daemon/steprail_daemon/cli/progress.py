"""What goes on in a run right now, on one line: made of the events of a run, as `live` is. Nothing here prints.

Times are seconds of any clock that only goes forward, the same one for events and words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from steprail_daemon.cli.live import has_ended, state_of, verdict_words
from steprail_daemon.cli.output import shorten

Message = Mapping[str, Any]

_BETWEEN: Final = " | "
_TOOL: Final = 40
#: States in which something else than the agent's work goes on.
_WAITS: Final = {
    "QUEUED": "queued",
    "AWAITING_DECISION": "waits for a decision",
    "AWAITING_PERMISSION": "waits for an answer",
    "STOPPING": "stopping",
    "ABORTING": "aborting",
}
#: Kinds of rules whose value begins at nothing, each with the field of its limit.
_FROM_ZERO: Final = {
    "step_count": "at_least",
    "token_usage": "at_least",
    "tool_failures": "at_least",
    "repetition": "at_least",
}


class Progress:
    """One run, as far as it has come."""

    def __init__(self) -> None:
        self._anew("")

    def _anew(self, run_id: str) -> None:
        self._run_id = run_id
        self._state = "QUEUED"
        self._since: float | None = None
        self._step = 0
        self._tools: dict[str, tuple[str, float]] = {}
        self._of_steps = 0
        self._of_deltas = 0
        self._limits: list[str] = []

    def began(self, run: Message, at: float) -> None:
        """Take the run as it was recorded."""
        self._anew(run["run_id"])
        self._enter(state_of(run), at)
        rules = [_at_zero(rule) for rule in run.get("spec", {}).get("stop_rules", [])]
        self._limits = [verdict_words(rule) for rule in rules if rule]

    def happened(self, event: Message, at: float) -> None:
        """Take an event that came at this time. Those of another run count once the one before has ended."""
        if (run_id := event.get("run_id", "")) and run_id != self._run_id:
            if self._since is not None:
                return
            self._anew(run_id)
        self._step = max(self._step, int(event.get("step_number", 0)))
        if changed := event.get("run_state_changed"):
            self._enter(state_of(changed), at)
        elif call := event.get("tool_start", {}).get("call"):
            self._tools[call.get("call_id", "")] = (shorten(call.get("tool", "") or "tool", _TOOL), at)
        elif result := event.get("tool_end", {}).get("result"):
            self._tools.pop(result.get("call_id", ""), None)
            self._rests(at)
        elif usage := event.get("usage", {}).get("usage"):
            self._of_deltas += _tokens(usage)
        elif step := event.get("step_end", {}).get("step"):
            self._completed(step, at)

    def words(self, at: float) -> str:
        """Say it: since when what is at work, the step, the tokens so far, how near each limit is.

        Empty before the first event and once the run has ended.
        """
        if self._since is None:
            return ""
        return _BETWEEN.join(part for part in (*self._doing(at), self._used(), ", ".join(self._limits)) if part)

    def _enter(self, state: str, at: float) -> None:
        self._state = state
        self._since = None if has_ended({"state": state}) else at

    def _rests(self, at: float) -> None:
        """Begin to count anew once no tool runs: what works then is the model."""
        if not self._tools and self._since is not None:
            self._since = at

    def _completed(self, step: Message, at: float) -> None:
        self._tools.clear()
        self._rests(at)
        self._of_steps += _tokens(step.get("usage", {}))
        self._limits = [verdict_words(verdict) for verdict in step.get("verdicts", [])]

    def _doing(self, at: float) -> list[str]:
        step = f"step {self._step}" if self._step else ""
        since = clock(at - self._since) if self._since is not None else ""
        if waits := _WAITS.get(self._state):
            return [f"{since} {waits}", step]
        if not self._tools:
            return [f"{since} {step or 'working'}"]
        (tool, began), *more = self._tools.values()
        others = f" and {len(more)} more" if more else ""
        return [f"{clock(at - began)} {step}{': ' if step else ''}{tool}{others}"]

    def _used(self) -> str:
        # Both are lower bounds of the same figure, and not every agent gives both.
        tokens = max(self._of_steps, self._of_deltas)
        return f"{tokens:,} tokens" if tokens else ""


def _tokens(usage: Message) -> int:
    return int(usage.get("total_tokens", 0))


def _at_zero(rule: Message) -> Message:
    """Give the verdict that a rule would have before the first step; empty for a rule that has no value then."""
    for kind, limit in _FROM_ZERO.items():
        if kind in rule and rule[kind].get("scope") != "RULE_SCOPE_SESSION":
            return {"kind": f"STOP_KIND_{kind.upper()}", "observed": "0", "limit": str(rule[kind].get(limit, ""))}
    return {}


def clock(seconds: float) -> str:
    """Give a span in whole seconds, such as `7s`, `2m 05s` or `1h 02m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole // 60 % 60:02}m"


def fit(text: str, cells: int) -> str:
    """Cut a text to what takes up at most so many cells of a terminal; a cut one ends with `~` where there is room."""
    if sum(map(_cells, text)) <= cells:
        return text
    kept, used = "", 0
    for char in text:
        used += _cells(char)
        if used > cells - 1:
            break
        kept += char
    return kept + "~" if cells > 0 else ""


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1

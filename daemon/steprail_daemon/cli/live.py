"""A run as lines for people, made of the objects that `--json` prints: proto JSON with the proto field names.

There, a field with its default is absent, enums are names, and counts are text. Nothing here prints; each function
gives lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from steprail_daemon.cli.asked import (
    permission_lines,
    question_lines,
    question_resolved_words,
    resolved_words,
    span_words,
)
from steprail_daemon.cli.output import readable_lines, shorten

Message = Mapping[str, Any]

EXIT_STATUS = {"COMPLETED": 0, "STOPPED": 10, "ABORTED": 11, "FAILED": 1}
_RUN_STATE = "RUN_STATE_"
_LINE = 100
_OUTCOME_MARK = {"TOOL_OUTCOME_SUCCEEDED": "<", "TOOL_OUTCOME_DENIED": "x", "TOOL_OUTCOME_CANCELLED": "x"}


def state_of(run: Message) -> str:
    """Give a run's state without its prefix."""
    return str(run.get("state", "UNSPECIFIED")).removeprefix(_RUN_STATE)


def has_ended(run: Message) -> bool:
    """Whether a run is in a terminal state."""
    return state_of(run) in EXIT_STATUS


def is_latest(run: Message, runs: Iterable[Message]) -> bool:
    """Whether no later run of its session began, so that it can be continued. `runs`: all of it, newest first."""
    for other in runs:
        if other.get("run_id") == run["run_id"]:
            return True
        if "start_time" in other:
            return False
    return True


def prompt_of(run: Message) -> str:
    """Give the texts of a run's prompt."""
    parts = run.get("spec", {}).get("prompt", {}).get("parts", [])
    return "\n".join(part["text"] for part in parts if "text" in part)


def plural(count: object, word: str) -> str:
    """Give a count with its word."""
    return f"{count} {word}" if str(count) == "1" else f"{count} {word}s"


#: Kinds of rules that have no value to hold against a limit.
_UNMEASURED = frozenset({"tool_call", "finish_reason", "expression", "any_of", "all_of", "none_of"})
#: The words of `--stop-when`, where one has another name there.
_TYPED = {
    "step_count": "steps",
    "tool_call": "tool",
    "token_usage": "tokens",
    "finish_reason": "finish",
    "tool_failures": "failures",
    "repetition": "repeats",
    "expression": "expr",
}
_MATCHES = {"MATCHED": "reached", "NOT_MATCHED": "no"}
_RULE = 40


def verdict_words(verdict: Message) -> str:
    """Say how near a rule is to its limit, such as `steps 1/3`, or whether it matches where there is no such value.

    A rule has the name by which it is typed.
    """
    kind = str(verdict.get("kind", "")).removeprefix("STOP_KIND_").lower()
    outcome = str(verdict.get("outcome", "")).removeprefix("VERDICT_OUTCOME_")
    typed = _TYPED.get(kind, kind)
    if kind in _UNMEASURED:
        return f"{_rule(typed, verdict)} {_MATCHES.get(outcome, '?')}"
    words = f"{typed} {verdict.get('observed') or '?'}/{verdict.get('limit') or '?'}"
    return f"{words} reached" if outcome == "MATCHED" else words


def _rule(typed: str, verdict: Message) -> str:
    """Give a rule without a measure as it is typed, as far as it can be typed."""
    limit = shorten(verdict.get("limit", ""), _RULE)
    if typed == "tool" and limit.startswith("tool "):
        return f"tool={limit.removeprefix('tool ')}"
    if typed == "finish":
        limit = ",".join(word.lower() for word in limit.split(" or "))
    return f"{typed}={limit}" if typed in ("finish", "expr") and limit else typed


def stop_words(reason: Message) -> str:
    """Say why a run was stopped."""
    kind = str(reason.get("kind", "")).removeprefix("STOP_KIND_")
    said = shorten(reason.get("reason") or kind, 300)
    rule = f" (rule {reason['rule_id']})" if reason.get("rule_id") else ""
    also = reason.get("also_matched") or []
    return said + rule + (f", also {', '.join(verdict_words(verdict) for verdict in also)}" if also else "")


def step_lines(step: Message) -> list[str]:
    """Give a completed step as `show` prints it: its text, calls with results, verdicts and decision."""
    lines = [click.style(_step_head(step), bold=True)]
    if text := step.get("text", {}).get("value", ""):
        lines += [f"  {line}" for line in readable_lines(text)]
    results = {result.get("call_id"): result for result in step.get("tool_results", [])}
    for call in step.get("tool_calls", []):
        lines.append(call_line(call))
        if result := results.get(call.get("call_id")):
            lines.append(result_line(result))
    if decision := step.get("decision"):
        lines.append("  " + decision_words(decision))
    return lines


def call_line(call: Message) -> str:
    """Give a tool call on one line, its arguments shortened."""
    arguments = shorten(call.get("arguments_json", {}).get("value", "") or call.get("title", ""), _LINE)
    return f"  > {click.style(call.get('tool', 'tool'), fg='cyan')} {arguments}".rstrip()


def result_line(result: Message, tool: str = "") -> str:
    """Give the first line of a tool's result, or what went wrong. `tool` tells apart results of calls made together."""
    outcome = str(result.get("outcome", ""))
    text = str(result.get("error", {}).get("value") or result.get("output", {}).get("value") or "")
    first = shorten(next((line for line in text.splitlines() if line.strip()), ""), _LINE)
    mark = _OUTCOME_MARK.get(outcome, "!")
    words = "" if mark == "<" else outcome.removeprefix("TOOL_OUTCOME_").lower()
    parts = [part for part in (tool, words, first) if part]
    line = f"  {mark} {': '.join(parts) or '(nothing)'}"
    return line if mark == "<" else click.style(line, fg="yellow")


def decision_words(decision: Message) -> str:
    """Say what was decided and by whom."""
    action = str(decision.get("action", "")).removeprefix("DECISION_ACTION_").lower()
    source = str(decision.get("source", "")).removeprefix("DECISION_SOURCE_").lower()
    reason = shorten(decision.get("reason", ""), 200)
    return f"{action} (decided by {source}{': ' + reason if reason else ''})"


def _step_head(step: Message) -> str:
    verdicts = [verdict_words(verdict) for verdict in step.get("verdicts", [])]
    return "  ".join([f"step {step.get('number', '?')}", ", ".join(verdicts)]).rstrip()


def end_lines(run: Message, *, goes_on: bool = True) -> list[str]:
    """Give how a run ended, and where it can go on, how."""
    state, steps = state_of(run), plural(run.get("step_count", 0), "step")
    colour = {"COMPLETED": "green", "STOPPED": "yellow"}.get(state, "red")
    lines = [f"{click.style(state.lower(), fg=colour, bold=True)} after {steps}{_why(run)}"]
    if usage := run.get("usage"):
        lines.append(_usage_line(usage))
    if goes_on and state in ("STOPPED", "ABORTED", "FAILED"):
        lines.append(f"go on with: steprail continue {run['run_id']}")
    return lines


def _why(run: Message) -> str:
    if failure := run.get("failure"):
        later = " (the same may succeed later)" if failure.get("retryable") else ""
        return f": {failure.get('reason', '')}: {shorten(failure.get('message', ''), 400)}{later}"
    if reason := run.get("stop_reason"):
        late = "" if reason.get("exact") else f", {plural(reason.get('overshoot_requests', '?'), 'model request')} late"
        return f"{late}: {stop_words(reason)}"
    return ""


def _usage_line(usage: Message) -> str:
    """Give the tokens that are known. A figure that is absent is unknown and not shown; a part sum is a lower bound."""
    names = {"input_tokens": "in", "cached_input_tokens": "of them cached", "output_tokens": "out"}
    known = [f"{usage[name]} {word}" for name, word in names.items() if usage.get(name, "0") != "0"]
    bound = "" if usage.get("complete") else " (at least)"
    return f"tokens: {', '.join(known)}{bound}" if known else "tokens: unknown"


class _Text:
    """A message of which parts were shown already."""

    def __init__(self) -> None:
        self._shown = ""
        self._waiting = ""

    def add(self, part: str) -> list[str]:
        """Take a part and give the lines that are complete."""
        self._waiting += part
        complete, newline, self._waiting = self._waiting.rpartition("\n")
        self._shown += complete + newline
        return readable_lines(complete) if newline else []

    def flush(self) -> list[str]:
        """Give what was not shown yet."""
        lines = readable_lines(self._waiting)
        self._shown += self._waiting
        self._waiting = ""
        return lines

    def end(self, whole: str) -> list[str]:
        """Give what of the whole message was not shown; all of it if the parts were not its beginning."""
        return readable_lines(whole.removeprefix(self._shown))


class LiveView:
    """Turns the events of one run into lines.

    A message is shown line by line while it is written, and what is left of it before the calls that follow it: an
    agent may report a call before the message that holds both is whole. `permissions` is what becomes of what the agent
    asks: with allow and deny no permission waits for anybody, with deny no question.
    """

    def __init__(self, permissions: str = "ask") -> None:
        self._permission_waits = permissions == "ask"
        self._question_waits = permissions != "deny"
        self._tools: dict[str, str] = {}
        self._messages: dict[str, _Text] = {}
        self._permissions: dict[str, str] = {}
        self._steers: dict[str, str] = {}
        self._handlers: dict[str, Callable[[Message], list[str]]] = {
            "agent_start": self._agent_start,
            "message_start": self._message_start,
            "message_delta": self._message_delta,
            "message_end": self._message_end,
            "tool_start": self._tool_start,
            "tool_end": self._tool_end,
            "step_end": self._step_end,
            "decision_recorded": self._decision_recorded,
            "run_state_changed": self._run_state_changed,
            "permission_requested": self._permission_requested,
            "permission_resolved": self._permission_resolved,
            "question_requested": self._question_requested,
            "question_resolved": self._question_resolved,
            "plan_proposed": self._plan_proposed,
            "steer_accepted": self._steer_accepted,
            "steer_delivered": self._steer_delivered,
            "steer_dropped": self._steer_dropped,
            "file_modified": self._file_modified,
            "rate_limited": self._rate_limited,
            "agent_error": self._agent_error,
        }

    def lines(self, event: Message) -> list[str]:
        """Give the lines of an event: none for kinds that are no news for people, and for kinds not known here."""
        for kind, handler in self._handlers.items():
            if kind in event:
                indent = "    " if event.get("subagent_id") else ""
                return [indent + line for line in handler(event[kind])]
        return []

    def _agent_start(self, body: Message) -> list[str]:
        words = [part for part in (body.get("agent", ""), body.get("version", ""), body.get("model", "")) if part]
        resumed = ", resumed" if body.get("resumed") else ""
        return [click.style(f"agent {' '.join(words)}{resumed}", dim=True)]

    def _message_start(self, body: Message) -> list[str]:
        if body.get("kind") == "MESSAGE_KIND_TEXT":
            self._messages[body.get("message_id", "")] = _Text()
        return []

    def _message_delta(self, body: Message) -> list[str]:
        text = self._messages.get(body.get("message_id", ""))
        return text.add(body.get("text", "")) if text is not None else []

    def _message_end(self, body: Message) -> list[str]:
        text = self._messages.pop(body.get("message_id", ""), _Text())
        if body.get("kind") != "MESSAGE_KIND_TEXT":
            return []
        content = body.get("content", {})
        cut = [f"(cut, {content.get('full_size')} bytes in all)"] if content.get("blob_id") else []
        return text.end(str(content.get("value", ""))) + cut

    def _tool_start(self, body: Message) -> list[str]:
        call = body.get("call", {})
        self._tools[call.get("call_id", "")] = call.get("tool", "")
        return [*self._unfinished(), call_line(call)]

    def _tool_end(self, body: Message) -> list[str]:
        result = body.get("result", {})
        several = len(self._tools) > 1
        tool = self._tools.get(result.get("call_id", ""), "")
        return [result_line(result, tool if several else "")]

    def _step_end(self, body: Message) -> list[str]:
        self._tools.clear()
        return [click.style(_step_head(body.get("step", {})), bold=True)]

    def _decision_recorded(self, body: Message) -> list[str]:
        decision = body.get("decision", {})
        if decision.get("action") == "DECISION_ACTION_STOP" or decision.get("source") == "DECISION_SOURCE_AUTO":
            return []  # a stop is said at the end, with its reason
        return ["  " + decision_words(decision)]

    def _run_state_changed(self, body: Message) -> list[str]:
        state = state_of(body)
        notes = {"AWAITING_DECISION": "waits for a decision", "ABORTING": "aborting"}
        return [click.style(notes[state], dim=True)] if state in notes else []

    def _permission_requested(self, body: Message) -> list[str]:
        permission = body.get("permission", {})
        self._permissions[permission.get("permission_id", "")] = permission.get("tool", "")
        lines = permission_lines(permission, waits=self._permission_waits)
        return [*self._unfinished(), *(f"  {line}" for line in lines)]

    def _permission_resolved(self, body: Message) -> list[str]:
        tool = self._permissions.pop(body.get("permission_id", ""), None)
        if tool is None and body.get("answer") != "PERMISSION_ANSWER_DENY":
            return []  # policy allowed it, and nobody was asked
        about = f"{tool}: " if tool else ""
        return [f"  {about}{resolved_words(body)}"]

    def _question_requested(self, body: Message) -> list[str]:
        lines = question_lines(body.get("question", {}), waits=self._question_waits)
        return [*self._unfinished(), *(f"  {line}" for line in lines)]

    def _question_resolved(self, body: Message) -> list[str]:
        return [f"  question: {question_resolved_words(body)}"]

    def _plan_proposed(self, body: Message) -> list[str]:
        lines = [f"    {line}".rstrip() for line in readable_lines(body.get("text", ""))]
        return [*self._unfinished(), click.style("  the agent proposes a plan:", bold=True), *lines]

    def _steer_accepted(self, body: Message) -> list[str]:
        text = self._steers[body.get("steer_id", "")] = shorten(body.get("text", ""), 200)
        by = f" by {shorten(body['identity'])}" if body.get("identity") else ""
        return [f'  text for the agent{by}: "{text}"']

    def _steer_delivered(self, body: Message) -> list[str]:
        return [f"  the agent got the text{self._steered(body)}"]

    def _steer_dropped(self, body: Message) -> list[str]:
        reason = f", {shorten(body['reason'], 200)}" if body.get("reason") else ""
        return [click.style(f"  the agent did not get the text{self._steered(body)}{reason}", fg="yellow")]

    def _steered(self, body: Message) -> str:
        text = self._steers.pop(body.get("steer_id", ""), "")
        return f' "{text}"' if text else ""

    def _file_modified(self, body: Message) -> list[str]:
        change = str(body.get("change", "")).removeprefix("FILE_CHANGE_").lower() or "changed"
        return [click.style(f"  {change} {shorten(body.get('path', ''), 200)}", dim=True)]

    def _unfinished(self) -> list[str]:
        """Give what of unfinished messages was not shown yet: it was written before what comes now."""
        return [line for text in self._messages.values() for line in text.flush()]

    def _rate_limited(self, body: Message) -> list[str]:
        status = f": HTTP {body['http_status']}" if body.get("http_status") else ""
        quota = ", as a quota is used up" if body.get("kind") == "RATE_LIMIT_KIND_QUOTA" else ""
        after = f", again in {span_words(body['retry_after'])}" if body.get("retry_after") else ""
        who = shorten(body.get("provider", "")) or "the provider"
        return [click.style(f"{who} refused a request{status}{quota}{after}", fg="yellow")]

    def _agent_error(self, body: Message) -> list[str]:
        again = ", it tries again" if body.get("will_retry") else ""
        return [click.style(f"the agent reports: {shorten(body.get('message', ''), 300)}{again}", fg="yellow")]

"""What stops a run at a boundary, in the order of precedence.

The order is: abort (a state of its own, no question is put there), the stop that somebody asked for, the `max_steps`
ceiling, the rules in list order, the client. The first cause decides, the others are told as `also_matched`. The client
comes last and is asked only if nothing else stops, so it can only be stricter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from steprail_daemon.core import failures
from steprail_daemon.core.model import (
    SECOND,
    DecisionSource,
    Failure,
    StopKind,
    StopReason,
    StopRequest,
    StopRule,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops import expressions_of, stops
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult


class Cause(msgspec.Struct, frozen=True):
    """One thing that stops: its verdict, where it came from, and its reason for people.

    `failure` is what the run fails with once the agent has stopped, where it was an error that stopped it.
    """

    verdict: Verdict
    source: DecisionSource
    reason: str
    identity: str = ""
    failure: Failure | None = None


_NO_ERRORS: Mapping[int, Failure] = {}
_ERROR = ExpressionOutcome.ERROR


def causes(
    requested: StopRequest | None,
    steps: int,
    max_steps: int,
    rules: Sequence[StopRule],
    verdicts: Sequence[Verdict],
    *,
    errors: Mapping[int, Failure] = _NO_ERRORS,
) -> list[Cause]:
    """Give everything that stops the run after `steps` completed steps, first things first; empty: nothing does.

    `errors` are by the index of the rule, as `rule_errors` gives them.
    """
    found: list[Cause] = []
    if requested is not None:
        found.append(stop_request(requested))
    if steps >= max_steps:
        found.append(_max_steps(steps, max_steps))
    for index, (rule, verdict) in enumerate(zip(rules, verdicts, strict=True)):
        error = errors.get(index)
        if error is not None:
            found.append(Cause(verdict, DecisionSource.RULE, error.message, failure=error))
        elif stops(rule, verdict):
            found.append(Cause(verdict, DecisionSource.RULE, rule.reason or verdict.message))
    return found


def rule_errors(rules: Sequence[StopRule], results: Sequence[ExpressionResult]) -> dict[int, Failure]:
    """Give what went wrong in the expressions of each rule, by its index; `results` as for `core.stops.evaluate`."""
    errors: dict[int, Failure] = {}
    left = iter(results)
    for index, rule in enumerate(rules):
        for _ in expressions_of((rule,)):
            result = next(left, None)
            if result is not None and result.outcome is _ERROR and index not in errors:
                errors[index] = failures.rule_error(rule.rule_id, result.text)
    return errors


def stop_reason(found: Sequence[Cause]) -> StopReason:
    """Say why the run stops: the first cause, and what else would have stopped it."""
    first = found[0]
    return StopReason(
        kind=first.verdict.kind,
        source=first.source,
        rule_id=first.verdict.rule_id,
        reason=first.reason,
        observed=first.verdict.observed,
        limit=first.verdict.limit,
        also_matched=tuple([cause.verdict for cause in found[1:]]),
    )


_REQUESTED = {DecisionSource.DRAIN: StopKind.DRAIN, DecisionSource.BUDGET: StopKind.BUDGET}


def stop_request(request: StopRequest) -> Cause:
    """The stop that somebody asked for."""
    kind = _REQUESTED.get(request.source, StopKind.STOP_REQUEST)
    reason = request.reason or "A stop was requested."
    return Cause(_bare(kind, reason), request.source, reason, request.identity)


def client_decision(reason: str, identity: str) -> Cause:
    """A client's STOP."""
    reason = reason or "The client decided to stop."
    return Cause(_bare(StopKind.CLIENT_DECISION, reason), DecisionSource.CLIENT, reason, identity)


def client_error(error: str, identity: str) -> Cause:
    """A client that could not decide."""
    verdict = _bare(StopKind.CLIENT_DECISION, error)
    return Cause(verdict, DecisionSource.CLIENT, error, identity, failures.decider_error(error))


def nobody_decided(default: str) -> Cause:
    """The deadline of a decision passed. `default` is what happens then."""
    reason = f"Nobody decided in time; the default is {default}."
    return Cause(_bare(StopKind.TIMEOUT, reason), DecisionSource.TIMEOUT, reason)


def nobody_connected(grace_ns: int) -> Cause:
    """The last decider was gone for longer than its grace."""
    reason = f"No decider has been registered for {grace_ns / SECOND:g} s."
    return Cause(_bare(StopKind.DISCONNECT, reason), DecisionSource.DISCONNECT, reason)


def window_ended(requested: StopRequest | None) -> Cause:
    """The window of a drain ends while a decision is pending."""
    reason = requested.reason if requested is not None and requested.reason else "The daemon is draining."
    return Cause(_bare(StopKind.DRAIN, reason), DecisionSource.DRAIN, reason)


def permission_denied(source: DecisionSource, reason: str, identity: str) -> Cause:
    """A denied permission ended the turn without a message."""
    reason = reason or "A denied permission ended the turn."
    return Cause(_bare(StopKind.PERMISSION_DENIED, reason), source, reason, identity)


def _max_steps(steps: int, max_steps: int) -> Cause:
    message = f"Completed steps of the run: {steps}, ceiling {max_steps}."
    verdict = Verdict(
        "", StopKind.MAX_STEPS, VerdictOutcome.MATCHED, str(steps), str(max_steps), steps / max_steps, message
    )
    return Cause(verdict, DecisionSource.LIMIT, message)


def _bare(kind: StopKind, message: str) -> Verdict:
    return Verdict("", kind, VerdictOutcome.MATCHED, "", "", None, message)

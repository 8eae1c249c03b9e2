"""What stops a run at a boundary, in the order of precedence.

The order is: abort (a state of its own, no question is put there), the stop that somebody asked for, the `max_steps`
ceiling, the rules in list order, the client. The first cause decides, the others are told as `also_matched`. The client
comes last and is asked only if nothing else stops, so it can only be stricter.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steprail_daemon.core.model import (
    DecisionSource,
    StopKind,
    StopReason,
    StopRequest,
    StopRule,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops import stops


class Cause(msgspec.Struct, frozen=True):
    """One thing that stops: its verdict, where it came from, and its reason for people."""

    verdict: Verdict
    source: DecisionSource
    reason: str
    identity: str = ""


def causes(
    requested: StopRequest | None, steps: int, max_steps: int, rules: Sequence[StopRule], verdicts: Sequence[Verdict]
) -> list[Cause]:
    """Give everything that stops the run after `steps` completed steps, first things first; empty: nothing does."""
    found: list[Cause] = []
    if requested is not None:
        found.append(stop_request(requested))
    if steps >= max_steps:
        found.append(_max_steps(steps, max_steps))
    for rule, verdict in zip(rules, verdicts, strict=True):
        if stops(rule, verdict):
            found.append(Cause(verdict, DecisionSource.RULE, rule.reason or verdict.message))
    return found


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


def stop_request(request: StopRequest) -> Cause:
    """The stop that somebody asked for."""
    kind = StopKind.DRAIN if request.source is DecisionSource.DRAIN else StopKind.STOP_REQUEST
    reason = request.reason or "A stop was requested."
    return Cause(_bare(kind, reason), request.source, reason, request.identity)


def client_decision(source: DecisionSource, reason: str, identity: str) -> Cause:
    """A client's STOP."""
    reason = reason or "The client decided to stop."
    return Cause(_bare(StopKind.CLIENT_DECISION, reason), source, reason, identity)


def nobody_decided(default: str) -> Cause:
    """The deadline of a decision passed. `default` is what happens then."""
    reason = f"Nobody decided in time; the default is {default}."
    return Cause(_bare(StopKind.TIMEOUT, reason), DecisionSource.TIMEOUT, reason)


def _max_steps(steps: int, max_steps: int) -> Cause:
    message = f"Completed steps of the run: {steps}, ceiling {max_steps}."
    verdict = Verdict(
        "", StopKind.MAX_STEPS, VerdictOutcome.MATCHED, str(steps), str(max_steps), steps / max_steps, message
    )
    return Cause(verdict, DecisionSource.LIMIT, message)


def _bare(kind: StopKind, message: str) -> Verdict:
    return Verdict("", kind, VerdictOutcome.MATCHED, "", "", None, message)

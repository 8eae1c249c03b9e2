"""What a kind of stop rule is: a view of the run in, a verdict out, and a check of the rule itself beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from steprail_daemon.core.model import (
    Capabilities,
    FinishReason,
    Step,
    StopKind,
    Verdict,
)
from steprail_daemon.core.stops.tally import NO_TALLY, Tally

if TYPE_CHECKING:
    from steprail_daemon.core.stops.expressions import ExpressionResult


class StepFacts(msgspec.Struct, frozen=True, gc=False):
    """What rules see at a boundary, the step just completed included, or at the end of a run that had no boundary.

    `run_steps` and `session_steps` count completed steps. `step` is the one just completed; None at a text-only end and
    before the start. `tally` was made for the rules that are evaluated and has had every step added to it.
    `active_ns` and `wall_ns` are the run's, by the clocks of `RuleClock`. `finish_reason` is that of the message of a
    text-only end; where there is a step, its own counts.
    """

    run_steps: int
    session_steps: int
    step: Step | None = None
    tally: Tally = NO_TALLY
    active_ns: int = 0
    wall_ns: int = 0
    finish_reason: FinishReason = FinishReason.UNKNOWN


#: What is wrong with a rule: the field within it, such as `step_count.at_least`, and what is wrong and accepted.
Problem = tuple[str, str]


def never_over_session(_condition: Any) -> bool:
    """A kind that looks at one run only."""
    return False


def always_served(_condition: Any, _capabilities: Capabilities) -> bool:
    """A kind that can be judged with every agent."""
    return True


class RuleKind(msgspec.Struct, frozen=True):
    """One kind of rule that is judged by itself. `condition` is the class of its parameters.

    `verdict` judges a boundary by a rule's id and condition. It is total and never raises, given a condition in which
    `problems` found nothing.
    `problems` gives the fields of the condition, without the kind's name, that are wrong.
    `capability` names the field of `Capabilities` that says whether an agent gives the data; empty: every agent does.
    `served` says whether an agent gives the data in time for a boundary.
    `session` says whether a condition sums over the session, so that it can be met before a run begins.
    """

    kind: StopKind
    condition: type
    verdict: Callable[[str, Any, StepFacts], Verdict]
    problems: Callable[[Any], Iterable[Problem]]
    capability: str = ""
    served: Callable[[Any, Capabilities], bool] = always_served
    session: Callable[[Any], bool] = never_over_session


class ExpressionRuleKind(msgspec.Struct, frozen=True):
    """The kind of rule that is evaluated elsewhere; `verdict` words its result, None if there is none."""

    kind: StopKind
    condition: type
    verdict: Callable[[str, Any, ExpressionResult | None], Verdict]
    problems: Callable[[Any], Iterable[Problem]]


class GroupRuleKind(msgspec.Struct, frozen=True):
    """A kind of rule that holds others; `verdict` puts theirs together, in three-valued logic."""

    kind: StopKind
    condition: type
    verdict: Callable[[str, Sequence[Verdict]], Verdict]


def at_least(value: int, least: int) -> Iterable[Problem]:
    """Check the limit of a rule that counts."""
    return () if value >= least else (("at_least", f"is {value}; accepted are {least} and more"),)

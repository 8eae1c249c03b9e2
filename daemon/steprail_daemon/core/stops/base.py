"""What a kind of stop rule is: a view of the run in, a verdict out, and a check of the rule itself beforehand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from steprail_daemon.core.model import StopKind, StopRule, Verdict


class StepFacts(msgspec.Struct, frozen=True, gc=False):
    """What rules see at a boundary: completed steps, the one just completed included."""

    run_steps: int
    session_steps: int


class RuleKind(msgspec.Struct, frozen=True):
    """One kind of rule. `condition` is the class of its parameters.

    `verdict` judges one boundary; it is total, never raises, and needs a rule that `problem` found nothing wrong with.
    `problem` names the field that is wrong, what it holds and what is accepted; it is empty for a good rule.
    """

    kind: StopKind
    condition: type
    verdict: Callable[[StopRule, StepFacts], Verdict]
    problem: Callable[[StopRule], str]

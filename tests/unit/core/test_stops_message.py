"""Stop rules about time, about how a message ended, and in CEL."""

import pytest
from tests.unit.core.stop_facts import judge, rule, step

from steprail_daemon.core.model import (
    DurationRule,
    ExpressionRule,
    FinishReason,
    FinishReasonRule,
    RuleClock,
    StopKind,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops import StepFacts, evaluate
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult

MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN
MINUTE = 60_000_000_000
LENGTH, STOP = FinishReason.LENGTH, FinishReason.STOP


@pytest.mark.parametrize(
    ("taken", "outcome", "observed"),
    [
        (0, NOT_MATCHED, "0 s"),
        (MINUTE - 1, NOT_MATCHED, "59.999 s"),
        (MINUTE, MATCHED, "60 s"),
        (MINUTE + 1, MATCHED, "60 s"),
        (MINUTE + 1_250_000_000, MATCHED, "61.25 s"),
    ],
)
def test_time_matches_at_the_limit_and_over_it(taken: int, outcome: VerdictOutcome, observed: str) -> None:
    verdict = judge(DurationRule(MINUTE), active_ns=taken)
    message = f"Active time of the run: {observed} of 60 s."
    assert verdict == Verdict("r", StopKind.DURATION, outcome, observed, "60 s", taken / MINUTE, message)


def test_each_clock_is_read_for_itself() -> None:
    times = {"active_ns": MINUTE - 1, "wall_ns": MINUTE}
    assert judge(DurationRule(MINUTE), **times).outcome is NOT_MATCHED
    assert judge(DurationRule(MINUTE, RuleClock.WALL), **times).message == ("Time since the run started: 60 s of 60 s.")


def test_the_shortest_limit_is_written_out() -> None:
    assert judge(DurationRule(1)).limit == "0.000000001 s"


@pytest.mark.parametrize(
    ("wanted", "reason", "outcome"),
    [
        ((LENGTH,), LENGTH, MATCHED),
        ((LENGTH,), STOP, NOT_MATCHED),
        ((LENGTH, STOP), STOP, MATCHED),
        ((LENGTH,), FinishReason.UNKNOWN, UNKNOWN),
    ],
)
def test_a_reason_is_looked_up_and_one_not_reported_is_unknown(
    wanted: tuple[FinishReason, ...], reason: FinishReason, outcome: VerdictOutcome
) -> None:
    verdict = judge(FinishReasonRule(wanted), step(finish=reason))
    assert (verdict.kind, verdict.outcome, verdict.ratio) == (StopKind.FINISH_REASON, outcome, None)
    at_the_end = StepFacts(1, 1, finish_reason=reason)
    assert evaluate([rule(FinishReasonRule(wanted))], at_the_end)[0] == verdict


def test_a_reason_is_told_in_words() -> None:
    said = judge(FinishReasonRule((LENGTH, STOP, LENGTH)), step(finish=LENGTH))
    assert (said.observed, said.limit) == ("LENGTH", "LENGTH or STOP")
    assert said.message == "Finish reason of the message: LENGTH; looked for LENGTH or STOP."
    assert judge(FinishReasonRule((STOP,)), step(finish=FinishReason.UNKNOWN)).message == (
        "Finish reason of the message: not reported; looked for STOP."
    )


@pytest.mark.parametrize(
    ("result", "outcome", "observed", "message"),
    [
        (ExpressionResult(ExpressionOutcome.MATCHED), MATCHED, "true", "The expression is true."),
        (ExpressionResult(ExpressionOutcome.MATCHED, "tests pass"), MATCHED, "tests pass", "tests pass"),
        (ExpressionResult(ExpressionOutcome.NOT_MATCHED), NOT_MATCHED, "false", "The expression is not true."),
        (
            ExpressionResult(ExpressionOutcome.UNKNOWN, "cost_usd is absent"),
            UNKNOWN,
            "",
            "The expression has no value: cost_usd is absent.",
        ),
        (
            ExpressionResult(ExpressionOutcome.ERROR, "division by zero"),
            UNKNOWN,
            "",
            "The expression has no value: division by zero.",
        ),
        (None, UNKNOWN, "", "The expression has no value: it was not evaluated."),
    ],
)
def test_the_result_of_an_expression_is_the_verdict(
    result: ExpressionResult | None, outcome: VerdictOutcome, observed: str, message: str
) -> None:
    rules = [rule(ExpressionRule("step.number > 2"))]
    verdict = evaluate(rules, StepFacts(1, 1), [] if result is None else [result])[0]
    assert verdict == Verdict("r", StopKind.EXPRESSION, outcome, observed, "step.number > 2", None, message)

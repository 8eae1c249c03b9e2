"""Conversations in which something beside the main loop is used: by sub-agents, by titles and summaries."""

from tests.unit.core.conversations import (
    aborting,
    asked,
    awaiting,
    completed,
    running,
    stopping,
)

from steprail_daemon.core.commands import Emit
from steprail_daemon.core.events import TurnEnded, UsageSpent
from steprail_daemon.core.model import (
    Cost,
    CostBasis,
    CostRule,
    RunState,
    StopRule,
    TokenUsageRule,
    TurnEndReason,
    Usage,
)
from steprail_daemon.core.records import UsageBeside

ONE = Usage(10, output_tokens=1)
PRICE = Cost(5, CostBasis.REPORTED)
SPENT = UsageSpent(ONE, PRICE)
COUNTED = Emit(UsageBeside(ONE, PRICE, False))


def tokens(usage: Usage | None) -> int | None:
    return None if usage is None else usage.total_tokens


def test_what_sub_agents_use_counts_in_the_run_in_every_state_of_it() -> None:
    for play, state in (
        (running(), RunState.RUNNING),
        (asked(), RunState.AWAITING_PERMISSION),
        (awaiting(), RunState.AWAITING_DECISION),
        (stopping(), RunState.STOPPING),
        (aborting(), RunState.ABORTING),
    ):
        play.hears(SPENT).says(COUNTED)
        view = play.ends_in(state)
        assert tokens(view.subagent_usage) == 11
        assert view.side_usage is None


def test_a_sub_agent_of_the_first_step_is_counted_beside_that_step() -> None:
    play = running().hears(SPENT).hears(completed(1, Usage(100, output_tokens=20), Cost(50, CostBasis.REPORTED)))
    view = play.ends_in(RunState.RUNNING)
    assert tokens(view.usage) == 131
    assert view.cost == Cost(55, CostBasis.REPORTED)
    assert tokens(view.subagent_usage) == 11


def test_titles_and_summaries_are_told_apart() -> None:
    play = running().hears(UsageSpent(ONE, None, side_request=True)).says(Emit(UsageBeside(ONE, None, True)))
    view = play.hears(SPENT).ends_in(RunState.RUNNING)
    assert (tokens(view.usage), tokens(view.subagent_usage), tokens(view.side_usage)) == (22, 11, 11)


def test_what_is_not_known_leaves_the_sum_a_lower_bound() -> None:
    view = running().hears(SPENT).hears(UsageSpent(None, None)).ends_in(RunState.RUNNING)
    assert view.usage is not None
    assert (view.usage.total_tokens, view.usage.complete) == (11, False)


def test_rules_on_tokens_and_money_see_what_sub_agents_used() -> None:
    for rule in (TokenUsageRule(130), CostRule(55)):
        play = running(StopRule("most", rule)).hears(SPENT)
        play.hears(completed(1, Usage(100, output_tokens=20), Cost(50, CostBasis.REPORTED)))
        reason = play.ends_in(RunState.STOPPING).stop_reason
        assert reason is not None
        assert reason.rule_id == "most"


def test_the_figures_of_the_turn_are_of_the_main_loop_and_the_others_are_added() -> None:
    end = TurnEnded(TurnEndReason.COMPLETED, "completed", "", None, Usage(200, output_tokens=30), Cost(99, PRICE.basis))
    rule = StopRule("most", TokenUsageRule(241))
    view = running(rule).hears(SPENT).hears(end).ends_in(RunState.COMPLETED)
    assert tokens(view.usage) == 241
    assert view.cost == Cost(99, CostBasis.REPORTED)
    assert [verdict.observed for verdict in view.final_verdicts] == ["241"]

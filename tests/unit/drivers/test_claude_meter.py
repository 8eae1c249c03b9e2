"""What a step, its sub-agents and side requests cost, by readings of the session's sums."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.drivers.claude_lines import (
    PROMPT,
    answers,
    assistant,
    batch,
    feed,
    lifecycle,
    result,
    sent,
    stream,
    stream_message,
    working_codec,
)

from steprail_daemon.core.commands import AnswerBoundary, Interrupt, SendPrompt
from steprail_daemon.core.events import (
    BoundaryCancelled,
    BoundaryReached,
    ContextWindowChanged,
    TurnEnded,
    UsageReported,
)
from steprail_daemon.core.model import ContextWindowKind, Cost, CostBasis, DecisionAction, Usage
from steprail_daemon.drivers.claude.codec import ClaudeCodec

GO_ON = DecisionAction.CONTINUE


def dollars(micro_usd: int) -> Cost:
    return Cost(micro_usd, CostBasis.REPORTED)


def readings(codec: ClaudeCodec) -> list[str]:
    """Ids of the readings that the codec asks for; nothing else must be sent."""
    lines = sent(codec)
    assert all(line["request"] == {"subtype": "get_usage"} for line in lines)
    return [line["request_id"] for line in lines]


def sums(request_id: str, tokens: int, micro_usd: int) -> dict[str, Any]:
    used = {"inputTokens": tokens, "outputTokens": tokens // 10, "costUSD": micro_usd / 1e6, "thinkingTokens": 0}
    body = {"session": {"total_cost_usd": micro_usd / 1e6, "model_usage": {"m": used}}}
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request_id, "response": body}}


def refused(request_id: str) -> dict[str, Any]:
    response = {"subtype": "error", "request_id": request_id, "error": "no such thing"}
    return {"type": "control_response", "response": response}


def delegation(request_id: str = "d1", **given: Any) -> dict[str, Any]:
    """The hook before a sub-agent."""
    request = {"subtype": "hook_callback", "callback_id": "PreToolUse", "input": {"tool_name": "Agent", **given}}
    return {"type": "control_request", "request_id": request_id, "request": request}


def inner(agent_id: str = "a1", call_id: str = "t1") -> dict[str, Any]:
    return assistant({"type": "text", "text": "hi"}, parent_tool_use_id=call_id, agent_id=agent_id)


def costly(**fields: Any) -> ClaudeCodec:
    return working_codec(wants_cost=True, **fields)


class TestSteps:
    def test_without_a_need_nothing_is_read_and_the_boundary_is_told_at_once(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        assert feed(codec, batch("b1", "t1")) == [BoundaryReached("b1", ("t1",))]
        assert sent(codec) == []

    def test_a_boundary_is_told_once_its_reading_came_with_what_was_spent_since_the_last(self) -> None:
        codec = costly()
        codec.data_to_send()
        spent = []
        for number, money in enumerate((800, 2_000), 1):
            assert feed(codec, batch(f"b{number}")) == []
            (reading,) = readings(codec)
            (boundary,) = feed(codec, sums(reading, 100 * number, money))
            assert isinstance(boundary, BoundaryReached)
            spent.append(boundary.cost)
            codec.send(AnswerBoundary(f"b{number}", GO_ON))
            codec.data_to_send()
        assert spent == [dollars(800), dollars(1_200)]

    def test_its_usage_is_that_of_the_stream(self) -> None:
        codec = costly()
        codec.data_to_send()
        feed(codec, *stream_message("hi"), batch("b1"))
        (boundary,) = feed(codec, sums(readings(codec)[0], 7, 7))
        assert boundary == BoundaryReached("b1", (), Usage(550, 500, 40, 33), dollars(7))

    def test_after_a_resume_the_first_reading_says_where_to_count_from(self) -> None:
        codec = costly(resume=True)
        before, prompt = sent(codec)
        assert (before["request"], prompt["type"]) == ({"subtype": "get_usage"}, "user")
        assert feed(codec, sums(before["request_id"], 5_000, 90_000)) == []
        feed(codec, batch("b1"))
        (boundary,) = feed(codec, sums(readings(codec)[0], 5_100, 90_800))
        assert boundary == BoundaryReached("b1", cost=dollars(800))

    def test_the_result_of_a_turn_says_where_the_next_one_counts_from(self) -> None:
        codec = costly()
        feed(codec, result(modelUsage={"m": {"inputTokens": 100, "outputTokens": 10, "costUSD": 0.004}}))
        codec.data_to_send()
        codec.send(SendPrompt("2", "on", wants_cost=True))
        feed(codec, lifecycle("started", "2"), batch("b1"))
        (reading,) = [line["request_id"] for line in sent(codec) if line["type"] == "control_request"]
        (boundary,) = feed(codec, sums(reading, 200, 5_000))
        assert boundary == BoundaryReached("b1", cost=dollars(1_000))

    def test_after_a_crash_whose_sums_are_zero_it_is_read_anew(self) -> None:
        codec = costly()
        feed(codec, result(is_error=True, subtype="error_during_execution", terminal_reason="", modelUsage={}))
        codec.data_to_send()
        codec.send(SendPrompt("2", "on", wants_cost=True))
        assert sent(codec)[0]["request"] == {"subtype": "get_usage"}

    @pytest.mark.parametrize("sums_shrank", [True, False])
    def test_a_cost_that_cannot_be_told_is_unknown_and_the_next_is_known_again(self, sums_shrank: bool) -> None:
        codec = costly()
        codec.data_to_send()
        feed(codec, batch("b0"))
        feed(codec, sums(readings(codec)[0], 100, 5_000))
        feed(codec, batch("b1"))
        (reading,) = readings(codec)
        (boundary,) = feed(codec, sums(reading, 50, 800) if sums_shrank else refused(reading))
        assert boundary == BoundaryReached("b1", cost=None)
        feed(codec, batch("b2"))
        (boundary,) = feed(codec, sums(readings(codec)[0], 200, 1_000))
        assert boundary == BoundaryReached("b2", cost=dollars(200) if sums_shrank else None)

    def test_an_interrupt_before_the_reading_leaves_no_boundary(self) -> None:
        codec = costly()
        codec.data_to_send()
        feed(codec, batch("b1"))
        (reading,) = readings(codec)
        codec.send(Interrupt())
        events = feed(
            codec,
            {"type": "control_cancel_request", "request_id": "b1"},
            sums(reading, 1, 1),
            result(terminal_reason="aborted_tools", is_error=True),
        )
        assert [type(event) for event in events] == [TurnEnded]

    def test_a_boundary_that_was_told_and_is_withdrawn_is_cancelled(self) -> None:
        codec = costly()
        codec.data_to_send()
        feed(codec, batch("b1"))
        feed(codec, sums(readings(codec)[0], 1, 1))
        assert feed(codec, {"type": "control_cancel_request", "request_id": "b1"}) == [BoundaryCancelled("b1")]

    def test_a_reading_of_an_earlier_turn_is_no_affair_of_the_next_one(self) -> None:
        codec = costly()
        codec.data_to_send()
        feed(codec, batch("b1"))
        (late,) = readings(codec)
        feed(codec, result(terminal_reason="aborted_tools", is_error=True, modelUsage={"m": {"costUSD": 0.001}}))
        codec.send(SendPrompt(PROMPT, "on", wants_cost=True))
        codec.data_to_send()
        feed(codec, lifecycle("started"), batch("b2"))
        (reading,) = readings(codec)
        assert feed(codec, sums(late, 9, 900_000)) == []
        assert feed(codec, sums(reading, 9, 1_500)) == [BoundaryReached("b2", cost=dollars(500))]


class TestSubAgents:
    def test_one_waits_until_the_step_so_far_is_read_and_its_own_use_is_told_before_the_boundary(self) -> None:
        codec = costly()
        codec.data_to_send()
        assert feed(codec, delegation()) == []
        (mark,) = readings(codec)
        feed(codec, sums(mark, 100, 800))
        assert answers(codec) == [("d1", {})]
        feed(codec, inner(), batch("s1", agent_id="a1"), batch("b1", "t1"))
        (_, (reading,)) = split(codec)
        used, boundary = feed(codec, sums(reading, 140, 1_280))
        assert used == UsageReported(Usage(40, 0, 0, 4, 0), dollars(480), "", "a1", "t1")
        assert boundary == BoundaryReached("b1", ("t1",), cost=dollars(800))

    def test_one_that_starts_while_its_message_is_written_waits_for_the_whole_message(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, stream("message_start", message={"id": "m1", "model": "m", "content": []}), delegation())
        assert sent(codec) == []
        feed(codec, delegation("d2"), stream("message_stop"))
        (mark,) = readings(codec)
        feed(codec, sums(mark, 100, 800), delegation("d3"))
        assert answers(codec) == [("d1", {}), ("d2", {}), ("d3", {})]

    def test_several_are_told_together_under_all_their_ids(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, delegation())
        feed(codec, sums(readings(codec)[0], 100, 800), inner("a1", "t1"), inner("a2", "t2"), inner("a1", "t1"))
        codec.data_to_send()
        feed(codec, batch("b1", "t1", "t2"))
        used, boundary = feed(codec, sums(readings(codec)[0], 300, 2_000))
        assert used == UsageReported(Usage(200, 0, 0, 20, 0), dollars(1_200), "", "a1 a2", "t1 t2")
        assert boundary == BoundaryReached("b1", ("t1", "t2"))

    def test_one_that_was_not_announced_is_marked_when_it_shows_itself(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        started = {"type": "system", "subtype": "task_started", "task_id": "a1", "task_type": "local_agent"}
        feed(codec, started | {"tool_use_id": "t1"}, inner())
        (mark,) = readings(codec)
        feed(codec, sums(mark, 100, 800), batch("b1", "t1"))
        used, _ = feed(codec, sums(readings(codec)[0], 150, 1_000))
        assert used == UsageReported(Usage(50, 0, 0, 5, 0), dollars(200), "", "a1", "t1")

    def test_their_use_is_unknown_where_a_reading_failed(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, inner(), batch("b1", "t1"))
        mark, reading = readings(codec)
        assert feed(codec, refused(mark)) == []
        used, boundary = feed(codec, sums(reading, 150, 1_000))
        assert used == UsageReported(None, None, "", "a1", "t1")
        assert isinstance(boundary, BoundaryReached)

    def test_the_next_step_has_none_of_them(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, inner(), batch("b1", "t1"))
        mark, reading = readings(codec)
        feed(codec, sums(mark, 1, 1), sums(reading, 2, 2))
        codec.send(AnswerBoundary("b1", GO_ON))
        codec.data_to_send()
        assert feed(codec, batch("b2")) == [BoundaryReached("b2")]

    def test_a_sub_agents_own_sub_agent_starts_at_once(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, delegation("d1", agent_id="a1"))
        assert answers(codec) == [("d1", {})]

    def test_one_that_is_interrupted_before_it_starts_is_not_answered(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, delegation())
        (mark,) = readings(codec)
        feed(codec, {"type": "control_cancel_request", "request_id": "d1"}, sums(mark, 1, 1))
        assert sent(codec) == []

    def test_a_stop_that_is_being_cut_off_ends_sub_agents_at_their_own_boundary(self) -> None:
        codec = working_codec()
        codec.send(Interrupt())
        codec.data_to_send()
        feed(codec, batch("s1", agent_id="a1"))
        ((_, answer),) = answers(codec)
        assert answer["continue"] is False


class TestTurns:
    def test_the_turns_usage_is_the_main_loops_and_its_cost_is_of_everything(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, delegation())
        feed(codec, sums(readings(codec)[0], 100, 800), inner())
        codec.data_to_send()
        feed(codec, batch("b1", "t1"))
        feed(codec, sums(readings(codec)[0], 140, 1_280))
        whole = {"m": {"inputTokens": 240, "outputTokens": 24, "costUSD": 0.002, "thinkingTokens": 0}}
        (ended,) = feed(codec, result(modelUsage=whole, model_usage_since_last_result=whole))
        assert isinstance(ended, TurnEnded)
        assert (ended.usage, ended.cost) == (Usage(200, 0, 0, 20, 0), dollars(2_000))

    def test_a_sub_agent_that_came_to_no_boundary_is_told_at_the_end_of_the_turn(self) -> None:
        codec = working_codec()
        codec.data_to_send()
        feed(codec, inner())
        whole = {"m": {"inputTokens": 140, "outputTokens": 14, "costUSD": 0.002, "thinkingTokens": 0}}
        own = {"input_tokens": 100, "output_tokens": 10, "output_tokens_details": {"thinking_tokens": 0}}
        aborted = result(terminal_reason="aborted_tools", is_error=True, usage=own, modelUsage=whole)
        used, ended = feed(codec, aborted | {"model_usage_since_last_result": whole})
        assert used == UsageReported(Usage(40, 0, 0, 4, 0), None, "", "a1", "t1")
        assert isinstance(ended, TurnEnded)
        assert ended.usage == Usage(100, 0, 0, 10, 0)


class TestSummaries:
    def test_a_summary_is_told_with_what_it_used_and_its_step_does_not_pay_for_it(self) -> None:
        codec = costly()
        codec.data_to_send()
        status = {"type": "system", "subtype": "status"}
        feed(codec, status | {"status": "compacting"})
        (before,) = readings(codec)
        feed(codec, sums(before, 0, 0), status | {"status": None, "compact_result": "success"})
        (after,) = readings(codec)
        (used,) = feed(codec, sums(after, 500, 3_000))
        assert used == UsageReported(Usage(500, 0, 0, 50, 0), dollars(3_000), side_request=True)
        feed(codec, batch("b1"))
        (boundary,) = feed(codec, sums(readings(codec)[0], 600, 3_800))
        assert boundary == BoundaryReached("b1", cost=dollars(800))

    def test_the_context_is_told_to_be_smaller(self) -> None:
        metadata = {"trigger": "auto", "pre_tokens": 990_032, "post_tokens": 2_608}
        line = {"type": "system", "subtype": "compact_boundary", "compact_metadata": metadata}
        assert feed(working_codec(), line) == [ContextWindowChanged(ContextWindowKind.COMPACTED, 2_608)]
        del line["compact_metadata"]
        assert feed(working_codec(), line) == [ContextWindowChanged(ContextWindowKind.COMPACTED)]


def split(codec: ClaudeCodec) -> tuple[list[str], list[str]]:
    """Ids of what was answered, and of the readings that were asked for."""
    lines = sent(codec)
    answered = [line["response"]["request_id"] for line in lines if line["type"] == "control_response"]
    return answered, [line["request_id"] for line in lines if line["type"] == "control_request"]

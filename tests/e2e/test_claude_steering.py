"""Texts and models that go to the real Claude Code with the answer at a boundary, and what a step cost."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from tests.e2e.agent import QUIET, bash, prompt, results, started

from steprail_daemon.core.commands import SetModel
from steprail_daemon.core.events import (
    BoundaryReached,
    ContextWindowChanged,
    ModelChanged,
    TurnEnded,
    UsageReported,
)
from steprail_daemon.core.model import ContextWindowKind, Cost, CostBasis, TurnEndReason
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script, Step

SONNET, HAIKU = "claude-sonnet-4-5", "claude-haiku-4-5"


def test_texts_reach_the_model_with_the_next_step_and_a_stop_after_them_starts_no_turn(
    claude: Path, tmp_path: Path
) -> None:
    script = Script([bash("echo one"), bash("echo two")])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        agent.go_on(agent.until(BoundaryReached), 'Look at the "tests" first.', "And be brief.")
        boundary = agent.until(BoundaryReached)
        assert len(endpoint.main_requests()[1].blocks("tool_result")) == 1
        second = json.dumps(endpoint.main_requests()[1].messages[-1])
        assert 'Look at the \\"tests\\" first.' in second
        assert second.index("tests") < second.index("And be brief.")
        agent.stop(boundary)
        assert agent.until(TurnEnded).reason is TurnEndReason.STOP_CONDITION
        agent.listen(QUIET)
        assert len(endpoint.main_requests()) == 2
        assert agent.codec.eof_is_safe()
        agent.send(prompt("go on"))
        assert agent.until(TurnEnded).reason is TurnEndReason.COMPLETED
        assert [str(result).split("\n")[0] for result in results(endpoint)] == ["one", "two"]


def test_a_model_is_in_use_from_the_very_next_request_on(claude: Path, tmp_path: Path) -> None:
    script = Script([bash(f"echo {number}") for number in range(5)])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        for model in (SONNET, HAIKU, SONNET, HAIKU):
            agent.go_on(agent.until(BoundaryReached), model=model)
            assert agent.until(ModelChanged) == ModelChanged(model)
        agent.go_on(agent.until(BoundaryReached))
        agent.until(TurnEnded)
        used = [request.body["model"] for request in endpoint.main_requests()]
        assert used[1:] == [SONNET, HAIKU, SONNET, HAIKU, HAIKU]
        agent.send(SetModel(SONNET))
        agent.send(prompt("and now"))
        agent.until(TurnEnded)
        assert endpoint.main_requests()[-1].body["model"] == SONNET
        agent.send(SetModel(""))
        agent.send(prompt("as it was"))
        agent.until(TurnEnded)
        assert endpoint.main_requests()[-1].body["model"] == used[0]


def test_the_cost_of_each_step_adds_up_to_the_turns_also_after_a_resume(claude: Path, tmp_path: Path) -> None:
    script = Script([bash("echo one"), bash("echo two", text="More."), Step(text="Done."), bash("echo three")])
    session = str(uuid.uuid4())
    with MessagesEndpoint(script) as endpoint:
        with started(tmp_path, claude, endpoint, session=session) as agent:
            agent.send(prompt("begin", wants_cost=True))
            steps = []
            for _ in range(2):
                boundary = agent.until(BoundaryReached)
                steps.append(boundary.cost)
                agent.go_on(boundary)
            turn = agent.until(TurnEnded)
            # The endpoint's 100 tokens in and 20 out at the list price of the CLI's own model.
            assert steps == [Cost(800, CostBasis.REPORTED)] * 2
            assert turn.cost == Cost(2_400, CostBasis.REPORTED)
            assert agent.end() == 0
        with started(tmp_path, claude, endpoint, session=session, resume=True) as agent:
            agent.send(prompt("go on", wants_cost=True))
            boundary = agent.until(BoundaryReached)
            assert boundary.cost == Cost(800, CostBasis.REPORTED)
            agent.stop(boundary)
            assert agent.until(TurnEnded).cost == Cost(800, CostBasis.REPORTED)


def test_a_summary_of_the_conversation_is_told_with_what_it_used_and_is_no_step(claude: Path, tmp_path: Path) -> None:
    full = Step(text="Full.", tools=bash("echo two").tools, usage={"input_tokens": 990_000})

    def summary_for(body: dict[str, Any]) -> Step | None:
        asked = "Respond with TEXT ONLY" in json.dumps(body["messages"][-1])
        return Step(text="<summary>Two echoes.</summary>") if asked else None

    script = Script([bash("echo one"), full, bash("echo three"), Step(text="Done.")], aside=summary_for)
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin", wants_cost=True))
        turn = agent.work()
        assert turn.reason is TurnEndReason.COMPLETED
        (changed,) = agent.of(ContextWindowChanged)
        assert changed.kind is ContextWindowKind.COMPACTED
        assert changed.used_tokens
        (side,) = agent.of(UsageReported)
        assert side.side_request
        assert side.usage is not None
        assert side.cost is not None
        steps = [(boundary.usage, boundary.cost) for boundary in agent.of(BoundaryReached)]
        # Everything that was spent is in the steps, in the summary or in the last message: 120 tokens for 800.
        tokens = sum(usage.total_tokens or 0 for usage, _ in steps if usage is not None)
        money = sum(cost.micro_usd or 0 for _, cost in steps if cost is not None)
        assert len(steps) == 3
        assert turn.usage is not None
        assert turn.cost is not None
        assert turn.usage.total_tokens == tokens + 120
        assert turn.cost.micro_usd == money + (side.cost.micro_usd or 0) + 800

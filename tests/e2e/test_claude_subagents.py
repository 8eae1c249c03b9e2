"""Sub-agents of the real Claude Code: told with their ids, counted, and no steps of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.agent import QUIET, bash, prompt, results, started

from steprail_daemon.core.commands import AnswerPermission, Interrupt
from steprail_daemon.core.events import (
    BoundaryReached,
    MessageEnded,
    PermissionAsked,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    TurnEnded,
    UsageReported,
)
from steprail_daemon.core.model import Cost, CostBasis, PermissionMode, ToolKind, ToolOutcome, TurnEndReason, Usage
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script, Step, Tool


def order(job: str) -> Tool:
    return Tool("Agent", {"description": job, "prompt": f"do {job}", "subagent_type": "general-purpose"})


def test_a_sub_agents_steps_are_not_the_main_loops_and_what_it_used_is_told_apart(claude: Path, tmp_path: Path) -> None:
    script = Script(
        [
            Step(text="I delegate.", tools=(order("a job"),)),
            Step(text="I look.", tools=bash("echo inside").tools, usage={"input_tokens": 10}, output_tokens=7),
            Step(text="The job is done.", usage={"input_tokens": 30}, output_tokens=9),
            Step(text="All done."),
        ]
    )
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin", wants_cost=True))
        boundary = agent.until(BoundaryReached)
        assert len(endpoint.main_requests()) == 3
        outer, inner = agent.of(ToolStarted)
        assert (outer.subagent_id, outer.call.tool_kind) == ("", ToolKind.OTHER)
        assert inner.subagent_id
        assert inner.parent_call_id == outer.call.call_id
        assert boundary.call_ids == (outer.call.call_id,)
        assert [event.parent_call_id for event in agent.of(ToolEnded)] == [outer.call.call_id, ""]
        assert outer.call.call_id in {event.call_id for event in agent.of(ToolUpdated)}

        (used,) = agent.of(UsageReported)
        assert (used.subagent_id, used.parent_call_id) == (inner.subagent_id, outer.call.call_id)
        assert used.usage == Usage(40, 0, 0, 16, 0)
        assert used.cost == Cost(480, CostBasis.REPORTED)
        assert (boundary.usage, boundary.cost) == (Usage(100, 0, 0, 20, None), Cost(800, CostBasis.REPORTED))
        agent.go_on(boundary)
        turn = agent.until(TurnEnded)
        assert (turn.text, turn.cost) == ("All done.", Cost(800 + 480 + 800, CostBasis.REPORTED))
        assert turn.usage is not None
        assert turn.usage.total_tokens == 120 + 120
        said = agent.of(MessageEnded)
        assert [event.text for event in said if not event.parent_call_id] == ["I delegate.", "All done."]
        assert [event.text for event in said if event.subagent_id] == ["I look.", "The job is done."]


def work_of(body: dict[str, Any]) -> Step | None:
    """What two sub-agents do at the same time: a tool, then a report."""
    said = json.dumps(body["messages"])
    job = next((job for job in ("job-a", "job-b") if f"do {job}" in said and "begin the work" not in said), "")
    if not job:
        return None
    fresh = not any(message["role"] == "assistant" for message in body["messages"])
    return bash(f"echo from-{job}") if fresh else Step(text=f"Report of {job}.")


def test_sub_agents_at_the_same_time_are_told_apart_and_summed_up_together(claude: Path, tmp_path: Path) -> None:
    script = Script([Step(tools=(order("job-a"), order("job-b"))), Step(text="Both are done.")], aside=work_of)
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin the work"))
        boundary = agent.until(BoundaryReached)
        assert len(boundary.call_ids) == 2
        inner = [event for event in agent.of(ToolStarted) if event.subagent_id]
        assert {event.parent_call_id for event in inner} == set(boundary.call_ids)
        outputs = {event.parent_call_id: event.result.output for event in agent.of(ToolEnded) if event.subagent_id}
        assert set(outputs.values()) == {"from-job-a", "from-job-b"}
        (used,) = agent.of(UsageReported)
        assert set(used.subagent_id.split()) == {event.subagent_id for event in inner}
        assert used.usage is not None
        assert used.usage.total_tokens == 4 * 120
        agent.stop(boundary)
        assert agent.until(TurnEnded).reason is TurnEndReason.STOP_CONDITION
        agent.listen(QUIET)
        assert len(endpoint.main_requests()) == 1
        agent.send(prompt("go on"))
        agent.until(TurnEnded)
        assert "Report of job-a." in str(results(endpoint))


def test_a_sub_agent_asks_under_its_id_and_an_interrupt_ends_it_with_the_turn(claude: Path, tmp_path: Path) -> None:
    script = Script([Step(tools=(order("a job"),)), bash("touch asked", "sleep 30"), Step(text="Here.")])
    with (
        MessagesEndpoint(script) as endpoint,
        started(tmp_path, claude, endpoint, mode=PermissionMode.ASK) as agent,
    ):
        agent.send(prompt("begin"))
        asked = agent.until(PermissionAsked)
        assert asked.subagent_id
        agent.send(AnswerPermission(asked.permission_id, True, ""))
        assert agent.until(ToolEnded).subagent_id == asked.subagent_id
        agent.send(Interrupt())
        assert agent.until(ToolEnded).result.outcome is ToolOutcome.CANCELLED
        turn = agent.until(TurnEnded)
        assert turn.reason is TurnEndReason.ABORTED
        (used,) = agent.of(UsageReported)
        assert used.subagent_id == asked.subagent_id
        assert used.usage is not None
        assert turn.usage is not None
        assert (used.usage.total_tokens, turn.usage.total_tokens) == (120, 120)
        agent.listen(QUIET)
        assert len(endpoint.main_requests()) == 2
        agent.send(prompt("and now"))
        assert agent.until(TurnEnded).text == "Here."

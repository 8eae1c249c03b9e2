import json

from steprail_daemon.testing.bench import agent, limits


def test_a_result_line_has_the_size_and_the_text_that_the_bench_promises() -> None:
    line = agent.result_line("toolu_0000000001")
    assert 400 <= len(line) <= 500
    assert len(agent.OUTPUT.encode()) == 150
    assert "\\n" in line.decode()
    assert not line.isascii()
    assert json.loads(line)["message"]["content"][0]["content"] == agent.OUTPUT


def test_only_the_boundary_line_has_the_mark_that_limits_look_for() -> None:
    assert agent.BOUNDARY_MARK in agent.boundary_line("request-1", "toolu_1", "gate")
    assert agent.BOUNDARY_MARK not in agent.result_line("toolu_1") + agent.assistant_line("msg_1", ["toolu_1"])


def test_a_limit_answers_the_boundary_by_its_id_and_lets_the_agent_go_on() -> None:
    step = agent.assistant_line("msg_1", ["toolu_1"]) + agent.result_line("toolu_1")
    answer = limits.answer_to(step + agent.boundary_line("request-1", "toolu_1", "gate"))
    assert json.loads(answer) == {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": "request-1", "response": {}},
    }
    assert answer.endswith(b"\n")

import json
import subprocess
from pathlib import Path

from steprail_daemon.core.events import AgentReady
from steprail_daemon.drivers.claude import handshake, wire
from steprail_daemon.testing.bench import agent, idle, limits
from steprail_daemon.testing.bench.processes import AGENT_ARGV

BOUND = 30


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


def test_a_flood_without_a_count_goes_on_until_its_file_is_gone_and_tells_how_much_it_wrote(tmp_path: Path) -> None:
    flag, report = tmp_path / "flag", tmp_path / "report"
    flag.touch()
    prompt = {"mode": "flood", "write": "chunk", "while": str(flag), "report": str(report)}
    with subprocess.Popen(
        [*AGENT_ARGV, "--bare", json.dumps(prompt)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        # Two blocks are more than a pipe takes, so it is still writing.
        begun = [process.stdout.readline() for _ in range(1 + 2 * agent.BLOCK_LINES)]
        flag.unlink()
        rest = process.stdout.read().splitlines()
        assert process.wait(BOUND) == 0
    assert b"tool_use_id" in begun[-1]
    assert json.loads(report.read_text())["count"] == len(begun) - 1 + len(rest) >= 2 * agent.BLOCK_LINES


def test_the_idle_agent_tells_a_version_that_is_accepted_and_confirms_the_gate() -> None:
    argv = ["/bin/sh", str(idle.IDLE_SH)]
    version = subprocess.run([*argv, "--version"], capture_output=True, timeout=BOUND, check=True)
    assert version.stdout.decode() == f"{agent.VERSION} (Claude Code)\n"
    question = {"type": "control_request", "request_id": "request-1", "request": handshake.request()}
    done = subprocess.run(argv, input=agent.encode(question), capture_output=True, timeout=BOUND, check=True)
    answer = wire.read_line(done.stdout.rstrip(b"\n"))
    assert isinstance(answer, wire.ControlResponseLine)
    ready = handshake.answered(answer.response, "session")
    assert isinstance(ready, AgentReady)
    assert (answer.response.request_id, ready.gate_held, ready.version) == ("request-1", True, agent.VERSION)

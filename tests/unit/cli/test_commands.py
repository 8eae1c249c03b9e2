"""Each command against a daemon that follows a script: what it asks for, what it prints, its status."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.unit.cli.fakes import FakeControl, FakeDaemon, ended

from steprail_daemon.cli.client import Message
from steprail_daemon.cli.main import cli
from steprail_daemon.cli.problems import Refused

STEP = {"number": "1", "step_id": "step_1", "text": {"value": "I look."}}
Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setenv("STEPRAIL_ADDRESS", "unix:/nowhere")

    def run(daemon: FakeDaemon, *arguments: str, typed: str = "") -> Result:
        return CliRunner().invoke(cli, arguments, obj=lambda address: nullcontext(daemon), input=typed)

    return run


def objects(result: Result) -> list[Message]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_run_makes_a_session_of_the_first_available_agent_here(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    daemon = FakeDaemon(agents=[{"name": "a"}, {"name": "b", "available": True}], ends_as=ended("STOPPED"))
    result = invoke(daemon, "run", "--stop-when", "steps=1", "--stop-when", "steps=3", "Do it")
    assert result.exit_code == 10
    assert daemon.asked == [f"session of b in {tmp_path}", "start 'Do it' on ses_1 until [steps=1, steps=3]"]


def test_run_passes_agent_directory_and_mode(invoke: Invoke, tmp_path: Path) -> None:
    daemon = FakeDaemon()
    result = invoke(
        daemon, "run", "-a", "x", "-C", str(tmp_path), "--permission-mode", "bypass", "--json", "-", typed="Hi"
    )
    assert result.exit_code == 0
    assert daemon.asked == [f"session of x in {tmp_path} bypass", "start 'Hi' on ses_1 until []"]
    assert [list(line) for line in objects(result)] == [["run"], ["run"]]


def test_run_leaves_it_to_the_daemon_to_say_why_no_agent_is_available(invoke: Invoke, tmp_path: Path) -> None:
    daemon = FakeDaemon(agents=[{"name": "a", "unavailable_reason": "it has not been probed yet"}, {"name": "b"}])
    assert invoke(daemon, "run", "-C", str(tmp_path), "Hi").exit_code == 0
    assert daemon.asked[0] == f"session of a in {tmp_path}"
    result = invoke(FakeDaemon(), "run", "Hi")
    assert (result.exit_code, result.stderr) == (1, "steprail: the daemon's configuration names no agent\n")


def test_a_rule_that_is_none_is_refused_with_what_is_accepted(invoke: Invoke) -> None:
    daemon = FakeDaemon()
    result = invoke(daemon, "run", "--stop-when", "steps=0", "Hi")
    assert result.exit_code == 2
    assert "in 'steps=0', '0' is out of range; accepted after steps= is" in " ".join(result.stderr.split())
    assert daemon.asked == []


def test_run_asks_at_each_boundary_with_ask(invoke: Invoke) -> None:
    messages: list[tuple[str, Message]] = [
        ("opened", {"run": ended("RUNNING")}),
        ("decision_requested", {"step": STEP}),
        ("finished", {"run": ended("STOPPED")}),
    ]
    daemon = FakeDaemon(control=FakeControl(messages))
    result = invoke(daemon, "run", "-a", "x", "--ask", "Hi")
    assert result.exit_code == 10, result.output
    assert daemon.asked[-1] == "control 'Hi' on ses_1 until []"


def test_continue_takes_over_no_rules_unless_told(invoke: Invoke) -> None:
    daemon = FakeDaemon()
    assert invoke(daemon, "continue", "run_0").exit_code == 0
    assert invoke(daemon, "continue", "run_0", "Go", "--stop-when", "steps=2").exit_code == 0
    assert invoke(daemon, "continue", "run_0", "--same-rules").exit_code == 0
    assert daemon.asked == [
        "continue run_0 '' until []",
        "continue run_0 'Go' until [steps=2]",
        "continue run_0 '' until None",
    ]
    assert invoke(daemon, "continue", "run_0", "--same-rules", "--stop-when", "steps=2").exit_code == 2


def test_show_prints_the_run_its_steps_and_its_end(invoke: Invoke) -> None:
    daemon = FakeDaemon(steps=[STEP], ends_as={**ended("COMPLETED"), "text": "Done.", "continued_from": "run_0"})
    result = invoke(daemon, "show", "run_1")
    assert result.stdout.splitlines() == [
        "run run_1 of session ses_1",
        "prompt: ",
        "continues run_0",
        "step 1",
        "  I look.",
        "Done.",
        "completed after 1 step",
    ]
    assert [list(line) for line in objects(invoke(daemon, "show", "run_1", "--json"))] == [["run"], ["step"]]


def test_runs_are_a_table_or_objects(invoke: Invoke) -> None:
    run = {
        **ended("STOPPED"),
        "create_time": "2026-01-02T03:04:05.678Z",
        "spec": {"prompt": {"parts": [{"text": "Do\nthis"}]}},
    }
    daemon = FakeDaemon(ends_as=run)
    assert invoke(daemon, "runs").stdout.splitlines() == [
        "RUN    STATE    STEPS  MADE (UTC)           PROMPT",
        "run_1  STOPPED  1      2026-01-02 03:04:05  Do this",
    ]
    assert objects(invoke(daemon, "runs", "--json")) == [{"run": run}]


def test_sessions_and_agents_are_tables(invoke: Invoke) -> None:
    gate = {"step_gate": "STEP_GATE_EXACT"}
    agent = {"name": "c", "driver": "claude", "version": "2.1.332", "available": True, "capabilities": gate}
    daemon = FakeDaemon(agents=[agent, {"name": "d", "unavailable_reason": "no program"}])
    assert invoke(daemon, "agents").stdout.splitlines() == [
        "AGENT  DRIVER  VERSION  STEP GATE    AVAILABLE",
        "c      claude  2.1.332  EXACT        yes",
        "d              ?        UNSPECIFIED  no: no program",
    ]
    assert invoke(daemon, "sessions").stdout.splitlines() == [
        "SESSION  AGENT   STATE  LIVE RUN  DIRECTORY",
        "ses_1    claude  IDLE   -         /w",
    ]


def test_stop_abort_and_close_say_what_they_asked_for(invoke: Invoke) -> None:
    daemon = FakeDaemon()
    assert invoke(daemon, "stop", "run_1").stdout == "run_1 stops at its next step boundary\n"
    assert invoke(daemon, "abort", "run_1").stdout == "run_1 is being aborted\n"
    assert invoke(daemon, "close", "ses_1", "--force").stdout == "ses_1 is closed\n"
    assert daemon.asked == ["stop run_1", "abort run_1", "close ses_1 force=True"]


def test_decide_finds_the_step_by_its_number(invoke: Invoke) -> None:
    daemon = FakeDaemon(steps=[STEP])
    result = invoke(daemon, "decide", "run_1", "--step", "1", "stop", "--reason", "enough")
    assert result.stdout == "step 1: stop (decided by client)\n"
    assert daemon.asked == ["decide step_1 False enough"]
    missing = invoke(daemon, "decide", "run_1", "--step", "2", "continue")
    assert (missing.exit_code, missing.stderr) == (1, "steprail: run_1 has completed no step 2\n")


def test_watch_takes_a_run_and_has_its_status(invoke: Invoke) -> None:
    event = {"message_end": {"kind": "MESSAGE_KIND_TEXT", "content": {"value": "Hello."}}}
    result = invoke(FakeDaemon([event], ended("ABORTED")), "watch", "run_1")
    assert result.exit_code == 11
    assert "Hello." in result.stdout.splitlines()


class OnlySessions(FakeDaemon):
    """Knows no run."""

    async def get_run(self, run_id: str) -> Message:
        raise Refused("RUN_NOT_FOUND", f"there is no run {run_id}")


def test_watch_takes_a_session_too(invoke: Invoke) -> None:
    event = {"message_end": {"kind": "MESSAGE_KIND_TEXT", "content": {"value": "Hello."}}}
    result = invoke(OnlySessions([event]), "watch", "ses_1")
    assert (result.exit_code, result.stdout) == (0, "Hello.\n")


def test_a_refusal_is_one_sentence_with_its_reason(invoke: Invoke) -> None:
    result = invoke(OnlySessions(), "show", "run_9")
    assert (result.exit_code, result.stderr) == (1, "steprail: there is no run run_9 (RUN_NOT_FOUND)\n")
    assert result.stdout == ""


@pytest.mark.parametrize(
    "address", ["nowhere", "unix:run/x.sock", "unix://host/x.sock", "unix:", "127.0.0.1:", "a b:1", ":4711"]
)
def test_an_address_of_no_form_is_wrong_usage(address: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        f"{address!r} is no address; accepted: unix: and an absolute path, as in unix:/run/steprail.sock, or a host "
        "with a port, as in 127.0.0.1:7443\n"
    )
    for arguments in (["runs"], ["run", "Hi"]):
        result = invoke(FakeDaemon(), *arguments, "--address", address)
        assert result.exit_code == 2
        assert result.stderr.endswith(f"\nError: Invalid value for --address: {said}")
    monkeypatch.setenv("STEPRAIL_ADDRESS", address)
    result = invoke(FakeDaemon(), "runs")
    assert result.exit_code == 2
    assert result.stderr.endswith(f"\nError: Invalid value for $STEPRAIL_ADDRESS: {said}")


@pytest.mark.parametrize(
    "address", ["unix:/run/x.sock", "unix:///run/x.sock", "127.0.0.1:7443", "[::1]:7", "box.local:7"]
)
def test_a_socket_and_a_host_with_a_port_are_addresses(address: str, invoke: Invoke) -> None:
    assert invoke(FakeDaemon(), "agents", "--address", address).exit_code == 0


def test_show_of_a_session_names_the_commands_that_take_one(invoke: Invoke) -> None:
    result = invoke(FakeDaemon(), "show", "ses_1")
    assert result.exit_code == 2
    assert "`steprail watch ses_1` shows it, `steprail runs --session ses_1` lists its runs" in result.stderr

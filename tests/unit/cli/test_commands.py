"""Each command against a daemon that follows a script: what it asks for, what it prints, its status."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.unit.cli.fakes import FakeControl, FakeDaemon, ended
from tests.unit.cli.test_asked import PERMISSION, QUESTION

from steprail_daemon.cli.client import Control, Message
from steprail_daemon.cli.main import cli
from steprail_daemon.cli.problems import Refused
from steprail_daemon.cli.rules import ShortRule

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


def test_run_never_takes_the_agent_without_a_model_in_place_of_one_that_is_missing(
    invoke: Invoke, tmp_path: Path
) -> None:
    built_in = {"name": "scripted", "driver": "scripted", "available": True}
    missing = {"name": "claude", "driver": "claude", "unavailable_reason": "program 'claude' was not found"}
    daemon = FakeDaemon(agents=[missing, built_in])

    result = invoke(daemon, "run", "-C", str(tmp_path), "go")

    assert result.exit_code == 1
    assert (
        "no agent can be used: claude: program 'claude' was not found. `-a scripted` is the built-in" in result.output
    )
    assert daemon.asked == []


def test_run_takes_the_agent_without_a_model_where_there_is_no_other(invoke: Invoke, tmp_path: Path) -> None:
    built_in = {"name": "mine", "driver": "scripted", "available": True}
    daemon = FakeDaemon(agents=[built_in], ends_as=ended("COMPLETED"))

    assert invoke(daemon, "run", "-C", str(tmp_path), "go").exit_code == 0


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
    "address",
    ["nowhere", "unix:run/x.sock", "unix://host/x.sock", "unix:", "127.0.0.1:", "a b:1", ":4711", "h:0", "h:65536"],
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


PERMISSION_ITEM = {"session_id": "ses_1", "run_id": "run_1", "permission": PERMISSION}
QUESTION_ITEM = {"session_id": "ses_1", "run_id": "run_1", "question": QUESTION}
DECISION_ITEM = {"run_id": "run_2", "decision": {"step_id": "stp_1", "remaining": "600s"}}


def waiting() -> FakeDaemon:
    items: list[Message] = [PERMISSION_ITEM, QUESTION_ITEM, DECISION_ITEM, {"run_id": "run_3", "newer": {}}]
    return FakeDaemon(pending=items, steps=[{"number": "1"}, {"number": "2", "step_id": "stp_1"}])


def test_pending_is_a_table_or_objects(invoke: Invoke) -> None:
    assert invoke(waiting(), "pending").stdout.splitlines() == [
        "KIND        ID             RUN    WHAT                                  TIME LEFT",
        'permission  run_1.p000001  run_1  write_file {"path": "a.txt"}          5m',
        "question    run_1.q000001  run_1  Which one? Of these.                  1m",
        "decision    stp_1          run_2  whether the run goes on after step 2  10m",
        "?           ?              run_3  something newer than this program     ?",
    ]
    assert objects(invoke(waiting(), "pending", "--json"))[:2] == [
        {"pending": PERMISSION_ITEM},
        {"pending": QUESTION_ITEM},
    ]


@pytest.mark.parametrize(
    ("flags", "noted", "said"),
    [
        ([], "allow_once", "allowed once by me"),
        (["--session", "--reason", "fine"], "allow_session fine", "allowed for the session by me: fine"),
        (["--command", "ls"], "{'command': 'ls'}", "replaced by ls by me"),
        (["--arguments", '{"a":1}'], "{'arguments_json': '{\"a\":1}'}", 'replaced by {"a":1} by me'),
    ],
)
def test_allow_needs_the_id_alone(flags: list[str], noted: str, said: str, invoke: Invoke) -> None:
    daemon = waiting()
    assert invoke(daemon, "allow", "run_1.p000001", *flags).stdout == f"run_1.p000001: {said}\n"
    assert daemon.asked == [f"run_1.p000001 of run_1: {noted}"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--session", "--command", "ls"], "--session, --command and --arguments exclude each other"),
        (["--arguments", "{"], "it is no JSON"),
        (["--arguments", "[1]"], "found '[1]'; accepted: an object in JSON"),
    ],
)
def test_allow_takes_one_thing_that_fits(flags: list[str], said: str, invoke: Invoke) -> None:
    daemon = waiting()
    result = invoke(daemon, "allow", "run_1.p000001", *flags)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert daemon.asked == []


def test_deny_denies_permissions_and_declines_questions(invoke: Invoke) -> None:
    daemon = waiting()
    denied = invoke(daemon, "deny", "run_1.p000001", "--reason", "not now")
    assert denied.stdout == "run_1.p000001: denied by me: not now\n"
    assert invoke(daemon, "deny", "run_1.q000001").stdout == "run_1.q000001: declined by me\n"
    assert daemon.asked == ["run_1.p000001 of run_1: deny not now", "run_1.q000001 of run_1: []"]
    refused = invoke(daemon, "deny", "run_1.q000001", "--reason", "x")
    assert (refused.exit_code, len(daemon.asked)) == (1, 2)
    assert "leave --reason out" in refused.stderr


def test_answer_gives_each_item_its_answer(invoke: Invoke) -> None:
    daemon = waiting()
    assert invoke(daemon, "answer", "run_1.q000001", "green").stdout == "run_1.q000001: answered by me\n"
    assert daemon.asked == ["run_1.q000001 of run_1: [{'item_id': 'i', 'option_ids': ['g']}]"]
    assert invoke(daemon, "answer", "run_1.q000001", "-", typed="Red\n").exit_code == 0
    assert daemon.asked[1:] == ["run_1.q000001 of run_1: [{'item_id': 'i', 'option_ids': ['r']}]"]
    wrong = invoke(daemon, "answer", "run_1.q000001", "blue")
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        "steprail: 'blue' is no answer; accepted: a number from 1 to 2, or a label\n",
    )
    many = invoke(daemon, "answer", "run_1.q000001", "1", "2")
    assert many.stderr.startswith(
        "steprail: the question has 1 item, and 2 answers were given:\n  Colour: Which one?\n"
    )
    assert len(daemon.asked) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["allow", "run_9.p000001"], "no permission 'run_9.p000001' waits; it was answered or its time is over, or it"),
        (["allow", "p000001"], "no permission 'p000001' waits;"),
        (["allow", "run_1"], "run_1 is a run; name what is meant of what waits there: run_1.p000001\n"),
        (["deny", "run_1"], "run_1 is a run; name what is meant of what waits there: run_1.p000001, run_1.q000001\n"),
        (["allow", "run_1.q000001"], "run_1.q000001 is a question; `steprail answer run_1.q000001 TEXT` or `steprail"),
        (["answer", "run_1.p000001", "x"], "run_1.p000001 is a permission; `steprail allow run_1.p000001` or"),
        (["deny", "stp_1"], "stp_1 is a decision; `steprail decide run_2 --step 2 continue` or `stop` decides\n"),
    ],
)
def test_an_id_under_which_nothing_fit_waits_is_one_sentence(arguments: list[str], said: str, invoke: Invoke) -> None:
    daemon = waiting()
    result = invoke(daemon, *arguments)
    assert (result.exit_code, result.stdout, daemon.asked) == (1, "", [])
    assert result.stderr.startswith(f"steprail: {said}")


def test_a_resolution_is_an_object_with_json(invoke: Invoke) -> None:
    (permission,) = objects(invoke(waiting(), "allow", "run_1.p000001", "--json"))
    assert permission["permission_resolved"]["answer"] == "PERMISSION_ANSWER_ALLOW_ONCE"
    (declined,) = objects(invoke(waiting(), "deny", "run_1.q000001", "--json"))
    assert declined["question_resolved"]["declined"] is True
    (answered,) = objects(invoke(waiting(), "answer", "run_1.q000001", "1", "--json"))
    assert answered["question_resolved"]["declined"] is False


def test_steer_says_that_the_text_is_taken_and_not_that_it_got_there(invoke: Invoke) -> None:
    daemon = FakeDaemon()
    assert invoke(daemon, "steer", "run_1", "Be short.").stdout == (
        "run_1 takes the text as str_1; `steprail watch run_1` shows whether it got there\n"
    )
    assert daemon.asked == ["steer run_1 'Be short.'"]
    assert objects(invoke(daemon, "steer", "run_1", "Go", "--json")) == [{"steer_id": "str_1"}]


def test_run_and_continue_answer_permissions_alike_if_told(invoke: Invoke) -> None:
    asked = {"permission_requested": {"permission": PERMISSION}}
    for arguments in (["run", "-a", "x", "Hi"], ["continue", "run_0"]):
        daemon = FakeDaemon([asked], wait_for="run_1.p000001 of run_1: deny")
        assert invoke(daemon, *arguments, "--permissions", "deny").exit_code == 0
        assert daemon.asked[-1] == "run_1.p000001 of run_1: deny"
    assert invoke(FakeDaemon(), "run", "--permissions", "perhaps", "Hi").exit_code == 2


def test_watch_says_how_to_answer_while_the_run_is_live(invoke: Invoke) -> None:
    asked = {"permission_requested": {"permission": PERMISSION}}
    how = "answer with: steprail allow run_1.p000001, or steprail deny run_1.p000001\n"
    assert invoke(FakeDaemon([asked], ended("RUNNING")), "watch", "run_1").stderr == how
    assert invoke(OnlySessions([asked]), "watch", "ses_1").stderr == how
    assert invoke(FakeDaemon([asked], ended("RUNNING")), "watch", "run_1", "--json").stderr == ""
    assert invoke(FakeDaemon([asked], ended("STOPPED")), "watch", "run_1").stderr == ""


class RefusesRules(FakeDaemon):
    """Takes no run."""

    async def start_run(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> Message:
        raise Refused("RULE_INVALID", "stop_rules[0].expression.cel:1:2: syntax error")

    @asynccontextmanager
    async def control_new(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> AsyncIterator[Control]:
        await self.start_run(session_id, prompt, rules)
        yield FakeControl([])


@pytest.mark.parametrize("flags", [[], ["--ask"]])
def test_a_refused_rule_is_wrong_usage_and_leaves_no_session_behind(flags: list[str], invoke: Invoke) -> None:
    daemon = RefusesRules()
    result = invoke(daemon, "run", "-a", "x", "--stop-when", "expr=(", *flags, "Hi")
    assert result.exit_code == 2
    assert result.stderr == "steprail: the rule 'expr=(', line 1, column 2: syntax error (RULE_INVALID)\n"
    assert [asked.split()[0] for asked in daemon.asked] == ["session", "discard"]


def test_what_unknown_figures_do_reaches_the_rules(invoke: Invoke) -> None:
    class Noting(FakeDaemon):
        async def start_run(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> Message:
            self.asked += [rule.on_unknown for rule in rules]
            return await super().start_run(session_id, prompt, rules)

    daemon = Noting()
    flags = ["--stop-when", "cost=1", "--stop-when", "steps=2"]
    assert invoke(daemon, "run", "-a", "x", *flags, "--on-unknown", "ignore", "Hi").exit_code == 0
    assert daemon.asked[1:3] == ["ignore", "ignore"]
    assert invoke(daemon, "run", "-a", "x", "--on-unknown", "guess", "Hi").exit_code == 2


class WithHistory(FakeDaemon):
    """Knows two runs of one session."""

    state = "IDLE"

    async def get_run(self, run_id: str) -> Message:
        if run_id not in ("run_1", "run_2"):
            raise Refused("RUN_NOT_FOUND", f"there is no run {run_id!r}", {"run_id": run_id})
        return {**ended("STOPPED"), "run_id": run_id, "start_time": "2026-01-02T03:04:05Z"}

    async def list_runs(self, session_id: str) -> list[Message]:
        return [await self.get_run("run_2"), await self.get_run("run_1")]

    async def get_session(self, session_id: str) -> Message:
        return {"session_id": session_id, "state": f"SESSION_STATE_{self.state}"}


@pytest.mark.parametrize("command", ["show", "watch"])
def test_going_on_is_advised_only_where_it_is_possible(command: str, invoke: Invoke) -> None:
    daemon = WithHistory()
    advice = "go on with: steprail continue"
    assert invoke(daemon, command, "run_2").stdout.splitlines()[-1] == f"{advice} run_2"
    assert advice not in invoke(daemon, command, "run_1").stdout
    daemon.state = "CLOSED"
    assert advice not in invoke(daemon, command, "run_2").stdout


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["show", "run_1x"], 1, "there is no run 'run_1x'; did you mean run_1? (RUN_NOT_FOUND)"),
        (["show", "RUN_1"], 1, "there is no run 'RUN_1'; did you mean run_1? (RUN_NOT_FOUND)"),
        (["show", "nonsense"], 1, "there is no run 'nonsense' (RUN_NOT_FOUND)"),
        (["stop", "ses_1"], 2, "ses_1 is a session; `steprail watch ses_1` shows it"),
        (["close", "run_1"], 2, "run_1 is a run; `steprail show run_1` names its session"),
        (["runs", "--session", "run_1"], 2, "run_1 is a run; `steprail show run_1` names its session"),
        (["show", " "], 2, "it is empty; accepted: the id of a run"),
    ],
)
def test_an_id_that_is_nearly_right_is_answered_with_what_is_right(
    arguments: list[str], status: int, said: str, invoke: Invoke
) -> None:
    result = invoke(WithHistory(), *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert said in result.stderr


def test_blanks_around_an_id_are_nothing(invoke: Invoke) -> None:
    assert "run run_1 " in invoke(WithHistory(), "show", " run_1\n").stdout


def test_a_prompt_that_is_no_text_is_wrong_usage(invoke: Invoke) -> None:
    class Sending(FakeDaemon):
        async def start_run(self, session_id: str, prompt: str, rules: Sequence[ShortRule]) -> Message:
            prompt.encode()
            return await super().start_run(session_id, prompt, rules)

    result = invoke(Sending(), "run", "-a", "x", "caf\udce9")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'caf\\udce9' is no text in UTF-8" in result.stderr


def test_input_that_is_no_text_is_wrong_usage(invoke: Invoke) -> None:
    result = CliRunner().invoke(
        cli, ["run", "-a", "x", "-"], input=b"ab\xff", obj=lambda address: nullcontext(waiting())
    )
    assert result.exit_code == 2
    assert "byte 3 of standard input, 0xff, is no UTF-8 there; accepted: text in UTF-8" in result.stderr


def test_watch_says_nothing_of_what_was_answered_before(invoke: Invoke) -> None:
    class LongRecord(FakeDaemon):
        async def get_session(self, session_id: str) -> Message:
            return {"session_id": session_id, "last_seq": "9"}

    asked = {"permission_requested": {"permission": PERMISSION}}
    how = "answer with: steprail allow run_1.p000001, or steprail deny run_1.p000001\n"
    events: list[Message] = [{"seq": "5", **asked}]
    assert invoke(LongRecord(events, ended("RUNNING")), "watch", "run_1").stderr == ""
    waits: list[Message] = [{"permission": PERMISSION}]
    assert invoke(LongRecord(events, ended("RUNNING"), pending=waits), "watch", "run_1").stderr == how
    assert invoke(LongRecord([{"seq": "10", **asked}], ended("RUNNING")), "watch", "run_1").stderr == how


def test_what_nobody_waits_for_has_no_deadline(invoke: Invoke) -> None:
    asked = {"permission_requested": {"permission": PERMISSION}}
    for answer, waits in (("ask", True), ("allow", False), ("deny", False)):
        noted = "" if answer == "ask" else f"run_1.p000001 of run_1: {'allow_once' if answer == 'allow' else answer}"
        daemon = FakeDaemon([asked], wait_for=noted)
        result = invoke(daemon, "run", "-a", "x", "--permissions", answer, "Hi")
        assert ("unanswered, it is denied after 5m" in result.stdout) == waits

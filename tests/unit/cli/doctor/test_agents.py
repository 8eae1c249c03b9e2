"""What the doctor says of agents, once they were looked at and tried."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from tests.unit.cli.doctor.conftest import MakeCase

from steprail_daemon.cli.client import Message
from steprail_daemon.cli.doctor import agents
from steprail_daemon.cli.doctor.findings import Case, Finding
from steprail_daemon.cli.doctor.logins import LOGINS
from steprail_daemon.cli.doctor.memory import Memory
from steprail_daemon.cli.doctor.trials import TRIALS, Observed
from steprail_daemon.config.schema import DRIVERS
from steprail_daemon.examine import AgentFound

FOUND: dict[str, Any] = {
    "name": "claude",
    "driver": "claude",
    "command": ("claude",),
    "path": "/bin/claude",
    "version": "2.1.332",
    "accepted": "2.1.332 or later, below 3.0.0",
    "problem": "",
    "digest": "a" * 64,
    "interpreter": "",
    "environment": {},
    "isolated": False,
}
STOPPED: Message = {"state": "RUN_STATE_STOPPED", "step_count": "1", "stop_reason": {"exact": True}}
CHECKSUM = f'[agents.claude]\nchecksum = "{"b" * 64}"\n'


def agent(**fields: Any) -> AgentFound:
    return AgentFound(**{**FOUND, **fields})


def of(check: agents.AgentCheck, case: Case, found: AgentFound) -> list[str]:
    told: list[Finding] = []
    anyio.run(check, case, found, told.append)
    return [f"{finding.mark.value}: {finding.text}" for finding in told]


def test_every_driver_has_its_way_to_show_a_login_and_to_be_tried() -> None:
    assert set(LOGINS) == set(TRIALS) == set(DRIVERS)


def test_an_agent_that_is_there_by_default_only_may_be_missing(make: MakeCase) -> None:
    missing = agent(path="", version="", problem="program 'claude' cannot be used: it was not found", digest="")
    note = ["note: it is not installed: there is no program 'claude' on the PATH"]
    problem = [f"problem: {missing.problem}"]
    assert of(agents.program, make(), missing) == note
    assert of(agents.program, make("[agents.claude]\n"), missing) == problem
    assert of(agents.program, make(environ={"STEPRAIL_AGENTS__CLAUDE__MODEL": "opus"}), missing) == problem
    assert of(agents.program, make(environ={"STEPRAIL_AGENTS__AUTOHAND__MODEL": "x"}), missing) == note
    assert of(agents.program, make(named=True), missing) == problem


def test_the_version_is_judged_by_the_driver(make: MakeCase) -> None:
    assert of(agents.program, make(), agent()) == [
        "ok: /bin/claude, version 2.1.332; the driver claude accepts 2.1.332 or later, below 3.0.0"
    ]
    old = agent(version="2.0.0", problem="version 2.0.0 is not supported; accepted: 2.1.332 or later, below 3.0.0")
    assert of(agents.program, make(), old) == [f"problem: /bin/claude: {old.problem}"]
    silent = agent(version="", problem="/bin/claude did not tell its version within 30 s")
    assert of(agents.program, make(), silent) == [f"problem: {silent.problem}"]


def test_a_script_without_its_interpreter_says_which(make: MakeCase) -> None:
    assert of(agents.program, make(), agent(interpreter="node", problem="`--version` ended with code 127")) == [
        "problem: /bin/claude is a script for node, which is not on the PATH"
    ]


def test_a_checksum_is_compared_or_told(make: MakeCase) -> None:
    (unpinned,) = of(agents.digest, make(), agent())
    assert unpinned == f"ok: SHA-256 {'a' * 64}, not pinned by agents.claude.checksum"
    assert of(agents.digest, make(CHECKSUM), agent(digest="b" * 64)) == [f"ok: SHA-256 {'b' * 64}, as configured"]
    other = agent(problem="it has another checksum", version="")
    assert of(agents.digest, make(CHECKSUM), other) == [
        f"problem: /bin/claude has the SHA-256 {'a' * 64}, and {'b' * 64} is configured"
    ]
    assert of(agents.program, make(CHECKSUM), other) == []
    assert of(agents.digest, make(CHECKSUM), agent(digest="")) == ["warning: /bin/claude cannot be read by this user"]
    assert of(agents.digest, make(), agent(path="")) == []


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([{"name": "claude", "available": True}], []),
        ([{"name": "claude", "unavailable_reason": "not found"}], ["the daemon that answers says: not found"]),
        ([{"name": "other"}], ["the daemon that answers has no agent of this name"]),
    ],
)
def test_a_daemon_that_sees_it_otherwise_is_a_warning(make: MakeCase, listed: list[Message], said: list[str]) -> None:
    case = make(server={"agents": listed})
    assert of(agents.view, case, agent()) == [f"warning: {text}" for text in said]
    assert of(agents.view, make(), agent()) == []


def test_nothing_is_started_with_no_try_or_where_nobody_knows_how(make: MakeCase) -> None:
    assert of(agents.trial, make(trying=False), agent()) == ["not tried: left out by --no-try"]
    assert of(agents.trial, make(), agent(driver="new")) == ["not tried: nobody wrote how to try the driver new"]
    assert of(agents.login, make(), agent(driver="new")) == ["note: it cannot be told for the driver new"]


def judged(driver: str = "claude", **fields: Any) -> dict[str, str]:
    observed = Observed(**{"run": STOPPED, "start_seconds": 0.5, "asked": 1, "asked_on": 0, **fields})
    return {
        finding.about: f"{finding.mark.value}: {finding.text}"
        for finding in agents.judge("x", TRIALS[driver], observed)
    }


def test_an_agent_that_is_held_is_told_with_what_it_took() -> None:
    assert judged(memory=Memory(2, 200 << 20, "PSS")) == {
        "agent x, start": "ok: in 0.50 s, 200 MiB (PSS of 2 processes)",
        "agent x, gate": "ok: held at its first step: 0 requests while stopped",
    }
    assert judged("scripted", asked=None, asked_on=None, memory=Memory(1, 8 << 20, "RSS")) == {
        "agent x, start": "ok: in 0.50 s, 8 MiB (RSS)",
        "agent x, gate": "ok: held at its first step: it did nothing while stopped; it has no model to ask",
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"asked": 2}, "1 steps were made, the model got 2 requests, 1 was expected"),
        ({"asked": 0}, "1 steps were made, the model got 0 requests, 1 was expected"),
        ({"asked_on": 3}, "1 steps were made, 3 requests came while it was stopped"),
        ({"went_on": True}, "1 steps were made, the work of its second step was done"),
        ({"run": {**STOPPED, "step_count": "2"}}, "2 steps were made"),
        ({"run": {**STOPPED, "stop_reason": {}}}, "1 steps were made"),
    ],
)
def test_a_gate_that_does_not_hold_is_a_problem(fields: Mapping[str, Any], said: str) -> None:
    assert judged(**fields)["agent x, gate"] == f"problem: it was not held at its first step: {said}"


def test_a_run_that_was_not_stopped_is_told_as_it_ended() -> None:
    assert judged(run={"state": "RUN_STATE_COMPLETED"})["agent x, gate"] == (
        "problem: it was not stopped after its first step: the run is completed"
    )


def test_an_agent_that_does_not_start_is_a_problem_and_its_gate_is_not_tried() -> None:
    failure = {"reason": "AGENT_START_FAILED", "message": "it ended\nwith code 3"}
    assert judged(start_seconds=None, run={"state": "RUN_STATE_FAILED", "failure": failure}) == {
        "agent x, start": "problem: it did not start: the run is failed AGENT_START_FAILED: it ended with code 3",
        "agent x, gate": "not tried: it did not start",
    }


def test_where_no_model_is_scripted_only_the_start_is_tried() -> None:
    assert judged("autohand", run={"state": "RUN_STATE_ABORTED"}, asked=None, asked_on=None) == {
        "agent x, start": "ok: in 0.50 s; its memory is not told",
        "agent x, gate": "not tried: there is no scripted model for the driver autohand",
    }


def test_processes_that_stay_are_a_problem() -> None:
    assert judged(left=2)["agent x, end"] == "problem: 2 of its processes were still there after its end"

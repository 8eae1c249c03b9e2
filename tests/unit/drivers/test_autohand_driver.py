from __future__ import annotations

import pytest

from steprail_daemon.core.model import CostSupport, PermissionMode, StepGate, UsageSupport
from steprail_daemon.drivers.base import Driver, LaunchPlan, LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS

AUTOHAND, SCRIPTED = DRIVERS["autohand"], DRIVERS["scripted"]
both = pytest.mark.parametrize("driver", [AUTOHAND, SCRIPTED], ids=lambda driver: str(driver.name))

#: Flags that 0.8.2 refuses, though its documentation or its own SDKs know them.
REFUSED = (
    "--loop-type",
    "--resume",
    "--continue",
    "--session-id",
    "--persist-session",
    "--max-tokens",
    "--skills",
    "--permission-mode",
    "--max-turns",
    "--provider",
)


def plan(
    *,
    resume: bool = False,
    model: str = "",
    mode: PermissionMode = PermissionMode.ASK,
    home: str = "",
    instructions: str = "",
) -> LaunchPlan:
    return AUTOHAND.plan(
        LaunchSpec(
            command=("autohand", "--temperature", "0"),
            cwd="/work",
            agent_session_id="57a36ff1-d575-4ad4-92ad-8f75f156ab75-1796030537324",
            resume=resume,
            model=model,
            permission_mode=mode,
            isolated_home=home,
            instructions=instructions,
        )
    )


def test_the_configured_command_comes_first_and_the_protocol_after_it() -> None:
    assert plan().argv == ("autohand", "--temperature", "0", "--mode", "rpc", "--path", "/work")


def test_no_flag_is_used_that_the_cli_refuses() -> None:
    for mode in PermissionMode:
        argv = plan(resume=True, model="m", mode=mode, home="/var/h").argv
        assert not [word for word in argv if word.startswith(REFUSED)]


def test_an_old_session_is_started_like_a_new_one_for_it_is_attached_over_the_wire() -> None:
    assert plan(resume=True) == plan()


def test_a_model_is_the_value_of_its_flag_whatever_it_looks_like() -> None:
    argv = plan(model="--evil").argv
    assert argv[argv.index("--model") + 1] == "--evil"
    assert "--model" not in plan().argv


def test_instructions_are_added_to_the_clis_own() -> None:
    argv = plan(instructions="--be brief").argv
    assert argv[argv.index("--append-sys-prompt") + 1] == "--be brief"
    assert "--append-sys-prompt" not in plan().argv


@both
def test_what_can_be_given_at_the_start_and_changed_later(driver: Driver) -> None:
    assert driver.options == {"instructions"}
    assert driver.live_changes == {"modes"}


@pytest.mark.parametrize("mode", list(PermissionMode))
def test_only_reading_is_enforced_by_the_cli_itself_and_nothing_is_let_through_unasked(mode: PermissionMode) -> None:
    argv = plan(mode=mode).argv
    assert ("--restricted" in argv) == (mode is PermissionMode.READ_ONLY)
    assert not {"--unrestricted", "--yolo", "-y", "--yes"} & set(argv)


def test_it_neither_updates_nor_reports_and_stays_open_to_questions() -> None:
    environment = plan().environment
    assert environment["AUTOHAND_OFFLINE"] == environment["AUTOHAND_SKIP_UPDATE_CHECK"] == "1"
    assert "AUTOHAND_NON_INTERACTIVE" not in environment
    assert not {"HOME", "AUTOHAND_HOME"} & set(environment)


def test_an_isolated_home_holds_all_that_the_cli_keeps() -> None:
    isolated = plan(home="/var/h")
    assert isolated.environment["AUTOHAND_HOME"] == "/var/h/.autohand"
    assert isolated.environment["HOME"] == "/var/h"
    assert isolated.directories == ("/var/h", "/var/h/.autohand")


@both
@pytest.mark.parametrize(
    ("said", "code", "version", "problem"),
    [
        (b"0.8.2\n", 0, "0.8.2", ""),
        (b"0.8.2 (steprail-scripted)\n", 0, "0.8.2", ""),
        (b"autohand v0.8.11-beta.1\n", 0, "0.8.11", ""),
        (b"0.8.1\n", 0, "0.8.1", "0.8.2 or later, below 0.9.0"),
        (b"0.9.0\n", 0, "0.9.0", "0.8.2 or later, below 0.9.0"),
        (b"10.8.2\n", 0, "10.8.2", "0.8.2 or later, below 0.9.0"),
        (b"hello 1.2\n", 0, "", "no version"),
        (b"0.8.2\n", 1, "", "ended with code 1"),
        (b"", None, "", "did not end"),
    ],
)
def test_the_probe_says_which_version_it_is_and_why_it_will_not_do(
    driver: Driver, said: bytes, code: int | None, version: str, problem: str
) -> None:
    result = driver.read_probe(said, code)
    assert result.version == version
    assert problem in result.unavailable_reason
    assert bool(problem) == bool(result.unavailable_reason)
    assert driver.probe_argv(("autohand",)) == ("autohand", "--version")


@both
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("\ufeff", "empty"),
        ("/help", "command"),
        ("  /nosuchcommand now", "command"),
        ("\ufeff/clear", "command"),
        ("a/b", ""),
        ("go", ""),
    ],
)
def test_a_prompt_that_passes_by_the_gate_is_refused(driver: Driver, text: str, problem: str) -> None:
    said = driver.prompt_problem(text)
    assert problem in said
    assert bool(problem) == bool(said)


@both
def test_it_promises_what_the_protocol_gives(driver: Driver) -> None:
    can = driver.capabilities
    assert can.step_gate is StepGate.EXACT
    assert can.permissions
    assert can.permission_alternatives
    assert can.resume
    assert can.plan_mode
    assert can.max_permission_hold_ns == 3_600_000_000_000
    # `modelSet` says success and changes nothing; nothing steers a running turn; questions never reach the host; after
    # an abort inside a tool the history has a call without a result.
    for promise in (can.model_switch, can.steer, can.guidance, can.questions, can.fork, can.abort_keeps_results):
        assert not promise


def test_only_the_built_in_agent_tells_what_a_step_used() -> None:
    assert (AUTOHAND.capabilities.usage, AUTOHAND.capabilities.cost) == (UsageSupport.PER_RUN, CostSupport.UNSUPPORTED)
    assert (SCRIPTED.capabilities.usage, SCRIPTED.capabilities.cost) == (UsageSupport.PER_STEP, CostSupport.REPORTED)

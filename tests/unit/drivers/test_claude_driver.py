from typing import Any

import pytest

from steprail_daemon.core.model import PermissionMode, StepGate
from steprail_daemon.drivers.base import LaunchPlan, LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS

DRIVER = DRIVERS["claude"]
SESSION = "f9cdfd84-2a60-4bc6-b407-feb7014e5dfd"


def plan(
    *,
    resume: bool = False,
    model: str = "",
    mode: PermissionMode = PermissionMode.ASK,
    home: str = "",
    **fields: Any,
) -> LaunchPlan:
    return DRIVER.plan(
        LaunchSpec(
            command=("claude", "--add-dir=/x"),
            cwd="/work",
            agent_session_id=SESSION,
            resume=resume,
            model=model,
            permission_mode=mode,
            isolated_home=home,
            **fields,
        )
    )


def test_every_driver_is_registered_under_its_own_name() -> None:
    assert {name: driver.name for name, driver in DRIVERS.items()} == {
        name: name for name in ("claude", "autohand", "scripted")
    }


def test_the_configured_command_comes_first_and_the_protocol_after_it() -> None:
    argv = plan().argv
    assert argv[:3] == ("claude", "--add-dir=/x", "-p")
    for part in ("--input-format=stream-json", "--output-format=stream-json", "--permission-prompt-tool=stdio"):
        assert part in argv
    assert "--include-partial-messages" in argv


def test_a_new_session_is_named_and_an_old_one_resumed() -> None:
    assert f"--session-id={SESSION}" in plan().argv
    resumed = plan(resume=True).argv
    assert f"--resume={SESSION}" in resumed
    assert not any(part.startswith("--session-id") for part in resumed)


def test_a_model_is_one_argument_whatever_it_looks_like() -> None:
    assert "--model=--evil" in plan(model="--evil").argv
    assert not any(part.startswith("--model") for part in plan().argv)


@pytest.mark.parametrize("mode", PermissionMode)
def test_the_cli_asks_in_every_mode_whatever_the_users_settings_choose(mode: PermissionMode) -> None:
    assert "--permission-mode=default" in plan(mode=mode).argv
    assert "--permission-mode=plan" in plan(mode=mode, plan_mode=True).argv


def option(argv: tuple[str, ...], name: str) -> set[str]:
    (found,) = [part for part in argv if part.startswith(f"--{name}=")]
    return set(found.partition("=")[2].split(","))


def test_read_only_takes_the_editing_tools_away() -> None:
    editing = {"Edit", "MultiEdit", "NotebookEdit", "Write"}
    assert editing <= option(plan(mode=PermissionMode.READ_ONLY).argv, "disallowedTools")
    assert not editing & option(plan(mode=PermissionMode.BYPASS).argv, "disallowedTools")


def test_tools_that_work_beside_or_after_a_run_are_taken_away_and_questions_are_not() -> None:
    taken = option(plan().argv, "disallowedTools")
    assert taken == {"CronCreate", "ScheduleWakeup", "Workflow"}


def test_a_sessions_own_tools_and_instructions_are_one_argument_each() -> None:
    argv = plan(allowed_tools=("Bash", "Read"), disallowed_tools=("Edit", "Workflow"), instructions="--be kind").argv
    assert option(argv, "tools") == {"Bash", "Read"}
    assert option(argv, "disallowedTools") == {"CronCreate", "ScheduleWakeup", "Workflow", "Edit"}
    assert "--append-system-prompt=--be kind" in argv
    assert not any(part.startswith(("--tools", "--append-system-prompt", "--allowedTools")) for part in plan().argv)
    assert DRIVER.options == {"allowed_tools", "disallowed_tools", "instructions"}


def test_nothing_runs_beside_or_after_the_work() -> None:
    environment = plan().environment
    assert environment["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert environment["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"
    assert "HOME" not in environment


def test_an_isolated_home_is_the_only_place_for_settings() -> None:
    isolated = plan(home="/var/h")
    assert isolated.environment["HOME"] == "/var/h"
    assert isolated.environment["CLAUDE_CONFIG_DIR"] == "/var/h/.claude"
    assert isolated.directories == ("/var/h", "/var/h/.claude")
    assert {"--setting-sources=", "--strict-mcp-config"} <= set(isolated.argv)
    assert not {"--setting-sources=", "--strict-mcp-config"} & set(plan().argv)


@pytest.mark.parametrize(
    ("said", "code", "version", "problem"),
    [
        (b"2.1.332 (Claude Code)\n", 0, "2.1.332", ""),
        (b"2.99.0 (Claude Code)\n", 0, "2.99.0", ""),
        (b"2.1.197 (Claude Code)\n", 0, "2.1.197", "2.1.332 or later, below 3.0.0"),
        (b"3.0.0 (Claude Code)\n", 0, "3.0.0", "2.1.332 or later, below 3.0.0"),
        (b"next (Claude Code)\n", 0, "next", "cannot be read"),
        (b"codex-cli 0.171.0\n", 0, "", "not Claude Code's answer"),
        (b"2.1.332 (Claude Code)\n", 3, "", "ended with code 3"),
        (b"", None, "", "did not end"),
    ],
)
def test_the_probe_says_which_version_it_is_and_why_it_will_not_do(
    said: bytes, code: int | None, version: str, problem: str
) -> None:
    result = DRIVER.read_probe(said, code)
    assert result.version == version
    assert problem in result.unavailable_reason
    assert bool(problem) == bool(result.unavailable_reason)
    assert DRIVER.probe_argv(("claude",)) == ("claude", "--version")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("/clear", "command"),
        ("  /compact now", "command"),
        ("a/b", ""),
        ("go", ""),
        ("\ufeff", "empty"),
        ("\ufeff/cost", "command"),
    ],
)
def test_a_prompt_that_the_model_would_not_get_is_refused(text: str, problem: str) -> None:
    said = DRIVER.prompt_problem(text)
    assert problem in said
    assert bool(problem) == bool(said)


def test_it_promises_what_was_seen_on_the_real_program_and_no_more() -> None:
    can = DRIVER.capabilities
    assert can.step_gate is StepGate.EXACT
    assert can.max_decision_hold_ns == can.max_permission_hold_ns == 660_000_000_000
    asks = (can.permissions, can.permission_alternatives, can.questions, can.plan_mode)
    assert all((*asks, can.steer, can.guidance, can.model_switch, can.resume, can.abort_keeps_results))
    assert not any((can.images, can.fork, can.mcp_servers, can.continue_without_prompt, can.loop_strategy))
    assert DRIVER.live_changes == {"model", "modes"}

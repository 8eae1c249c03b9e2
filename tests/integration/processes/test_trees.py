"""Nothing of a CLI's tree is left, however it ends and whatever its tools did to get away."""

from __future__ import annotations

from tests.framework import liveness
from tests.integration.processes.harness import Harness

TOLERABLE = 5.0


def test_a_kill_takes_children_that_are_deaf_detached_or_without_the_mark() -> None:
    with Harness() as harness:
        cli = harness.spawn("cli", "family")
        children = harness.said("cli", "children")
        harness.tell("shut_down", name="cli", ladder=["kill"])
        down = harness.expect("down", name="cli")
        exit_event = harness.expect("exit", name="cli")
        assert (exit_event["code"], exit_event["signal"]) == (None, 9)
        assert liveness.wait_gone([cli["pid"], *children], 0) == set()
        assert down["seconds"] < TOLERABLE


def test_a_cli_that_exits_leaves_nothing_and_its_code_is_kept() -> None:
    with Harness(worker=["--observe"]) as harness:
        harness.spawn("cli", "leave", "7")
        children = harness.said("cli", "children")
        exit_event = harness.expect("exit", name="cli")
        assert (exit_event["code"], exit_event["signal"]) == (7, None)
        # The scrubbed child that exec'd before the exit hangs by no mark; its session, inherited from the CLI, tells.
        assert liveness.wait_gone(children, 0) == set()
        killed = harness.expect("observed", name="processes_killed_total", labels={"signal": "KILL"})
        assert killed["value"] == len(children)


def test_what_only_its_parent_s_number_ties_to_a_cli_is_known_from_the_scan_before_the_kill() -> None:
    with Harness() as harness:
        # While another CLI runs, orphans of nobody are left alone.
        harness.spawn("other", "echo")
        harness.said("other", "ready")
        harness.spawn("cli", "scrubbed-child")
        children = harness.said("cli", "children")
        harness.tell("shut_down", name="cli", ladder=["kill"])
        harness.expect("down", name="cli")
        assert liveness.wait_gone(children, 0) == set()
        harness.tell("write", name="other", text="still here\n")
        assert harness.expect("stdout", name="other", text="still here\n")


def test_what_an_earlier_scan_tied_to_a_cli_stays_tied_when_it_becomes_an_orphan() -> None:
    with Harness() as harness:
        harness.spawn("cli", "scrubbed-child")
        children = harness.said("cli", "children")
        harness.spawn("other", "echo")
        harness.said("other", "ready")
        # SIGCONT does nothing to a process that runs; to find the tree's processes, the parent scans.
        harness.tell("raw", packet='{"type":"signal","id":1,"signal":18,"scope":"tree"}')
        harness.tell("close_stdin", name="cli")
        assert harness.expect("exit", name="cli")["code"] == 0
        assert liveness.wait_gone(children, 0) == set()
        harness.tell("write", name="other", text="still here\n")
        assert harness.expect("stdout", name="other", text="still here\n")


def test_an_orphan_that_nothing_ties_to_a_cli_lives_while_another_cli_runs_and_dies_with_the_last() -> None:
    with Harness() as harness:
        harness.spawn("other", "echo")
        harness.spawn("cli", "hold-stdout", "0")
        (orphan,) = harness.said("cli", "children")
        harness.expect("exit", name="cli")
        assert liveness.is_alive(orphan)
        harness.tell("shut_down", name="other", ladder=["eof:5s", "kill"])
        harness.expect("down", name="other")
        assert liveness.wait_gone([orphan], TOLERABLE) == set()


def test_stdout_held_open_by_an_orphan_delays_the_exit_by_no_more_than_the_drain_limit() -> None:
    with Harness() as harness:
        harness.spawn("other", "echo")
        harness.spawn("cli", "hold-stdout", "3")
        harness.said("cli", "children")
        harness.expect("stdout_eof", name="cli", seconds=TOLERABLE)
        assert harness.expect("exit", name="cli", seconds=1)["code"] == 3


def test_a_ladder_goes_on_until_the_agent_exits_and_no_further() -> None:
    with Harness() as harness:
        harness.spawn("polite", "goodbye")
        harness.said("polite", "ready")
        harness.tell("shut_down", name="polite", ladder=["end:10s", "eof:1ms", "kill"], goodbye="goodbye\n")
        assert harness.expect("exit", name="polite")["code"] == 5
        harness.spawn("eof", "echo")
        harness.said("eof", "ready")
        harness.tell("shut_down", name="eof", ladder=["end:10s", "eof:10s", "kill"])
        assert harness.expect("exit", name="eof")["code"] == 0
        harness.spawn("deaf", "family")
        harness.said("deaf", "ready")
        harness.tell("shut_down", name="deaf", ladder=["eof:10ms", "int:10ms", "term:10ms", "kill"])
        assert harness.expect("exit", name="deaf")["signal"] == 9


def test_a_signal_to_the_tree_reaches_a_child_in_another_session() -> None:
    with Harness() as harness:
        harness.spawn("cli", "family")
        children = harness.said("cli", "children")
        # SIGUSR1 is the one that the deaf do not ignore.
        harness.tell("raw", packet='{"type":"signal","id":1,"signal":10,"scope":"tree"}')
        assert harness.expect("exit", name="cli")["signal"] == 10
        assert liveness.wait_gone(children, TOLERABLE) == set()

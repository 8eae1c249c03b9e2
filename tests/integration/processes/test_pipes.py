"""Bytes to and from a CLI: none lost, none waited for, none hoarded."""

from __future__ import annotations

import base64
import fcntl
import os
from pathlib import Path

from tests.integration.processes.harness import Harness

MEBIBYTE = 1 << 20


def test_a_large_write_to_a_slow_reader_arrives_whole_before_the_eof(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with Harness() as harness:
        harness.spawn("cli", "count", str(gate))
        harness.said("cli", "ready")
        harness.tell("write", name="cli", text="0123456789abcdef", times=MEBIBYTE)
        assert harness.expect("written")["pending"] > 15 * MEBIBYTE
        harness.tell("write", name="cli", text="tail")
        harness.tell("close_stdin", name="cli")
        gate.write_text("go")
        assert harness.said("cli", "total") == 16 * MEBIBYTE + 4
        assert harness.expect("exit", name="cli")["code"] == 0


def test_a_reader_that_closed_its_end_is_noted_and_no_error(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with Harness() as harness:
        harness.spawn("cli", "deaf", str(gate))
        harness.said("cli", "ready")
        harness.tell("write", name="cli", text="anyone?")
        harness.expect("written")
        harness.tell("state", name="cli")
        assert harness.expect("state")["stdin_broken"]
        gate.write_text("go")
        assert harness.expect("exit", name="cli")["code"] == 0


def test_stdout_is_a_large_pipe() -> None:
    with Harness() as harness:
        cli = harness.spawn("cli", "echo")
        with Path(f"/proc/{cli['pid']}/fd/1").open("wb", buffering=0) as stdout:
            assert fcntl.fcntl(stdout, fcntl.F_GETPIPE_SZ) == MEBIBYTE


def test_all_of_stdout_comes_before_the_exit() -> None:
    with Harness() as harness:
        harness.spawn("cli", "flood", str(20 * MEBIBYTE), quiet=True)
        assert harness.expect("stdout_eof", name="cli")["received"] == 20 * MEBIBYTE
        assert harness.expect("exit", name="cli")["code"] == 0


def test_paused_reading_holds_the_cli_back_and_loses_nothing() -> None:
    with Harness() as harness:
        harness.spawn("cli", "echo")
        harness.said("cli", "ready")
        harness.tell("pause", name="cli")
        harness.tell("write", name="cli", text="held back\n")
        harness.tell("close_stdin", name="cli")
        harness.spawn("other", "exit", "0")
        harness.expect("exit", name="other")
        assert not [event for event in harness._seen if event.get("text") == "held back\n" or event["event"] == "exit"]
        harness.tell("resume", name="cli")
        harness.expect("stdout", name="cli", text="held back\n")
        assert harness.expect("exit", name="cli")["code"] == 0


def test_stderr_is_drained_while_stdout_is_paused_and_its_end_is_kept() -> None:
    with Harness() as harness:
        harness.spawn("cli", "stderr", str(5 * MEBIBYTE))
        assert harness.expect("exit", name="cli")["code"] == 0
        harness.tell("state", name="cli")
        tail = base64.b64decode(harness.expect("state")["stderr"])
        assert len(tail) == 16 * 1024
        assert tail.endswith(b"..the end")

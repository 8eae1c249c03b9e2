"""Starting CLIs: what they get, and what is said when they cannot be started."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import sys
from pathlib import Path

import pytest
from tests.integration.processes.harness import AGENT, Harness

PATHS = pytest.mark.parametrize("path", [os.environ["PATH"], "/nonexistent"], ids=["setpriv", "wrapper"])


def write_program(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@PATHS
def test_a_cli_gets_its_environment_directory_session_and_only_its_pipes(path: str, tmp_path: Path) -> None:
    odd = os.fsdecode(b"not utf-8: \xff")
    with Harness(environment={"PATH": path, "LC_ALL": "C"}) as harness:
        harness.spawn("first", "echo")
        environment = {"ONLY": "this", "ODD": odd}
        harness.tell("spawn", name="cli", argv=[*AGENT, "show", odd], env=environment, cwd=str(tmp_path))
        line = harness.expect_one(lambda event: event["event"] == "said" and event["name"] == "cli")["line"]
        harness.expect("exit", name="cli", code=0)
    assert (
        line.pop("environment").items()
        >= {
            "ONLY": "this",
            "ODD": odd,
            "STEPRAIL_PROCESS": f"{harness.instance}.3",
        }.items()
    )
    assert line.pop("files") == list(resource.getrlimit(resource.RLIMIT_NOFILE))
    # 3 is the directory that is being listed.
    assert line == {"cwd": str(tmp_path), "session": True, "descriptors": [0, 1, 2, 3], "arguments": [odd]}


@PATHS
def test_nothing_of_the_programs_before_it_shows_in_a_cli(path: str) -> None:
    """Python ignores two signals, and adds a locale where there is none; a CLI must get neither."""
    with Harness(environment={"PATH": path, "LC_ALL": "C"}) as harness:
        harness.tell("spawn", name="cli", argv=["/bin/cat", "/proc/self/environ", "/proc/self/status"], env={"A": "b"})
        text = harness.output("cli")
        assert text.split("\0")[:-1] == ["A=b", f"STEPRAIL_PROCESS={harness.instance}.2"]
        status = dict(line.split(":\t", 1) for line in text.split("\0")[-1].splitlines())
        assert int(status["SigIgn"], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0
        assert int(status["SigBlk"], 16) == 0


@PATHS
def test_why_a_program_cannot_be_started_is_said_exactly(path: str, tmp_path: Path) -> None:
    plain = write_program(tmp_path / "plain", "#!/bin/sh\n", mode=stat.S_IRUSR)
    no_line = write_program(tmp_path / "no-line", "echo hello\n")
    no_interpreter = write_program(tmp_path / "no-interpreter", "#!/nonexistent/node --flag\n")
    cases: list[tuple[list[str], str, int, str]] = [
        (["/nonexistent/cli"], "/", errno.ENOENT, "program '/nonexistent/cli': No such file or directory"),
        (["no-such-cli"], "/", errno.ENOENT, f"program 'no-such-cli' was not found in PATH '{tmp_path}'"),
        ([plain], "/", errno.EACCES, f"program '{plain}' is not an executable file"),
        (["plain"], "/", errno.EACCES, f"program '{plain}' is not an executable file"),
        ([str(tmp_path)], "/", errno.EACCES, f"program '{tmp_path}' is not an executable file"),
        ([no_line], "/", errno.ENOEXEC, f"program '{no_line}' is a text without a '#!' line"),
        (
            [no_interpreter],
            "/",
            errno.ENOENT,
            f"interpreter of '{no_interpreter}': program '/nonexistent/node': No such file or directory",
        ),
        (["/bin/true"], "/nonexistent", errno.ENOENT, "working directory '/nonexistent': No such file or directory"),
        (["/bin/true"], plain, errno.ENOTDIR, f"working directory '{plain}': Not a directory"),
        (["/bin/true"], "relative", errno.EINVAL, "cwd is 'relative', expected an absolute path"),
        (["/bin/true", "nul\0"], "/", errno.EINVAL, "argv is wrong, expected a list of strings without NUL"),
    ]
    with Harness(environment={"PATH": path}) as harness:
        for position, (argv, cwd, number, message) in enumerate(cases):
            harness.tell("spawn", name=str(position), argv=argv, cwd=cwd, env={"PATH": str(tmp_path)})
            failed = harness.expect("spawn_failed", name=str(position))
            assert failed["errno"] == number
            assert failed["message"].startswith(message)
        harness.tell("spawn", name="large", argv=["/bin/true"], padding=1, repeat=2)
        large = harness.expect("spawn_failed", name="large")
        assert (large["errno"], large["message"]) == (errno.E2BIG, "Argument list too long")
        harness.spawn("after all", "exit", "4")
        assert harness.expect("exit", name="after all")["code"] == 4


def test_a_request_that_the_socket_cannot_carry_is_an_error_and_neither_cut_nor_waited_for() -> None:
    with Harness() as harness:
        for size in (300_000, 900_000, 1_100_000, 5_000_000):
            harness.tell("spawn", name=str(size), argv=["/bin/true"], padding=size // 100_000)
        for size in (1_100_000, 5_000_000):
            failed = harness.expect("spawn_failed", name=str(size))
            assert failed["errno"] == errno.E2BIG
            assert "packet has" in failed["message"]
        assert harness.expect("exit", name="300000")["code"] == 0
        assert harness.expect("exit", name="900000")["code"] == 0


def test_packets_that_make_no_sense_are_refused_and_the_rest_goes_on() -> None:
    with Harness() as harness:
        harness.expect("up")
        for packet in (
            "nonsense",
            "[]",
            "{}",
            '{"type":"spawn","id":"1"}',
            '{"type":"spawn","id":77,"argv":[],"env":{},"cwd":"/"}',
            '{"type":"spawn","id":77,"argv":["a"],"env":{"A=B":"c"},"cwd":"/"}',
            '{"type":"signal","id":1,"signal":0,"scope":"tree"}',
            '{"type":"signal","id":1,"signal":9,"scope":"everything"}',
            '{"type":"signal","id":4711,"signal":9,"scope":"tree"}',
            '{"type":"close_stdin","id":-1}',
        ):
            harness.tell("raw", packet=packet)
            harness.expect("sent")
        for packet in ("[", " "):
            harness.tell("raw", packet=packet, times=100_000)
            harness.expect("sent")
        harness.spawn("cli", "exit", "6")
        assert harness.expect("exit", name="cli")["code"] == 6


def test_sixty_four_starts_at_once_all_succeed() -> None:
    with Harness() as harness:
        harness.expect("up")
        for number in range(64):
            harness.tell("spawn", name=str(number), argv=["/bin/sh", "-c", f"read line; exit {number}"])
        for number in range(64):
            harness.expect("spawned", name=str(number))
        for number in range(64):
            harness.tell("write", name=str(number), text="go\n")
        assert [harness.expect("exit", name=str(number))["code"] for number in range(64)] == list(range(64))


def test_a_start_that_nobody_waits_for_any_more_is_undone() -> None:
    with Harness() as harness:
        harness.expect("up")
        harness.tell("spawn", name="late", argv=[*AGENT, "family"], timeout=0.0)
        harness.expect("spawn_timeout", name="late")
        # Requests are answered in order: this one comes after the one given up.
        harness.spawn("next", "exit", "0")
        harness.expect("exit", name="next")
        assert not [event for event in harness._seen if event.get("name") == "late"]


def test_the_worker_may_have_reloads_before_it_is_ready() -> None:
    script = (
        'import signal; print(\'{"event": "hup", "ignored": %s}\' % '
        "str(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN).lower(), flush=True)"
    )
    with Harness(command=[sys.executable, "-S", "-c", script]) as harness:
        assert harness.expect("hup")["ignored"]
        assert harness.exit_code() == 0

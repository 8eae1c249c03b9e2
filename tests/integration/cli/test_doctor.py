"""`steprail doctor` as it is installed: real programs, real daemons, agents that are really tried."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import anyio
import pytest
from tests.framework.daemon import FAKE_CLAUDE, STEPRAIL, Daemon, short_directory
from tests.framework.liveness import marked, wait_gone, wait_none_marked
from tests.framework.waiting import until
from tests.integration.cli.conftest import LIMIT, Steprail, lines_until

pytestmark = pytest.mark.timeout(120)

BOUND = 30.0

#: Asks the model so often at its start, goes on asking something once it was stopped if it is told to, and is otherwise
#: Claude Code's stand-in.
ASKING = """#!{python}
import json, os, sys, threading, time, urllib.request
body = json.dumps({{"stream": True, "tools": [{{}}]}}).encode()
def ask(path):
    with urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + path, body) as answer:
        answer.read()
if "--version" not in sys.argv:
    for _ in range({main}):
        ask("/v1/messages")
    if {beside} and os.fork() == 0:
        while True:
            ask("/v1/messages/count_tokens")
            threading.Event().wait(0.1)
os.execv(sys.executable, [*{fake}, *sys.argv[1:]])
"""

Finding = dict[str, str]


@pytest.fixture
def room() -> Iterator[Path]:
    """A short directory, also for what the doctor makes."""
    with short_directory() as directory:
        (directory / "tmp").mkdir()
        (directory / "work").mkdir()
        (directory / "bin").mkdir()
        yield directory


class Doctor:
    """Runs the doctor with a configuration of its own and nothing of ours on the PATH."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("STEPRAIL_", "ANTHROPIC_"))},
            "PATH": f"{room}/bin:/usr/bin:/bin",
            "HOME": str(room),
            "TMPDIR": str(room / "tmp"),
            "STEPRAIL_CONFIG": str(room / "steprail.toml"),
            "STEPRAIL_STATE_DIR": str(room / "state"),
        }

    def configure(self, agents: str) -> None:
        (self.room / "steprail.toml").write_text(
            f'[server]\nlisten = ["unix:{self.room}/s.sock"]\nworkspace_roots = ["{self.room}/work"]\n{agents}'
        )

    def program(self, name: str, text: str) -> Path:
        path = self.room / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run(
        self, *arguments: str, shell: str = "", program: Sequence[str] = (STEPRAIL,)
    ) -> tuple[int, dict[str, Finding]]:
        """Give the status and the last finding by what it is about."""
        command = [*program, "doctor", "--json", *arguments]
        done = subprocess.run(
            ["sh", "-c", f'{shell} exec "$@"', "sh", *command],
            env=self.environment,
            cwd=self.room,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.stderr == ""
        found: dict[str, Finding] = {}
        for line in done.stdout.splitlines():
            finding = json.loads(line)["finding"]
            assert ("advice" in finding) is (finding["mark"] != "OK")
            found[finding["about"]] = finding
        self.nothing_is_left()
        return done.returncode, found

    def nothing_is_left(self) -> None:
        assert list((self.room / "tmp").iterdir()) == []
        assert not (self.room / "state").exists()


@pytest.fixture
def doctor(room: Path) -> Doctor:
    made = Doctor(room)
    made.configure("[agents.scripted]\n")
    return made


def test_the_built_in_agent_is_tried_and_found_to_be_held(doctor: Doctor) -> None:
    status, found = doctor.run()
    assert (status, {finding["mark"] for finding in found.values()}) == (0, {"OK", "NOTE", "WARNING"})
    assert found["agent scripted, gate"]["text"].startswith("held at its first step")
    start = found["agent scripted, start"]
    assert 0 < float(start["start_seconds"]) < BOUND
    assert int(start["memory_bytes"]) > 1 << 20
    assert start["memory_measure"] in {"PSS", "RSS"}
    assert found["agents"]["mark"] == "WARNING"


def test_an_agent_that_asks_once_is_held_and_its_requests_are_counted(doctor: Doctor) -> None:
    doctor.configure("[agents.claude]\n")
    doctor.program("claude", ASKING.format(python=sys.executable, main=1, beside=False, fake=FAKE_CLAUDE))
    # What would lead the agent or our own client elsewhere is not taken over.
    doctor.environment |= {"STEPRAIL_TOKEN_FILE": "/nowhere", "ANTHROPIC_BASE_URL": "http://192.0.2.1"}
    status, found = doctor.run("claude")
    gate = found["agent claude, gate"]
    assert (status, gate["mark"], gate["text"]) == (0, "OK", "held at its first step: 0 requests while stopped")


@pytest.mark.parametrize(
    ("main", "beside", "said"),
    [(2, False, "the model got 2 requests, 1 was expected"), (1, True, "requests came while it was stopped")],
)
def test_an_agent_that_asks_where_it_should_be_held_is_a_problem(
    doctor: Doctor, main: int, beside: bool, said: str
) -> None:
    doctor.configure("[agents.claude]\n")
    doctor.program("claude", ASKING.format(python=sys.executable, main=main, beside=beside, fake=FAKE_CLAUDE))
    status, found = doctor.run("claude")
    assert (status, found["agent claude, gate"]["mark"]) == (1, "PROBLEM")
    assert said in found["agent claude, gate"]["text"]


def test_an_agent_that_does_not_start_is_a_problem_with_what_it_said(doctor: Doctor) -> None:
    doctor.configure("[agents.claude]\n")
    doctor.program(
        "claude", '#!/bin/sh\ntest "$1" = --version && echo "2.1.332 (Claude Code)" && exit\necho broken >&2\nexit 3\n'
    )
    status, found = doctor.run("claude")
    assert "agent claude, start" in found, found
    assert (status, found["agent claude, start"]["mark"], found["agent claude, gate"]["mark"]) == (
        1,
        "PROBLEM",
        "NOT_TRIED",
    )
    assert "AGENT_START_FAILED" in found["agent claude, start"]["text"]
    assert "broken" in found["agent claude, start"]["text"]


def test_an_agent_without_a_scripted_model_is_started_in_a_home_of_its_own(doctor: Doctor) -> None:
    doctor.configure("[agents.autohand]\n")
    scripted = Path(sys.executable).with_name("steprail-scripted")
    doctor.program(
        "autohand", f'#!/bin/sh\necho "$HOME $AUTOHAND_AUTH_URL" >> {doctor.room}/homes\nexec {scripted} "$@"\n'
    )
    status, found = doctor.run("autohand")
    assert (status, found["agent autohand, start"]["mark"]) == (0, "OK")
    assert found["agent autohand, gate"]["text"] == "there is no scripted model for the driver autohand"
    homes = (doctor.room / "homes").read_text().splitlines()
    assert homes[0] == f"{doctor.room} ", "the version is asked as the daemon would"
    assert homes[-1].startswith(f"{doctor.room}/tmp/steprail-doctor-")
    assert homes[-1].endswith(" http://127.0.0.1:9")


def test_programs_that_cannot_be_used_are_told_apart(doctor: Doctor) -> None:
    old = doctor.program("old", "#!/bin/sh\necho '2.0.1 (Claude Code)'\n")
    doctor.program("script", "#!/usr/bin/env nosuchnode\n")
    doctor.program("hanging", "#!/bin/sh\nsleep 600\n")
    doctor.program("other", "#!/bin/sh\necho 'other 1.0'\n")
    names = {"old": "old", "gone": "/nowhere", "script": "script", "hanging": "hanging", "other": "other"}
    agents = "".join(f'[agents.{name}]\ndriver = "claude"\ncommand = ["{word}"]\n' for name, word in names.items())
    digest = hashlib.sha256(old.read_bytes()).hexdigest()
    pinned = "".join(
        f'[agents.{name}]\ndriver = "claude"\ncommand = ["old"]\nchecksum = "{text}"\n'
        for name, text in (("pinned", digest), ("changed", "0" * 64))
    )
    doctor.configure(f'[processes]\nstart_timeout = "1s"\n{agents}{pinned}')
    status, found = doctor.run()
    assert status == 1
    assert {about: finding["mark"] for about, finding in found.items() if about.startswith("agent ")} == {
        **dict.fromkeys([f"agent {name}" for name in (*names, "pinned")], "PROBLEM"),
        "agent pinned, checksum": "OK",
        "agent changed, checksum": "PROBLEM",
    }
    assert found["agent old"]["text"] == (
        f"{old}: version 2.0.1 is not supported; accepted: 2.1.332 or later, below 3.0.0"
    )
    assert "not found" in found["agent gone"]["text"]
    assert "a script for nosuchnode, which is not on the PATH" in found["agent script"]["text"]
    assert found["agent hanging"]["text"].endswith("did not tell its version within 1 s")
    assert "which is not Claude Code's answer" in found["agent other"]["text"]
    assert found["agents"]["text"] == "none of them can be used"


#: The command with a short bound for looks at files.
SOON = (
    sys.executable,
    "-c",
    "from steprail_daemon.cli import main; from steprail_daemon.cli.doctor import looks; looks.LIMIT = 1.0\n"
    "main.main()",
)


def test_a_program_whose_file_never_answers_is_a_problem_and_does_not_hold_the_command(doctor: Doctor) -> None:
    os.mkfifo(doctor.room / "bin" / "claude", 0o700)
    for checksum in ("", f'checksum = "{"0" * 64}"\n'):
        doctor.configure(f'[processes]\nstart_timeout = "1s"\n[agents.claude]\n{checksum}')
        status, found = doctor.run()
        assert (status, found["agent claude"]["mark"]) == (1, "PROBLEM")
        assert found["agent claude"]["text"] == "the file of program 'claude' could not be read within 1 s"
        assert "agent claude, gate" not in found


def test_a_login_whose_file_never_answers_is_a_problem_and_does_not_hold_the_command(doctor: Doctor) -> None:
    doctor.configure("[agents.claude]\n")
    doctor.program("claude", f'#!/bin/sh\nexec {" ".join(FAKE_CLAUDE)} "$@"\n')
    (doctor.room / ".claude").mkdir()
    os.mkfifo(doctor.room / ".claude" / ".credentials.json")
    status, found = doctor.run("--no-try", program=SOON)
    assert (status, found["agent claude, login"]["mark"]) == (1, "PROBLEM")
    assert found["agent claude, login"]["text"] == "a look at its files did not end within 1 s"


def test_a_check_that_never_ends_is_a_problem_and_does_not_hold_the_command(doctor: Doctor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    status, found = doctor.run("--no-try", "--state-dir", str(tmp_path), program=SOON)
    assert (status, found["doctor"]["mark"]) == (1, "PROBLEM")
    # The last of those that look who holds the lock.
    assert found["doctor"]["text"] == "the check descriptors did not end within 1 s"
    assert found["agent scripted"]["mark"] == "OK"


def test_few_descriptors_are_a_warning(doctor: Doctor) -> None:
    status, found = doctor.run("--no-try", shell="ulimit -n 200;")
    assert (status, found["agent scripted, gate"]["mark"]) == (0, "NOT_TRIED")
    # Two findings are about the machine; the last one is of descriptors.
    assert found["machine"]["mark"] == "WARNING"
    assert found["machine"]["text"].startswith("200 descriptors")


def test_what_only_a_start_would_refuse_is_told(doctor: Doctor) -> None:
    doctor.configure('[agents.scripted]\n[[identities]]\nname = "a"\ntoken_file = "/nowhere"\n')
    status, found = doctor.run("--no-try")
    assert (status, found["configuration"]["mark"]) == (1, "PROBLEM")
    assert "/nowhere" in found["configuration"]["text"]


def test_beside_a_daemon_it_tells_of_it_and_leaves_it_alone(daemon: Daemon, steprail: Steprail) -> None:
    done = steprail.run("doctor", "claude")
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert f"ok         state directory: a daemon uses it, process {daemon.pid}" in lines
    assert f"ok         listen {daemon.address}: something listens there" in lines
    ours = version("steprail-daemon")
    assert f"ok         daemon: a daemon answers on {daemon.address}, version {ours} as this program" in lines
    assert any("RLIMIT_NOFILE of the daemon" in line for line in lines)
    # Its agent makes no requests, which is not what a gate that holds looks like.
    assert (done.returncode, lines[-1].partition(",")[0]) == (1, "1 problem")
    assert steprail.run("agents").returncode == 0


def test_a_daemon_that_finds_no_program_is_told_where_we_find_it(daemon: Daemon, steprail: Steprail) -> None:
    # The daemon was started with another PATH.
    program = daemon.root / "bin" / "claude"
    program.parent.mkdir()
    daemon.config.write_text(daemon.config.read_text().replace(f'"{FAKE_CLAUDE[0]}"', '"claude"'))
    daemon.stop()
    anyio.run(daemon.start)
    program.write_text(f'#!/bin/sh\nexec {FAKE_CLAUDE[0]} "$@"\n')
    program.chmod(0o755)
    steprail.environment["PATH"] += f":{program.parent}"
    found = [json.loads(line)["finding"] for line in steprail.run("doctor", "--no-try", "--json").stdout.splitlines()]
    texts = {finding["about"]: finding["text"] for finding in found}
    assert texts["agent claude"].startswith(f"{program}, version 2.1.332")
    assert texts["agent claude, daemon"].startswith("the daemon that answers says: program 'claude' cannot be used")


def agent_is_up(room: Path) -> str:
    """Wait until an agent runs below a daemon of the doctor; gives the mark of that daemon's processes."""

    def names() -> list[str]:
        return [file.read_text().strip() for file in (room / "tmp").glob("steprail-doctor-*/state/instance")]

    anyio.run(until, lambda: any(name and len(marked(f"{name}.")) >= 2 for name in names()), BOUND)
    return f"{names()[0]}."


def model_of(doctor: int) -> int:
    """Find the scripted model of a doctor."""
    children = Path(f"/proc/{doctor}/task/{doctor}/children").read_text().split()
    return next(int(pid) for pid in children if b"messages_endpoint" in Path(f"/proc/{pid}/cmdline").read_bytes())


def started(doctor: Doctor) -> subprocess.Popen[str]:
    doctor.configure("[agents.claude]\n")
    # An agent whose version is told at once and whose model never answers.
    hanging = ASKING.replace('ask("/v1/messages")', "threading.Event().wait()")
    doctor.program("claude", hanging.format(python=sys.executable, main=1, beside=False, fake=FAKE_CLAUDE))
    return run_doctor(doctor)


def run_doctor(doctor: Doctor) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [STEPRAIL, "doctor", "claude"],
        env=doctor.environment,
        cwd=doctor.room,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_it_leaves_no_process_and_no_directory_when_it_is_left_in_the_middle(
    doctor: Doctor, number: signal.Signals, status: int
) -> None:
    process = started(doctor)
    mark = agent_is_up(doctor.room)
    everything = {*marked(mark), model_of(process.pid)}
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        # Whoever is impatient asks again and again, and that must not cut the cleaning short.
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (status, "")
    assert "Traceback" not in output
    doctor.nothing_is_left()
    assert wait_gone(everything, 0.0) == set()
    assert marked(mark) == set()


def test_a_program_that_is_asked_for_its_version_does_not_outlive_the_doctor(doctor: Doctor) -> None:
    doctor.configure("[agents.claude]\n")
    pids = doctor.room / "pids"
    doctor.program("claude", f"#!/bin/sh\nsleep 600 &\necho $$ $! > {pids}.new\nmv {pids}.new {pids}\nwait\n")
    process = run_doctor(doctor)
    anyio.run(until, pids.exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (130, "")
    assert wait_gone(map(int, pids.read_text().split()), BOUND) == set()


def test_it_is_left_while_a_file_does_not_answer(doctor: Doctor) -> None:
    doctor.configure("[agents.claude]\n")
    os.mkfifo(doctor.room / "bin" / "claude", 0o700)
    process = run_doctor(doctor)
    try:
        # The finding before those about agents; it is given up after 30 s only.
        lines_until(process, "note       daemon: ")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, errors) == (143, "")
    doctor.nothing_is_left()


def test_what_it_started_ends_by_itself_when_it_is_killed(doctor: Doctor) -> None:
    process = started(doctor)
    mark = agent_is_up(doctor.room)
    model = model_of(process.pid)
    process.kill()
    process.communicate(timeout=LIMIT)
    assert wait_none_marked(mark, BOUND) == set()
    assert wait_gone({model}, BOUND) == set()

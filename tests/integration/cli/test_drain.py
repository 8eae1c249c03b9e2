"""`steprail drain` and the built daemon."""

import json

import anyio
from tests.framework.daemon import Daemon, short_directory
from tests.integration.cli.conftest import LIMIT, Steprail, lines_until
from tests.integration.cli.test_tcp import TcpDaemon

LONG = json.dumps({"steps": 1, "tool_ms": 600_000})


def test_a_drain_is_followed_until_the_daemon_is_gone(daemon: Daemon, steprail: Steprail) -> None:
    running = steprail.start("run", LONG)
    lines_until(running, "  > Bash")
    draining = steprail.start("drain", "--wait", "--window", "30s", "--reason", "a new version")
    begun = lines_until(draining, "  runs stop")
    assert begun == [
        "draining: no new runs are taken; what is live in 30s is aborted",
        "  runs stop at their next boundary, 1 live, 1 agent process",
    ]
    again = steprail.run("drain")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("it is draining already, since ")
    assert again.stdout.splitlines()[0].endswith(" by local, a new version; this changes nothing")
    refused = steprail.run("run", LONG)
    assert (refused.returncode, "(DRAINING)" in refused.stderr) == (1, True)
    examined = steprail.run("doctor", "--no-try")
    assert "daemon: it is draining and takes no new runs" in examined.stdout
    # Its SIGTERM ends the window.
    assert daemon.stop() == 0
    output, errors = draining.communicate(timeout=LIMIT)
    assert (draining.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "the daemon has drained and is gone"
    running.communicate(timeout=LIMIT)


def test_without_a_daemon_it_is_one_sentence(alone: Steprail, daemon: Daemon) -> None:
    done = alone.run("drain", "--wait")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"steprail: no daemon listens on {daemon.address} (there is no such socket); ")
    assert len(done.stderr.splitlines()) == 1


def test_an_idle_daemon_is_gone_at_once_and_as_json_each_line_says_what_it_is(
    daemon: Daemon, steprail: Steprail
) -> None:
    done = steprail.run("drain", "--wait", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert objects[0]["drain_status"]["identity"] == "local"
    assert {tuple(each) for each in objects[:-1]} == {("drain_status",)}
    assert objects[-1] == {"drained": {"address": daemon.address}}
    assert daemon.stop() == 0


def test_a_window_longer_than_the_daemon_grants_is_refused(steprail: Steprail) -> None:
    done = steprail.run("drain", "--window", "1h")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "steprail: window must be at most 60 s, which drain.grace leaves, not 3600 s (FIELD_INVALID)\n"
    )


def test_who_is_no_admin_may_not_drain() -> None:
    with short_directory() as directory:
        daemon = TcpDaemon(directory)
        try:
            anyio.run(daemon.start)
            done = daemon.client(daemon.token_file).run("drain")
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.endswith("(FORBIDDEN)\n")
            assert len(done.stderr.splitlines()) == 1
        finally:
            assert daemon.stop() == 0

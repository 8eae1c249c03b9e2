"""The built daemon on TCP: tokens, TLS, a reload, and the command line as its client."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.framework.certificates import Authority
from tests.framework.daemon import FAKE_CLAUDE, STEPRAIL, Daemon, short_directory
from tests.framework.waiting import until
from tests.integration.cli.conftest import LIMIT, Steprail

TOKEN, NEXT = "a-token-of-somebody", "another-token-of-somebody"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class TcpDaemon(Daemon):
    """A daemon on its socket and on TCP, with one identity."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, FAKE_CLAUDE)
        self.tcp = f"127.0.0.1:{free_port()}"
        self.token_file = root / "tokens"
        self.authority = Authority(root, "root")
        pair = self.authority.give("daemon", "IP:127.0.0.1")
        self.write_tokens(TOKEN)
        self.config.write_text(
            self.config.read_text().replace(
                f'listen = ["{self.address}"]', f'listen = ["{self.address}", "{self.tcp}"]'
            )
            + f'[server.tls]\ncert = "{pair.cert}"\nkey = "{pair.key}"\n'
            + f'[[identities]]\nname = "somebody"\ntoken_file = "{self.token_file}"\nrole = "operator"\n'
        )

    def write_tokens(self, *tokens: str) -> None:
        self.token_file.write_text("\n".join(tokens))
        self.token_file.chmod(0o600)

    def client(self, token_file: Path) -> Steprail:
        """Give commands that come over TCP."""
        environment = {
            **self.environment,
            "STEPRAIL_ADDRESS": self.tcp,
            "STEPRAIL_TOKEN_FILE": str(token_file),
            "STEPRAIL_TLS_ROOTS": str(self.authority.roots),
        }
        return Steprail(environment, self.workspace)

    def reload(self, *expected: str) -> None:
        """Ask for a reload and wait until the log has said each of these since."""
        seen = self.log.stat().st_size
        os.kill(self.pid, signal.SIGHUP)
        anyio.run(until, lambda: all(words in self.log.read_text()[seen:] for words in expected), LIMIT)


@pytest.fixture
def tcp() -> Iterator[TcpDaemon]:
    with short_directory() as directory:
        daemon = TcpDaemon(directory)
        try:
            anyio.run(daemon.start)
            yield daemon
        finally:
            daemon.stop()


def test_the_command_line_comes_over_tcp_with_a_token_that_is_rotated_by_a_reload(tcp: TcpDaemon) -> None:
    handed_out = tcp.root / "handed-out"
    handed_out.write_text(TOKEN)
    steprail = tcp.client(handed_out)
    assert steprail.run("sessions").returncode == 0

    tcp.write_tokens(NEXT)
    tcp.reload("1 identities and their tokens", "certificates, unchanged")

    refused = steprail.run("sessions")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "steprail: the token is of no identity, or not any more (TOKEN_INVALID)\n"
    handed_out.write_text(NEXT)
    assert steprail.run("sessions").returncode == 0


def test_a_reload_takes_up_identities_and_says_what_needs_a_restart(tcp: TcpDaemon) -> None:
    second = tcp.root / "second"
    second.write_text(NEXT)
    second.chmod(0o600)
    assert tcp.client(second).run("sessions").returncode == 1

    entry = f'[[identities]]\nname = "second"\ntoken_file = "{second}"\n[limits]\nmax_steps = 3\n'
    tcp.config.write_text(tcp.config.read_text() + entry)
    tcp.reload("2 identities and their tokens", "changed, and needs a restart: limits.max_steps")

    assert tcp.client(second).run("sessions").returncode == 0


def test_a_door_that_is_open_to_others_without_tls_fails_the_start(daemon: Daemon) -> None:
    tokens = daemon.root / "tokens"
    tokens.write_text(TOKEN)
    entry = f'[[identities]]\nname = "somebody"\ntoken_file = "{tokens}"\n'
    daemon.config.write_text(daemon.config.read_text() + entry)

    done = subprocess.run(
        [STEPRAIL, "serve", "--listen", "0.0.0.0:7443"],
        env=daemon.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert done.returncode == 78
    assert "server.listen: 0.0.0.0:7443 can be reached from other machines and server.tls.cert is empty" in done.stderr


def test_a_token_file_that_cannot_be_used_fails_the_start(daemon: Daemon) -> None:
    entry = f'[[identities]]\nname = "somebody"\ntoken_file = "{daemon.root}/absent"\n'
    daemon.config.write_text(daemon.config.read_text() + entry)

    done = subprocess.run(
        [STEPRAIL, "serve"], env=daemon.environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )

    assert done.returncode == 78
    assert f"identities.1.token_file: {daemon.root}/absent cannot be read: No such file or directory" in done.stderr


def other(steprail: Steprail, **changed: str | None) -> Steprail:
    """Give commands with other variables; None takes one away."""
    environment = {name: value for name, value in {**steprail.environment, **changed}.items() if value is not None}
    return Steprail(environment, steprail.cwd)


def test_what_is_wrong_with_token_or_certificates_is_one_sentence(tcp: TcpDaemon) -> None:
    token = tcp.root / "handed-out"
    token.write_text(TOKEN)
    steprail = tcp.client(token)
    wrong, garbage, empty, odd = (tcp.root / name for name in ("wrong", "garbage", "empty", "odd"))
    wrong.write_text("another")
    garbage.write_text("no certificate")
    empty.write_text("# nothing\n")
    odd.write_bytes(b"caf\xe9\n")
    (tcp.root / "elsewhere").mkdir()
    elsewhere = Authority(tcp.root / "elsewhere", "elsewhere").roots
    for changed, said in (
        ({"STEPRAIL_TOKEN_FILE": None}, "$STEPRAIL_TOKEN_FILE is to name a file with a token (TOKEN_MISSING)"),
        ({"STEPRAIL_TOKEN_FILE": str(wrong)}, "the token is of no identity, or not any more (TOKEN_INVALID)"),
        ({"STEPRAIL_TOKEN_FILE": str(tcp.root / "absent")}, "absent cannot be read: No such file or directory"),
        ({"STEPRAIL_TOKEN_FILE": str(empty)}, "empty has no token"),
        ({"STEPRAIL_TOKEN_FILE": str(odd)}, "odd cannot be sent; accepted are printable ASCII characters"),
        ({"STEPRAIL_TLS_ROOTS": None}, "what listens there ended the connection: where it wants TLS,"),
        ({"STEPRAIL_TLS_ROOTS": str(tcp.root / "absent")}, "absent cannot be read: No such file or directory"),
        ({"STEPRAIL_TLS_ROOTS": str(garbage)}, "no certificate was found in the roots of"),
        ({"STEPRAIL_TLS_ROOTS": str(elsewhere)}, "the TLS handshake failed: see that"),
    ):
        done = other(steprail, **changed).run("sessions")
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_tls_asked_of_a_daemon_without_it_is_one_sentence(tcp: TcpDaemon) -> None:
    token = tcp.root / "handed-out"
    token.write_text(TOKEN)
    tcp.stop()
    lines = tcp.config.read_text().splitlines()
    tcp.config.write_text("\n".join(line for line in lines if not line.startswith(("[server.tls]", "cert", "key"))))
    anyio.run(tcp.start)
    assert other(tcp.client(token), STEPRAIL_TLS_ROOTS=None).run("sessions").returncode == 0
    done = tcp.client(token).run("sessions")
    assert (done.returncode, done.stdout) == (1, "")
    assert "what listens there speaks no TLS: do without tls= and $STEPRAIL_TLS_ROOTS" in done.stderr
    assert len(done.stderr.splitlines()) == 1

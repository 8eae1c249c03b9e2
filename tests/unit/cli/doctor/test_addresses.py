"""What the doctor says of addresses, and of the daemon that answers."""

import socket
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path

import anyio
import pytest
from tests.unit.cli.doctor.conftest import MakeCase, lines, told
from tests.unit.cli.fakes import FakeDaemon

from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.doctor import addresses
from steprail_daemon.cli.problems import NobodyListens, Problem, Refused, Unanswered
from steprail_daemon.cli.reach import Kind, Silence

pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in the test's directory: sockets are opened by a path that may have 107 bytes."""
    monkeypatch.chdir(tmp_path)


class Refusing(AbstractAsyncContextManager[Daemon]):
    """A connection that cannot be had."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __aenter__(self) -> Daemon:
        raise self._error

    async def __aexit__(self, *exception: object) -> None:
        """Nothing was opened."""


def test_a_socket_that_can_be_made_is_fine(make: MakeCase, tmp_path: Path) -> None:
    assert lines(addresses.addresses, make()) == ["ok: nothing listens there, the socket can be made"]
    assert list(tmp_path.glob("*.sock")) == []


def test_a_socket_that_somebody_serves_and_one_that_is_left_are_told_apart(make: MakeCase) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.sock")
        server.listen()
        assert lines(addresses.addresses, make()) == ["ok: something listens there"]
    left = "ok: a daemon that is dead left its socket, which the next start removes"
    assert lines(addresses.addresses, make()) == [left]


def test_a_file_in_the_place_of_the_socket_is_a_problem(make: MakeCase, tmp_path: Path) -> None:
    (tmp_path / "s.sock").touch()
    (found,) = told(addresses.addresses, make())
    assert (found.mark.value, found.text) == ("problem", "this is a file of another kind, not a socket")
    assert found.about == f"listen unix:{tmp_path}/s.sock"


def test_a_socket_that_cannot_be_made_is_a_problem(make: MakeCase) -> None:
    case = make(environ={"STEPRAIL_SERVER__LISTEN": "unix:/proc/steprail/s.sock"})
    assert lines(addresses.addresses, case) == [
        "problem: the socket cannot be made, as /proc cannot be written: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        (Kind.FORBIDDEN, "problem: why"),
        (Kind.NO_ANSWER, "problem: why"),
        (Kind.TOO_LONG, "problem: why"),
        (Kind.OTHER, "problem: why"),
        (Kind.LEFT_OVER, "ok: a daemon that is dead left its socket, which the next start removes"),
    ],
)
def test_each_kind_of_silence_on_a_socket_is_a_finding(
    kind: Kind, mark: str, make: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(address: str) -> Silence:
        return Silence(kind, "why")

    monkeypatch.setattr(addresses, "why_silent", silent)
    assert lines(addresses.addresses, make()) == [mark]


def tcp(make: MakeCase, tmp_path: Path, port: int) -> list[str]:
    (tmp_path / "token").write_text("a-token")
    identity = f'[[identities]]\nname = "a"\ntoken_file = "{tmp_path}/token"\n'
    return lines(addresses.addresses, make(identity, environ={"STEPRAIL_SERVER__LISTEN": f"127.0.0.1:{port}"}))


def test_a_port_is_served_free_or_taken_by_something_that_does_not_listen(make: MakeCase, tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert tcp(make, tmp_path, port) == ["problem: nothing listens there, and nothing can: Address already in use"]
        server.listen()
        assert tcp(make, tmp_path, port) == ["ok: something listens there"]
    assert tcp(make, tmp_path, port) == ["ok: nothing listens there, the port is free"]


def answers(make: MakeCase, info: Message) -> list[str]:
    case = make(connect=lambda _: nullcontext(FakeDaemon(info=info)))
    return lines(addresses.answer, case) + lines(addresses.draining, case)


def test_a_daemon_of_this_version_answers(make: MakeCase, tmp_path: Path) -> None:
    assert answers(make, {"version": version("steprail-daemon")}) == [
        f"ok: a daemon answers on unix:{tmp_path}/s.sock, version {version('steprail-daemon')} as this program"
    ]


def test_another_version_and_a_drain_are_warnings(make: MakeCase, tmp_path: Path) -> None:
    assert answers(make, {"version": "0.0.9", "draining": True}) == [
        f"warning: the daemon on unix:{tmp_path}/s.sock is version 0.0.9, this program is {version('steprail-daemon')}",
        "warning: it is draining and takes no new runs",
    ]


def test_without_a_daemon_it_is_a_note_and_where_one_was_named_a_problem(make: MakeCase, tmp_path: Path) -> None:
    case = make(connect=lambda address: Refusing(NobodyListens(address, "it is gone; or so", "start one")))
    sentence = f"no daemon listens on unix:{tmp_path}/s.sock"
    assert lines(addresses.answer, case) == [f"note: {sentence}"]
    case.address_named = True
    assert lines(addresses.answer, case) == [f"problem: {sentence}: it is gone; or so"]
    assert case.server is None
    assert lines(addresses.draining, case) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Refused("TOKEN_INVALID", "the token is of no identity"), "the token is of no identity (TOKEN_INVALID)"),
        (Problem("the token file cannot be read"), "the token file cannot be read"),
        (Unanswered("what is there does not speak gRPC"), "what is there does not speak gRPC"),
    ],
)
def test_an_answer_that_is_an_error_is_a_problem(make: MakeCase, tmp_path: Path, error: Problem, said: str) -> None:
    assert lines(addresses.answer, make(connect=lambda _: Refusing(error))) == [
        f"problem: unix:{tmp_path}/s.sock does not answer as it should: {said}"
    ]


def test_a_daemon_that_does_not_answer_in_time_is_a_problem(make: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeDaemon):
        async def server_info(self) -> Message:
            await anyio.sleep_forever()
            raise AssertionError

    monkeypatch.setattr(addresses, "_ANSWER_LIMIT", 0.01)
    (found,) = lines(addresses.answer, make(connect=lambda _: nullcontext(Silent())))
    assert found.endswith("does not answer as it should: no answer came within 0 s")

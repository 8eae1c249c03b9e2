"""Why nothing listens, where no test can make it so for every user, and with bounds that a test can wait for."""

import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from steprail_daemon.cli import reach
from steprail_daemon.cli.reach import Kind, Silence, why_not_open, why_silent


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (
            PermissionError(13, "Permission denied"),
            Kind.FORBIDDEN,
            "this user may not open the socket, or not look into its directory",
        ),
        (OSError(24, "Too many open files"), Kind.OTHER, "Too many open files"),
        (OSError("odd"), Kind.OTHER, "odd"),
    ],
)
def test_what_is_in_the_way_is_said_and_no_daemon_is_started_there(error: OSError, kind: Kind, why: str) -> None:
    assert why_not_open("/nowhere", error) == Silence(kind, why, vacant=False)


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a socket `x` that listens and on which nobody else can wait any more."""
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind("x")
        server.listen(0)
        first.connect("x")
        with socket.socket(socket.AF_UNIX) as second:
            second.setblocking(False)
            with pytest.raises(BlockingIOError):
                second.connect("x")
        yield


@pytest.mark.usefixtures("full")
def test_a_socket_on_which_too_many_wait_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_CONNECT_LIMIT", 0.1)
    silence = anyio.run(why_silent, "unix:x")
    assert silence == Silence(Kind.NO_ANSWER, "there was no answer within 0.1 s", vacant=False)

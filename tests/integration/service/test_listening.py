"""Where the server listens, and whom it lets in."""

import os
import socket as sockets
import stat
from pathlib import Path

import pytest
from tests.integration.service.conftest import Rig, RigFactory

from steprail.client import Client
from steprail_daemon.service.server import OPTIONS, ApiServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


async def test_the_directory_and_the_socket_are_open_to_their_owner_alone(rig: Rig) -> None:
    assert stat.S_IMODE(rig.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(rig.socket.stat().st_mode) == 0o600


async def test_the_umask_is_as_before(rig: Rig) -> None:
    before = os.umask(0o022)
    os.umask(before)

    assert before != 0o177


async def test_the_socket_of_a_live_daemon_is_left_alone(rig: Rig, make_rig: RigFactory) -> None:
    second = await make_rig()

    with pytest.raises(OSError, match=r"another daemon serves there; stop it first"):
        await second.serve()

    async with await rig.client() as client:
        assert await client.list_sessions() == []


async def test_the_socket_of_a_dead_daemon_is_replaced(make_rig: RigFactory) -> None:
    rig = await make_rig()
    rig.socket.parent.mkdir()
    dead = sockets.socket(sockets.AF_UNIX)
    dead.bind(str(rig.socket))
    dead.close()

    await rig.serve()

    assert await (await rig.client()).list_sessions() == []


async def test_a_file_that_is_no_socket_is_left_alone(make_rig: RigFactory) -> None:
    rig = await make_rig()
    rig.socket.parent.mkdir()
    rig.socket.write_text("precious")

    with pytest.raises(OSError, match="no socket"):
        await rig.serve()

    assert rig.socket.read_text() == "precious"


async def test_a_stopped_server_leaves_no_socket(make_rig: RigFactory) -> None:
    rig = await make_rig()
    server = await rig.serve()

    await server.stop(0)

    assert not rig.socket.exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:7777", "TCP needs identities with a token or a client certificate"),
        ("dns:localhost:7777", "accepted are unix:/path, and an IP address or localhost with a port"),
        ("unix:relative.sock", "the path must be absolute"),
        ("unix:" + "/x" * 60, "at most 107 bytes"),
    ],
)
async def test_an_address_that_is_not_served_is_refused_with_what_is(
    make_rig: RigFactory, address: str, words: str
) -> None:
    rig = await make_rig()

    with pytest.raises(OSError, match=words):
        await ApiServer(rig.facade, [address]).start()


async def test_several_sockets_are_served(make_rig: RigFactory, socket: Path) -> None:
    rig = await make_rig()
    other = socket.with_name("other.sock")
    server = ApiServer(rig.facade, [f"unix:{socket}", f"unix://{other}"])
    await server.start()

    for path in (socket, other):
        async with Client(f"unix:{path}", timeout=10) as client:
            assert await client.list_sessions() == []
    await server.stop(0)


async def test_clients_may_ping_as_often_as_they_are_told_to() -> None:
    """Core's own limit of 5 minutes ends a connection with "too many pings"; to see it one would need minutes."""
    options = dict(OPTIONS)
    assert options["grpc.http2.min_ping_interval_without_data_ms"] <= 10_000
    assert options["grpc.keepalive_permit_without_calls"] == 1

"""Who is let in over TCP and the socket, and into what."""

import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.integration.service.callers import Site, refusal, token_of

from steprail import errors
from steprail.client import Client
from steprail.v1 import runs_pb2_grpc
from steprail_daemon.engine.facade import LOCAL, Role
from steprail_daemon.service.roles import ROLES
from steprail_daemon.service.server import ApiServer

pytestmark = pytest.mark.anyio


async def test_without_a_token_tcp_lets_nobody_in(open_site: Site) -> None:
    client = await open_site.client()

    assert await refusal(client.list_sessions()) == ("UNAUTHENTICATED", "TOKEN_MISSING")
    assert await refusal(client.create_session("claude", "/work")) == ("UNAUTHENTICATED", "TOKEN_MISSING")
    assert open_site.rig.facade.list_sessions(LOCAL) == []


async def test_a_wrong_token_is_refused(open_site: Site) -> None:
    async with Client(open_site.address, token="wrong-token-0123456789", timeout=10) as client:
        assert await refusal(client.list_sessions()) == ("UNAUTHENTICATED", "TOKEN_INVALID")


async def test_a_token_that_is_no_header_is_refused_by_the_client(open_site: Site) -> None:
    async with Client(open_site.address, token_file=open_site.directory / "absent", timeout=10) as client:
        with pytest.raises(errors.CredentialsUnusable, match=r"absent cannot be read: No such file or directory"):
            await client.list_sessions()


async def test_a_session_is_of_who_made_it(open_site: Site) -> None:
    session = await (await open_site.client("payments")).create_session("claude", "/work")

    assert (session.owner, session.tenant, dict(session.labels)) == ("payments", "acme", {"team": "payments"})


async def test_tokens_are_rotated_without_a_restart(open_site: Site) -> None:
    old, new = token_of("payments"), "the-next-token-0123456789"
    handed_out = open_site.directory / "handed-out"
    handed_out.write_text(f"# of payments\n{old}\n")
    async with Client(open_site.address, token_file=handed_out, timeout=10) as client:
        assert await client.list_sessions() == []

        open_site.write_tokens("payments", old, new)
        open_site.clock.at += 2
        assert await client.list_sessions() == []
        handed_out.write_text(f"{new}\n")
        assert await client.list_sessions() == []

        open_site.write_tokens("payments", new)
        open_site.clock.at += 2
        assert await client.list_sessions() == []

    assert await refusal((await open_site.client("payments")).list_sessions()) == ("UNAUTHENTICATED", "TOKEN_INVALID")


async def test_the_environment_names_the_token_file(open_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPRAIL_TOKEN_FILE", str(open_site.directory / "looker"))
    monkeypatch.setenv("STEPRAIL_ADDRESS", open_site.address)

    async with Client(timeout=10) as client:
        assert await client.list_sessions() == []


async def test_a_token_on_the_socket_is_honoured(open_site: Site) -> None:
    async with Client(open_site.rig.address, token=token_of("looker"), timeout=10) as looker:
        assert await refusal(looker.create_session("claude", "/work")) == ("PERMISSION_DENIED", "FORBIDDEN")
    async with Client(open_site.rig.address, timeout=10) as local:
        session = await local.create_session("claude", "/work")
    assert (session.owner, session.tenant) == ("local", "default")


async def test_the_call_is_logged_with_who_called_and_without_the_token(
    open_site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "steprail.calls")
    await (await open_site.client("looker")).list_sessions()

    assert [(record.identity, record.code) for record in caplog.records] == [("looker", "OK")]  # type: ignore[attr-defined]
    assert token_of("looker") not in caplog.text


# --- roles ---


def raw_call(channel: Any, method: str) -> Callable[[str], Awaitable[object]]:
    """Give a call of any kind by its name, with an empty body; what it gives is its first answer."""
    service, _, name = method.rpartition(".")
    path = f"/{service}/{name}"

    async def call(token: str) -> object:
        metadata = (("authorization", f"Bearer {token}"),)
        if name in {"ControlRun", "ServerReflectionInfo"}:
            conversation = channel.stream_stream(path)(metadata=metadata, timeout=10)
            await conversation.done_writing()
            return await conversation.read()
        if name.startswith(("Watch", "Read")):
            return await channel.unary_stream(path)(b"", metadata=metadata, timeout=10).read()
        return await channel.unary_unary(path)(b"", metadata=metadata, timeout=10)

    return call


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


SERVED = sorted(
    name
    for name in ROLES
    if name.split(".")[-2] in {"AgentService", "SessionService", "RunService", "Health", "ServerReflection"}
)


@pytest.mark.parametrize("method", SERVED)
async def test_a_viewer_is_let_into_what_its_role_may_and_into_nothing_else(open_site: Site, method: str) -> None:
    call = raw_call(await open_site.channel(), method)
    least = ROLES[method]

    viewer = await code_of(call(token_of("looker")))
    admin = await code_of(call(token_of("root")))
    nobody = await code_of(call("wrong-token-0123456789"))

    if admin is grpc.StatusCode.UNIMPLEMENTED:
        assert viewer is nobody is grpc.StatusCode.UNIMPLEMENTED
        return
    forbidden = least is not None and least > Role.VIEWER
    assert (viewer is grpc.StatusCode.PERMISSION_DENIED) is forbidden
    assert admin is not grpc.StatusCode.PERMISSION_DENIED
    assert (nobody is grpc.StatusCode.UNAUTHENTICATED) is (least is not None)


async def test_a_viewer_is_refused_before_its_request_is_read(open_site: Site) -> None:
    channel: Any = await open_site.channel()
    call = channel.unary_unary("/steprail.v1.RunService/StartRun")

    for token, code in (("looker", "PERMISSION_DENIED"), ("payments", "INVALID_ARGUMENT")):
        metadata = (("authorization", f"Bearer {token_of(token)}"),)
        assert (await code_of(call(b"\xff no message", metadata=metadata, timeout=10))).name == code


async def test_health_is_for_whoever_can_connect(open_site: Site) -> None:
    stub = health_pb2_grpc.HealthStub(await open_site.channel())

    assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)).status == 1
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=10)
    assert (await watch.read()).status == 1
    watch.cancel()


async def test_reflection_tells_those_who_may_look(open_site: Site) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(await open_site.channel())
    question = reflection_pb2.ServerReflectionRequest(list_services="")

    call = stub.ServerReflectionInfo(metadata=(("authorization", f"Bearer {token_of('looker')}"),), timeout=10)
    await call.write(question)
    names = {service.name for service in (await call.read()).list_services_response.service}
    call.cancel()
    assert {"steprail.v1.RunService", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= names

    refused = stub.ServerReflectionInfo(timeout=10)
    assert await code_of(refused.read()) is grpc.StatusCode.UNAUTHENTICATED


# --- doors ---


async def test_the_socket_and_its_directory_are_for_their_owner_alone(open_site: Site) -> None:
    assert stat.S_IMODE(open_site.rig.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(open_site.rig.socket.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("address", "locked", "said"),
    [
        ("127.0.0.1:0", False, "TCP needs identities with a token or a client certificate"),
        ("[::1]:0", False, "TCP needs identities with a token or a client certificate"),
        ("0.0.0.0:0", True, "beyond loopback TCP needs TLS, and server.tls is not set"),
        ("[::ffff:127.0.0.1]:0", True, "beyond loopback TCP needs TLS, and server.tls is not set"),
        ("[::]:0", True, "beyond loopback TCP needs TLS, and server.tls is not set"),
        ("example.com:1", True, "accepted are unix:/path, and an IP address or localhost with a port"),
        ("127.0.0.1", True, "accepted are unix:/path, and an IP address or localhost with a port"),
    ],
)
async def test_a_door_without_a_lock_is_not_opened(site: Site, address: str, locked: bool, said: str) -> None:
    server = ApiServer(site.rig.facade, [address, site.rig.address], access=site.access if locked else None)

    with pytest.raises(OSError, match=said):
        await server.start()

    assert not site.rig.socket.exists()


# --- the client's own care ---


@pytest.mark.parametrize("address", ["192.0.2.1:7443", "daemon.example:7443", "[2001:db8::1]:7443"])
async def test_the_client_sends_no_token_where_others_can_read_it(address: str) -> None:
    with pytest.raises(errors.CredentialsUnusable, match=r"a token is not sent to .* without TLS"):
        async with Client(address, token="some-token-0123456789"):
            pass


def test_a_token_and_a_token_file_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="accepted is one of them"):
        Client("127.0.0.1:1", token="t", token_file=tmp_path)


async def test_a_stream_carries_the_token_too(open_site: Site) -> None:
    client = await open_site.client("payments")
    session = await client.create_session("claude", "/work")
    async with client.control(start=client.start_request(session.session_id, "go")) as control:
        assert control.run_id
    stub = runs_pb2_grpc.RunServiceStub(await open_site.channel())
    call = stub.ControlRun(timeout=10)
    assert await code_of(call.read()) is grpc.StatusCode.UNAUTHENTICATED

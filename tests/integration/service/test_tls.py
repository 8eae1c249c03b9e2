"""TCP with encryption: certificates of the daemon, of clients, and their renewal."""

from pathlib import Path

import pytest
from tests.framework.certificates import Authority, Pair
from tests.integration.service.callers import CALLERS, Clock, Site, refusal

from steprail import errors
from steprail.client import Client, Tls
from steprail_daemon.service.auth import Access, Identity
from steprail_daemon.service.server import ApiServer
from steprail_daemon.service.tls import TlsFiles
from steprail_daemon.service.tokens import CredentialsUnusable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "ours")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "theirs")


def tls_files(pair: Pair, client_ca: Path | None = None, clock: Clock | None = None) -> TlsFiles:
    return TlsFiles(pair.cert, pair.key, client_ca, clock=clock or Clock())


@pytest.fixture(scope="module")
def daemon_pair(authority: Authority) -> Pair:
    return authority.give("daemon", "IP:127.0.0.1", "DNS:localhost")


async def test_with_the_right_roots_a_token_travels_encrypted(
    site: Site, authority: Authority, daemon_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.serve(tls_files(daemon_pair))

    client = await site.client("looker", tls=Tls(authority.roots))
    assert await client.list_sessions() == []

    monkeypatch.setenv("STEPRAIL_TLS_ROOTS", str(authority.roots))
    assert await (await site.client("looker")).list_sessions() == []


async def test_a_daemon_under_another_root_is_not_talked_to(
    site: Site, other_authority: Authority, daemon_pair: Pair
) -> None:
    await site.serve(tls_files(daemon_pair))
    client = await site.client("looker", tls=Tls(other_authority.roots))

    with pytest.raises(errors.ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
        await client.list_sessions()


async def test_a_daemon_of_another_name_is_not_talked_to_unless_it_is_named(site: Site, authority: Authority) -> None:
    await site.serve(tls_files(authority.give("elsewhere", "DNS:elsewhere.example")))

    with pytest.raises(errors.ConnectionFailed, match=r"127\.0\.0\.1"):
        await (await site.client("looker", tls=Tls(authority.roots))).list_sessions()
    named = Tls(authority.roots, server_name="elsewhere.example")
    assert await (await site.client("looker", tls=named)).list_sessions() == []


async def test_without_encryption_a_door_with_tls_stays_shut(site: Site, daemon_pair: Pair) -> None:
    await site.serve(tls_files(daemon_pair))

    with pytest.raises(errors.ConnectionFailed):
        await (await site.client("looker")).list_sessions()


async def test_a_clients_certificate_tells_who_calls(site: Site, authority: Authority, daemon_pair: Pair) -> None:
    site.access.replace(
        [
            Identity(CALLERS["payments"], certificate="spiffe://acme/payments"),
            Identity(CALLERS["looker"], certificate="looker"),
            Identity(CALLERS["root"], site.directory / "root"),
        ]
    )
    await site.serve(tls_files(daemon_pair, authority.roots))

    def tls(pair: Pair) -> Tls:
        return Tls(authority.roots, pair.cert, pair.key)

    payments = tls(authority.give("any", "URI:spiffe://acme/payments"))
    session = await (await site.client(tls=payments)).create_session("claude", "/work")
    assert (session.owner, session.tenant) == ("payments", "acme")
    looker = await site.client(tls=tls(authority.give("looker")))
    assert [found.session_id for found in await looker.list_sessions()] == [session.session_id]
    assert await refusal(looker.close_session(session.session_id)) == ("PERMISSION_DENIED", "FORBIDDEN")
    unknown = tls(authority.give("unknown"))
    assert await refusal((await site.client(tls=unknown)).list_sessions()) == ("UNAUTHENTICATED", "TOKEN_MISSING")
    with_token = await site.client("root", tls=unknown)
    assert [found.session_id for found in await with_token.list_sessions()] == [session.session_id]


@pytest.mark.parametrize("certified", [False, True], ids=["no certificate", "one of another root"])
async def test_where_clients_are_asked_for_certificates_nobody_connects_without_a_right_one(
    site: Site, authority: Authority, other_authority: Authority, daemon_pair: Pair, certified: bool
) -> None:
    await site.serve(tls_files(daemon_pair, authority.roots))
    pair = other_authority.give("looker")
    tls = Tls(authority.roots, pair.cert, pair.key) if certified else Tls(authority.roots)

    with pytest.raises(errors.ConnectionFailed):
        await (await site.client("looker", tls=tls)).list_sessions()


async def test_a_renewed_certificate_is_used_by_the_next_connection(
    site: Site, tmp_path: Path, authority: Authority, other_authority: Authority, daemon_pair: Pair
) -> None:
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    renewed = other_authority.give("daemon", "IP:127.0.0.1")

    def install(cert: Path, key: Path) -> None:
        used.cert.write_bytes(cert.read_bytes())
        used.key.write_bytes(key.read_bytes())

    install(daemon_pair.cert, daemon_pair.key)
    clock = Clock()
    await site.serve(tls_files(used, clock=clock))
    before = await site.client("looker", tls=Tls(authority.roots))
    assert await before.list_sessions() == []

    install(renewed.cert, daemon_pair.key)
    clock.at += 2
    assert await (await site.client("looker", tls=Tls(authority.roots))).list_sessions() == [], "half a renewal"
    install(renewed.cert, renewed.key)
    clock.at += 2

    assert await (await site.client("looker", tls=Tls(other_authority.roots))).list_sessions() == []
    assert await before.list_sessions() == []


async def test_files_that_change_while_they_are_read_are_not_used(tmp_path: Path, authority: Authority) -> None:
    class Overtaken(TlsFiles):
        renewed: Pair | None = None

        def _check(self, contents: dict[str, bytes]) -> None:
            if self.renewed is not None:
                cert.write_bytes(self.renewed.cert.read_bytes())
                key.write_bytes(self.renewed.key.read_bytes())
            super()._check(contents)

    first, second = authority.give("first"), authority.give("second")
    cert, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    cert.write_bytes(first.cert.read_bytes())
    key.write_bytes(first.key.read_bytes())
    files = Overtaken(cert, key)
    files.renewed = second
    with pytest.raises(CredentialsUnusable, match="changed while read"):
        files.refresh()
    assert files.refresh()


async def test_files_that_cannot_be_used_are_refused_at_start(
    tmp_path: Path, daemon_pair: Pair, other_authority: Authority
) -> None:
    other = other_authority.give("other")
    locked, empty = tmp_path / "locked.key", tmp_path / "empty.pem"
    empty.write_text("")
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
    for pair, client_ca, said in (
        (Pair(tmp_path / "absent.pem", daemon_pair.key), None, "server.tls.cert: .*absent.pem cannot be read: No such"),
        (
            Pair(daemon_pair.cert, other.key),
            None,
            "server.tls: .* are no certificate with its key: key values mismatch",
        ),
        (Pair(daemon_pair.cert, locked), None, "server.tls: .* are no certificate with its key"),
        (Pair(empty, daemon_pair.key), None, "server.tls: .* are no certificate with its key"),
        (daemon_pair, empty, "server.tls.client_ca: .*empty.pem has no certificates"),
    ):
        with pytest.raises(CredentialsUnusable, match=said):
            tls_files(pair, client_ca)


async def test_certificates_are_no_lock_where_no_client_is_asked_for_one(site: Site, authority: Authority) -> None:
    access = Access([Identity(CALLERS["payments"], certificate="payments")])
    tls = tls_files(authority.give("daemon", "IP:127.0.0.1"))

    with pytest.raises(OSError, match="TCP needs identities"):
        await ApiServer(site.rig.facade, ["127.0.0.1:0"], access=access, tls=tls).start()


async def test_half_a_client_certificate_is_refused_by_the_client(daemon_pair: Pair) -> None:
    with pytest.raises(errors.CredentialsUnusable, match="needs its key"):
        async with Client("127.0.0.1:1", tls=Tls(certificate=daemon_pair.cert)):
            pass

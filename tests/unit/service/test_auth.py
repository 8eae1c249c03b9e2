"""Who is let in, by what."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest

from steprail_daemon.core.errors import Denied, StepRailError, Unauthenticated
from steprail_daemon.engine.facade import LOCAL, Caller, Role
from steprail_daemon.service.auth import ANYBODY, RECHECK_SECONDS, Access, Identity
from steprail_daemon.service.tokens import CredentialsUnusable

VIEWER = Caller("looker", "acme", Role.VIEWER)
OPERATOR = Caller("payments", "acme", Role.OPERATOR, {"team": "payments"})
ADMIN = Caller("root", "default", Role.ADMIN)
TOKENS = {caller.name: hashlib.sha256(caller.name.encode()).hexdigest() for caller in (VIEWER, OPERATOR, ADMIN)}
TCP, UNIX = "ipv4:127.0.0.1:4711", "unix:"
GET, START, DRAIN = (
    f"steprail.v1.{name}" for name in ("RunService.GetRun", "RunService.StartRun", "AdminService.Drain")
)


class Peer:
    """What gRPC tells of a call."""

    def __init__(
        self,
        peer: str = TCP,
        headers: Sequence[tuple[str, str | bytes]] = (),
        facts: Mapping[str, Sequence[bytes]] | None = None,
    ) -> None:
        self._peer = peer
        self._headers = headers
        self._facts = facts or {"transport_security_type": [b"insecure"]}

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return (("user-agent", "test"), *self._headers)

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        return self._facts


def context(
    *headers: str, peer: str = TCP, facts: Mapping[str, Sequence[bytes]] | None = None
) -> "grpc.aio.ServicerContext[Any, Any]":
    made = Peer(peer, [("authorization", header) for header in headers], facts)
    return cast("grpc.aio.ServicerContext[Any, Any]", made)


def bearer(caller: Caller) -> str:
    return f"Bearer {TOKENS[caller.name]}"


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name, token in TOKENS.items():
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def access(directory: Path, clock: Clock) -> Access:
    return Access([Identity(caller, directory / caller.name) for caller in (VIEWER, OPERATOR, ADMIN)], clock=clock)


def refusal(access: Access, method: str, peer: "grpc.aio.ServicerContext[Any, Any]") -> StepRailError:
    with pytest.raises((Unauthenticated, Denied)) as caught:
        access.admit(method, peer)
    return caught.value


def test_a_peer_on_the_socket_is_the_local_admin() -> None:
    assert Access().admit(DRAIN, context(peer=UNIX)) is LOCAL
    assert (LOCAL.tenant, LOCAL.is_admin) == ("default", True)


@pytest.mark.parametrize("peer", [TCP, "ipv6:[::1]:4711", "", "unknown", "xunix:"])
def test_a_peer_from_elsewhere_has_to_say_who_it_is(access: Access, peer: str) -> None:
    error = refusal(access, GET, context(peer=peer))

    assert (error.reason, error.message) == (
        "TOKEN_MISSING",
        "who calls is not known: accepted is authorization: Bearer TOKEN in the metadata",
    )


@pytest.mark.parametrize("caller", [VIEWER, OPERATOR, ADMIN], ids=lambda caller: caller.name)
def test_a_token_tells_who_calls(access: Access, caller: Caller) -> None:
    assert access.admit(GET, context(bearer(caller))) == caller


def test_the_scheme_may_be_written_in_any_case(access: Access) -> None:
    assert access.admit(GET, context(bearer(VIEWER).replace("Bearer", "bearer"))) == VIEWER


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", TOKENS["looker"], "Bearer wrong", f"{bearer(VIEWER)}x"]
)
@pytest.mark.parametrize("peer", [TCP, UNIX])
def test_a_wrong_token_is_refused_on_the_socket_too(access: Access, header: str, peer: str) -> None:
    error = refusal(access, GET, context(header, peer=peer))

    assert error.reason == "TOKEN_INVALID"
    assert TOKENS["looker"] not in error.message


def test_two_tokens_are_refused(access: Access) -> None:
    assert refusal(access, GET, context(bearer(VIEWER), bearer(ADMIN))).reason == "TOKEN_INVALID"


def test_a_token_on_the_socket_is_honoured(access: Access) -> None:
    assert access.admit(GET, context(bearer(VIEWER), peer=UNIX)) == VIEWER
    assert refusal(access, START, context(bearer(VIEWER), peer=UNIX)).reason == "FORBIDDEN"


@pytest.mark.parametrize(
    ("caller", "allowed"), [(VIEWER, {GET}), (OPERATOR, {GET, START}), (ADMIN, {GET, START, DRAIN})]
)
def test_each_role_may_what_it_may(access: Access, caller: Caller, allowed: set[str]) -> None:
    for method in (GET, START, DRAIN):
        if method in allowed:
            assert access.admit(method, context(bearer(caller))) == caller
        else:
            error = refusal(access, method, context(bearer(caller)))
            assert isinstance(error, Denied)
            assert error.reason == "FORBIDDEN"
            assert error.metadata["identity"] == caller.name


def test_a_refusal_says_which_role_is_needed(access: Access) -> None:
    error = refusal(access, DRAIN, context(bearer(OPERATOR)))

    assert error.message == "steprail.v1.AdminService.Drain needs the role admin; payments is operator"


def test_health_is_for_whoever_can_connect(access: Access) -> None:
    assert access.admit("grpc.health.v1.Health.Check", context()) is ANYBODY
    assert access.admit("grpc.health.v1.Health.Watch", context("Bearer wrong")) is ANYBODY
    assert not ANYBODY.sees("default")


def test_a_token_that_was_taken_out_is_refused_within_the_bound(access: Access, directory: Path, clock: Clock) -> None:
    (directory / "payments").write_text("another-token-altogether")
    clock.at += RECHECK_SECONDS / 2
    assert access.admit(GET, context(bearer(OPERATOR))) == OPERATOR

    clock.at += RECHECK_SECONDS
    assert refusal(access, GET, context(bearer(OPERATOR))).reason == "TOKEN_INVALID"
    assert access.admit(GET, context("Bearer another-token-altogether")) == OPERATOR


def test_identities_are_replaced_at_once(access: Access, directory: Path) -> None:
    promoted = Caller("looker", "acme", Role.ADMIN)
    access.replace([Identity(promoted, directory / "looker")])

    assert access.admit(DRAIN, context(bearer(promoted))) == promoted
    assert refusal(access, GET, context(bearer(OPERATOR))).reason == "TOKEN_INVALID"


def test_identities_that_cannot_be_used_change_nothing(access: Access, directory: Path) -> None:
    with pytest.raises(CredentialsUnusable, match=r"^identities.1.token_file: .*absent cannot be read"):
        access.replace([Identity(VIEWER, directory / "absent", key="identities.1")])

    assert access.admit(START, context(bearer(OPERATOR))) == OPERATOR


def test_two_identities_cannot_share_a_token(directory: Path) -> None:
    (directory / "looker").write_text(f"{TOKENS['root']}\n{TOKENS['looker']}")

    with pytest.raises(CredentialsUnusable, match="looker and root share a token; accepted: each token once"):
        Access([Identity(VIEWER, directory / "looker"), Identity(ADMIN, directory / "root")])


CERTIFIED = Access([Identity(OPERATOR, certificate="spiffe://acme/payments"), Identity(VIEWER, certificate="looker")])


@pytest.mark.parametrize(
    ("facts", "caller"),
    [
        ({"x509_subject_alternative_name": [b"other", b"spiffe://acme/payments"]}, OPERATOR),
        ({"x509_common_name": [b"looker"]}, VIEWER),
        ({"x509_common_name": [b"looker"], "x509_subject_alternative_name": [b"spiffe://acme/payments"]}, OPERATOR),
    ],
)
def test_the_name_in_a_certificate_tells_who_calls(facts: dict[str, list[bytes]], caller: Caller) -> None:
    assert CERTIFIED.admit(GET, context(facts=facts)) == caller


def test_a_common_name_does_not_count_beside_alternative_names() -> None:
    facts = {"x509_common_name": [b"looker"], "x509_subject_alternative_name": [b"stranger"]}
    error = refusal(CERTIFIED, GET, context(facts=facts))

    assert error.reason == "TOKEN_MISSING"
    assert error.message.endswith("; the client's certificate, of 'stranger', is of no identity")


def test_a_token_decides_where_there_is_a_certificate_too(directory: Path) -> None:
    access = Access([Identity(OPERATOR, certificate="payments"), Identity(VIEWER, directory / "looker")])
    facts = {"x509_common_name": [b"payments"]}

    assert access.admit(GET, context(facts=facts)) == OPERATOR
    assert access.admit(GET, context(bearer(VIEWER), facts=facts)) == VIEWER
    assert refusal(access, GET, context("Bearer wrong", facts=facts)).reason == "TOKEN_INVALID"

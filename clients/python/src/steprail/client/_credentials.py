"""By what a client proves who it is, and how it knows the daemon."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio

from steprail.errors import CredentialsUnusable

_FILE_VARIABLE = "STEPRAIL_TOKEN_FILE"
_ROOTS_VARIABLE = "STEPRAIL_TLS_ROOTS"
_CERTIFICATE_VARIABLE = "STEPRAIL_TLS_CERTIFICATE"
_KEY_VARIABLE = "STEPRAIL_TLS_KEY"
_SYSTEM = "system"
#: By `is_loopback` an IPv4-mapped IPv6 address is one in some versions of Python, and in others not.
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))

_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Tls:
    """How a connection over TCP is encrypted. Files are in PEM.

    `roots` are the certificates that the daemon's must lead to, None for those of this machine. `certificate` and `key`
    are the client's own, where the daemon asks for one. `server_name` is the name that the daemon's certificate must
    be of, where it is not the host of the address.
    """

    roots: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            CredentialsUnusable: one cannot be read, or `certificate` and `key` do not come together.
        """
        if (self.certificate is None) != (self.key is None):
            raise CredentialsUnusable("a client's certificate needs its key, and a key its certificate")
        roots, key, certificate = (
            None if path is None else _read(Path(path)) for path in (self.roots, self.key, self.certificate)
        )
        made: grpc.ChannelCredentials = grpc.ssl_channel_credentials(roots, key, certificate)
        return made


def tls_of_environment() -> Tls | None:
    """Give what $STEPRAIL_TLS_ROOTS, $STEPRAIL_TLS_CERTIFICATE and $STEPRAIL_TLS_KEY name; None if they name nothing.

    The roots `system` are those of this machine.
    """
    roots, certificate, key = (
        os.environ.get(name) or None for name in (_ROOTS_VARIABLE, _CERTIFICATE_VARIABLE, _KEY_VARIABLE)
    )
    if roots is certificate is key is None:
        return None
    return Tls(None if roots == _SYSTEM else roots, certificate, key)


class TokenFile:
    """The first token of a file, as it is now. Empty lines and those that begin with `#` are left out."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: _Stamp | None = None
        self._token = ""

    def __call__(self) -> str:
        """Give the token.

        Raises:
            CredentialsUnusable: the file cannot be read, or has none.
        """
        try:
            facts = self._path.stat()
        except OSError as error:
            raise CredentialsUnusable(f"the token file {self._path} cannot be read: {error.strerror}") from None
        stamp = facts.st_ino, facts.st_mtime_ns, facts.st_size
        if stamp != self._stamp:
            lines = (line.strip() for line in _read(self._path).decode("utf-8", "replace").splitlines())
            token = next((line for line in lines if line and not line.startswith("#")), "")
            if not token:
                raise CredentialsUnusable(f"the token file {self._path} has no token")
            self._stamp, self._token = stamp, _sendable(token, f"the token of {self._path}")
        return self._token


def token_source(token: str | None, token_file: str | Path | None) -> Callable[[], str] | None:
    """Give where the token comes from: what is given, else $STEPRAIL_TOKEN_FILE; None where there is neither.

    Raises:
        ValueError: both are given.
        CredentialsUnusable: the token that is given is none.
    """
    if token is not None and token_file is not None:
        raise ValueError("token and token_file are both given; accepted is one of them")
    if token is not None:
        given = _sendable(token, "the token")
        return lambda: given
    path = token_file or os.environ.get(_FILE_VARIABLE)
    return TokenFile(path) if path else None


def _sendable(token: str, what: str) -> str:
    """Give a token back that can be sent: gRPC drops a call with another one, and its caller waits for ever."""
    if not token or not all(" " <= char <= "~" for char in token):
        raise CredentialsUnusable(f"{what} cannot be sent; accepted are printable ASCII characters")
    return token


def require_private(address: str, *, encrypted: bool) -> None:
    """See that a token does not travel where others can read it.

    Raises:
        CredentialsUnusable: the address is beyond this machine, and the connection is not encrypted.
    """
    if not encrypted and not _stays_here(address):
        raise CredentialsUnusable(
            f"a token is not sent to {address} without TLS, where others could read it; name the roots of the daemon's"
            f" certificate with tls=Tls(roots=...) or ${_ROOTS_VARIABLE}"
        )


def _stays_here(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or any(ipaddress.ip_address(host) in network for network in _LOOPBACK)
    except ValueError:
        return False


class TokenChannel:
    """A channel whose every call carries a token, encrypted or not; gRPC's own call credentials need TLS."""

    def __init__(self, channel: grpc.aio.Channel, token: Callable[[], str]) -> None:
        self._channel = channel
        self._token = token

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.aio.Channel`."""
        return self._authorized(self._channel.unary_unary(*arguments, **options))

    def unary_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.aio.Channel`."""
        return self._authorized(self._channel.unary_stream(*arguments, **options))

    def stream_unary(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.aio.Channel`."""
        return self._authorized(self._channel.stream_unary(*arguments, **options))

    def stream_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.aio.Channel`."""
        return self._authorized(self._channel.stream_stream(*arguments, **options))

    async def close(self, grace: float | None = None) -> None:
        """See `grpc.aio.Channel`."""
        await self._channel.close(grace)

    def _authorized(self, call: Any) -> Callable[..., Any]:
        def authorized(*arguments: Any, metadata: Any = (), **options: Any) -> Any:
            header = ("authorization", f"Bearer {self._token()}")
            return call(*arguments, metadata=(*(metadata or ()), header), **options)

        return authorized


def with_token(channel: grpc.aio.Channel, token: Callable[[], str]) -> grpc.aio.Channel:
    """Give a channel whose every call carries a token."""
    return cast(grpc.aio.Channel, TokenChannel(channel, token))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsUnusable(f"{path} cannot be read: {error.strerror}") from None

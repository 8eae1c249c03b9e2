"""The files that TCP is encrypted with, as they are now.

gRPC asks for them before each handshake, so that a renewed certificate is used by the next connection; open ones go on
as they are. What was renewed by half, such as a certificate without its key, is not used.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

from steprail_daemon.service.tokens import CredentialsUnusable

#: How often the files are looked at, at most.
RECHECK_SECONDS: Final = 1.0

log: Final = logging.getLogger("steprail.access")


class TlsFiles:
    """A certificate, its key, and the roots of the clients' certificates; without those no client is asked for one.

    Raises:
        CredentialsUnusable: a file cannot be read, or the key is not that of the certificate.
    """

    def __init__(
        self, cert: Path, key: Path, client_ca: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths = {"cert": cert, "key": key}
        if client_ca is not None:
            self._paths["client_ca"] = client_ca
        self._clock = clock
        # gRPC asks on threads of its own.
        self._lock = threading.Lock()
        self._contents = self._read()
        self._recheck_at = clock() + RECHECK_SECONDS

    @property
    def asks_clients(self) -> bool:
        """Whether every client needs a certificate."""
        return "client_ca" in self._paths

    def credentials(self) -> grpc.ServerCredentials:
        """Give what a port is opened with."""
        credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            _configuration(self._contents), self._for_next_handshake, self.asks_clients
        )
        return credentials

    def refresh(self) -> bool:
        """Read the files again; gives whether they changed. Of files that cannot be used the last contents are kept.

        Raises:
            CredentialsUnusable: they cannot be used.
        """
        with self._lock:
            contents = self._read()
            changed = contents != self._contents
            self._contents = contents
        return changed

    def _for_next_handshake(self) -> grpc.ServerCertificateConfiguration:
        now = self._clock()
        if now >= self._recheck_at:
            self._recheck_at = now + RECHECK_SECONDS
            try:
                if self.refresh():
                    log.info("server.tls: %s read again", ", ".join(map(str, self._paths.values())))
            except CredentialsUnusable as error:
                log.error("%s; what was read last stays in use", error)
        return _configuration(self._contents)

    def _read(self) -> dict[str, bytes]:
        contents = self._read_files()
        self._check(contents)
        # The pair is checked by its paths, so that what was checked is this only if nothing changed meanwhile.
        if self._read_files() != contents:
            raise CredentialsUnusable(f"server.tls: {', '.join(map(str, self._paths.values()))} changed while read")
        return contents

    def _read_files(self) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        for name, path in self._paths.items():
            try:
                contents[name] = path.read_bytes()
            except OSError as error:
                raise CredentialsUnusable(f"server.tls.{name}: {path} cannot be read: {error.strerror}") from None
        return contents

    def _check(self, contents: dict[str, bytes]) -> None:
        """See that gRPC, which says nothing about it before a client fails, can use them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cert, key = self._paths["cert"], self._paths["key"]
        try:
            context.load_cert_chain(cert, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise CredentialsUnusable(
                f"server.tls: {cert} and {key} are no certificate with its key: {_words(error)}; accepted: PEM, the key"
                " without a password"
            ) from None
        if "client_ca" in contents:
            try:
                context.load_verify_locations(cadata=contents["client_ca"].decode("ascii"))
            except (ssl.SSLError, ValueError) as error:
                raise CredentialsUnusable(
                    f"server.tls.client_ca: {self._paths['client_ca']} has no certificates: {_words(error)}; accepted:"
                    " PEM"
                ) from None


def _configuration(contents: dict[str, bytes]) -> grpc.ServerCertificateConfiguration:
    made: grpc.ServerCertificateConfiguration = grpc.ssl_server_certificate_configuration(
        [(contents["key"], contents["cert"])], contents.get("client_ca")
    )
    return made


def _no_password() -> str:
    raise ValueError("the key has a password")


def _words(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()

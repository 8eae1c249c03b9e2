"""Who is let in over what: the identities and certificates of the configuration as what the service wants."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from steprail_daemon.config.schema import Config
from steprail_daemon.engine.facade import Caller, Role
from steprail_daemon.reload import Part
from steprail_daemon.service.auth import Access, Identity
from steprail_daemon.service.tls import TlsFiles


class Entrance(NamedTuple):
    """Who is let in, and what TCP is encrypted with; None if it is not."""

    access: Access
    tls: TlsFiles | None

    def parts(self) -> list[Part]:
        """Give what a reload takes up."""
        return [Part("identities.", self._take_up_identities), Part("", self._take_up_certificates)]

    def _take_up_identities(self, config: Config) -> str:
        self.access.replace(identities(config))
        return f"{len(config.identities)} identities and their tokens"

    def _take_up_certificates(self, _: Config) -> str:
        if self.tls is None:
            return "no certificates, TCP is not encrypted"
        return "certificates, for new connections" if self.tls.refresh() else "certificates, unchanged"


def open_entrance(config: Config) -> Entrance:
    """Read the files of tokens and certificates.

    Raises:
        ValueError: one cannot be used.
    """
    return Entrance(Access(identities(config)), tls_files(config))


def identities(config: Config) -> list[Identity]:
    """Give the identities of the configuration."""
    return [
        Identity(
            Caller(entry.name, entry.tenant, Role[entry.role.upper()], dict(entry.labels)),
            Path(entry.token_file).absolute() if entry.token_file else None,
            entry.certificate,
            f"identities.{number}",
        )
        for number, entry in enumerate(config.identities, 1)
    ]


def tls_files(config: Config) -> TlsFiles | None:
    """Read the files of `server.tls`; None if none are named.

    Raises:
        ValueError: they cannot be used.
    """
    tls = config.server.tls
    if not tls.cert:
        return None
    client_ca = Path(tls.client_ca).absolute() if tls.client_ca else None
    return TlsFiles(Path(tls.cert).absolute(), Path(tls.key).absolute(), client_ca)

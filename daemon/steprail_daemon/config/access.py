"""What is wrong between the keys that say who may connect: `server.listen`, `server.tls` and `identities`."""

from __future__ import annotations

from steprail_daemon.config import values
from steprail_daemon.config.schema import Config

#: Who calls over a Unix socket without a token; see `engine.facade.LOCAL`.
LOCAL_NAME = "local"


def conflicts(config: Config) -> list[tuple[str, str]]:
    """Give what is wrong between the keys that say who may connect."""
    server, tls = config.server, config.server.tls
    found: list[tuple[str, str]] = []
    for one, other in (("cert", "key"), ("key", "cert"), ("client_ca", "cert")):
        if getattr(tls, one) and not getattr(tls, other):
            found.append((f"server.tls.{one}", f"it is set and server.tls.{other} is empty; accepted: both"))
    by_token = any(identity.token_file for identity in config.identities)
    by_certificate = bool(tls.client_ca) and any(identity.certificate for identity in config.identities)
    for address in server.listen:
        if address.startswith("unix:"):
            continue
        if not by_token and not by_certificate:
            found.append(
                (
                    "server.listen",
                    f"{address} is TCP, over which no identity can prove itself; accepted: [[identities]] with a "
                    "token_file, or with a certificate and server.tls.client_ca set",
                )
            )
        if values.beyond_loopback(address) and not tls.cert:
            found.append(
                (
                    "server.listen",
                    f"{address} can be reached from other machines and server.tls.cert is empty, so that tokens and "
                    "prompts could be read on the way; accepted: server.tls.cert and server.tls.key, or an address of "
                    "loopback such as 127.0.0.1:7443",
                )
            )
    return found + _identity_conflicts(config)


def _identity_conflicts(config: Config) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    names: dict[str, int] = {}
    certificates: dict[str, int] = {}
    for number, identity in enumerate(config.identities, 1):
        path = f"identities.{number}"
        if names.setdefault(identity.name, number) != number:
            found.append((f"{path}.name", f"identities.{names[identity.name]} has this name too; accepted: each once"))
        if identity.name == LOCAL_NAME:
            found.append((f"{path}.name", f"{LOCAL_NAME} is who calls over a Unix socket; accepted: another name"))
        if not identity.token_file and not identity.certificate:
            found.append((f"{path}.token_file", "it is empty, as is certificate; accepted: at least one of them"))
        if identity.certificate:
            other = certificates.setdefault(identity.certificate, number)
            if other != number:
                found.append((f"{path}.certificate", f"identities.{other} has this one too; accepted: each once"))
            if not config.server.tls.client_ca:
                message = "it is set and server.tls.client_ca is empty, so that no client is asked for a certificate"
                found.append((f"{path}.certificate", f"{message}; accepted: server.tls.client_ca too"))
    return found

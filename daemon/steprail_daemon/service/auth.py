"""Who calls, and whether they may: tokens, names in certificates, the Unix socket, and the roles of calls.

A bearer token decides, whichever way it came. Without one, a peer on a Unix socket is the user who runs the daemon,
since nobody else can open the socket; over TCP the name in the client's certificate decides. Whoever is none of these
is refused before anything of the request is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc.aio
import msgspec

from steprail_daemon.core.errors import Denied, Unauthenticated
from steprail_daemon.engine.facade import LOCAL, Caller
from steprail_daemon.service.roles import EVERYBODY, ROLES
from steprail_daemon.service.tokens import CredentialsUnusable, TokenFile, digest

#: How often files of tokens are looked at, at most: what was taken out of one is refused within this time.
RECHECK_SECONDS: Final = 1.0

#: Who calls what is for everybody. Nothing is of its tenant.
ANYBODY: Final = Caller("", "")

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Identity(msgspec.Struct, frozen=True):
    """Somebody who may call, and by what they prove it: tokens, the name in a certificate, or either.

    `key` is where the configuration has it.
    """

    caller: Caller
    token_file: Path | None = None
    certificate: str = ""
    key: str = "identities"


class Access:
    """Lets calls in. Without identities only the Unix socket does.

    Raises:
        CredentialsUnusable: a file of tokens cannot be used, or two identities share a token.
    """

    def __init__(self, identities: Sequence[Identity] = (), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.replace(identities)

    def replace(self, identities: Sequence[Identity]) -> None:
        """Let these identities in from now on, with the tokens that their files have now; or change nothing.

        Raises:
            CredentialsUnusable: a file of tokens cannot be used, or two identities share a token.
        """
        tokens = [
            (TokenFile(identity.token_file, f"{identity.key}.token_file"), identity.caller)
            for identity in identities
            if identity.token_file is not None
        ]
        for (one, first), (other, second) in combinations(tokens, 2):
            if one.shares(other):
                raise CredentialsUnusable(
                    f"identities: {first.name} and {second.name} share a token; accepted: each token once"
                )
        self._tokens = tokens
        self._certificates = {identity.certificate: identity.caller for identity in identities if identity.certificate}
        self._recheck_at = self._clock() + RECHECK_SECONDS

    @property
    def names(self) -> set[str]:
        """Who is let in."""
        return {caller.name for _, caller in self._tokens} | {one.name for one in self._certificates.values()}

    @property
    def by_token(self) -> bool:
        """Whether anybody can prove themselves by a token."""
        return bool(self._tokens)

    @property
    def by_certificate(self) -> bool:
        """Whether anybody can prove themselves by a certificate."""
        return bool(self._certificates)

    def admit(self, method: str, context: _Context) -> Caller:
        """Give who calls; `method` is the call's full name.

        Raises:
            Unauthenticated: TOKEN_MISSING, TOKEN_INVALID.
            Denied: FORBIDDEN.
        """
        least = ROLES[method]
        if least is EVERYBODY:
            return ANYBODY
        caller = self.authenticate(context)
        if caller.role < least:
            raise Denied(
                "FORBIDDEN",
                f"{method} needs the role {least.name.lower()}; {caller.name} is {caller.role.name.lower()}",
                role=least.name.lower(),
                identity=caller.name,
            )
        return caller

    def authenticate(self, context: _Context) -> Caller:
        """Give who calls.

        Raises:
            Unauthenticated: TOKEN_MISSING, TOKEN_INVALID.
        """
        headers = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        if headers:
            return self._by_token(_bearer(headers))
        if context.peer().startswith("unix:"):
            return LOCAL
        names = _certificate_names(context)
        found = next((self._certificates[name] for name in names if name in self._certificates), None)
        if found is None:
            held = f"; the client's certificate, of {names[0]!r}, is of no identity" if names else ""
            accepted = "accepted is authorization: Bearer TOKEN in the metadata"
            raise Unauthenticated("TOKEN_MISSING", f"who calls is not known: {accepted}{held}")
        return found

    def _by_token(self, token: str) -> Caller:
        now = self._clock()
        if now >= self._recheck_at:
            self._recheck_at = now + RECHECK_SECONDS
            for file, _ in self._tokens:
                file.refresh()
        token_digest = digest(token)
        found: Caller | None = None
        for file, caller in self._tokens:
            # All are asked, so that the time does not tell which file has it.
            if file.holds(token_digest) and found is None:
                found = caller
        if found is None:
            raise Unauthenticated("TOKEN_INVALID", "the token is of no identity, or not any more")
        return found


def _bearer(headers: Sequence[str | bytes]) -> str:
    """Give the token of the `authorization` metadata."""
    scheme, _, token = str(headers[0]).partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("TOKEN_INVALID", "authorization is not understood; accepted is Bearer TOKEN, once")
    return token.strip()


def _certificate_names(context: _Context) -> list[str]:
    """Give the names that the client's certificate vouches for, which the handshake has checked against its roots.

    The common name counts only where there is no subject alternative name, as RFC 6125 (section 6.4.4) has it.
    """
    facts = context.auth_context()
    found: Iterable[bytes] = facts.get("x509_subject_alternative_name") or facts.get("x509_common_name") or ()
    return [name.decode("utf-8", "replace") for name in found]

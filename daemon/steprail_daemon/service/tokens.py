"""Files of bearer tokens, as they are now.

A token is a line of its own; empty lines and those that begin with `#` are left out. Several lines are several valid
tokens: a new one is added, handed out, and the old one removed. Only hashes are kept, and no message shows a token.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from pathlib import Path
from typing import Final

#: What RFC 6750 lets a bearer token be (b64token), with bounds of ours.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,4096}=*")
ACCEPTED: Final = "16 to 4096 letters, digits and . _ ~ + / - =, one token a line"
_MAX_BYTES: Final = 1024 * 1024

log: Final = logging.getLogger("steprail.access")

_Stamp = tuple[int, int, int, int]


class CredentialsUnusable(ValueError):
    """A file of tokens or certificates cannot be used; the text names the key, the file, and what is wrong."""


def digest(token: str) -> bytes:
    """Give what is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


class TokenFile:
    """The tokens of one file. `key` is where the configuration names it.

    Raises:
        CredentialsUnusable: there is no file, it cannot be read, or it holds no token or what is none.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key
        self._stamp = _stamp(path)
        self._digests = self._read()
        if not self._digests:
            raise CredentialsUnusable(f"{key}: {path} holds no token; accepted: {ACCEPTED}")

    def holds(self, token_digest: bytes) -> bool:
        """Whether a token with this hash is in the file, in a time that does not tell how near it was to one."""
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, token_digest)
        return found

    def shares(self, other: TokenFile) -> bool:
        """Whether a token is in both files."""
        return not set(self._digests).isdisjoint(other._digests)

    def refresh(self) -> None:
        """Read the file again if it changed. One that is gone holds no tokens; of an unusable one the last are kept."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if stamp is None:
            self._digests = ()
            log.warning("%s: %s is gone, and its tokens with it", self._key, self._path)
            return
        try:
            self._digests = self._read()
        except CredentialsUnusable as error:
            log.error("%s; the tokens that were read last stay valid", error)
            return
        log.info("%s: %d tokens read from %s", self._key, len(self._digests), self._path)

    def _read(self) -> tuple[bytes, ...]:
        place = f"{self._key}: {self._path}"
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise CredentialsUnusable(f"{place} cannot be read: {error.strerror}") from None
        if len(content) > _MAX_BYTES:
            raise CredentialsUnusable(f"{place} is larger than {_MAX_BYTES} bytes")
        if mode & stat.S_IWOTH:
            raise CredentialsUnusable(f"{place} can be written by every user; accepted: a mode such as 0600")
        if mode & stat.S_IROTH:
            log.warning("%s can be read by every user of this machine; better is a mode such as 0600", place)
        digests: list[bytes] = []
        for number, line in enumerate(content.split(b"\n"), 1):
            text = line.strip().decode("utf-8", "replace")
            if not text or text.startswith("#"):
                continue
            if not _TOKEN.fullmatch(text):
                raise CredentialsUnusable(f"{place}:{number} is no token; accepted: {ACCEPTED}")
            digests.append(digest(text))
        return tuple(digests)


def _stamp(path: Path) -> _Stamp | None:
    """Give what changes with the file; None if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size

"""Certificates for tests, made when they run by the `openssl` program and gone with the test's directory."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 30.0
_NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A root, and the certificates that it gives."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._own = _make(directory, name, f"/CN={name}")

    @property
    def roots(self) -> Path:
        """The certificate that those given lead to."""
        return self._own.cert

    def give(self, name: str, *alternative_names: str) -> Pair:
        """Make a certificate with a common name and alternative ones, such as `DNS:localhost`."""
        names = ("-addext", f"subjectAltName={','.join(alternative_names)}") if alternative_names else ()
        signed = ("-CA", str(self._own.cert), "-CAkey", str(self._own.key))
        leaf = ("-addext", "basicConstraints=critical,CA:FALSE")
        return _make(self._directory, f"{self._name}-{name}", f"/CN={name}", *signed, *leaf, *names)


def _make(directory: Path, file: str, subject: str, *more: str) -> Pair:
    pair = Pair(directory / f"{file}.pem", directory / f"{file}.key")
    command = ["openssl", *_NEW, "-subj", subject, "-keyout", str(pair.key), "-out", str(pair.cert), *more]
    subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
    return pair

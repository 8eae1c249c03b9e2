"""By what the client proves who it is, and how it keeps that to itself."""

import os
from pathlib import Path

import pytest

from steprail import errors
from steprail.client import Tls
from steprail.client._credentials import TokenFile, require_private, tls_of_environment, token_source

VARIABLES = ("STEPRAIL_TOKEN_FILE", "STEPRAIL_TLS_ROOTS", "STEPRAIL_TLS_CERTIFICATE", "STEPRAIL_TLS_KEY")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_what_is_given_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("given", "named"):
        (tmp_path / name).write_text(f"token of the {name} file")
    assert token_source(None, None) is None

    monkeypatch.setenv("STEPRAIL_TOKEN_FILE", str(tmp_path / "named"))

    sources = token_source(None, None), token_source(None, tmp_path / "given"), token_source("token", None)
    assert [source() for source in sources if source is not None] == [
        "token of the named file",
        "token of the given file",
        "token",
    ]


def test_the_first_token_of_a_file_counts_and_changes_are_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("\n# comment\n first \nsecond\n")
    token = TokenFile(path)
    assert token() == "first"

    path.write_text("second\n")
    os.utime(path, ns=(1, 1))

    assert token() == "second"


def test_a_file_without_a_token_is_an_error_until_it_has_one(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# none yet\n")
    token = TokenFile(path)
    for _ in range(2):
        with pytest.raises(errors.CredentialsUnusable, match="has no token"):
            token()

    path.write_text("token\n")

    assert token() == "token"


@pytest.mark.parametrize("token", ["caf\u00e9", "a\0b", ""])
def test_a_token_that_cannot_be_sent_is_an_error_and_no_call_that_hangs(token: str, tmp_path: Path) -> None:
    with pytest.raises(errors.CredentialsUnusable, match="the token cannot be sent; accepted are printable ASCII"):
        token_source(token, None)
    path = tmp_path / "tokens"
    path.write_text(f"{token}\n")
    with pytest.raises(errors.CredentialsUnusable, match=r"cannot be sent|has no token"):
        TokenFile(path)()


def test_the_environment_says_how_tcp_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tls_of_environment() is None

    monkeypatch.setenv("STEPRAIL_TLS_ROOTS", "system")
    assert tls_of_environment() == Tls()
    monkeypatch.setenv("STEPRAIL_TLS_ROOTS", "ca.pem")
    monkeypatch.setenv("STEPRAIL_TLS_CERTIFICATE", "own.pem")
    monkeypatch.setenv("STEPRAIL_TLS_KEY", "own.key")
    assert tls_of_environment() == Tls("ca.pem", "own.pem", "own.key")


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("unix:/run/x.sock", True),
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("127.9.9.9:1", True),
        ("[::ffff:127.0.0.1]:1", False),
        ("localhost:1", True),
        ("10.0.0.1:1", False),
        ("localhost.example:1", False),
        ("0.0.0.0:1", False),
        ("dns:///localhost:1", False),
    ],
)
def test_a_token_travels_only_where_nobody_else_reads(address: str, private: bool) -> None:
    require_private(address, encrypted=True)
    if private:
        require_private(address, encrypted=False)
    else:
        with pytest.raises(errors.CredentialsUnusable, match="without TLS"):
            require_private(address, encrypted=False)

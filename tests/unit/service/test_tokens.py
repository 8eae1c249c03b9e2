"""Files of tokens: what is read, what is refused, and what becomes of changes."""

import os
from pathlib import Path

import pytest

from steprail_daemon.service.tokens import CredentialsUnusable, TokenFile, digest

ONE, TWO = "token-number-one-1", "token-number-two-2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    """Replace a file as a careful program does: whole."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)
    return path


def holds(file: TokenFile) -> tuple[bool, bool]:
    return file.holds(digest(ONE)), file.holds(digest(TWO))


def test_each_line_is_a_token_and_comments_and_empty_lines_are_none(path: Path) -> None:
    file = TokenFile(written(path, f"# {TWO}\n\n  {ONE}\t\r\n"), "k")

    assert holds(file) == (True, False)
    assert not file.holds(digest(f"# {TWO}"))
    assert not file.holds(digest(""))


def test_several_lines_are_several_valid_tokens(path: Path) -> None:
    assert holds(TokenFile(written(path, f"{ONE}\n{TWO}\n"), "k")) == (True, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no token; accepted: 16 to 4096 letters"),
        ("# none\n", "holds no token"),
        (f"{ONE}\nshort\n", ":2 is no token; accepted: 16 to 4096 letters, digits and . _ ~ + / - =, one token a line"),
        (f"{ONE} {TWO}\n", ":1 is no token"),
        ("\u00fc" * 20, ":1 is no token"),
        ("a" * 5000, ":1 is no token"),
        ("a" * 2_000_000, "is larger than 1048576 bytes"),
    ],
)
def test_what_is_no_token_is_refused_with_its_place_and_never_shown(path: Path, text: str, said: str) -> None:
    with pytest.raises(CredentialsUnusable) as caught:
        TokenFile(written(path, text), "identities.1.token_file")

    assert str(caught.value).startswith(f"identities.1.token_file: {path}")
    assert said in str(caught.value)
    assert ONE not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(CredentialsUnusable, match=r"^k: .*tokens cannot be read: No such file or directory$"):
        TokenFile(path, "k")


def test_a_file_that_every_user_may_write_is_refused(path: Path) -> None:
    with pytest.raises(CredentialsUnusable, match="can be written by every user; accepted: a mode such as 0600"):
        TokenFile(written(path, ONE, 0o666), "k")


def test_a_file_that_every_user_may_read_is_warned_about(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    TokenFile(written(path, ONE, 0o644), "k")

    assert "can be read by every user of this machine" in caplog.text


def test_a_change_is_taken_up(path: Path) -> None:
    file = TokenFile(written(path, ONE), "k")

    written(path, f"{ONE}\n{TWO}")
    assert holds(file) == (True, False)
    file.refresh()
    assert holds(file) == (True, True)
    written(path, TWO)
    file.refresh()
    assert holds(file) == (False, True)


def test_a_file_written_in_place_is_taken_up(path: Path) -> None:
    file = TokenFile(written(path, ONE), "k")
    path.write_text(TWO)
    os.utime(path, ns=(1, 1))

    file.refresh()

    assert holds(file) == (False, True)


def test_a_file_that_is_gone_takes_its_tokens_with_it(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TokenFile(written(path, ONE), "k")
    path.unlink()

    file.refresh()
    assert holds(file) == (False, False)
    assert "is gone, and its tokens with it" in caplog.text

    written(path, ONE)
    file.refresh()
    assert holds(file) == (True, False)


def test_an_emptied_file_has_no_tokens(path: Path) -> None:
    file = TokenFile(written(path, ONE), "k")
    written(path, "")

    file.refresh()

    assert holds(file) == (False, False)


def test_of_a_file_that_became_unusable_the_last_tokens_stay_valid(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = TokenFile(written(path, ONE), "k")
    written(path, f"{TWO}\nhalf a li")

    file.refresh()

    assert holds(file) == (True, False)
    assert ":2 is no token" in caplog.text
    assert "the tokens that were read last stay valid" in caplog.text
    assert TWO not in caplog.text

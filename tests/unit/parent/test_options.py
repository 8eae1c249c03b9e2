"""The parent's command line."""

from __future__ import annotations

import pytest

from steprail_daemon.parent.options import UsageError, read_options


def test_everything_before_the_two_dashes_is_the_parent_s_and_the_rest_the_worker_s() -> None:
    options = read_options(
        [
            "--instance=a-1",
            "--lock",
            "/l",
            "--grace",
            "9",
            "--backoff",
            "1:2",
            "--log-format",
            "console",
            "--",
            "w",
            "--",
            "x",
        ]
    )
    assert (options.instance, options.lock, options.grace, options.log_json) == ("a-1", "/l", 9.0, False)
    assert (options.backoff_first, options.backoff_longest) == (1.0, 2.0)
    assert options.worker == ["w", "--", "x"]


def test_defaults_are_those_of_the_configuration() -> None:
    options = read_options(["--instance", "a", "--", "w"])
    assert (options.grace, options.backoff_first, options.backoff_longest) == (90.0, 0.5, 30.0)
    assert options.log_json


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--what", "x"], "--what is unknown, expected one of --instance, --lock"),
        (["--instance"], "--instance has no value"),
        (["--instance", "--", "w"], "--instance has no value"),
        (["--instance", "a/b", "--", "w"], "--instance is 'a/b', expected 1 to 64 letters"),
        (["--backoff", "3:2"], "--backoff is '3:2', expected the first pause to be no longer than the longest"),
        (["--backoff", "3"], "--backoff has '', expected seconds, 0 or more"),
        (["--grace", "-1"], "--grace has '-1', expected seconds, 0 or more"),
        (["--grace", "nan"], "--grace has 'nan', expected seconds, 0 or more"),
        (["--log-format", "xml"], "--log-format is 'xml', expected json or console"),
        (["--", "w"], "--instance is missing"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        read_options(arguments)

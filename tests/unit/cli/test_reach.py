"""Why nothing listens, where no test can make it so for every user."""

import pytest

from steprail_daemon.cli.reach import Silence, why_not_open


@pytest.mark.parametrize(
    ("error", "silence"),
    [
        (PermissionError(13, "Permission denied"), "this user may not open the socket, or not look into its directory"),
        (OSError(24, "Too many open files"), "Too many open files"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_is_in_the_way_is_said_and_no_daemon_is_started_there(error: OSError, silence: str) -> None:
    assert why_not_open("/nowhere", error) == Silence(silence, vacant=False)

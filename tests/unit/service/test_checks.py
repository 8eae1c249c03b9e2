"""What every request's fields have in common."""

from __future__ import annotations

import pytest

from steprail_daemon.core.errors import Invalid
from steprail_daemon.service import checks


@pytest.mark.parametrize("value", ["a\0b", "a\nb", "\x7f"])
def test_what_goes_into_a_command_line_has_no_control_characters(value: str) -> None:
    with pytest.raises(Invalid, match="control character"):
        checks.printable("model", value, 256)
    assert checks.printable("model", "claude-opus-5-5[1m]", 256) == "claude-opus-5-5[1m]"

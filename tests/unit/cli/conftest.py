"""What several tests of the command line use."""

import os
import pty
from collections.abc import Iterator

import pytest
from tests.unit.cli.screen import Screen


@pytest.fixture
def screen() -> Iterator[Screen]:
    """A terminal."""
    master, slave = pty.openpty()
    yield Screen(master, slave)
    os.close(master)
    os.close(slave)

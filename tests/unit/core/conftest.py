"""Tells how often the interleavings used each row of the transition table."""

from __future__ import annotations

import pytest
from tests.unit.core.conversations import hits


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per state: its events, and how often each of them came there."""
    if not hits:
        return
    terminalreporter.section("rows of the run's table, and how often interleavings used them")
    for state in sorted({state for state, _ in hits}):
        counts = [f"{event.__name__} {count}" for (of, event), count in hits.most_common() if of is state]
        terminalreporter.write_line(f"{state.name}: {', '.join(counts)}")

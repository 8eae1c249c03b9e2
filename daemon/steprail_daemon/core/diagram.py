"""Draws the transition table, for people: as text, and as a Mermaid state diagram. Both come from the table alone."""

from __future__ import annotations

from collections.abc import Mapping

from steprail_daemon.core.model import TERMINAL_STATES, RunState
from steprail_daemon.core.table import TABLE, Row

Table = Mapping[tuple[RunState, type], Row]


def as_text(table: Table = TABLE) -> str:
    """Give one line per row, in the table's order: state, event, states afterwards. REFUSED: the event is an error."""
    lines = [f"{state.name:<20} {event.__name__:<20} -> {_afterwards(row)}" for (state, event), row in table.items()]
    return "\n".join(lines) + "\n"


def _afterwards(row: Row) -> str:
    return " | ".join(state.name for state in row.to) or "REFUSED"


def as_mermaid(table: Table = TABLE) -> str:
    """Give a state diagram with one arrow per pair of different states, labelled with the events that can take it."""
    arrows: dict[tuple[RunState, RunState], list[str]] = {}
    for (state, event), row in table.items():
        for after in row.to:
            if after is not state:
                arrows.setdefault((state, after), []).append(event.__name__)
    lines = ["stateDiagram-v2", f"    [*] --> {RunState.QUEUED.name}"]
    lines += [f"    {a.name} --> {b.name}: {', '.join(events)}" for (a, b), events in arrows.items()]
    lines += [f"    {state.name} --> [*]" for state in sorted(TERMINAL_STATES)]
    return "\n".join(lines) + "\n"

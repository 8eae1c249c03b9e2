"""Draws the transition table, for people: as text, and as a Mermaid state diagram. Both come from the table alone.

`python -m steprail_daemon.core.diagram >docs/run-states.md` writes the page that has both.
"""

from __future__ import annotations

from collections.abc import Mapping

from steprail_daemon.core.model import TERMINAL_STATES, RunState
from steprail_daemon.core.table import TABLE, Row

_PAGE = """\
# The states of a run

Drawn from the transition table (`daemon/steprail_daemon/core/table.py`), whose docstring tells what the events mean;
not edited by hand.

```mermaid
{diagram}```

Every pair of a state and an event that the daemon takes, and the states that the run may be in afterwards. REFUSED
answers whoever asked with an error and changes nothing. A pair that is not here is a bug of the daemon.

```text
{rows}```
"""

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


def page(table: Table = TABLE) -> str:
    """Give the page of the documentation, in Markdown."""
    return _PAGE.format(diagram=as_mermaid(table), rows=as_text(table))


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - for the shell, which puts it into the file

"""The transition table against the conversations: every row is used, and no row could be missing unnoticed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import get_args

import pytest
from tests.unit.core import (
    conversations,
    test_run_aborting,
    test_run_asking,
    test_run_awaiting_decision,
    test_run_deciding,
    test_run_ended,
    test_run_expressions,
    test_run_inexact,
    test_run_queued,
    test_run_running,
    test_run_steering,
    test_run_stopping,
    test_run_usage,
)

from steprail_daemon.core import events
from steprail_daemon.core.diagram import as_mermaid, as_text
from steprail_daemon.core.errors import IllegalTransition
from steprail_daemon.core.model import TERMINAL_STATES, RunState
from steprail_daemon.core.run import HANDLERS
from steprail_daemon.core.table import TABLE, Row

Talk = Callable[[], None]

MODULES: tuple[ModuleType, ...] = (
    test_run_queued,
    test_run_running,
    test_run_asking,
    test_run_expressions,
    test_run_awaiting_decision,
    test_run_deciding,
    test_run_steering,
    test_run_stopping,
    test_run_inexact,
    test_run_aborting,
    test_run_ended,
    test_run_usage,
)


def talks() -> Iterator[Talk]:
    for module in MODULES:
        for name, talk in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and not inspect.signature(talk).parameters:
                yield talk


@cache
def visits() -> dict[tuple[RunState, type, RunState], list[Talk]]:
    """Which conversations used a row, by the state that it led to."""
    found: dict[tuple[RunState, type, RunState], list[Talk]] = {}
    for talk in talks():
        conversations.opened.clear()
        talk()
        for visit in set().union(*(play.visited for play in conversations.opened)):
            found.setdefault(visit, []).append(talk)
    return found


def test_every_row_leads_in_some_conversation_to_each_state_it_names_and_to_no_other() -> None:
    declared = {(*pair, after) for pair, row in TABLE.items() for after in row.to or (pair[0],)}
    assert set(visits()) == declared


@pytest.mark.parametrize(("pair", "row"), TABLE.items(), ids=[f"{s.name}-{e.__name__}" for s, e in TABLE])
def test_a_row_that_is_missing_is_noticed(
    pair: tuple[RunState, type], row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [talk for after in row.to or (pair[0],) for talk in visits()[*pair, after]]
    monkeypatch.delitem(HANDLERS, pair)
    for talk in users:
        with pytest.raises(IllegalTransition):
            talk()


def test_every_row_names_a_handler_and_every_handler_has_a_row() -> None:
    assert {pair: handler.__name__ for pair, handler in HANDLERS.items()} == {
        pair: row.handler for pair, row in TABLE.items()
    }


def test_an_agent_can_say_anything_in_any_state() -> None:
    said_by_agents = set(get_args(events.RunEvent)) & set(get_args(events.AgentEvent))
    assert len(said_by_agents) == 8
    gaps = {(state, event) for state in RunState for event in said_by_agents if (state, event) not in TABLE}
    assert gaps == set()


def test_a_terminal_state_is_never_left() -> None:
    assert {
        (pair, row.to) for pair, row in TABLE.items() if pair[0] in TERMINAL_STATES and set(row.to) - {pair[0]}
    } == set()


def test_every_live_state_can_end() -> None:
    ends = {pair[0] for pair, row in TABLE.items() if set(row.to) & TERMINAL_STATES}
    assert set(RunState) - TERMINAL_STATES <= ends


def test_the_text_has_a_line_per_row() -> None:
    text = as_text()
    assert len(text.splitlines()) == len(TABLE)
    assert "STOPPING             TurnEnded            -> COMPLETED | STOPPED | FAILED\n" in text
    assert "QUEUED               DecisionSubmitted    -> REFUSED\n" in text


def test_the_diagram_shows_every_change_of_state_once() -> None:
    lines = as_mermaid().splitlines()
    assert lines[:3] == ["stateDiagram-v2", "    [*] --> QUEUED", "    QUEUED --> RUNNING: PromptConfirmed"]
    assert (
        "    AWAITING_DECISION --> STOPPING: StopRequested, DecisionSubmitted, DrainWindowEnding, TimerFired" in lines
    )
    assert lines[-4:] == [f"    {name} --> [*]" for name in ("COMPLETED", "STOPPED", "ABORTED", "FAILED")]
    assert len(lines) == len(set(lines))

"""Whose turn it is in a session, and when its queue waits for somebody's word."""

import pytest
from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT_PLEASE,
    COMPLETED_TURN,
    FAILED_TURN,
    STOP_PLEASE,
    STOPPED_TURN,
    aborting,
    queued,
    running,
    stopping,
)
from tests.unit.core.test_replay import CREATED

from steprail_daemon.core.queue import after_run, next_run, release
from steprail_daemon.core.records import QueueHeld
from steprail_daemon.core.replay import open_session
from steprail_daemon.core.views import SessionView
from steprail_daemon.testing.playbook import Playbook

STOPPED = stopping().hears(STOPPED_TURN)
FAILED = running().hears(FAILED_TURN)
COMPLETED = running().hears(COMPLETED_TURN)
ABORTED = aborting().hears(ABORT_PLEASE).hears(replace(STOPPED_TURN))


def session(*waiting: str, active: str = "", held: bool = False) -> SessionView:
    view = open_session(CREATED)
    view.queued_run_ids, view.active_run_id, view.queue_held = list(waiting), active, held
    return view


def test_the_first_run_that_waits_is_next_unless_one_is_live_or_the_queue_is_held() -> None:
    assert next_run(session("run_2", "run_3")) == "run_2"
    assert next_run(session("run_2", active="run_1")) == ""
    assert next_run(session("run_2", held=True)) == ""
    assert next_run(session()) == ""


@pytest.mark.parametrize(
    ("ended", "held"), [(COMPLETED, None), (ABORTED, None), (STOPPED, QueueHeld(True)), (FAILED, QueueHeld(True))]
)
def test_the_queue_is_held_behind_a_run_that_was_stopped_or_failed(ended: Playbook, held: QueueHeld | None) -> None:
    assert after_run(session("run_2"), ended.run.view) == held


def test_an_empty_queue_is_not_held() -> None:
    assert after_run(session(), STOPPED.run.view) is None


def test_a_run_that_ends_before_its_turn_holds_nobody_up() -> None:
    assert after_run(session("run_2"), queued().hears(STOP_PLEASE).run.view) is None


def test_a_held_queue_goes_on_when_somebody_says_so_or_nothing_waits_any_more() -> None:
    assert release(session("run_2", held=True)) == QueueHeld(False)
    assert release(session("run_2")) is None
    gone = queued().hears(ABORT_PLEASE).run.view
    assert after_run(session("run_3", held=True), gone) is None
    assert after_run(session(held=True), gone) == QueueHeld(False)

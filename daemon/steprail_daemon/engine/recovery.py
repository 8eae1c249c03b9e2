"""What the engine does at its start: takes up the sessions of the journal and ends what is live no more.

No run stays live without a live child. The children of an earlier life are gone (the parent process saw to it), so
every run whose prompt was given is closed with one terminal event, and its session waits without a process for the
next run, which resumes from the agent's own store. Facts that were committed when the daemon died before it
had made their events get them now. A prompt is never sent again by itself. A session whose record is damaged is shown
as BROKEN and keeps nobody from starting.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from steprail_daemon.core.events import DaemonRestarted
from steprail_daemon.core.records import Fact, Record
from steprail_daemon.core.replay import replay_session
from steprail_daemon.core.run import Run
from steprail_daemon.core.salvage import salvage_session
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.facade import REQUEST_RETENTION_NS
from steprail_daemon.engine.lineup import RunPlace
from steprail_daemon.engine.refusals import journal_reads
from steprail_daemon.engine.runner import SessionRunner
from steprail_daemon.engine.world import World
from steprail_daemon.journal.store import BatchRefused, JournalUnusable, SessionRow

log = logging.getLogger("steprail.engine")


def recover(world: World) -> list[SessionRunner]:
    """Give a runner for every session of the journal, with nothing live in it but runs whose prompt was not given yet.

    Raises:
        JournalError: the journal could not be read now; what is damaged for good of a session makes that one BROKEN.
        Unavailable: the journal could not be written.
    """
    world.requests.load(world.store.requests(world.clock.now() - REQUEST_RETENTION_NS))
    return [_recover_session(world, row) for row in list(world.store.sessions())]


def committed(world: World, runner: SessionRunner) -> tuple[SessionView, dict[str, RunView]]:
    """Give a session and its runs as they are recorded.

    That is what the runner shows, except while the journal refuses its commits: then the runner is ahead.

    Raises:
        Unavailable: JOURNAL_UNAVAILABLE; it cannot even be read.
    """
    runner.publish_held()
    if not runner.ledger.stalled:
        return runner.view, {run_id: place.view for run_id, place in runner.places.items()}
    with journal_reads():
        view, runs = replay_session(_records(world, runner.session_no))
    view.last_seq, view.epoch = runner.view.last_seq, runner.view.epoch
    return view, runs


def _recover_session(world: World, row: SessionRow) -> SessionRunner:
    try:
        runner = _taken_up(world, row)
    except (JournalUnusable, BatchRefused, ValueError, LookupError) as error:
        return _broken(world, row, error)
    runner.settle_state("the daemon restarted")
    runner.take_up()
    runner.next_turn_soon()
    return runner


def _taken_up(world: World, row: SessionRow) -> SessionRunner:
    view, runs = replay_session(_records(world, row.session_no))
    view.last_seq = row.last_seq
    places = _places(world, row.session_no, runs)
    runner = SessionRunner(world, view, row.session_no, places)
    _publish_again(world, runner)
    for place in places.values():
        if not place.view.ended:
            runner.recover(Run.restore(place.view), DaemonRestarted())
    return runner


def _broken(world: World, row: SessionRow, error: Exception) -> SessionRunner:
    """Take up a session that is damaged: to be looked at and deleted, and nothing is written to it any more."""
    reason = f"its record in the journal is damaged: {error}"
    log.error("session %s is broken, %s; what is left of it is kept as it is", row.session_id, reason)
    readable: list[tuple[int, Record]] = []
    with suppress(JournalUnusable):
        readable.extend(_records(world, row.session_no))
    view, runs = salvage_session(row.session_id, readable, reason, world.clock.now())
    view.last_seq = row.last_seq
    places = {
        run.run_id: RunPlace(run.run_no, run.first_seq, run.last_seq or row.last_seq, runs[run.run_id])
        for run in world.store.runs(row.session_no)
        if run.run_id in runs
    }
    runner = SessionRunner(world, view, row.session_no, places)
    runner.damaged = True
    runner.feed.close()
    return runner


def _publish_again(world: World, runner: SessionRunner) -> None:
    """Make the events of facts that have none, in one commit: after that nothing tells any more which these were."""
    codec = world.records
    parts: dict[int, list[tuple[int, list[Fact]]]] = {}
    for run_no, at, data in world.store.unpublished(runner.session_no):
        facts = [fact for record in codec.decode_records(data) if (fact := codec.to_fact(record))]
        parts.setdefault(run_no, []).append((at, facts))
    for run_no, of_run in parts.items():
        runner.publish_again(run_no, of_run)


def _records(world: World, session_no: int) -> Iterator[tuple[int, Record]]:
    for run_no, data in world.store.records(session_no):
        for record in world.records.decode_records(data):
            yield run_no, record


def _places(world: World, session_no: int, runs: dict[str, RunView]) -> dict[str, RunPlace]:
    return {
        row.run_id: RunPlace(row.run_no, row.first_seq, row.last_seq, runs[row.run_id])
        for row in world.store.runs(session_no)
    }

"""A session's queue: whose turn it is, and when the runs behind a stopped or failed one wait for somebody's word.

After a run that was COMPLETED or ABORTED the queue goes on by itself. After one that was STOPPED or FAILED it is held,
since the runs behind it were asked for in the belief that it would be worked through: until ContinueRun, whose run goes
to the head of the queue, until ReleaseQueue, or until the runs that wait are gone. A run that ends before its turn came
changes nothing for the others.
"""

from __future__ import annotations

from steprail_daemon.core.model import RunState
from steprail_daemon.core.records import QueueHeld
from steprail_daemon.core.views import RunView, SessionView

_HOLDING = frozenset({RunState.STOPPED, RunState.FAILED})


def next_run(session: SessionView) -> str:
    """Give the id of the run whose turn comes now; empty: a run is live, the queue is held, or nothing waits."""
    if session.active_run_id or session.queue_held or not session.queued_run_ids:
        return ""
    return session.queued_run_ids[0]


def after_run(session: SessionView, ended: RunView) -> QueueHeld | None:
    """Give the fact that is to be recorded once `ended` has ended and `session` shows it; None: nothing changes."""
    if session.queue_held:
        return None if session.queued_run_ids else QueueHeld(False)
    if ended.turn_came and ended.state in _HOLDING and session.queued_run_ids:
        return QueueHeld(True)
    return None


def release(session: SessionView) -> QueueHeld | None:
    """Give the fact that lets a held queue go on, for ReleaseQueue and ContinueRun; None: it is not held."""
    return QueueHeld(False) if session.queue_held else None

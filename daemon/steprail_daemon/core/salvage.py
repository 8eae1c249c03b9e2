"""What can be shown of a session whose records are damaged: how it stood at the last of them that makes sense."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from steprail_daemon.core.failures import daemon_restarted
from steprail_daemon.core.model import (
    Capabilities,
    CostSupport,
    PermissionMode,
    RunState,
    SessionState,
    StepGate,
    UsageSupport,
)
from steprail_daemon.core.records import Record, RunStateChanged
from steprail_daemon.core.replay import fold_run, replay_session
from steprail_daemon.core.views import RunView, SessionView

_NOTHING = Capabilities(step_gate=StepGate.UNSUPPORTED, usage=UsageSupport.UNSUPPORTED, cost=CostSupport.UNSUPPORTED)


def salvage_session(
    session_id: str, records: Sequence[tuple[int, Record]], reason: str, at: int
) -> tuple[SessionView, dict[str, RunView]]:
    """Give a session as BROKEN for `reason`, and its runs, from those of its records that could be read.

    Nothing of it is live: a run that had not ended has failed. If not even its making can be read, agent, directory,
    tenant and owner are empty, so that only an admin sees it, and `at` stands for the times.
    """
    good, bad = 0, len(records) + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if _makes_sense(records[:middle]):
            good = middle
        else:
            bad = middle
    if good:
        session, runs = replay_session(records[:good])
    else:
        session, runs = _unknown(session_id, at), {}
    session.state, session.state_reason = SessionState.BROKEN, reason
    session.active_run_id, session.queued_run_ids = "", []
    failure = replace(daemon_restarted(), message=f"the daemon restarted, and {reason}", retryable=False)
    for run in runs.values():
        if not run.ended:
            fold_run(run, RunStateChanged(RunState.FAILED, run.state, run.state_since, failure=failure))
            run.pending_permissions, run.pending_questions, run.pending_steers = [], [], []
    return session, runs


def _makes_sense(records: Sequence[tuple[int, Record]]) -> bool:
    try:
        replay_session(records)
    except ValueError:
        return False
    return True


def _unknown(session_id: str, at: int) -> SessionView:
    return SessionView(
        session_id=session_id,
        agent="",
        cwd="",
        agent_session_id="",
        permission_mode=PermissionMode.ASK,
        model="",
        labels={},
        tenant="",
        owner="",
        capabilities=_NOTHING,
        created_at=at,
        last_active_at=at,
    )

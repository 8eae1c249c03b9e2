"""A session's runs in line: one has its turn, the others wait, and each hears only what is about it."""

from __future__ import annotations

from collections.abc import Callable

from steprail_daemon.core import queue
from steprail_daemon.core.commands import Command, Emit
from steprail_daemon.core.model import RunSpec, SessionState
from steprail_daemon.core.replay import fold_session
from steprail_daemon.core.run import Run
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.standing import Standing
from steprail_daemon.journal.store import RequestRow


class RunPlace:
    """Where a run is in its session: its number and the sequence numbers of its first and last event."""

    __slots__ = ("first_seq", "last_seq", "run_no", "view")

    def __init__(self, run_no: int, first_seq: int, last_seq: int | None, view: RunView) -> None:
        self.run_no = run_no
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.view = view


class Lineup(Standing):
    """The part of a session's runner that knows its runs."""

    def __init__(self, places: dict[str, RunPlace]) -> None:
        super().__init__()
        self.places = places
        #: Runs whose turn has not come, by id; their order is the view's.
        self.queued: dict[str, Run] = {}
        #: Set during a drain: runs that are queued stay for the next start.
        self.draining = False
        #: Makes room for one more process, or tells that there is none; whoever owns all sessions can.
        self.make_room: Callable[[], bool] = lambda: True
        self._last_run_no = max((place.run_no for place in places.values()), default=0)

    @property
    def at_work(self) -> bool:
        """Whether a run was given to the agent. One whose turn came while the agent starts is still QUEUED."""
        return self.run is not None and bool(self.run.view.prompt_id)

    def start_run(self, run_id: str, spec: RunSpec, request: RequestRow | None = None) -> RunView:
        """Record a new run in the queue: at its end, or, if it continues another, at its head. `next_turn` begins it.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self.publish_held()
        self.ledger.require()
        run, commands = Run.create(run_id, self.view.session_id, spec, self.world.clock.now())
        facts = [command.fact for command in commands if isinstance(command, Emit)]
        self._begin(self._last_run_no + 1, run_id, 0)
        builder = self._builder
        builder.opens_run = run_id
        builder.request = request
        builder.keep(spec.prompt)
        first_seq = builder.seq + 1
        for fact in facts:
            builder.add_fact(fact)
        self.ledger.commit_or_refuse()
        self._last_run_no += 1
        for fact in facts:
            fold_session(self.view, fact, run_id)
        self.queued[run_id] = run
        self.places[run_id] = RunPlace(self._last_run_no, first_seq, None, run.view)
        for command in commands:
            if not isinstance(command, Emit):
                self._perform(run_id, command)
        return run.view

    def next_turn(self) -> None:
        """Give the run at the head of the queue its turn, if nothing is in its way."""
        run_id = queue.next_run(self.view)
        if not run_id or not self._can_begin():
            return
        self.run = self.queued.pop(run_id)
        self.take_up()

    def next_turn_soon(self) -> None:
        """Do so once what happens now is done with."""
        if self.queued and self.run is None:
            self.world.loop.call_soon(self.world.guarded(self.next_turn))

    def _can_begin(self) -> bool:
        if self.run is not None or self.closing is not None or self.draining or self.ledger.stalled:
            return False
        if self.view.state in (SessionState.CLOSED, SessionState.BROKEN):
            return False
        if self.world.rate_limits.remaining_ns(self.view.agent):
            return False
        # Last, since it may cost another session its process.
        return self.host.up or self.make_room()

    def _has_conversation(self) -> bool:
        # An agent that was given a prompt may have stored it before anything was heard of that, and takes its id for
        # another conversation only once (Claude Code 2.1.332: "already in use").
        return self.view.resumes or any(place.view.prompt_id for place in self.places.values())

    # --- what the interpreter adds ----------------------------------------------------------------------------------

    def take_up(self) -> None:
        """Begin with the run whose turn it is."""
        raise NotImplementedError

    def _perform(self, run_id: str, command: Command) -> None:
        raise NotImplementedError

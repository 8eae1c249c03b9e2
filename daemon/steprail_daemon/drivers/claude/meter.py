"""What was spent between two readings of the session's sums (`get_usage`), and whose it was.

The stream tells the tokens of each message of the main loop and nothing about money; of sub-agents 2.1.332 tells
neither. Its sums hold everything, and it gives them at any time, also while the gate is held. So a reading is taken
where one spender ends and the next begins, and what was spent between two readings belongs to the second one's account:

- `STEP`: before the first sub-agent of a step, or at the boundary: the main loop's own message. A sub-agent may start
  while that is still being written, and nothing of a message is summed up before it is whole; so the hook before the
  tool is held until the reading is there;
- `SUBAGENTS`: at the boundary of a step in which sub-agents worked;
- `SIDE`: after a summary that compacted the context.

The sums are those of the whole session and a resume restores them, so that the first reading of a resumed process only
says where to count from. Answers come in about a millisecond. A boundary that needs readings is told once they came;
one that never comes leaves the CLI held and silent, which the engine's silence watch ends.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from steprail_daemon.core.events import AgentEvent, BoundaryReached, UsageReported
from steprail_daemon.core.model import Cost, CostBasis
from steprail_daemon.drivers.claude import answers, wire
from steprail_daemon.drivers.claude.controls import SUCCESS, Controls
from steprail_daemon.drivers.claude.usage import NOTHING, Totals, totals_of, totals_of_report


class Account(Enum):
    """Who spent it."""

    BEFORE = "before"
    STEP = "step"
    SUBAGENTS = "sub-agents"
    SIDE = "side requests"


_REQUEST: Final = {"subtype": "get_usage"}


class _Held(msgspec.Struct):
    """A boundary that waits for a reading, and who worked in its step: ids of sub-agents, and the calls they do."""

    boundary: BoundaryReached
    subagents: tuple[str, str] | None
    marked: bool


class Meter:
    """Takes the readings of one process and tells what they say."""

    def __init__(self, controls: Controls, *, resumed: bool) -> None:
        self._controls = controls
        #: The sums at the last reading; None if there is none to count from.
        self._last: Totals | None = None if resumed else Totals()
        self._wants_cost = False
        #: What sub-agents and side requests of this turn used, as far as it was told.
        self._beside = NOTHING
        self._step_cost: int | None = 0
        self._mark_read = False
        #: Sub-agents of the present step, and the calls that they do.
        self._agents: dict[str, str] = {}
        self._marked = False
        #: Hooks before sub-agents that wait for the mark.
        self._delegations: list[str] = []
        self._held: _Held | None = None
        self._turn = 0

    def begin_turn(self, *, wants_cost: bool) -> None:
        """Begin with a prompt."""
        self._turn += 1
        self._wants_cost = wants_cost
        self._begin_step()
        self._held = None
        if wants_cost and self._last is None:
            self._read(Account.BEFORE)

    def end_turn(
        self, line: wire.ResultLine, spent: Totals | None, sums: Totals | None, events: list[AgentEvent]
    ) -> Totals:
        """Take a turn's end: what it used in all, and the session's sums, both None if they mean nothing.

        Gives what was told to be used beside the main loop in this turn. Sub-agents whose step did not come to its
        boundary are told now: theirs is what neither the main loop's messages nor anybody else used.
        """
        if self._agents and spent is not None and line.usage is not None:
            rest = spent.minus(totals_of_report(line.usage).plus(self._beside))
            if rest is not None and rest.tokens:
                events.append(UsageReported(rest.usage, None, "", *self._names()))
                self._beside = self._beside.plus(rest)
        beside, self._beside = self._beside, NOTHING
        self._agents.clear()
        self._turn += 1
        self._delegations.clear()
        self._last = sums
        self._held = None
        return beside

    def _names(self) -> tuple[str, str]:
        """Give the ids of the step's sub-agents, and of the calls that they do, with blanks between."""
        return " ".join(self._agents), " ".join(dict.fromkeys(self._agents.values()))

    def _begin_step(self) -> None:
        self._step_cost = 0
        self._agents.clear()
        self._marked = self._mark_read = False

    # --- what the codec sees -------------------------------------------------------------------------------------

    @property
    def reads_at_boundary(self) -> bool:
        """Whether the present step's boundary needs a reading."""
        return self._wants_cost or bool(self._agents)

    def subagent_seen(self, agent_id: str, call_id: str, *, message_open: bool) -> None:
        """Note a sub-agent at work; `message_open`: the main loop's message is not whole, so nothing is summed yet."""
        self._agents.setdefault(agent_id or call_id, call_id)
        if not message_open:
            self._mark()

    def delegation(self, request_id: str, *, message_open: bool) -> bool:
        """Take the hook before a sub-agent; true if it may start now, else its answer comes with the mark."""
        if self._mark_read:
            return True
        self._delegations.append(request_id)
        if not message_open:
            self._mark()
        return False

    def message_closed(self) -> None:
        """Note that the main loop's message is whole."""
        if self._agents or self._delegations:
            self._mark()

    def _mark(self) -> None:
        if not self._marked:
            self._marked = True
            self._read(Account.STEP, is_mark=True)

    def compaction_began(self) -> None:
        """Note that a summary is about to be asked for."""
        self._read(Account.STEP)

    def compaction_ended(self) -> None:
        """Note that it was made, or that it failed."""
        self._read(Account.SIDE)

    def hold(self, boundary: BoundaryReached) -> None:
        """Take a reading for a boundary and tell it then."""
        agents = bool(self._agents)
        self._held = _Held(boundary, self._names() if agents else None, self._marked)
        self._read(Account.SUBAGENTS if agents and self._marked else Account.STEP)

    def drop(self, request_id: str) -> bool:
        """Forget what waits for a reading and is no longer wanted; false if it is no boundary that does."""
        if request_id in self._delegations:
            self._delegations.remove(request_id)
        if self._held is None or self._held.boundary.boundary_id != request_id:
            return False
        self._held = None
        return True

    # --- readings ------------------------------------------------------------------------------------------------

    def _read(self, account: Account, *, is_mark: bool = False) -> None:
        turn, held = self._turn, self._held

        def on_answer(response: wire.ControlResponse, events: list[AgentEvent]) -> None:
            if turn == self._turn:
                if is_mark:
                    self._let_start()
                self._account(account, self._spent(response), events)
                if held is not None and held is self._held:
                    self._tell(held, events)

        self._controls.ask(_REQUEST, on_answer)

    def _let_start(self) -> None:
        self._mark_read = True
        for request_id in self._delegations:
            self._controls.write(answers.answer(request_id, answers.NOTHING))
        self._delegations.clear()

    def _spent(self, response: wire.ControlResponse) -> Totals | None:
        now = _sums(response)
        last, self._last = self._last, now
        return None if last is None or now is None else now.minus(last)

    def _account(self, account: Account, spent: Totals | None, events: list[AgentEvent]) -> None:
        if account is Account.STEP:
            money = None if spent is None else spent.micro_usd
            self._step_cost = None if money is None or self._step_cost is None else self._step_cost + money
        elif account is Account.SIDE:
            self._tell_apart(spent, events, side_request=True)
        elif account is Account.SUBAGENTS:
            held = self._held
            if held is not None and held.subagents is not None:
                self._tell_apart(spent, events, *held.subagents)

    def _tell(self, held: _Held, events: list[AgentEvent]) -> None:
        self._held = None
        if held.subagents is not None and not held.marked:
            self._tell_apart(None, events, *held.subagents)  # nobody can tell it from the step's own
        cost = self._step_cost
        known = None if cost is None or not self._wants_cost else Cost(cost, CostBasis.REPORTED)
        events.append(msgspec.structs.replace(held.boundary, cost=known))
        self._begin_step()

    def _tell_apart(
        self,
        spent: Totals | None,
        events: list[AgentEvent],
        subagent_id: str = "",
        parent_call_id: str = "",
        *,
        side_request: bool = False,
    ) -> None:
        usage, cost = (None, None) if spent is None else (spent.usage, spent.cost)
        if spent is not None:
            self._beside = self._beside.plus(spent)
        events.append(UsageReported(usage, cost, "", subagent_id, parent_call_id, side_request))


def _sums(response: wire.ControlResponse) -> Totals | None:
    if response.subtype != SUCCESS:
        return None
    models = wire.decode_sums(response.response)
    return None if models is None else totals_of(models.values())

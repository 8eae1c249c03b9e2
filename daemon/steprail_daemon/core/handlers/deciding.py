"""Who decides about a step that waits: a client, an operator, nobody in time, nobody connected, the end of a drain."""

from __future__ import annotations

from typing import NoReturn

from steprail_daemon.core.boundary import (
    Cause,
    client_decision,
    client_error,
    nobody_connected,
    nobody_decided,
    stop_reason,
    stop_request,
    window_ended,
)
from steprail_daemon.core.commands import Command
from steprail_daemon.core.errors import Invalid, Unavailable, WrongState
from steprail_daemon.core.events import DecidersChanged, DecisionSubmitted, DrainWindowEnding, StopRequested, Timer
from steprail_daemon.core.handlers.base import AWAITING_DECISION, facts_first
from steprail_daemon.core.handlers.boundary import Boundary
from steprail_daemon.core.model import (
    DecisionAction,
    DecisionSource,
    OnDisconnect,
    OnTimeout,
    PendingDecision,
    ResolutionSource,
    StopRequest,
)
from steprail_daemon.core.records import StopAsked

# A member of an enumeration costs a function call to look up; these are on the way to every decision.
_CONTINUE = DecisionAction.CONTINUE
_STOP = DecisionAction.STOP
_CLIENT = DecisionSource.CLIENT
_DISCONNECT = Timer.DISCONNECT


class Deciding(Boundary):
    """Handlers of the state AWAITING_DECISION and of what matters there later."""

    __slots__ = ()

    # --- the client -------------------------------------------------------------------------------------------------

    def _decision(self, event: DecisionSubmitted, at: int) -> list[Command]:
        pending = self._pending()
        if event.step_id != pending.step_id:
            self._refuse_decision(event, at)
        if event.action is _CONTINUE and not event.error:
            if event.guidance or event.model or self.view.stop_requested is not None:
                self._check_go_on(event)
            return self._go_on(
                pending, _CLIENT, event.reason, event.identity, at, guidance=event.guidance, model=event.model
            )
        if event.error:
            cause = client_error(event.error, event.identity)
        elif event.action is _STOP:
            self._check_stop(event)
            cause = client_decision(event.reason, event.identity)
        else:
            raise Invalid("FIELD_INVALID", "action is not set; accepted are CONTINUE and STOP", field="action")
        return self._stop(pending.step_id, [cause], at - pending.asked_at, at)

    def _check_go_on(self, event: DecisionSubmitted) -> None:
        if self.view.stop_requested is not None:
            raise Unavailable("DRAINING", "the daemon is draining; accepted is STOP", run_id=self.view.run_id)
        can = self.capabilities
        for field, asked, able in (
            ("guidance", event.guidance, can.guidance),
            ("model_switch", event.model, can.model_switch),
        ):
            if asked and not able:
                message = (
                    f"this agent cannot do that at a boundary; the decision about {event.step_id} is still pending"
                )
                raise WrongState("CAPABILITY_MISSING", message, capability=field)

    def _check_stop(self, event: DecisionSubmitted) -> None:
        for field, given in (("guidance", event.guidance), ("model", event.model)):
            if given:
                raise Invalid("FIELD_INVALID", f"{field} goes with CONTINUE only", field=field)

    def _refuse_decision(self, event: DecisionSubmitted, _at: int) -> NoReturn:
        view = self.view
        raise WrongState(
            "DECISION_NOT_PENDING",
            f"no decision about step {event.step_id} is pending; the run is {view.state.name}",
            run_id=view.run_id,
            step_id=event.step_id,
        )

    def _stop_pending(self, event: StopRequested, at: int) -> list[Command]:
        noted = self._note_stop(event, at)
        if event.source is DecisionSource.DRAIN:
            return noted  # whoever is asked keeps the turn until the window ends
        request = StopRequest(event.source, event.identity, event.reason, at)
        return [*noted, *self._stop_for(stop_request(request), at)]

    def _note_stop(self, event: StopRequested, at: int) -> list[Command]:
        """Keep a request for the next boundary; the first one stays."""
        if self.view.stop_requested is not None:
            return []
        return [self._emit(StopAsked(StopRequest(event.source, event.identity, event.reason, at)))]

    def _stop_for(self, cause: Cause, at: int) -> list[Command]:
        pending = self._pending()
        return self._stop(pending.step_id, [cause], at - pending.asked_at, at)

    # --- nobody decides ---------------------------------------------------------------------------------------------

    def _nobody_decided(self, at: int) -> list[Command]:
        pending = self._pending()
        cause = nobody_decided(pending.default.name)
        if pending.default is OnTimeout.ABORT:
            return self._cut_off(at, stop_reason([cause]))
        if pending.default is OnTimeout.CONTINUE:
            return self._go_on_or_drain(cause, at)
        return self._stop_for(cause, at)

    def _nobody_connected(self, at: int) -> list[Command]:
        decider = self.view.spec.decider
        assert decider is not None
        cause = nobody_connected(decider.disconnect_grace_ns)
        if decider.on_disconnect is OnDisconnect.CONTINUE:
            return self._go_on_or_drain(cause, at)
        return self._stop_for(cause, at)

    def _go_on_or_drain(self, cause: Cause, at: int) -> list[Command]:
        """Go on by default, but for a drain, in which nothing goes on past a boundary."""
        requested = self.view.stop_requested
        if requested is not None:
            return self._stop_for(stop_request(requested), at)
        return self._go_on(self._pending(), cause.source, cause.reason, "", at)

    def _drain_decides(self, _event: DrainWindowEnding, at: int) -> list[Command]:
        self._drain_ended = True
        closed, answers = self._close_asks(ResolutionSource.DRAIN, "the daemon is draining")
        return facts_first([*closed, *answers, *self._stop_for(window_ended(self.view.stop_requested), at)])

    def _deciders_changed(self, event: DecidersChanged, at: int) -> list[Command]:
        """Keep since when there has been none; it counts only while a decision is pending."""
        decider = self.view.spec.decider
        before, self._deciders = self._deciders, event.count
        if event.count:
            self._deciders_gone_at = None
            return self._cancel(_DISCONNECT)
        if not before or decider is None or decider.on_disconnect is OnDisconnect.WAIT:
            return []
        self._deciders_gone_at = at
        return self._watch_deciders(decider) if self.view.state is AWAITING_DECISION else []

    def _pending(self) -> PendingDecision:
        pending = self.view.pending_decision
        assert pending is not None
        return pending

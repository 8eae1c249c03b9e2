"""Has the expressions of stop rules evaluated on how a run stands, and tells the run what they said."""

from __future__ import annotations

from collections.abc import Callable

from steprail_daemon.core.commands import EvaluateExpressions
from steprail_daemon.core.events import RulesEvaluated
from steprail_daemon.core.replay import spans_at
from steprail_daemon.core.stops.expression_view import ExpressionHistory, session_value
from steprail_daemon.core.stops.expressions import Evaluation
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.world import World


class ExpressionDesk:
    """The evaluations of one session's live run. `tell` hands the run its results, within the evaluation's bounds."""

    __slots__ = ("_history", "_run_id", "_tell", "_view", "_world")

    def __init__(self, world: World, view: SessionView, tell: Callable[[str, RulesEvaluated], None]) -> None:
        self._world = world
        self._view = view
        self._tell = tell
        self._run_id = ""
        self._history = ExpressionHistory()

    def evaluate(self, run: RunView, command: EvaluateExpressions) -> None:
        """Begin an evaluation. Each step of a run with expressions is evaluated once, in order."""
        if run.run_id != self._run_id:
            self._run_id = run.run_id
            self._history = ExpressionHistory()
        if command.step is not None:
            self._history.add(command.step)
        world, run_id = self._world, run.run_id
        steps = self._view.steps_before + run.step_count + (command.step is not None)
        active_ns = spans_at(run, world.clock.now()).active_ns
        seen = self._history.view(run, session_value(self._view, steps), active_ns)

        async def ask() -> None:
            results = await world.rules.evaluate(Evaluation(seen, command.expressions))
            world.guarded(lambda: self._tell(run_id, RulesEvaluated(command.evaluation_id, tuple(results))))()

        world.start_task(ask, f"evaluate the rules of {run_id}")

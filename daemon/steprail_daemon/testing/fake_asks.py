"""Permissions, questions, steering and deciders of a facade in memory; for `fake_facade`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from steprail_daemon.core import records
from steprail_daemon.core.errors import WrongState
from steprail_daemon.core.model import (
    SECOND,
    PendingDecision,
    Permission,
    PermissionAlternative,
    PermissionAnswer,
    Question,
    QuestionItem,
    QuestionItemAnswer,
    ResolutionSource,
    RunState,
    ToolKind,
)
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import LOCAL, Caller, LimitsView, PendingView
from steprail_daemon.testing.fake_book import LIMITS, FakeBook

WAIT_NS = 300 * SECOND


class FakeAsks(FakeBook):
    """What waits for people."""

    def __init__(self, limits: LimitsView = LIMITS) -> None:
        super().__init__(limits)
        #: Deciders that are registered, by run.
        self.deciders: Counter[str] = Counter()

    # --- the facade -------------------------------------------------------------------------------------------------

    def register_decider(self, caller: Caller, run_id: str) -> Callable[[], None]:
        """See `Facade`."""
        self.get_run(caller, run_id)
        self.deciders[run_id] += 1

        def leave() -> None:
            self.deciders[run_id] -= 1

        return leave

    def answer_permission(
        self,
        caller: Caller,
        run_id: str,
        permission_id: str,
        answer: PermissionAnswer,
        *,
        alternative: PermissionAlternative | None,
        reason: str,
    ) -> records.PermissionResolved:
        """See `Facade`."""
        run = self._require_live(caller, run_id, "PERMISSION_NOT_PENDING")
        found = [item for item in run.pending_permissions if item.permission_id == permission_id]
        if not found:
            raise WrongState(
                "PERMISSION_NOT_PENDING",
                f"permission {permission_id!r} waits for no answer",
                permission_id=permission_id,
            )
        run.pending_permissions.remove(found[0])
        fact = records.PermissionResolved(
            permission_id, answer, ResolutionSource.CLIENT, reason, caller.name, alternative
        )
        self._resolved(run, fact)
        return fact

    def answer_question(
        self, caller: Caller, run_id: str, question_id: str, answers: tuple[QuestionItemAnswer, ...] | None
    ) -> records.QuestionResolved:
        """See `Facade`."""
        run = self._require_live(caller, run_id, "QUESTION_NOT_PENDING")
        found = [item for item in run.pending_questions if item.question_id == question_id]
        if not found:
            raise WrongState(
                "QUESTION_NOT_PENDING", f"question {question_id!r} waits for no answer", question_id=question_id
            )
        run.pending_questions.remove(found[0])
        secret = {item.item_id for item in found[0].items if item.secret}
        shown = None if answers is None else tuple(answer for answer in answers if answer.item_id not in secret)
        fact = records.QuestionResolved(question_id, shown, ResolutionSource.CLIENT, caller.name)
        self._resolved(run, fact)
        return fact

    def steer_run(self, caller: Caller, run_id: str, text: str) -> str:
        """See `Facade`."""
        run = self._require_live(caller, run_id, "STEER_NOT_POSSIBLE")
        if run.state is not RunState.RUNNING or run.stop_requested is not None:
            raise WrongState("STEER_NOT_POSSIBLE", f"run {run_id} takes no text now", run_id=run_id)
        steer_id = self._new_id("str")
        self.emit(run_id, records.SteerAccepted(steer_id, text, caller.name))
        return steer_id

    def pending(self, caller: Caller, session_id: str) -> list[PendingView]:
        """See `Facade`."""
        sessions = [self.get_session(caller, session_id)] if session_id else self.list_sessions(caller)
        found: list[PendingView] = []
        for session in sessions:
            for run in (self._runs[run_id] for run_id in session.run_ids):
                items: list[PendingDecision | Permission | Question] = [
                    *run.pending_permissions,
                    *run.pending_questions,
                ]
                items += [] if run.pending_decision is None else [run.pending_decision]
                found += [PendingView(session, run, item) for item in items]
        return sorted(found, key=lambda view: view.item.asked_at)

    # --- what an agent would do -------------------------------------------------------------------------------------

    def ask_permission(self, run_id: str, *, arguments_json: str = "{}", wait_ns: int = WAIT_NS) -> Permission:
        """Ask for leave to run a command."""
        run = self.get_run(LOCAL, run_id)
        at = self.now()
        permission = Permission(
            permission_id=self._new_id("per"),
            step_number=run.step_count + 1,
            tool="bash",
            tool_kind=ToolKind.EXECUTE,
            title="ls",
            arguments_json=arguments_json,
            asked_at=at,
            deadline_at=at + wait_ns,
        )
        run.pending_permissions.append(permission)
        self._asked(run, records.PermissionRequested(permission))
        return permission

    def ask_question(self, run_id: str, *items: QuestionItem, wait_ns: int = WAIT_NS) -> Question:
        """Ask a person something."""
        run = self.get_run(LOCAL, run_id)
        at = self.now()
        question = Question(
            question_id=self._new_id("que"),
            step_number=run.step_count + 1,
            items=items or (QuestionItem(item_id="item", text="Which one?", free_text=True),),
            asked_at=at,
            deadline_at=at + wait_ns,
        )
        run.pending_questions.append(question)
        self._asked(run, records.QuestionRequested(question))
        return question

    # --- inside -----------------------------------------------------------------------------------------------------

    def _asked(self, run: RunView, fact: records.Fact) -> None:
        if run.state is RunState.AWAITING_PERMISSION:
            self.emit(run.run_id, fact)
        else:
            self.emit_quietly(run.run_id, fact)
            self._enter(run, RunState.AWAITING_PERMISSION)

    def _resolved(self, run: RunView, fact: records.Fact) -> None:
        if run.asks:
            self.emit(run.run_id, fact)
        else:
            self.emit_quietly(run.run_id, fact)
            self._enter(run, RunState.RUNNING)

"""Generated from `steprail.client._control` by scripts/blocking.py; never edited by hand."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from steprail.client._blocking.portal import Blocking
from steprail.client._control import Control
from steprail.v1 import decisions_pb2, runs_pb2


class SyncControl(Blocking[Control]):
    """A ControlRun stream. Use it with `with`; iterate over it for what the daemon sends, `finished` last.

    Losing or leaving it never ends the run. A stream that is lost is taken up again where it ended: no event is missing
    or comes twice, what waits is asked once, and what was sent and perhaps not received is sent again under its request
    id. A message that the daemon refuses comes back as `rejected`.
    """

    @property
    def opened(self) -> runs_pb2.ControlOpened:
        """What the daemon said when it opened the stream, the last one where it was taken up again."""
        return self._calls.opened

    @property
    def run_id(self) -> str:
        """The run that this is about."""
        return self._calls.run_id

    def __enter__(self) -> SyncControl:
        """Open the conversation. That is tried once: what starts a run must not start two.

        Raises:
            StepRailError: it was refused, or not answered in time.
        """
        _ = self._portal.wait(self._calls.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave; the run goes on."""
        self._portal.wait(self._calls.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[runs_pb2.ControlRunResponse]:
        """Give what the daemon sends until the run has ended.

        Raises:
            StepRailError: the daemon did not come back, or the place in the sequence is no more; the run goes on.
        """
        return self._portal.iterate(self._calls.__aiter__())

    def decide(
        self,
        step_id: str,
        action: decisions_pb2.DecisionAction.ValueType = decisions_pb2.DECISION_ACTION_UNSPECIFIED,
        *,
        guidance: str = "",
        model: str = "",
        reason: str = "",
        error: str = "",
    ) -> None:
        """Send a decision about a step, or with `error` alone that none could be made.

        With CONTINUE, `guidance` is text that the model gets with its next step, `model` the one from then on.
        """
        self._portal.wait(
            self._calls.decide(step_id, action, guidance=guidance, model=model, reason=reason, error=error)
        )

    def answer_permission(
        self,
        permission_id: str,
        answer: decisions_pb2.PermissionAnswer.ValueType | None = None,
        *,
        command: str | None = None,
        arguments_json: str | None = None,
        reason: str = "",
    ) -> None:
        """Send an answer to a permission, or with `command` or `arguments_json` what is to be done instead."""
        self._portal.wait(
            self._calls.answer_permission(
                permission_id, answer, command=command, arguments_json=arguments_json, reason=reason
            )
        )

    def answer_question(self, question_id: str, answers: list[decisions_pb2.QuestionItemAnswer] | None = None) -> None:
        """Send the answers to a question, one for each item; without any the question is declined."""
        self._portal.wait(self._calls.answer_question(question_id, answers))

    def stop(self, reason: str = "") -> None:
        """Ask for a stop at the next boundary."""
        self._portal.wait(self._calls.stop(reason))

    def steer(self, text: str) -> None:
        """Give text to the running turn."""
        self._portal.wait(self._calls.steer(text))

    def abort(self, reason: str = "") -> None:
        """Cut the run off."""
        self._portal.wait(self._calls.abort(reason))

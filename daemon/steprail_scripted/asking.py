"""Questions to the host: permissions and directory access, with the timers of the CLI."""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

DECISIONS = (
    "allow_once",
    "deny_once",
    "allow_session",
    "deny_session",
    "allow_always_project",
    "allow_always_user",
    "deny_always_project",
    "deny_always_user",
    "alternative",
)


class Question:
    """An open question: `kind` says of what, `deadline` (monotonic seconds) when it counts as denied."""

    def __init__(self, kind: str, deadline: float) -> None:
        self.kind = kind
        self.deadline = deadline
        self.answer: dict[str, Any] | None = None


class Questions:
    """The open questions of a process. `condition` is the lock of everything that waits for the host."""

    def __init__(self, condition: threading.Condition, unacknowledged: float, acknowledged: float) -> None:
        self._condition = condition
        self._unacknowledged = unacknowledged
        self._acknowledged = acknowledged
        self._open: dict[str, Question] = {}

    def any_open(self) -> bool:
        """Say whether a question waits for the host."""
        with self._condition:
            return any(question.answer is None for question in self._open.values())

    def ask(
        self, kind: str, request_id: str, announce: Callable[[], None], cancelled: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """Ask and wait. `None`: nobody answered in time, or the turn was aborted."""
        with self._condition:
            question = Question(kind, time.monotonic() + self._unacknowledged)
            self._open[request_id] = question
            announce()
            while question.answer is None and not cancelled():
                left = question.deadline - time.monotonic()
                if left <= 0:
                    break
                self._condition.wait(left)
            del self._open[request_id]
            return question.answer

    def acknowledge(self, kind: str, request_id: str) -> bool:
        """Move a question from the short timer to the long one."""
        with self._condition:
            question = self._find(kind, request_id)
            if question is None:
                return False
            question.deadline = time.monotonic() + self._acknowledged
            self._condition.notify_all()
            return True

    def answerable(self, kind: str, request_id: str) -> bool:
        """Say whether a question still waits for its answer."""
        with self._condition:
            return self._find(kind, request_id) is not None

    def answer(self, kind: str, request_id: str, answer: dict[str, Any]) -> None:
        """Answer a question, unless it is gone."""
        with self._condition:
            question = self._find(kind, request_id)
            if question is not None:
                question.answer = answer
                self._condition.notify_all()

    def _find(self, kind: str, request_id: str) -> Question | None:
        question = self._open.get(request_id)
        return question if question is not None and question.kind == kind and question.answer is None else None


class Verdict(NamedTuple):
    """What came of a permission question; `replacement` is the command that the host wants instead."""

    allowed: bool
    replacement: str | None = None


class Permissions:
    """Which calls have to be asked for, and what the host said for the whole session.

    "Always" answers count for the process only: they are not written to any file.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._remembered: dict[tuple[str, str], bool] = {}
        self._yolo_until = 0.0

    def yolo(self, seconds: float) -> None:
        """Ask nothing for a while; 0 ends it."""
        self._yolo_until = time.monotonic() + seconds if seconds > 0 else 0.0

    @property
    def unrestricted(self) -> bool:
        """Whether nothing is asked."""
        return self.mode == "unrestricted" or time.monotonic() < self._yolo_until

    def known(self, tool: str, subject: str) -> bool | None:
        """Say what the host decided for exactly this tool and command or path."""
        return self._remembered.get((tool, subject))

    def read(self, tool: str, subject: str, answer: dict[str, Any] | None) -> Verdict:
        """Turn an answer into a verdict and remember it, if it is for more than once."""
        if answer is None:
            return Verdict(allowed=False)
        decision = answer.get("decision")
        if decision == "alternative":
            replacement = answer.get("alternative")
            return Verdict(allowed=bool(replacement), replacement=replacement or None)
        if decision is None:
            return Verdict(allowed=answer.get("allowed") is True)
        allowed = str(decision).startswith("allow")
        if not str(decision).endswith("_once"):
            self._remembered[tool, subject] = allowed
        return Verdict(allowed=allowed)

"""File changes that wait for the host: staged while a turn runs, written when it accepts them."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Change:
    """One change of a file; `proposed` of `None` deletes it. It has an id once it is staged."""

    def __init__(self, path: Path, shown_path: str, kind: str, original: str, proposed: str | None) -> None:
        self.change_id = ""
        self.path = path
        self.shown_path = shown_path
        self.kind = kind
        self.original = original
        self.proposed = proposed

    def apply(self) -> None:
        """Do it on disk."""
        if self.proposed is None:
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.proposed, encoding="utf-8", errors="surrogateescape")

    def on_the_wire(self) -> dict[str, Any]:
        """Shape it as `changesBatchUpdate` carries it."""
        return {
            "id": self.change_id,
            "filePath": self.shown_path,
            "changeType": self.kind,
            "originalContent": self.original,
            "proposedContent": self.proposed or "",
            "description": f"{self.kind.capitalize()} {self.shown_path}",
            "toolId": "",
            "toolName": "",
        }


class Batch:
    """The changes of one turn."""

    def __init__(self, batch_id: str) -> None:
        self.batch_id = batch_id
        self.staging = True
        self.closed = False
        self.number = 0
        self.changes: list[Change] = []


class Staging:
    """Holds the batch of the current or the last turn; the next prompt throws away what was not decided.

    `lock` is the process's one lock, so that no change is announced after its batch was closed.
    """

    def __init__(self, lock: threading.Condition) -> None:
        self._lock = lock
        self._batch: Batch | None = None

    def begin(self, batch_id: str) -> Batch:
        """Open the batch of a turn."""
        with self._lock:
            self._batch = Batch(batch_id)
            return self._batch

    def drop(self) -> None:
        """Forget the batch of the last turn."""
        with self._lock:
            self._batch = None

    def record(self, change: Change, announce: Callable[[str, Change], None]) -> None:
        """Stage a change, or make it at once when staging has ended."""
        with self._lock:
            batch = self._batch
            if batch is None or not batch.staging:
                change.apply()
                return
            batch.number += 1
            change.change_id = f"change_{batch.batch_id}_{batch.number}"
            batch.changes.append(change)
            announce(batch.batch_id, change)

    def close(self, batch: Batch) -> int:
        """End the batch of a turn and say how many changes wait."""
        with self._lock:
            batch.closed = True
            return len(batch.changes)

    def decide(self, batch_id: str, action: str, selected: list[str]) -> dict[str, Any]:
        """Do what the host decided, in the shape of the answer."""
        with self._lock:
            batch = self._batch
            if batch is None or batch.batch_id != batch_id:
                error = {"changeId": "unknown", "error": f"Batch {batch_id} not found or expired"}
                return {"success": False, "appliedCount": 0, "skippedCount": 0, "errors": [error]}
            everything = [change.change_id for change in batch.changes]
            chosen = {"accept_all": everything, "accept_selected": selected}.get(action, [])
            apply = [change for change in batch.changes if change.change_id in chosen]
            skipped = len(batch.changes) - len(apply)
            batch.changes.clear()
            if action == "accept_all":
                batch.staging = False
            if batch.closed:
                self._batch = None
            return _answer(apply, skipped)


def _answer(apply: list[Change], skipped: int) -> dict[str, Any]:
    errors = []
    for change in apply:
        try:
            change.apply()
        except OSError as error:
            errors.append({"changeId": change.change_id, "error": str(error)})
    answer: dict[str, Any] = {
        "success": not errors,
        "appliedCount": len(apply) - len(errors),
        "skippedCount": skipped,
    }
    if errors:
        answer["errors"] = errors
    return answer

"""Saved sessions: one file of JSON lines each, appended to as things happen, so that a kill loses nothing."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steprail_scripted.wire import now_ms, timestamp


def default_home() -> Path:
    """Give the folder for sessions and plans: `STEPRAIL_SCRIPTED_HOME`, `AUTOHAND_HOME`, or the user's state folder."""
    for name in ("STEPRAIL_SCRIPTED_HOME", "AUTOHAND_HOME"):
        if os.environ.get(name):
            return Path(os.environ[name])
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "steprail-scripted"


class Saved:
    """A session as its file tells it; times in Unix milliseconds."""

    def __init__(self, session_id: str, workspace: str, model: str, created_at: int) -> None:
        self.session_id = session_id
        self.workspace = workspace
        self.model = model
        self.created_at = created_at
        self.last_active_at = created_at
        self.status = "active"
        self.messages: list[dict[str, Any]] = []

    def summary(self) -> dict[str, Any]:
        """Shape it as an entry of `getHistory`."""
        return {
            "sessionId": self.session_id,
            "createdAt": timestamp(self.created_at),
            "lastActiveAt": timestamp(self.last_active_at),
            "projectName": Path(self.workspace).name,
            "model": self.model,
            "messageCount": len(self.messages),
            "status": self.status,
        }


class SessionFile:
    """The file of one session, open for appending."""

    def __init__(self, path: Path) -> None:
        self.session_id = path.stem
        self._path = path

    def append(self, kind: str, **values: Any) -> None:
        """Write one record; it is in the system's hands when this returns, and survives the process."""
        line = json.dumps({"kind": kind, "at": now_ms(), **values}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


class Store:
    """All saved sessions of a home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "sessions"

    def create(self, workspace: Path, model: str) -> SessionFile:
        """Begin a session."""
        self._folder.mkdir(parents=True, exist_ok=True)
        session = SessionFile(self._folder / f"{_random_uuid()}-{now_ms()}.jsonl")
        session.append("session", workspace=str(workspace), model=model)
        return session

    def open(self, session_id: str) -> tuple[SessionFile, Saved] | None:
        """Find a session by its saved id."""
        path = self._folder / f"{session_id}.jsonl"
        if not session_id or path.parent != self._folder or not path.is_file():
            return None
        saved = _read(path)
        return None if saved is None else (SessionFile(path), saved)

    def newest_first(self) -> list[Saved]:
        """Read every session."""
        found = [saved for path in self._folder.glob("*.jsonl") if (saved := _read(path)) is not None]
        return sorted(found, key=lambda saved: (saved.created_at, saved.session_id), reverse=True)


def _random_uuid() -> str:
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], f"4{digits[13:16]}", f"8{digits[17:20]}", digits[20:]))


def _read(path: Path) -> Saved | None:
    saved: Saved | None = None
    for record in _records(path):
        if record["kind"] == "session":
            saved = Saved(path.stem, record["workspace"], record["model"], record["at"])
        elif saved is not None:
            saved.last_active_at = record["at"]
            if record["kind"] == "message":
                saved.messages.append(record["message"])
                saved.status = "active"
            else:
                saved.status = record["status"]
    return saved


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the last line of a process that was killed while writing
        if isinstance(record, dict) and "kind" in record:
            yield record

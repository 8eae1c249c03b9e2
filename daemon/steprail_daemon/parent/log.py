"""Lines about the parent's doings, on stderr, formatted like the daemon's log. A reader who stalls loses lines."""

from __future__ import annotations

import json
import os
import select
import time

_STDERR = 2
_ATOMIC = 4096  # a pipe that select calls writable takes this many bytes without waiting


class Log:
    """Writes one line per event: JSON, or text for people."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def info(self, event: str, **fields: object) -> None:
        """Say what is going on."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Say what an operator should look into."""
        self._write("warning", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1000:06d}Z"
        if self._as_json:
            record = {"timestamp": stamp, "level": level, "logger": "steprail.parent", "event": event, **fields}
            line = json.dumps(record)
        else:
            line = " ".join([stamp, f"[{level}]", event, *(f"{name}={value}" for name, value in fields.items())])
        data = line.encode("utf-8", "backslashreplace")[: _ATOMIC - 1] + b"\n"
        try:
            # Waiting for whoever reads the log would leave every process without its owner.
            if select.select([], [_STDERR], [], 0)[1]:
                os.write(_STDERR, data)
        except OSError:
            return  # no log is worth the process

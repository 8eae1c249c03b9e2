"""JSON-RPC 2.0 as a client speaks it: requests with numbers, one a line, and what each was asked for."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

#: What takes an answer.
T = TypeVar("T")

_to_json = msgspec.json.encode


class Requests(Generic[T]):
    """Numbers requests from 1 on and remembers what is to be done with each answer, once."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, T] = {}

    def line(self, method: str, params: dict[str, Any] | None, on_answer: T) -> bytes:
        """Give the line of a request; `on_answer` takes its answer."""
        self._last += 1
        self._open[self._last] = on_answer
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": self._last, "method": method}
        if params is not None:
            request["params"] = params
        return _to_json(request) + b"\n"

    def answered(self, request_id: int | str | None) -> T | None:
        """Give what takes the answer to `request_id`; None if nothing with that id is open."""
        return self._open.pop(request_id, None) if isinstance(request_id, int) else None

"""What is told of a finished call: one line in the log, and two metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from google.protobuf.message import Message

from steprail_daemon.service.calls import Answer, Call

#: Notes a value of a metric, with its labels.
Observe: TypeAlias = Callable[[str, float, Mapping[str, str]], None]

#: Fields of requests and answers that the line shows. They are ids, which say nothing of contents.
_IDS: Final = ("session_id", "run_id", "step_id", "permission_id", "question_id", "request_id")
#: What an answer gives of what was made or asked for.
_MADE: Final = ("run", "session")
#: Of an id that is not checked yet.
_LONGEST_ID: Final = 128
#: Probes and load balancers call these every few seconds.
_QUIET_SERVICE: Final = "grpc.health.v1.Health"

log: Final = logging.getLogger("steprail.calls")


def unobserved(_name: str, _value: float, _labels: Mapping[str, str]) -> None:
    """Note nothing."""


class FinishedCalls:
    """Tells of calls that are over."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe

    def tell(
        self, method: str, call: Call | None, answer: Answer | None, *, code: str, reason: str, seconds: float
    ) -> None:
        """Tell of a call of `method`, its full name; `call` is None if it was not let in."""
        service, _, name = method.rpartition(".")
        labels = {"grpc_service": service, "grpc_method": name, "grpc_code": code}
        self._observe("grpc_server_handled_total", 1, labels)
        self._observe("grpc_server_handling_seconds", seconds, labels)
        level = logging.DEBUG if service == _QUIET_SERVICE else logging.INFO
        if log.isEnabledFor(level):
            line: dict[str, object] = {"method": method, "code": code, "reason": reason}
            if call is not None:
                line["identity"] = call.caller.name
                line |= ids_of(answer) | ids_of(call.request)
            log.log(level, "call", extra={**line, "ms": round(seconds * 1e3, 3)})


def ids_of(message: Message | bytes | None) -> dict[str, str]:
    """Give the ids that a request or an answer names, itself or in what it wraps; none of one in its wire form."""
    return dict(_ids(message, nested=True)) if isinstance(message, Message) else {}


def _ids(message: Message, *, nested: bool) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if field.name in _IDS and isinstance(value, str):
            yield field.name, value[:_LONGEST_ID]
        elif nested and isinstance(value, Message) and (field.containing_oneof is not None or field.name in _MADE):
            yield from _ids(value, nested=False)

"""Requests of ours to the CLI: numbered, and each answer handed to whoever waits for it.

2.1.332 answers them at any time, also while its gate is held. `set_model` and `set_permission_mode` are checked beside
everything else: an answer to the gate that is written right behind one overtakes it, and the next request to the model
still goes out with the old model (seen in 3 of 12). So what lets the CLI go on is withheld until the changes before it
are confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from steprail_daemon.core.events import AgentErrorReported, AgentEvent, ModelChanged
from steprail_daemon.core.model import PermissionMode
from steprail_daemon.drivers.claude import wire

#: Takes an answer, which may be an error, and adds what it says.
OnAnswer = Callable[[wire.ControlResponse, list[AgentEvent]], None]

SUCCESS: Final = "success"

_to_json: Final = msgspec.json.encode


def mode_word(mode: PermissionMode, *, plan_mode: bool) -> str:
    """Give the CLI's permission mode.

    It is `default` for every mode of the daemon: in its own `acceptEdits` and in its bypass, which it refuses to root,
    the CLI does not ask, and rules that deny would not be heard. READ_ONLY is not `plan`, which changes what the model
    is told to do.
    """
    del mode
    return "plan" if plan_mode else "default"


class Controls:
    """The requests of one process. Lines go to `out`, the codec's list of what must be written."""

    def __init__(self, out: list[bytes]) -> None:
        self._out = out
        self._count = 0
        self._open: dict[str, OnAnswer] = {}
        self._changing: set[str] = set()
        self._kept: list[bytes] = []

    def ask(self, request: dict[str, Any], on_answer: OnAnswer) -> str:
        """Send a request; gives its id."""
        self._count += 1
        request_id = f"req_{self._count}"
        self._open[request_id] = on_answer
        self._out.append(_to_json({"type": "control_request", "request_id": request_id, "request": request}) + b"\n")
        return request_id

    def interrupt(self) -> None:
        """Cut the turn off; what was withheld would only let it go on."""
        self._kept.clear()
        self._count += 1
        self._out.append(
            b'{"type":"control_request","request_id":"req_%d","request":{"subtype":"interrupt"}}\n' % self._count
        )

    def write(self, line: bytes) -> None:
        """Send a line."""
        self._out.append(line)

    def go_on(self, line: bytes) -> None:
        """Send what lets the CLI make a request, once it has confirmed what the request is to be made with."""
        (self._kept if self._changing else self._out).append(line)

    def forget_kept(self) -> None:
        """Send nothing of what is withheld: it no longer makes sense."""
        self._kept.clear()

    def answered(self, response: wire.ControlResponse, events: list[AgentEvent]) -> bool:
        """Hand an answer to whoever waits for it; false if nobody does."""
        on_answer = self._open.pop(response.request_id, None)
        if on_answer is None:
            return False
        on_answer(response, events)
        if response.request_id in self._changing:
            self._changing.discard(response.request_id)
            if not self._changing:
                self._out += self._kept
                self._kept.clear()
        return True

    # --- changes -------------------------------------------------------------------------------------------------

    def set_model(self, model: str) -> None:
        """Use `model` from the next request on; empty is the CLI's own choice. `ModelChanged` tells what came of it."""
        request = {"subtype": "set_model", "model": model} if model else {"subtype": "set_model"}

        def on_answer(response: wire.ControlResponse, events: list[AgentEvent]) -> None:
            if response.subtype == SUCCESS:
                events.append(ModelChanged(wire.decode_model(response.response) or model))
            else:
                events.append(ModelChanged(model, response.error or "the agent refused it and said no more"))

        self._changing.add(self.ask(request, on_answer))

    def set_mode(self, mode: PermissionMode, *, plan_mode: bool) -> None:
        """Change the CLI's permission mode."""
        word = mode_word(mode, plan_mode=plan_mode)

        def on_answer(response: wire.ControlResponse, events: list[AgentEvent]) -> None:
            if response.subtype != SUCCESS:
                message = f"the permission mode {word!r} was not taken: {response.error}"
                events.append(AgentErrorReported("set_permission_mode", message, will_retry=False))

        self._changing.add(self.ask({"subtype": "set_permission_mode", "mode": word}, on_answer))

"""The process: serves requests one line at a time, starts turns, and ends in an orderly way."""

import os
import select
import signal
import threading
import time
from typing import Any

from steprail_scripted.faults import HANG_LIMIT, Fault, strike
from steprail_scripted.fields import ScriptError
from steprail_scripted.loop import Turn
from steprail_scripted.methods import Methods
from steprail_scripted.model import Prompt, Reply, Source
from steprail_scripted.plan import GO_ON, DefaultPlan, ScriptedReplies, unfinished
from steprail_scripted.process import Process
from steprail_scripted.rpc import Dispatcher, Effect, LineReader
from steprail_scripted.script import Bootstrap, Cursor, TurnScript
from steprail_scripted.wire import now_ms

READ_SIZE = 1 << 20
DIRECTIVE = "#!scripted"
"""How the leading line of a prompt begins that brings its own script: with a file's name, or with YAML after it."""


class Agent:
    """Owns the turn and the input."""

    def __init__(self, process: Process, stdin: int) -> None:
        self.process = process
        self.turn: Turn | None = None
        self.wedged = False
        self.looks_idle = False  # after a reset during a turn the state says idle, while prompts are refused
        self._stdin = stdin
        self._reader = LineReader()
        self._dispatcher = Dispatcher(Methods(self).table())
        self._pending: tuple[float, Turn] | None = None
        self._next_ping = 0.0
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_out, False)
        process.wake = self._poke

    def serve(self) -> int:
        """Serve until the input ends or a signal comes; the result is the exit code."""
        threading.excepthook = _crash
        self._take_signals()
        self._strike("start")
        self.process.send_agent_start(with_context=True)
        self.process.wire.notify("hook.sessionStart", {"sessionType": "startup"})
        while self._serve_once():
            pass
        return self._shut_down()

    # Requests.

    @property
    def busy(self) -> bool:
        """Whether a prompt would be refused."""
        return self.wedged or self._pending is not None or (self.turn is not None and self.turn.open)

    def begin(self, prompt: Prompt) -> None:
        """Make the turn of a prompt; it starts after the requests that were read in one piece with it."""
        self.process.staging.drop()
        self.looks_idle = False
        source, script = self._source(prompt)
        turn = Turn(self.process, prompt, source, script.faults, script.bootstrap)
        self.turn = turn
        self._pending = (time.monotonic() + self.process.script.timers.turn_start, turn)
        self.process.turns += 1

    def abort(self) -> Effect | None:
        """Abort the turn. One that has not begun stays for ever, and with it the process: the CLI does that too."""
        turn = self.turn
        if turn is None or not self.busy:
            return None
        if turn.wedge():
            self._pending = None
            self.wedged = True
            return None
        return Effect(turn.abort, urgent=True)

    def _source(self, prompt: Prompt) -> tuple[Source, TurnScript]:
        try:
            script = self._own_script(prompt)
        except ScriptError as error:
            return ScriptedReplies(TurnScript(replies=(Reply(text=str(error)),)), {}), TurnScript()
        turn = script or self.process.cursor.next_turn(prompt.text)
        if turn is None or not (turn.replies or turn.bootstrap != Bootstrap()):
            return self._default_plan(prompt), turn or TurnScript()
        return ScriptedReplies(turn, self._placeholders(prompt)), turn

    def _default_plan(self, prompt: Prompt) -> DefaultPlan:
        """Begin the plan, or take up the one of a turn that was stopped, as a model would."""
        if GO_ON.fullmatch(prompt.text):
            before, known = unfinished(self.process.conversation.messages)
            if before and not before.startswith(DIRECTIVE):
                return DefaultPlan(before, known)
        return DefaultPlan(prompt.text)

    def _own_script(self, prompt: Prompt) -> TurnScript | None:
        first, _, rest = prompt.text.partition("\n")
        if not first.startswith(DIRECTIVE):
            return None
        # The loader is a third of the start-up, and most agents do without it.
        from steprail_scripted.loading import load_file, load_text  # noqa: PLC0415

        name = first.removeprefix(DIRECTIVE).strip()
        script = load_file(self.process.workspace / name) if name else load_text(rest)
        turn = Cursor(script).next_turn(rest)
        return None if turn is None else turn._replace(faults=(*script.faults, *turn.faults))

    def _placeholders(self, prompt: Prompt) -> dict[str, str]:
        conversation = self.process.conversation
        return {
            "prompt": prompt.text,
            "first_prompt": conversation.first_prompt() or prompt.text,
            "turn": str(self.process.turns + 1),
            "messages": str(len(conversation.messages)),
        }

    # The loop.

    def _serve_once(self) -> bool:
        poll = select.poll()
        poll.register(self._stdin, select.POLLIN)
        poll.register(self._wake_in, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._patience())}
        if self.process.frozen.is_set():
            self._stay_frozen()
        if self._wake_in in ready:
            return False
        if self._stdin in ready:
            data = os.read(self._stdin, READ_SIZE)
            if not data:
                return False
            self._take(data)
        self._keep_time()
        return True

    def _take(self, data: bytes) -> None:
        effects: list[Effect] = []
        for line in self._reader.feed(data):
            answer, more = self._dispatcher.handle(line)
            if answer is not None:
                self.process.wire.send(answer)
            effects += more
        for effect in sorted(effects, key=lambda effect: not effect.urgent):
            effect.run()

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self._pending is not None and self._pending[0] <= now:
            turn = self._pending[1]
            self._pending = None
            self._next_ping = now + self.process.script.timers.ping
            threading.Thread(target=turn.run, name=turn.turn_id, daemon=True).start()
        if self.turn is not None and self.turn.open and self._pending is None and self._next_ping <= now:
            self._next_ping = now + self.process.script.timers.ping
            self.turn.emit("ping", {"status": self.status(), "turnId": self.turn.turn_id})

    def _patience(self) -> float | None:
        """Milliseconds until something is due."""
        if self._pending is not None:
            due = self._pending[0]
        elif self.turn is not None and self.turn.open:
            due = self._next_ping
        else:
            return None
        return max(0.0, due - time.monotonic()) * 1000

    def status(self) -> str:
        """Say what `getState` says."""
        if self.process.questions.any_open():
            return "waiting_permission"
        return "processing" if self.busy and not self.looks_idle else "idle"

    # Signals, faults and the end.

    def _take_signals(self) -> None:
        # The descriptor is written to as the signal comes; a handler alone may run too late to end the wait for input.
        signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def _poke(self) -> None:
        try:
            os.write(self._wake_out, b"x")
        except BlockingIOError:
            return  # it is awake already

    def _stay_frozen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        threading.Event().wait(HANG_LIMIT)

    def _strike(self, point: str) -> None:
        for fault in self.process.script.faults:
            if fault.at == point:
                self._strike_one(fault)

    def _strike_one(self, fault: Fault) -> None:
        strike(fault, self.process, threading.Event())
        if self.process.frozen.is_set():
            self._stay_frozen()

    def _shut_down(self) -> int:
        # From here on a second signal ends the process at once, and leaves a running command to itself.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        process, turn = self.process, self.turn
        lingering = turn is not None and self._finish(turn)
        process.conversation.file.append("status", status="completed")
        process.wire.notify("hook.sessionEnd", {"reason": "exit", "duration": now_ms() - process.started_ms})
        self._strike("shutdown")
        process.wire.notify("agentEnd", {"sessionId": process.session_id, "reason": "aborted"})
        if turn is not None and lingering:
            turn.done.wait(HANG_LIMIT)
            process.wire.write_raw(_farewell(now_ms() - process.started_ms, turn.tally.total))
        process.wire.flush()
        return 0

    def _finish(self, turn: Turn) -> bool:
        """End the turn at hand; the result says whether its command goes on, and the process with it."""
        if self._pending is not None or not turn.open:
            return False
        turn.close_batch()
        turn.interrupt()
        if turn.done.wait(self.process.script.timers.shutdown):
            return False
        turn.cut_off()
        return True


def _farewell(duration_ms: int, tokens: int) -> str:
    seconds = duration_ms // 1000
    return f"Failed in {seconds // 60}m {seconds % 60}s · {tokens} tokens used"


def _crash(arguments: Any) -> None:
    """Let a defect in a thread end the process: a turn without an end would look like a slow one."""
    threading.__excepthook__(arguments)
    os._exit(70)

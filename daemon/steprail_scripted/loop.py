"""A turn: the loop of asking the model, running its calls and waiting for the host."""

import re
import threading
from collections.abc import Sequence
from typing import Any

from steprail_scripted.faults import HANG_LIMIT, Fault, strike
from steprail_scripted.guards import Guards
from steprail_scripted.model import Prompt, ProviderError, Reply, Source, ToolResult, Usage
from steprail_scripted.process import Process
from steprail_scripted.provider import TOKEN_LIMIT, Failure, describe
from steprail_scripted.script import Bootstrap
from steprail_scripted.staging import Batch
from steprail_scripted.steps import StepRunner
from steprail_scripted.tally import TurnTally, sum_of, usage_by_size
from steprail_scripted.wire import now_ms


class Aborted(Exception):
    """The turn was told to end."""


class Stopped(Exception):
    """The host decided at a step's end that the turn is over."""


class Turn:
    """One prompt's work, run in a thread of its own. The methods from `abort` on are called by other threads."""

    def __init__(
        self, process: Process, prompt: Prompt, source: Source, faults: Sequence[Fault], bootstrap: Bootstrap
    ) -> None:
        self.process = process
        self.prompt = prompt
        self.tally = TurnTally()
        self.aborted = threading.Event()
        self.done = threading.Event()
        self.turn_id = process.wire.new_id("turn")
        self.announced = False
        self.tool_count = 0
        self._source = source
        self._faults = list(faults)
        self._bootstrap = bootstrap
        self._reply_faults: Sequence[Fault] = ()
        self._began = now_ms()
        self._message_id = ""
        self._said = ""
        self._batch: Batch | None = None
        self._batch_open = False
        self._finished = False
        self._step_id: str | None = None
        self._decision: bool | None = None
        self._steps = StepRunner(self)

    # What runs in the turn's thread.

    def run(self) -> None:
        """Do the turn from `turnStart` to `turnEnd`."""
        try:
            self.strike("prompt")
            if not self._announce():
                return
            self._open()
            reason = self._outcome()
            self.strike("turn_end")
            self._close(reason)
            self.strike("after_turn_end")
        finally:
            self.done.set()

    def emit(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification, unless the turn is over."""
        with self.process.condition:
            if not self._finished:
                self.process.wire.notify(method, params)

    def strike(self, point: str) -> None:
        """Let the faults of a point happen."""
        for fault in [*self.process.script.faults, *self._faults, *self._reply_faults]:
            if fault.at == point:
                strike(fault, self.process, self.aborted)

    def check(self) -> None:
        """Raise `Aborted` if the turn was told to end."""
        if self.aborted.is_set():
            raise Aborted

    def _announce(self) -> bool:
        with self.process.condition:
            self.emit("turnStart", {"turnId": self.turn_id})
            self.announced = not self._finished
            return self.announced

    def _open(self) -> None:
        self._message_id = self.process.wire.new_id("msg")
        self.emit("messageStart", {"messageId": self._message_id, "role": "assistant"})
        if self.prompt.images and not self.process.script.vision:
            message = (
                f"Model '{self.process.options.model}' does not support image inputs. "
                "Please use a vision-capable model like claude-3.5-sonnet, gpt-4o, or gemini-1.5-pro."
            )
            self.emit("error", {"code": -32000, "message": message, "recoverable": True})
        if self._slash_command():
            return
        self._batch = self.process.staging.begin(self.process.wire.new_id("changes"))
        self._batch_open = True
        self.emit("changesBatchStart", {"batchId": self._batch.batch_id, "turnId": self.turn_id})
        self.emit("hook.prePrompt", {"instruction": self.prompt.text, "mentionedFiles": self.prompt.files})
        self.strike("turn_start")

    def _slash_command(self) -> bool:
        return self.prompt.text.startswith("/")

    def _outcome(self) -> str:
        try:
            if self._slash_command():
                self._say(_slash_answer(self.prompt.text))
            elif not self._bootstrap_fails():
                self.process.conversation.add("user", self.prompt.text)
                self._loop()
            self.check()
        except Aborted:
            return "aborted"
        except Stopped:
            return "stop_condition"
        return "completed"

    def _bootstrap_fails(self) -> bool:
        if self._bootstrap.delay:
            threading.Event().wait(self._bootstrap.delay)  # the CLI does not end it for an abort
        self.check()
        return self._bootstrap.fails

    def _loop(self) -> None:
        guards = Guards(enabled=self.process.script.guards)
        iteration = failures = 0
        results: Sequence[ToolResult] = ()
        while iteration < self.process.script.max_iterations:
            iteration += 1
            reply = self._ask(results)
            if reply.error is not None:
                failures += 1
                if self._gives_up(reply.error, failures):
                    return
                iteration = 0  # a retry begins the loop anew, and its step numbers
                continue
            failures = 0
            if not reply.calls or guards.tools_off:
                if guards.is_empty(reply):
                    continue
                self._answer(reply)
                return
            if guards.refuses(reply):
                continue
            results = self._step(iteration, reply)
            guards.completed(reply, results)
        self._answer(self._ask(results, counted=False))

    def _ask(self, results: Sequence[ToolResult], *, counted: bool = True) -> Reply:
        self._reply_faults = ()
        self.tally.calls += 1
        self.check()
        reply = self._source.next_reply(results)
        self._reply_faults = reply.faults
        self.strike("model")
        if reply.hang:
            self.aborted.wait(HANG_LIMIT)
        else:
            least = self.process.script.timers.first_reply if self.tally.calls == 1 else 0.0
            self.aborted.wait(max(reply.delay, least))
        self.check()
        if counted and reply.error is None:
            self.tally.usages.append(self._usage(reply))
        return reply

    def _usage(self, reply: Reply) -> Usage | None:
        if not reply.computed_usage:
            return reply.usage
        conversation = self.process.conversation
        context = conversation.as_text()
        known, conversation.sent = conversation.sent, len(context)
        return usage_by_size(context, known, reply, self.process.options.model)

    def _gives_up(self, error: ProviderError, failures: int) -> bool:
        """Deal with a failure of the provider: `False` is another try."""
        if error.status == 429 and TOKEN_LIMIT.search(error.message):
            self._compact()
            return False
        pauses = self.process.script.timers.retries
        if (error.status is None or error.status >= 500) and failures <= len(pauses):
            pause = pauses[failures - 1] if error.retry_after is None else error.retry_after
            threading.Event().wait(pause)  # the CLI does not end it for an abort
            self.check()
            return False
        self._fail(describe(error))
        return True

    def _compact(self) -> None:
        tokens = len(self.process.conversation.as_text()) // 4
        percent = 1 - self.process.context_percent() / 100
        self.emit(
            "hook.contextOverflow",
            {"tokensBefore": tokens, "tokensAfter": tokens, "croppedCount": 1, "usagePercent": percent},
        )
        summary = "[Context Summary - 1 messages condensed]"
        self.emit(
            "hook.contextCompacted",
            {"croppedCount": 1, "summary": summary, "usagePercent": percent, "reason": "overflow"},
        )

    def _fail(self, failure: Failure) -> None:
        self.emit("hook.sessionError", {"error": failure.text, "code": failure.code})
        if failure.rate_limit is not None:
            more = {"model": self.process.options.model, "provider": "scripted"}
            self.emit("hook.rateLimit", {"error": failure.text, "code": failure.code, **failure.rate_limit, **more})
        self.emit("hook.sessionError", {"error": failure.text})
        self._say(f"{failure.icon} {failure.text}")
        self.emit("error", failure.error)

    def _answer(self, reply: Reply) -> None:
        self.process.conversation.add("assistant", reply.text)
        self._say(reply.text)
        self.strike("message")

    def _say(self, text: str) -> None:
        self._said = text
        if text:
            self.emit("messageUpdate", {"messageId": self._message_id, "delta": text})

    def _step(self, iteration: int, reply: Reply) -> list[ToolResult]:
        calls, results = self._steps.run(reply)
        self.strike("step")
        if not self.prompt.host_stops:
            self.tally.take_step()
            self.strike("step_end")
            self.check()
            return results
        step: dict[str, Any] = {"stepNumber": iteration}
        if reply.text.strip():
            step["thought"] = reply.text.strip()
        step["toolCalls"] = calls
        step["toolResults"] = [result.on_the_wire() for result in results]
        extension = self._extension(self.tally.take_step())
        step_id = self.process.wire.new_id("step")
        with self.process.condition:
            self._step_id, self._decision = step_id, None
        self.emit("stepEnd", {"stepId": step_id, "step": step, **extension})
        self.strike("step_end")
        self._await_decision()
        return results

    def _extension(self, usage: Usage | None) -> dict[str, Any]:
        return {"usage": shown(usage)} if usage is not None and self.process.script.report_usage else {}

    def _await_decision(self) -> None:
        with self.process.condition:
            self.process.condition.wait_for(lambda: self.aborted.is_set() or self._decision is not None, HANG_LIMIT)
            self._step_id = None
            decision = self._decision
        self.check()
        if decision:
            raise Stopped

    def _close(self, reason: str) -> None:
        if self.aborted.is_set():
            reason = "aborted"
        self.close_batch()
        with self.process.condition:
            if self._finished:
                return
            tally = self.process.tally
            tokens = tally.repeat() if self._slash_command() else tally.close_turn(self.tally)
            self._finish(reason, tokens)

    # What others do to a turn.

    @property
    def open(self) -> bool:
        """Whether `turnEnd` is still to come."""
        return not self._finished

    def wedge(self) -> bool:
        """Let a turn that has not begun never begin nor end, as an abort does to the CLI; `False`: it has begun."""
        with self.process.condition:
            if self.announced:
                return False
            self._finished = True
            return True

    def abort(self) -> None:
        """Tell the turn to end, and its command; open questions count as denied."""
        self._steps.commands.abort()
        self.interrupt()

    def interrupt(self) -> None:
        """Tell the turn to end, and let a running command be."""
        with self.process.condition:
            self.aborted.set()
            self.process.condition.notify_all()

    def take_decision(self, step_id: str) -> bool:
        """Say whether a step waits for its decision; if so, no second decision is taken."""
        with self.process.condition:
            if step_id != self._step_id or self.aborted.is_set():
                return False
            self._step_id = None
            return True

    def decide(self, *, stop: bool) -> None:
        """Let the turn go on, or end it."""
        with self.process.condition:
            self._decision = stop
            self.process.condition.notify_all()

    def close_batch(self) -> None:
        """End the batch of changes, once."""
        with self.process.condition:
            if self._batch is None or not self._batch_open:
                return
            self._batch_open = False
            count = self.process.staging.close(self._batch)
            self.emit("changesBatchEnd", {"batchId": self._batch.batch_id, "changeCount": count})

    def cut_off(self) -> None:
        """End a turn that does not end by itself; whatever its thread still does stays unsaid."""
        with self.process.condition:
            if not self._finished:
                self._finish("aborted", self.process.tally.cut_off(self.tally))

    def _finish(self, reason: str, tokens: int) -> None:
        duration = now_ms() - self._began
        numbers = {"tokensUsed": tokens, "tokensUsageStatus": self.process.tally.status}
        if reason != "aborted":
            counts = {**numbers, "toolCallsCount": self.tool_count, "duration": duration}
            self.emit("hook.stop", counts)
            self.emit("hook.postResponse", counts)
        aborted = {"aborted": True} if reason == "aborted" else {}
        self.emit("messageEnd", {"messageId": self._message_id, "content": self._said, **aborted})
        end = {"turnId": self.turn_id, "contextPercent": self.process.context_percent(), **numbers}
        extension = self._extension(sum_of(self.tally.usages))
        self.emit("turnEnd", {**end, "durationMs": duration, "reason": reason, **extension})
        self._finished = True


def shown(usage: Usage) -> dict[str, Any]:
    """Shape usage as the extension carries it; what is not known is left out."""
    values = {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "model": usage.model,
        "cost_micro_usd": usage.cost_micro_usd,
    }
    return {name: value for name, value in values.items() if value is not None}


def _slash_answer(text: str) -> str:
    command = re.split(r"\s", text, maxsplit=1)[0]
    if command in ("/help", "/model", "/status"):
        return f"Command {command} executed."
    return f"Unknown command: {command}. Type /help for available commands."

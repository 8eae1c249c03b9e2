"""The failures that the state machine itself words: reason, whose fault, and one sentence for people."""

from __future__ import annotations

from steprail_daemon.core.events import AgentExited, TurnEnded
from steprail_daemon.core.model import SECOND, Failure, FailureFault, TurnEndReason

_STDERR_CHARACTERS = 2_000
#: SIGHUP, SIGINT, SIGKILL, SIGTERM: what comes from outside, where a crash comes from within.
_SENT_SIGNALS = frozenset({1, 2, 9, 15})


def agent_exited(event: AgentExited) -> Failure:
    """The process is gone while a run needed it."""
    return event.failure or Failure(reason="AGENT_EXITED", message=_exit_message(event), fault=_exit_fault(event))


def agent_start_failed(event: AgentExited) -> Failure:
    """The process went before it was given the prompt."""
    return event.failure or Failure(reason="AGENT_START_FAILED", message=_exit_message(event), fault=_exit_fault(event))


def _exit_message(event: AgentExited) -> str:
    if event.signal is not None:
        how = f"was killed by signal {event.signal}"
    elif event.code is not None:
        how = f"ended with exit code {event.code}"
    else:
        how = "is gone, it is not known how"
    stderr = event.stderr.strip()
    tail = f"; the end of its stderr: {stderr[-_STDERR_CHARACTERS:]}" if stderr else ""
    return f"the agent's process {how}{tail}"


def _exit_fault(event: AgentExited) -> FailureFault:
    return FailureFault.ENVIRONMENT if event.signal in _SENT_SIGNALS else FailureFault.AGENT


def turn_failed(event: TurnEnded) -> Failure:
    """The agent ended a turn in a way that nobody asked for.

    With ERROR it is the agent's own failure. An abort or a stop that the daemon did not order is not claimed as one:
    whatever cut the turn (a signal from outside, a hook of the user's own), this run did not reach its end.
    """
    if event.failure is not None:
        return event.failure
    if event.reason is TurnEndReason.ABORTED:
        message = f"the agent's turn was cut off ({event.reason_raw!r}), and not by this daemon"
    elif event.reason is TurnEndReason.STOP_CONDITION:
        message = f"the agent ended its turn as stopped ({event.reason_raw!r}), and this daemon had not stopped it"
    else:
        message = f"the agent ended its turn with an error ({event.reason_raw!r}) and said no more about it"
    return Failure(reason="AGENT_ERROR", message=message, fault=FailureFault.AGENT)


def gave_up_waiting(step_number: int) -> Failure:
    """The agent withdrew its question at a boundary."""
    message = f"the agent no longer waited for the decision about step {step_number}"
    return Failure(reason="AGENT_ERROR", message=message, fault=FailureFault.AGENT)


def protocol_error(message: str) -> Failure:
    """What the agent sends cannot be understood or does not fit."""
    return Failure(reason="PROTOCOL_ERROR", message=message, fault=FailureFault.AGENT)


def gate_lost(what: str) -> Failure:
    """The agent went past a boundary at which it had to wait."""
    message = f"the agent went past a step boundary without leave: {what}"
    return Failure(reason="GATE_LOST", message=message, fault=FailureFault.AGENT)


def hard_timeout(limit_ns: int) -> Failure:
    """The run took longer than it may."""
    message = f"the run took longer than its hard_timeout of {limit_ns / SECOND:g} s"
    return Failure(reason="HARD_TIMEOUT", message=message, fault=FailureFault.CLIENT)


def prompt_not_taken(limit_ns: int) -> Failure:
    """The agent was given the prompt and did not say that it works on it."""
    message = f"the agent did not take the prompt within {limit_ns / SECOND:g} s; its process was ended"
    return Failure(reason="AGENT_UNRESPONSIVE", message=message, fault=FailureFault.AGENT)


def queue_timeout(limit_ns: int) -> Failure:
    """The run was not begun in time."""
    message = f"the run waited longer than its queue_timeout of {limit_ns / SECOND:g} s"
    return Failure(reason="QUEUE_TIMEOUT", message=message, fault=FailureFault.CLIENT, retryable=True)


def silent(silence_ns: int) -> Failure:
    """The agent had the word and showed no sign of life."""
    message = f"the agent gave no sign of life for {silence_ns / SECOND:g} s; its process was ended"
    return Failure(reason="AGENT_UNRESPONSIVE", message=message, fault=FailureFault.AGENT)


def unresponsive(what: str, limit_ns: int) -> Failure:
    """The agent did not react."""
    message = f"the agent did not confirm the {what} within {limit_ns / SECOND:g} s; its process was ended"
    return Failure(reason="AGENT_UNRESPONSIVE", message=message, fault=FailureFault.AGENT)


def decider_error(message: str) -> Failure:
    """A client reported that it could not decide."""
    return Failure(reason="DECIDER_ERROR", message=message, fault=FailureFault.CLIENT)


def rule_error(rule_id: str, message: str) -> Failure:
    """An expression of a stop rule went wrong."""
    message = f"the expression of rule {rule_id!r} went wrong: {message}"
    return Failure(reason="RULE_ERROR", message=message, fault=FailureFault.CLIENT)


def daemon_restarted() -> Failure:
    """The daemon came back and the agent's process was gone."""
    message = "the daemon restarted while the run was live"
    return Failure(reason="DAEMON_RESTARTED", message=message, fault=FailureFault.DAEMON, retryable=True)


def journal_unavailable(patience_ns: int) -> Failure:
    """Nothing could be recorded for so long that the agent was not kept waiting any more."""
    seconds = patience_ns / SECOND
    message = f"nothing could be recorded for {seconds:g} s; the agent's process was ended"
    return Failure(reason="JOURNAL_UNAVAILABLE", message=message, fault=FailureFault.ENVIRONMENT, retryable=True)

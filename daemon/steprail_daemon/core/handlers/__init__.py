"""The handlers behind the transition table, by theme, each building on the one before; `core.run.Run` is the last.

`base` has a run's private notes and the parts of its answers, `closing` the ways in which something of it ends. Then
come the handlers: `asking` permissions and questions, `gate` a gate that does not hold, `boundary` a step and what
follows it, `deciding` who is asked about it, `ending` aborts, timers and ends, `queued` what is before the agent took
the prompt. Each handler takes an event and its time and gives commands.
"""

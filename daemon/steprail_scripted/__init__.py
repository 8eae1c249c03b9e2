"""The built-in agent: a coding agent CLI without a model, which speaks the JSON-RPC dialect of Autohand CLI 0.8.2.

It reads, searches and writes files and runs commands in a workspace as a script says, or, without a script, after a
plan of its own: look around, read what matters, report. It needs no key and no network. `docs/scripted-agent.md`
describes the script, the faults, and where the agent differs from the CLI whose ways it follows.
"""

AUTOHAND_VERSION = "0.8.2"
"""The version of the Autohand CLI whose recorded behaviour the agent follows; `--version` prints it."""

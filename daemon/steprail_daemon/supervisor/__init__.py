"""The owner of processes: spawns agents through the parent process, feeds and drains their pipes, and ends them.

`ParentLink.spawn` starts an agent and gives its `AgentProcess`, which calls back with what the agent writes and with
how it ended, and takes it down a ladder. The work that must survive this process is the parent's
(`steprail_daemon.parent`).
"""

from steprail_daemon.supervisor.environment import build_environment
from steprail_daemon.supervisor.link import ParentLink
from steprail_daemon.supervisor.process import AgentProcess
from steprail_daemon.supervisor.status import ExitStatus, SpawnFailed

__all__ = ["AgentProcess", "ExitStatus", "ParentLink", "SpawnFailed", "build_environment"]

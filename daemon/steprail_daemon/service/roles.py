"""The least role that each call needs: one row per call, by its full name.

The services' comments in the protobuf files say the same, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from steprail_daemon.engine.facade import Role

#: For whoever can connect, without any proof of who it is: probes and load balancers have no credentials.
EVERYBODY: Final = None

_VIEWER, _OPERATOR, _ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

_SERVICES: Final[Mapping[str, Mapping[str, Role | None]]] = {
    "steprail.v1.AgentService": {
        "ListAgents": _VIEWER,
        "GetServerInfo": _VIEWER,
    },
    "steprail.v1.SessionService": {
        "CreateSession": _OPERATOR,
        "GetSession": _VIEWER,
        "ListSessions": _VIEWER,
        "UpdateSession": _OPERATOR,
        "CloseSession": _OPERATOR,
        "DeleteSession": _ADMIN,
        "ForkSession": _OPERATOR,
        "ReleaseQueue": _ADMIN,
        "WatchSession": _VIEWER,
        "WatchEvents": _VIEWER,
    },
    "steprail.v1.RunService": {
        "StartRun": _OPERATOR,
        "ContinueRun": _OPERATOR,
        "ControlRun": _OPERATOR,
        "WatchRun": _VIEWER,
        "WaitRun": _VIEWER,
        "GetRun": _VIEWER,
        "ListRuns": _VIEWER,
        "ListSteps": _VIEWER,
        "GetStep": _VIEWER,
        "ReadBlob": _VIEWER,
        "ListPending": _VIEWER,
        "StopRun": _OPERATOR,
        "AbortRun": _OPERATOR,
        "SubmitDecision": _OPERATOR,
        "AnswerPermission": _OPERATOR,
        "AnswerQuestion": _OPERATOR,
        "SteerRun": _OPERATOR,
        "TestStopRules": _VIEWER,
    },
    "steprail.v1.BudgetService": {
        "ListBudgets": _VIEWER,
        "GetBudget": _VIEWER,
        "WatchBudgets": _VIEWER,
    },
    "steprail.v1.AdminService": {
        "Drain": _ADMIN,
        "GetDrainStatus": _ADMIN,
    },
    "grpc.health.v1.Health": {
        "Check": EVERYBODY,
        "List": EVERYBODY,
        "Watch": EVERYBODY,
    },
    "grpc.reflection.v1alpha.ServerReflection": {
        "ServerReflectionInfo": _VIEWER,
    },
}

#: The least role by the full name of a call, such as `steprail.v1.RunService.GetRun`.
ROLES: Final[Mapping[str, Role | None]] = MappingProxyType(
    {f"{service}.{call}": role for service, calls in _SERVICES.items() for call, role in calls.items()}
)

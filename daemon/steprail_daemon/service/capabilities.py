"""Capabilities of agents and sessions in their public form."""

from __future__ import annotations

from steprail.v1 import agents_pb2
from steprail_daemon.core.model import Capabilities

_SPANS = {"max_decision_hold_ns": "max_decision_hold", "max_permission_hold_ns": "max_permission_hold"}


def capabilities_message(value: Capabilities) -> agents_pb2.Capabilities:
    """Give the public message. Its fields are named as those of the core, but for the unit of the spans."""
    message = agents_pb2.Capabilities()
    for name in value.__struct_fields__:
        held = getattr(value, name)
        if name not in _SPANS:
            setattr(message, name, held)
        elif held is not None:
            getattr(message, _SPANS[name]).FromNanoseconds(held)
    return message

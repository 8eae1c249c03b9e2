"""What the kinds of public events are called: the fields of the body of the public `Event`, and their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from steprail.v1 import events_pb2

KIND_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {field.name: field.number for field in events_pb2.Event.DESCRIPTOR.oneofs_by_name["body"].fields}
)
KIND_NAMES: Final[Mapping[int, str]] = MappingProxyType({number: name for name, number in KIND_NUMBERS.items()})

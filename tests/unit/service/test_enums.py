"""The core's enumerations have the numbers of the public ones, so that nothing translates them."""

import inspect
from enum import IntEnum

import pytest
from google.protobuf.descriptor import EnumDescriptor, FileDescriptor

from steprail.v1 import agents_pb2, decisions_pb2, errors_pb2, events_pb2, rules_pb2, runs_pb2, sessions_pb2, steps_pb2
from steprail_daemon.core import model

MODULES = (agents_pb2, decisions_pb2, errors_pb2, events_pb2, rules_pb2, runs_pb2, sessions_pb2, steps_pb2)
FILES: list[FileDescriptor] = [module.DESCRIPTOR for module in MODULES]
PUBLIC: dict[str, EnumDescriptor] = {name: enum for file in FILES for name, enum in file.enum_types_by_name.items()}
CORE: dict[str, type[IntEnum]] = {
    name: member
    for name, member in inspect.getmembers(model, inspect.isclass)
    if issubclass(member, IntEnum) and member is not IntEnum
}

#: Public enumerations without a counterpart: what they say is not known to the core yet.
ONLY_PUBLIC = {
    "BudgetUnit",
    "ControlEvents",
    "DeciderMode",
    "WaitUntil",
}


def numbers_of(enum: EnumDescriptor) -> dict[str, int]:
    """Give names without their prefix; the prefix is the enumeration's own name."""
    zero = next(value.name for value in enum.values if value.number == 0)
    prefix = zero.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix): value.number for value in enum.values if value.number}


def test_every_enumeration_of_either_side_is_compared_or_known_to_stand_alone() -> None:
    assert set(CORE) == set(PUBLIC) - ONLY_PUBLIC


@pytest.mark.parametrize("name", sorted(CORE))
def test_names_and_numbers_are_the_same_in_both_directions(name: str) -> None:
    core = {member.name: member.value for member in CORE[name] if member.value}

    assert core == numbers_of(PUBLIC[name])


def test_what_the_core_calls_unknown_is_unspecified() -> None:
    unknown = {name for name, enum in CORE.items() if any(member.value == 0 for member in enum)}

    assert unknown == {"FinishReason", "ToolKind"}
    assert all(CORE[name](0).name == "UNKNOWN" for name in unknown)

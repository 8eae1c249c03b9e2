"""Every call has a role, and it is the one that its comment promises."""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from steprail.v1 import (
    admin_pb2,
    agents_pb2,
    budgets_pb2,
    decisions_pb2,
    errors_pb2,
    events_pb2,
    rules_pb2,
    runs_pb2,
    sessions_pb2,
    steps_pb2,
)
from steprail_daemon.engine.facade import Role
from steprail_daemon.service.roles import EVERYBODY, ROLES

PROTOS = Path(__file__).resolve().parents[3] / "protos"
MODULES = (
    admin_pb2,
    agents_pb2,
    budgets_pb2,
    decisions_pb2,
    errors_pb2,
    events_pb2,
    rules_pb2,
    runs_pb2,
    sessions_pb2,
    steps_pb2,
)
FILES: tuple[FileDescriptor, ...] = tuple(module.DESCRIPTOR for module in MODULES)
SERVICES = [service for file in FILES for service in file.services_by_name.values()]
STANDARD = [
    *health_pb2.DESCRIPTOR.services_by_name.values(),
    *reflection_pb2.DESCRIPTOR.services_by_name.values(),
]


def calls(services: list[ServiceDescriptor]) -> set[str]:
    return {method.full_name for service in services for method in service.methods}


def test_the_files_are_all_of_the_api() -> None:
    assert {file.name for file in FILES} == {str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto")}


def test_every_call_has_a_role_and_every_role_a_call() -> None:
    assert set(ROLES) == calls(SERVICES) | calls(STANDARD)


def test_only_health_is_for_everybody() -> None:
    assert {name.rpartition(".")[0] for name, role in ROLES.items() if role is EVERYBODY} == {"grpc.health.v1.Health"}


def test_reflection_is_for_viewers() -> None:
    assert {ROLES[name] for name in calls(STANDARD) if "reflection" in name} == {Role.VIEWER}


def comment_before(text: str, line: str) -> str:
    """Give the comment that stands right before a line, as one line."""
    found = re.search(rf"((?:^ *//.*\n)+) *{re.escape(line)}", text, re.MULTILINE)
    assert found is not None, f"no comment before {line}"
    return " ".join(part.strip().removeprefix("//").strip() for part in found[1].splitlines())


def promised(file: FileDescriptor, service: str, call: str) -> Role:
    """Give the role that the comments name: of the call, else of its service."""
    text = (PROTOS / file.name).read_text()
    of_call = re.search(r"Role: (\w+)\.", comment_before(text, f"rpc {call}("))
    of_service = re.search(
        r"[Ff]or the role (\w+)|(for every role)", comment_before(text, f"service {service} {{"), re.IGNORECASE
    )
    assert of_service is not None, f"{service} does not say for whom it is"
    word = of_call[1] if of_call else of_service[1] or "viewer"
    return Role[word.upper()]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_the_roles_are_those_of_the_comments(service: ServiceDescriptor) -> None:
    wanted = {method.full_name: promised(service.file, service.name, method.name) for method in service.methods}

    assert {name: ROLES[name] for name in wanted} == wanted

"""Which calls are implemented, and that nothing else pretends to be."""

import inspect

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from steprail.v1 import admin_pb2, agents_pb2, runs_pb2, sessions_pb2
from steprail_daemon.service.admin import AdminService
from steprail_daemon.service.agents import AgentService
from steprail_daemon.service.auth import Access
from steprail_daemon.service.calls import Calls
from steprail_daemon.service.handlers import ServiceHandlers, snake_case
from steprail_daemon.service.request_ids import RequestIds
from steprail_daemon.service.runs import RunService
from steprail_daemon.service.sessions import SessionService
from steprail_daemon.service.verbs import Verbs
from steprail_daemon.testing.fake_facade import FakeFacade

LATER = {
    "AgentService": set[str](),
    "SessionService": {"ForkSession"},
    "RunService": {"TestStopRules"},
    "AdminService": set[str](),
}


def services() -> dict[str, tuple[ServiceDescriptor, object]]:
    facade, calls = FakeFacade(), Calls(10**9)
    ids = RequestIds(facade)
    return {
        "AgentService": (agents_pb2.DESCRIPTOR.services_by_name["AgentService"], AgentService(facade, calls)),
        "SessionService": (sessions_pb2.DESCRIPTOR.services_by_name["SessionService"], SessionService(facade, ids)),
        "RunService": (
            runs_pb2.DESCRIPTOR.services_by_name["RunService"],
            RunService(facade, Verbs(facade, ids), calls),
        ),
        "AdminService": (admin_pb2.DESCRIPTOR.services_by_name["AdminService"], AdminService(facade, ids)),
    }


@pytest.mark.parametrize("name", list(LATER))
def test_every_call_is_implemented_or_known_to_come_later(name: str) -> None:
    descriptor, implementation = services()[name]
    handlers = ServiceHandlers(descriptor, implementation, Access(), Calls(10**9), 10**9)

    expected = {method.name for method in descriptor.methods} - LATER[name]
    assert {method.rpartition("/")[2] for method in handlers.methods} == expected


@pytest.mark.parametrize("name", list(LATER))
def test_every_public_method_is_a_call(name: str) -> None:
    descriptor, implementation = services()[name]
    methods = {
        attribute
        for attribute, value in inspect.getmembers(implementation, inspect.ismethod)
        if not attribute.startswith("_")
    }

    assert methods <= {snake_case(method.name) for method in descriptor.methods}

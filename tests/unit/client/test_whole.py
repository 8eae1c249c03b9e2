"""That nothing is missing: every call, in both forms, with a policy for retries, and the generated form fresh."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import MethodDescriptor

from steprail.client import Client, Control, LiveRun, SyncClient, SyncControl, SyncRun
from steprail.client._channel import SERVICE_CONFIG
from steprail.v1 import admin_pb2, agents_pb2, budgets_pb2, runs_pb2, sessions_pb2

FILES = (agents_pb2, sessions_pb2, runs_pb2, budgets_pb2, admin_pb2)
METHODS: list[MethodDescriptor] = [
    method for file in FILES for service in file.DESCRIPTOR.services_by_name.values() for method in service.methods
]
#: Called otherwise than by its own name.
NAMES = {"ControlRun": "control"}
#: A daemon that died after it had acted, and came back with another journal, would act twice.
MAKE_SOMETHING = {"CreateSession", "ForkSession", "StartRun", "ContinueRun"}
#: The client takes them up where they ended.
FOLLOW = {"ControlRun", "WatchRun", "WatchSession", "WatchEvents", "WatchBudgets"}
GENERATOR = Path(__file__).resolve().parents[3] / "clients" / "python" / "scripts" / "blocking.py"


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name.removeprefix("steprail.v1."))
def test_each_call_has_a_method_with_words_in_both_forms(method: MethodDescriptor) -> None:
    name = NAMES.get(method.name, snake(method.name))
    for client in (Client, SyncClient):
        assert inspect.getdoc(getattr(client, name))


def test_a_call_that_takes_a_request_id_takes_it_from_the_caller_too() -> None:
    keyed = [method for method in METHODS if "request_id" in method.input_type.fields_by_name]
    assert len(keyed) > 10
    for method in keyed:
        if method.name not in NAMES:
            assert "request_id" in inspect.signature(getattr(Client, snake(method.name))).parameters, method.name


@pytest.mark.parametrize(("whole", "blocking"), [(Client, SyncClient), (Control, SyncControl), (LiveRun, SyncRun)])
def test_the_blocking_form_has_the_same_methods_with_the_same_parameters(whole: type, blocking: type) -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert public(blocking) == public(whole)
    assert set(inspect.signature(Client).parameters) == set(inspect.signature(SyncClient).parameters) - {"channel"}


def test_the_generated_form_is_fresh() -> None:
    checked = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_only_what_may_be_done_twice_is_tried_again_within_bounds_and_only_if_unavailable() -> None:
    config = json.loads(SERVICE_CONFIG)
    (entry,) = config["methodConfig"]
    named = {(name["service"], name.get("method")) for name in entry["name"]}
    for method in METHODS:
        service = method.containing_service.full_name
        retried = (service, None) in named or (service, method.name) in named
        assert retried is (method.name not in MAKE_SOMETHING | FOLLOW), method.full_name
    policy = entry["retryPolicy"]
    assert policy["retryableStatusCodes"] == ["UNAVAILABLE"]
    assert 2 <= policy["maxAttempts"] <= 5
    assert 0 < config["retryThrottling"]["maxTokens"] <= 1000


def test_every_name_in_the_retry_policy_is_a_call() -> None:
    (entry,) = json.loads(SERVICE_CONFIG)["methodConfig"]
    services = {method.containing_service.full_name for method in METHODS}
    calls = {(method.containing_service.full_name, method.name) for method in METHODS}
    for name in entry["name"]:
        assert (name["service"], name["method"]) in calls if "method" in name else name["service"] in services

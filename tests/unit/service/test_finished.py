"""What is told of a finished call: a line without content, and two metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import grpc.aio
import pytest
from google.protobuf.message import Message

from steprail.v1 import runs_pb2
from steprail_daemon.engine.facade import Caller
from steprail_daemon.service.calls import Call
from steprail_daemon.service.finished import FinishedCalls, ids_of

START = "steprail.v1.RunService.StartRun"


class Observed:
    """Takes what is observed."""

    def __init__(self) -> None:
        self.values: list[tuple[str, float, Mapping[str, str]]] = []

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self.values.append((name, value, labels))


def call(request: Message | None) -> Call:
    context: grpc.aio.ServicerContext[Any, Any] = object()  # type: ignore[assignment]  # nothing is sent here
    made = Call(Caller("payments"), context, 10**9)
    made.request = request
    return made


def test_a_call_is_counted_and_timed_by_service_method_and_code() -> None:
    observed = Observed()
    FinishedCalls(observed.observe).tell(START, None, None, code="UNAVAILABLE", reason="DRAINING", seconds=0.25)
    labels = {"grpc_service": "steprail.v1.RunService", "grpc_method": "StartRun", "grpc_code": "UNAVAILABLE"}
    assert observed.values == [
        ("grpc_server_handled_total", 1, labels),
        ("grpc_server_handling_seconds", 0.25, labels),
    ]


@pytest.mark.anyio
async def test_the_line_says_who_asked_for_what_and_nothing_of_its_contents(caplog: pytest.LogCaptureFixture) -> None:
    answer = runs_pb2.StartRunResponse(run=runs_pb2.Run(run_id="run_1", session_id="ses_1"))
    prompt = runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text="the secret prompt")])
    request = runs_pb2.StartRunRequest(session_id="ses_1", prompt=prompt, request_id="r-1")
    with caplog.at_level(logging.INFO, "steprail.calls"):
        FinishedCalls(Observed().observe).tell(START, call(request), answer, code="OK", reason="", seconds=0.0015)
    (record,) = caplog.records
    expected = {"method": START, "code": "OK", "reason": "", "identity": "payments", "ms": 1.5}
    ids = {"session_id": "ses_1", "run_id": "run_1", "request_id": "r-1"}
    assert {key: vars(record)[key] for key in (*expected, *ids)} == expected | ids
    assert "secret" not in repr(vars(record))


def test_a_call_that_was_not_let_in_has_no_identity(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "steprail.calls"):
        FinishedCalls(Observed().observe).tell(START, None, None, code="UNAUTHENTICATED", reason="", seconds=0)
    assert "identity" not in vars(caplog.records[0])


def test_probes_are_logged_for_those_who_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "steprail.calls"):
        FinishedCalls(Observed().observe).tell(
            "grpc.health.v1.Health.Check", None, None, code="OK", reason="", seconds=0
        )
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


@pytest.mark.parametrize(
    ("message", "ids"),
    [
        (None, {}),
        (b"in its wire form", {}),
        (runs_pb2.GetRunRequest(run_id="run_1"), {"run_id": "run_1"}),
        (runs_pb2.GetRunRequest(run_id="x" * 1_000), {"run_id": "x" * 128}),
        (
            runs_pb2.ControlRunRequest(
                stop=runs_pb2.StopRunRequest(run_id="run_1", reason="the secret"), request_id="r-1"
            ),
            {"run_id": "run_1", "request_id": "r-1"},
        ),
    ],
)
def test_ids_are_those_of_the_request_or_of_the_one_within(
    message: Message | bytes | None, ids: dict[str, str]
) -> None:
    assert ids_of(message) == ids

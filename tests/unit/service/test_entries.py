"""Parts of events, found in their wire form."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from steprail.v1 import decisions_pb2, errors_pb2, events_pb2, rules_pb2, runs_pb2, steps_pb2
from steprail_daemon.core.model import OnTimeout, PendingDecision
from steprail_daemon.service import entries

VERDICTS = [rules_pb2.Verdict(rule_id=name, observed="5", limit="9", ratio=0.5) for name in ("one", "two")]
STEP = steps_pb2.Step(number=300, step_id="step-300", run_id="run", model="m", verdicts=VERDICTS)
RECORDED = decisions_pb2.Decision(reason="enough")
HEAD = {"seq": 234 << 7 | 1, "time": Timestamp(seconds=5, nanos=7), "session_id": "ses", "run_id": "run"}
EVENTS = [
    events_pb2.Event(**HEAD, step_end=events_pb2.StepEnd(step=STEP)),  # type: ignore[arg-type]
    events_pb2.Event(**HEAD, decision_requested=events_pb2.DecisionRequested(step_id="step-300")),  # type: ignore[arg-type]
    events_pb2.Event(
        **HEAD,  # type: ignore[arg-type]
        decision_recorded=events_pb2.DecisionRecorded(step_id="step-300", decision=RECORDED),
    ),
]
WIRE = events_pb2.EventBatch(events=EVENTS).SerializeToString()
ENDS = [len(events_pb2.EventBatch(events=EVENTS[:count]).SerializeToString()) for count in range(4)]
PENDING = PendingDecision("step-300", 300, 0, 9_000_000_123, OnTimeout.STOP)


def test_a_step_is_found_in_an_entry_and_in_an_event() -> None:
    assert steps_pb2.Step.FromString(entries.step_of_entry(WIRE, ENDS[0], ENDS[1])) == STEP
    assert steps_pb2.Step.FromString(entries.step_of_event(EVENTS[0].SerializeToString())) == STEP


def test_what_is_asked_and_what_was_decided_is_found_by_its_step() -> None:
    recorded = entries.decision_of_entry(WIRE, ENDS[2], ENDS[3])

    assert entries.asks_about(WIRE, ENDS[1], ENDS[2], "step-300")
    assert entries.id_of_decision(recorded) == b"step-300"
    assert events_pb2.DecisionRecorded.FromString(recorded) == EVENTS[2].decision_recorded


@pytest.mark.parametrize("other", ["step-30", "step-3000", "tep-300", "run"])
def test_a_question_about_another_step_is_told_apart(other: str) -> None:
    assert not entries.asks_about(WIRE, ENDS[1], ENDS[2], other)


def test_what_is_not_there_is_empty() -> None:
    assert entries.find(WIRE, entries.key(2)) == (len(WIRE), len(WIRE))


@pytest.mark.parametrize("verdicts", [[], VERDICTS])
def test_a_question_holds_the_step_its_verdicts_and_the_time_left(verdicts: list[rules_pb2.Verdict]) -> None:
    step = steps_pb2.Step(number=1, step_id="s", text=errors_pb2.Text(value="\u048a\x01"), verdicts=verdicts)

    made = entries.decision_request(step.SerializeToString(), PENDING, 8_500_000_000)

    assert runs_pb2.DecisionRequest.FromString(made) == runs_pb2.DecisionRequest(
        step=step,
        verdicts=verdicts,
        deadline=Timestamp(seconds=9, nanos=123),
        remaining=Duration(nanos=500_000_123),
        default=decisions_pb2.ON_TIMEOUT_STOP,
    )


def test_no_time_is_left_behind_the_deadline() -> None:
    made = runs_pb2.DecisionRequest.FromString(entries.decision_request(b"", PENDING, PENDING.deadline_at + 1))

    assert made.HasField("remaining")
    assert made.remaining == Duration()


def test_fields_of_every_wire_type_are_passed_over() -> None:
    data = b"\x08\x96\x01" + b"\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x22\x01a" + b"\x2a\x01b"

    start, end = entries.find(data, entries.key(5))

    assert data[start:end] == b"b"


def test_what_is_no_message_is_told() -> None:
    with pytest.raises(ValueError, match="wire type 3"):
        entries.find(b"\x0b", entries.key(5))

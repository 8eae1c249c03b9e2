"""Records keep their content, and say what is wrong with bytes that are none."""

import inspect
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from steprail_daemon.core import records as core_records
from steprail_daemon.core.model import (
    Capabilities,
    Cost,
    CostBasis,
    CostSupport,
    Decision,
    DecisionAction,
    DecisionSource,
    FinishReason,
    OnTimeout,
    Permission,
    PermissionAnswer,
    PermissionMode,
    Question,
    QuestionItem,
    QuestionItemAnswer,
    QuestionOption,
    ResolutionSource,
    RunLimits,
    RunSpec,
    RunState,
    SessionState,
    Step,
    StepBoundary,
    StepCountRule,
    StepGate,
    StopKind,
    StopReason,
    StopRequest,
    StopRule,
    ToolCall,
    ToolKind,
    TurnEndReason,
    Usage,
    UsageSupport,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.records import (
    AbortAsked,
    AgentStarted,
    CapabilitiesChanged,
    DecisionAsked,
    DecisionRecorded,
    PermissionRequested,
    PermissionResolved,
    PromptGiven,
    QuestionRequested,
    QuestionResolved,
    QueueHeld,
    Record,
    RunCreated,
    RunEnded,
    RunStateChanged,
    RunTurnCame,
    SessionCreated,
    SessionStateChanged,
    SessionUpdated,
    SteerAccepted,
    SteerDelivered,
    SteerDropped,
    StepEnded,
    StepSummary,
    StopAsked,
    ToolGranted,
    TurnFinished,
    TurnStarted,
    UsageBeside,
    UsageCounted,
)
from steprail_daemon.core.replay import summarise
from steprail_daemon.journal.record import (
    KNOWN_KINDS,
    VERSION,
    RecordCorruptError,
    RecordUnknownError,
    RecordVersionError,
    condense,
    decode_records,
    encode_records,
    to_fact,
    to_record,
)

USAGE = Usage(input_tokens=10, output_tokens=2, complete=False)
COST = Cost(None, CostBasis.REPORTED, complete=False)
VERDICT = Verdict("r", StopKind.STEP_COUNT, VerdictOutcome.MATCHED, "3", "3", 1.0, "reached")
CAPABILITIES = Capabilities(step_gate=StepGate.EXACT, usage=UsageSupport.PER_STEP, cost=CostSupport.PRICED, resume=True)
REASON = StopReason(kind=StopKind.STEP_COUNT, source=DecisionSource.RULE, also_matched=(VERDICT,))
STEP = Step(
    number=3,
    step_id="stp_3",
    text="a long text",
    thought="",
    tool_calls=(ToolCall("c1", "Bash", ToolKind.EXECUTE, "", "{}"), ToolCall("c2", "Read", ToolKind.READ, "", "{}")),
    tool_results=(),
    finish_reason=FinishReason.TOOL_CALLS,
    finish_reason_raw="tool_use",
    usage=USAGE,
    cost=COST,
    model="m",
    duration_ns=5,
    ended_at=99,
    boundary=StepBoundary.OBSERVED,
)

PERMISSION = Permission(
    permission_id="per_1",
    step_number=1,
    tool="Bash",
    tool_kind=ToolKind.EXECUTE,
    title="List files",
    arguments_json="{}",
    asked_at=5,
    deadline_at=6,
)
ITEM = QuestionItem(item_id="item", text="Which?", options=(QuestionOption("a", "A"),))
QUESTION = Question(question_id="que_1", step_number=1, items=(ITEM,), asked_at=5, deadline_at=6)

ALL: list[Record] = [
    SessionCreated(
        session_id="ses_a",
        agent="claude",
        cwd="/w",
        agent_session_id="",
        permission_mode=PermissionMode.ASK,
        model="",
        labels={"team": "payments"},
        tenant="t",
        owner="o",
        capabilities=CAPABILITIES,
        created_at=1,
    ),
    SessionStateChanged(SessionState.IDLE, None),
    CapabilitiesChanged(CAPABILITIES, "gate lost"),
    RunCreated(
        "run_a",
        "ses_a",
        RunSpec("do it", (StopRule("r", StepCountRule(3)),), None, RunLimits(1, 2, 3, 4), {"k": "v"}),
        7,
    ),
    RunStateChanged(RunState.STOPPED, RunState.STOPPING, 8, REASON),
    StopAsked(StopRequest(DecisionSource.CLIENT, "payments", "enough", 9)),
    AgentStarted("claude", "2.1.332", "m", "uuid", resumed=False),
    TurnStarted(prompt_synthesized=True),
    TurnFinished(TurnEndReason.COMPLETED, "success", "done"),
    StepSummary(1, "stp_1", ("Bash",), USAGE, None, 5),
    StepEnded(STEP, (VERDICT,)),
    DecisionAsked("stp_1", 1, 5, 6, OnTimeout.STOP),
    DecisionRecorded("stp_1", Decision(action=DecisionAction.STOP, source=DecisionSource.RULE, decided_at=6)),
    SessionUpdated(plan_mode=True, labels={"team": "b"}),
    QueueHeld(True),
    ToolGranted("Bash", "{}"),
    RunTurnCame(),
    PromptGiven("p1"),
    AbortAsked("ann", "wrong directory"),
    PermissionRequested(PERMISSION),
    PermissionResolved("per_1", PermissionAnswer.DENY, ResolutionSource.TIMEOUT, ""),
    QuestionRequested(QUESTION),
    QuestionResolved("que_1", (QuestionItemAnswer("item", ("a",)),), ResolutionSource.CLIENT, "ann"),
    SteerAccepted("steer_1", "Look there.", "ann"),
    SteerDelivered("steer_1"),
    SteerDropped("steer_2", "the run ended first"),
    UsageCounted(USAGE, COST),
    UsageBeside(USAGE, COST, side_request=True),
    RunEnded(RunState.STOPPED, REASON, None, 3, USAGE, None, (VERDICT,)),
]


VERSION_1 = Path(__file__).parents[2] / "golden" / "journal" / "records-1"


def tag_of(item: type[object]) -> object:
    return item.__struct_config__.tag if issubclass(item, msgspec.Struct) else None


def encoded(body: bytes, version: int = VERSION) -> bytes:
    return bytes([version]) + crc32(body).to_bytes(4, "little") + body


def test_every_kind_of_record_comes_back_as_it_was() -> None:
    assert decode_records(encode_records(ALL)) == ALL
    assert {record.__struct_config__.tag for record in ALL} == KNOWN_KINDS


def test_every_tagged_class_of_the_core_is_a_kind_of_record() -> None:
    tags = {
        str(tag_of(item))
        for _, item in inspect.getmembers(core_records, inspect.isclass)
        if item.__module__ == core_records.__name__ and tag_of(item) is not None
    }
    assert tags == KNOWN_KINDS


def test_no_records_are_no_bytes() -> None:
    assert encode_records([]) == b""
    assert decode_records(b"") == []


def test_a_step_is_recorded_without_its_texts() -> None:
    assert to_record(StepEnded(STEP, (VERDICT,))) == StepSummary(3, "stp_3", ("Bash", "Read"), USAGE, COST, 99)


def test_any_other_fact_is_its_own_record() -> None:
    ended = ALL[-1]
    assert isinstance(ended, RunEnded)
    assert to_record(ended) is ended


def test_a_fact_comes_back_from_its_record_unless_too_little_was_kept() -> None:
    no_facts = (SessionCreated, StepSummary)
    for record in decode_records(encode_records(ALL)):
        assert to_fact(record) is (None if isinstance(record, no_facts) else record)


def test_what_is_kept_of_a_removed_batch_has_summaries_instead_of_whole_steps_and_replays_alike() -> None:
    kept = decode_records(condense(encode_records(ALL)))
    assert kept == [summarise(STEP) if isinstance(record, StepEnded) else record for record in ALL]
    without = encode_records([record for record in ALL if not isinstance(record, StepEnded)])
    assert condense(without) is without
    assert condense(b"damaged") == b"damaged"


def test_limits_of_a_record_from_before_there_was_one_for_the_prompt_have_its_default() -> None:
    (old,) = [msgspec.to_builtins(record) for record in ALL if isinstance(record, RunCreated)]
    del old["spec"]["limits"]["prompt_timeout_ns"]
    (created,) = decode_records(encoded(msgspec.msgpack.encode([old])))
    assert isinstance(created, RunCreated)
    assert created.spec.limits.prompt_timeout_ns == 30_000_000_000


def test_any_changed_byte_is_noticed() -> None:
    data = encode_records([ALL[1]])
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
        with pytest.raises((RecordCorruptError, RecordVersionError)):
            decode_records(changed)


def test_a_truncated_text_of_records_is_noticed() -> None:
    data = encode_records(ALL)
    for length in (1, 4, 5, len(data) - 1):
        with pytest.raises(RecordCorruptError):
            decode_records(data[:length])


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_another_encoding_version_is_named(version: int) -> None:
    with pytest.raises(RecordVersionError, match=f"version {version}") as caught:
        decode_records(encoded(b"\x90", version=version))
    assert caught.value.version == version


def test_what_version_1_wrote_is_read() -> None:
    """The file holds these records as version 1 wrote them: where an array is now it wrote a map."""
    written = VERSION_1.read_bytes()
    assert written[0] == 1
    assert msgspec.msgpack.decode(written[5:])[-1]["usage"]["input_tokens"] == USAGE.input_tokens
    assert decode_records(written) == ALL
    verdict = {
        "rule_id": "",
        "kind": StopKind.COST,
        "outcome": 3,
        "observed": "",
        "limit": "",
        "ratio": None,
        "message": "",
    }
    ended = {"type": "agent_end", "state": 8, "stop_reason": None, "failure": None, "step_count": 3, "usage": None}
    ended |= {"cost": None, "final_verdicts": [verdict | {"missing": [StopKind.COST]}]}
    (record,) = decode_records(encoded(msgspec.msgpack.encode([ended]), version=1))
    assert isinstance(record, RunEnded)
    assert record.final_verdicts[0].missing == (StopKind.COST,)


def test_a_field_of_a_later_version_is_ignored_and_one_of_an_earlier_has_its_default() -> None:
    body = msgspec.msgpack.encode([{"type": "session_state", "state": 2, "previous": None, "weight": [1, {"a": 2}]}])
    assert decode_records(encoded(body)) == [SessionStateChanged(SessionState.IDLE, None, "")]


def test_likewise_in_what_is_an_array() -> None:
    kept = StepSummary(1, "stp_1", ("Bash",), Usage(10, 0, 0, 2, 0), None, 5)
    plain = msgspec.to_builtins(kept)
    assert plain["usage"] == [10, 0, 0, 2, 0, True, None]
    for usage in ([10, 0, 0, 2, 0], [10, 0, 0, 2, 0, True, None, "weight", {"a": 2}]):
        assert decode_records(encoded(msgspec.msgpack.encode([plain | {"usage": usage}]))) == [kept]


def test_an_unknown_kind_is_an_error_that_names_it() -> None:
    body = msgspec.msgpack.encode([{"type": "turn_start", "prompt_synthesized": False}, {"type": "teleported"}])
    with pytest.raises(RecordUnknownError, match="'teleported'"):
        decode_records(encoded(body))


@pytest.mark.parametrize(
    "record",
    [
        {"type": "session_state", "state": 99, "previous": None},
        {"type": "session_state", "state": "idle", "previous": None},
        {"type": "session_state"},
        {"state": 1},
        {"type": 5},
        7,
    ],
)
def test_a_record_with_a_value_of_another_version_is_an_error(record: object) -> None:
    with pytest.raises(RecordUnknownError):
        decode_records(encoded(msgspec.msgpack.encode([record])))


def test_bytes_that_are_no_messagepack_are_corrupt_even_with_a_right_checksum() -> None:
    with pytest.raises(RecordCorruptError, match="MessagePack"):
        decode_records(encoded(b"\xc1"))


@pytest.mark.parametrize("names", [("micro_usd", "basis", "complete"), ("call_id", "outcome", "output", "error")])
def test_labels_that_version_1_wrote_are_labels_whatever_their_names(names: tuple[str, ...]) -> None:
    labels = dict.fromkeys(names, "x")
    (limited,) = [msgspec.to_builtins(record) for record in ALL if isinstance(record, RunCreated)]
    limited["spec"]["labels"] = labels
    records = [{"type": "session_updated", "labels": labels}, limited]
    updated, created = decode_records(encoded(msgspec.msgpack.encode(records), version=1))
    assert updated == SessionUpdated(labels=labels)
    assert isinstance(created, RunCreated)
    assert created.spec.labels == labels

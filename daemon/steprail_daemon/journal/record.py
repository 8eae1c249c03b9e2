"""Encoding of records, pure.

The records of one batch are encoded as

| bytes | content |
|-------|---------|
| 1     | version of the encoding, now 2 |
| 4     | CRC-32 of what follows, little-endian |
| rest  | MessagePack: an array of maps, one per record, whose key `type` tells the kind of record |

What steps and decisions consist of (`Step`, `ToolCall`, `ToolResult`, `Usage`, `Cost`, `Verdict`, `Decision`) are
arrays of their fields in the order of the class: they are most of what is encoded while an agent waits. In version 1,
which is read as well, they are maps.

Promise to later versions: fields of a record may be added with a default, those of an array at its end, and what an
older version does not know it ignores; no field and no kind is renamed or given another meaning, nor another place. A
kind or an enumeration's value that is not known is an error and not skipped, since a replay that leaves out a fact
would claim a state that is not so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast, get_args
from zlib import crc32

import msgspec

from steprail_daemon.core.records import Fact, Record, StepEnded
from steprail_daemon.core.replay import summarise
from steprail_daemon.journal.store import JournalUnusable

VERSION: Final = 2

_VERSION_OF_MAPS: Final = 1

_VERSION_BYTE: Final = bytes([VERSION])
_HEAD: Final = 5


class RecordError(JournalUnusable):
    """Records could not be decoded."""


class RecordCorruptError(RecordError):
    """The bytes are not what was written."""


class RecordVersionError(RecordError):
    """The encoding is of a version that this program does not know. `version` is its number."""

    def __init__(self, version: int) -> None:
        super().__init__(f"records have encoding version {version}, this program reads versions up to {VERSION}")
        self.version = version


class RecordUnknownError(RecordError):
    """A record is of a kind, or has a value, that this program does not know."""


class _Tagged(msgspec.Struct):
    type: str = ""


#: Kinds of records that this version knows.
KNOWN_KINDS: Final[frozenset[str]] = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Record))

_FACTS: Final[frozenset[type]] = frozenset(get_args(Fact))

#: What is an array since version 2: the names of its fields in version 1, in the order of the array. They are what was
#: written and do not change with the classes. A verdict that missed nothing did not say so.
_VERDICT_OF_1: Final = ("rule_id", "kind", "outcome", "observed", "limit", "ratio", "message")
_ARRAYS: Final = {
    frozenset(names): names
    for names in (
        (
            "number",
            "step_id",
            "text",
            "thought",
            "tool_calls",
            "tool_results",
            "finish_reason",
            "finish_reason_raw",
            "usage",
            "cost",
            "model",
            "duration_ns",
            "ended_at",
            "boundary",
        ),
        ("call_id", "tool", "tool_kind", "title", "arguments_json"),
        ("call_id", "outcome", "output", "error"),
        (
            "input_tokens",
            "cached_input_tokens",
            "cache_write_tokens",
            "output_tokens",
            "reasoning_tokens",
            "complete",
            "reported_total",
        ),
        ("micro_usd", "basis", "complete"),
        _VERDICT_OF_1,
        (*_VERDICT_OF_1, "missing"),
        (
            "action",
            "source",
            "rule_id",
            "reason",
            "identity",
            "waited_ns",
            "delivered",
            "decided_at",
            "guidance",
            "model",
        ),
    )
}

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])
_tag_decoder = msgspec.msgpack.Decoder(list[_Tagged])


def to_record(fact: Fact) -> Record:
    """Give what is recorded of a fact whose wire form is committed with it: of a step a summary, else all of it."""
    return summarise(fact.step) if isinstance(fact, StepEnded) else fact


def to_fact(record: Record) -> Fact | None:
    """Give a record as the fact that it is; None if it is none, or keeps too little of one."""
    return cast(Fact, record) if type(record) in _FACTS else None


def encode_records(records: Sequence[Record]) -> bytes:
    """Encode the records of one batch; no records give no bytes."""
    if not records:
        return b""
    body = _encoder.encode(records)
    return _VERSION_BYTE + crc32(body).to_bytes(4, "little") + body


def decode_records(data: bytes) -> list[Record]:
    """Decode what `encode_records` gave.

    Raises:
        RecordCorruptError: the bytes are too short, their checksum is wrong, or they are no records at all.
        RecordVersionError: the encoding is of another version.
        RecordUnknownError: a kind or a value of a later version is among them.
    """
    if not data:
        return []
    if data[0] not in (VERSION, _VERSION_OF_MAPS):
        raise RecordVersionError(data[0])
    body = memoryview(data)[_HEAD:]
    if len(data) <= _HEAD or crc32(body) != int.from_bytes(data[1:_HEAD], "little"):
        raise RecordCorruptError(f"records of {len(data)} bytes do not match their checksum")
    try:
        if data[0] == _VERSION_OF_MAPS:
            return msgspec.convert(_with_arrays(msgspec.msgpack.decode(body)), list[Record])
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RecordUnknownError(_describe(body, error)) from error
    except msgspec.DecodeError as error:
        raise RecordCorruptError(f"records are not MessagePack: {error}") from error


def _with_arrays(value: Any) -> Any:
    """Give what version 1 wrote as version 2 does. Names of fields tell the classes apart; labels have any names."""
    if isinstance(value, list):
        return [_with_arrays(item) for item in value]
    if isinstance(value, dict):
        fields = _ARRAYS.get(frozenset(value))
        if fields is None:
            return {name: item if name == "labels" else _with_arrays(item) for name, item in value.items()}
        return [_with_arrays(value[name]) for name in fields]
    return value


def condense(data: bytes) -> bytes:
    """Give what is kept of a batch's records once its events are removed: of a step that is whole its summary.

    A replay gives the same. What cannot be decoded is given back as it is.
    """
    try:
        records = decode_records(data)
    except RecordError:
        return data
    if not any(type(record) is StepEnded for record in records):
        return data
    return encode_records([summarise(record.step) if type(record) is StepEnded else record for record in records])


def _describe(body: memoryview, error: msgspec.ValidationError) -> str:
    """Name the kind that is not known, or else what the decoder did not like."""
    try:
        kinds = [tagged.type for tagged in _tag_decoder.decode(body)]
    except msgspec.MsgspecError:
        return f"records have a form that this program does not know: {error}"
    unknown = sorted(set(kinds) - KNOWN_KINDS)
    if unknown:
        return f"records of a kind that this program does not know: {', '.join(map(repr, unknown))}"
    return f"a record has a value that this program does not know: {error}"

"""Fields of public messages that protobuf's own library builds: times, spans, and texts within their bounds."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from steprail_daemon.service.bounds import beginning, mended


def timestamp(nanoseconds: int) -> Timestamp:
    """Give a time."""
    return Timestamp(seconds=nanoseconds // 1_000_000_000, nanos=nanoseconds % 1_000_000_000)


def optional_timestamp(nanoseconds: int | None) -> Timestamp | None:
    """Give a time that may not have come."""
    return None if nanoseconds is None else timestamp(nanoseconds)


def duration(nanoseconds: int) -> Duration:
    """Give a span."""
    return Duration(seconds=nanoseconds // 1_000_000_000, nanos=nanoseconds % 1_000_000_000)


def short(text: str, limit: int) -> str:
    """Give a text that came from outside, within its bound in bytes of UTF-8."""
    return beginning(mended(text).encode(), limit).decode()

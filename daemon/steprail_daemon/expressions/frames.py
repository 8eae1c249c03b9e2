"""Messages over a byte stream: four bytes of length, big-endian, then the message."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size

#: Bytes of the largest frame to the worker: a view with its bounded texts, and many short fields beside them.
MAX_REQUEST_BYTES = 32 << 20
#: Bytes of the largest frame from the worker, its length included. The kernel writes so many to a pipe whole or not at
#: all, so that no frame is torn where its writer is killed (pipe(7), PIPE_BUF).
MAX_REPLY_BYTES = 4096


class BadFrame(Exception):
    """A length that no message of ours has."""


def frame(message: bytes) -> bytes:
    """Give a message with its length."""
    return _LENGTH.pack(len(message)) + message


def read_length(head: bytes | bytearray) -> int:
    """Give the length that the first `LENGTH_BYTES` of a frame tell."""
    length: int = _LENGTH.unpack(head)[0]
    return length


class ReplyReader:
    """Takes bytes as they come and gives whole messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes and give the messages that are complete.

        Raises:
            BadFrame: this is not the worker's speech.
        """
        self._buffer += data
        while len(self._buffer) >= LENGTH_BYTES:
            end = LENGTH_BYTES + read_length(self._buffer[:LENGTH_BYTES])
            if end > MAX_REPLY_BYTES:
                raise BadFrame(f"a reply claims {end} bytes; accepted are at most {MAX_REPLY_BYTES}")
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[LENGTH_BYTES:end])
            del self._buffer[:end]
            yield message

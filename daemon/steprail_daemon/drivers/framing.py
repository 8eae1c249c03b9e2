"""Lines out of a byte stream, bounded: a line longer than the limit is dropped and told, and the next one is whole.

A line ends with LF or CRLF. Chunks of an unfinished line are kept in a list and joined once, so that a long line costs
time in proportion to its length, however small the chunks are.

And the JSON of a line, for programs that are not strict about text: lone surrogates, and bytes that are no UTF-8.
"""

from __future__ import annotations

import json

import msgspec

_decode_anything = msgspec.json.Decoder().decode


class OverlongLine(msgspec.Struct, frozen=True):
    """A line was longer than `limit` bytes and was dropped."""

    limit: int


class LineFramer:
    """Cuts a stream into lines of at most `limit` bytes, line ends not counted."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1 byte, got {limit}")
        self._limit = limit
        self._chunks: list[bytes] = []
        self._held = 0
        self._dropping = False
        #: Whether the next byte begins a line. A chunk that is one whole line needs no framing then.
        self.at_line_start = True

    def feed(self, data: bytes) -> list[bytes | OverlongLine]:
        """Take the next bytes, cut anywhere, and give the lines that they complete, without their line ends.

        One `OverlongLine` stands in the place of each line over the limit; it comes as soon as that is certain.
        """
        # Programs that write line by line are read line by line.
        if self.at_line_start and data.find(b"\n") == len(data) - 1 and data:
            return [self._checked(data[:-1])]
        lines: list[bytes | OverlongLine] = []
        *whole, tail = data.split(b"\n")
        if not whole:
            return self._hold(data)
        lines += whole
        if not self.at_line_start:
            self._complete_first(lines)
        if b"\r" in data or len(data) > self._limit:
            lines = [self._checked(line) if type(line) is bytes else line for line in lines]
        if tail:
            lines += self._hold(tail)
        return lines

    def finish(self) -> list[bytes | OverlongLine]:
        """Give the last line if the stream ended without a line end; the framer is empty afterwards."""
        lines: list[bytes | OverlongLine] = []
        if self._held:
            lines = [self._checked(self._take())]
        self._dropping = False
        self.at_line_start = True
        return lines

    def _hold(self, data: bytes) -> list[bytes | OverlongLine]:
        if self._dropping or not data:
            return []
        self.at_line_start = False
        self._chunks.append(data)
        self._held += len(data)
        # One byte more may still be the CR of the line end.
        if self._held <= self._limit + 1:
            return []
        self._take()
        self._dropping = True
        return [OverlongLine(self._limit)]

    def _complete_first(self, lines: list[bytes | OverlongLine]) -> None:
        self.at_line_start = True
        if self._dropping:
            self._dropping = False
            del lines[0]
            return
        first = lines[0]
        assert type(first) is bytes
        self._chunks.append(first)
        lines[0] = self._checked(self._take())

    def _take(self) -> bytes:
        line = b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        return line

    def _checked(self, line: bytes) -> bytes | OverlongLine:
        if line[-1:] == b"\r":
            line = line[:-1]
        return line if len(line) <= self._limit else OverlongLine(self._limit)


def mended(line: bytes) -> bytes | None:
    """Give the same JSON with U+FFFD for lone surrogates and for bytes that are no UTF-8; None if it is no JSON.

    Node and Bun write a string that was cut inside a surrogate pair as a lone escape, and a tool's output may hold
    bytes that are no UTF-8. Strict decoders refuse the whole line, which may be the one that the CLI waits at.
    """
    try:
        text = json.dumps(json.loads(line.decode("utf-8", "replace")), ensure_ascii=False, separators=(",", ":"))
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        _decode_anything(whole)
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None
    return whole


def text_of(line: bytes) -> str:
    """Give the line as text that is JSON without lone surrogates; as it came, if it is that already."""
    try:
        _decode_anything(line)
        return line.decode()
    except (ValueError, RecursionError, msgspec.DecodeError):
        return (mended(line) or b"null").decode()

"""Texts of any size as the API gives them: whole up to a bound, else their beginning and the id of the whole."""

from __future__ import annotations

import hashlib
from typing import Final

from steprail_daemon.engine.facade import Blob
from steprail_daemon.service.bounds import MAX_TEXT_BYTES, beginning
from steprail_daemon.service.wire import SMALL, VARINTS, delimited, sized, varint

PLAIN: Final = "text/plain"
JSON: Final = "application/json"

#: Texts below this size have a frame.
FRAMED: Final = 1024


def blob_id(data: bytes) -> str:
    """Name a content by its digest."""
    return f"sha256-{hashlib.sha256(data).hexdigest()}"


def _frame(size: int) -> tuple[bytes, bytes, int]:
    if not size:
        return b"\x00", b"", 1
    spelled = varint(size)
    inside = size + 2 + 2 * len(spelled)
    return varint(inside) + b"\x0a" + spelled, b"\x10" + spelled, len(varint(inside)) + inside


#: By size of a short text: what stands before it in a sized `Text`, what behind it, and the size of all three.
TEXT_FRAMES: Final = tuple(_frame(size) for size in range(FRAMED))


class Contents:
    """Encodes texts as sized `Text` and keeps the wholes of those that were cut. `limit` is the bound in bytes."""

    __slots__ = ("_blobs", "limit")

    def __init__(self, limit: int = MAX_TEXT_BYTES) -> None:
        self._blobs: dict[str, Blob] = {}
        self.limit = limit

    def text(self, text: str) -> bytes:
        """Encode a text."""
        data = text.encode()
        if len(data) > self.limit:
            return self._cut(data, beginning(data, self.limit), PLAIN)
        return _whole(data)

    def json(self, text: str) -> bytes:
        """Encode JSON, which is never given in part: what is too large is left out."""
        data = text.encode()
        if len(data) > self.limit:
            return self._cut(data, b"", JSON)
        return _whole(data)

    def keep_json(self, text: str) -> None:
        """Keep JSON whole although it may not be cut here: where there is less room it will be."""
        data = text.encode()
        self._blobs[blob_id(data)] = Blob(blob_id(data), JSON, data)

    def take(self) -> tuple[Blob, ...]:
        """Give and forget the wholes."""
        if not self._blobs:
            return ()
        blobs = tuple(self._blobs.values())
        self._blobs = {}
        return blobs

    @property
    def cut(self) -> bool:
        """Whether a text was cut since the wholes were last taken."""
        return bool(self._blobs)

    def adopt(self, blobs: tuple[Blob, ...]) -> None:
        """Keep these wholes too."""
        self._blobs.update((blob.blob_id, blob) for blob in blobs)

    def _cut(self, data: bytes, part: bytes, mime_type: str) -> bytes:
        name = blob_id(data)
        self._blobs[name] = Blob(name, mime_type, data)
        return sized(
            (delimited(b"\x0a", part) if part else b"")
            + b"\x10"
            + varint(len(data))
            + delimited(b"\x1a", name.encode())
        )


def _whole(data: bytes) -> bytes:
    size = len(data)
    if size < FRAMED:
        head, end, _ = TEXT_FRAMES[size]
        return head + data + end
    spelled = VARINTS[size] if size < SMALL else varint(size)
    return sized(b"\x0a" + spelled + data + b"\x10" + spelled)

"""Pages of lists: sizes, and tokens that tell where the next page begins."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec
from google.protobuf.message import Message

from steprail_daemon.core.errors import Invalid
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import REASON

DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1000
#: A page is closed once its items have this size, so that it stays under 1 MiB with the largest of items.
PAGE_BYTES: Final = 448 * 1024

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class _Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    query: str
    after: str


class Page:
    """What a list request asks for: at most `size` items after the one with key `after` (empty: from the first)."""

    def __init__(self, request: Message, size: int, token: str) -> None:
        """Read size and token.

        Raises:
            Invalid: FIELD_INVALID for the size, PAGE_TOKEN_INVALID.
        """
        if size < 0:
            raise checks.invalid("page_size", f"is {size}; accepted are 0 and more")
        self.size = min(size or DEFAULT_PAGE, MAX_PAGE)
        self._query = _query_of(request)
        self.after = self._read(checks.text("page_token", token, REASON)) if token else ""

    def fill(self, items: Iterable[T], key: Callable[[T], str], encode: Callable[[T], M]) -> tuple[list[M], str]:
        """Encode as many of `items`, which begin after `after`, as fit; give them and the token of the next page."""
        encoded: list[M] = []
        total = 0
        last = ""
        for item in items:
            if len(encoded) >= self.size or total >= PAGE_BYTES:
                return encoded, self.token(last)
            message = encode(item)
            total += message.ByteSize()
            encoded.append(message)
            last = key(item)
        return encoded, ""

    def token(self, after: str) -> str:
        """Give the token of the page that begins after the item with this key."""
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(_Token(self._query, after))).decode()

    def _read(self, token: str) -> str:
        try:
            read = msgspec.msgpack.decode(base64.urlsafe_b64decode(token), type=_Token)
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            raise _token_invalid("is malformed; pass next_page_token of the answer before as it is") from None
        if read.query != self._query:
            raise _token_invalid("belongs to another query; keep the filters the same from page to page")
        return read.after


def _token_invalid(problem: str) -> Invalid:
    return Invalid("PAGE_TOKEN_INVALID", f"page_token {problem}", field="page_token")


def _query_of(request: Message) -> str:
    """Give a digest of all of a list request but its page."""
    query = type(request)()
    query.CopyFrom(request)
    query.ClearField("page_size")
    query.ClearField("page_token")
    data = request.DESCRIPTOR.full_name.encode() + b"\0" + query.SerializeToString(deterministic=True)
    return hashlib.sha256(data).hexdigest()[:16]

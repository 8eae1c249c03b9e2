"""What callers are told when the journal cannot do its part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from steprail_daemon.core.errors import Unavailable
from steprail_daemon.core.model import SECOND
from steprail_daemon.journal.store import JournalError


def journal_unavailable(message: str) -> Unavailable:
    """Give the error of a call that needs the journal, `message` saying what the journal could not do."""
    return Unavailable("JOURNAL_UNAVAILABLE", message, retry_after_ns=SECOND)


def not_written(message: str) -> Unavailable:
    """Give the error of a call that the journal could not take."""
    return journal_unavailable(f"the journal cannot be written: {message}")


@contextmanager
def journal_writes() -> Iterator[None]:
    """Mark where a call writes to the journal by itself.

    Raises:
        Unavailable: JOURNAL_UNAVAILABLE.
    """
    try:
        yield
    except JournalError as error:
        raise not_written(error.message) from error


@contextmanager
def journal_reads() -> Iterator[None]:
    """Mark where a call reads the journal.

    Raises:
        Unavailable: JOURNAL_UNAVAILABLE.
    """
    try:
        yield
    except JournalError as error:
        raise journal_unavailable(f"the journal cannot be read: {error.message}") from error

"""How the CLI words the failures of a model provider."""

import re
from typing import Any, NamedTuple

from steprail_scripted.model import ProviderError

TOKEN_LIMIT = re.compile(r"tokens per minute|\bTPM\b|token limit|context length", re.IGNORECASE)
"""A 429 with such a text is taken for an overflow of the context."""


class Failure(NamedTuple):
    """A failure in the CLI's words: for the hooks, for the message, and as the `error` notification."""

    text: str
    code: str
    icon: str
    error: dict[str, Any]
    rate_limit: dict[str, Any] | None


def describe(error: ProviderError) -> Failure:
    """Word a failure."""
    lead, code, icon, number, kind, recoverable = _words(error.status)
    text = f"{lead}\n{error.message}"
    limit: dict[str, Any] | None = None
    if error.status == 429:
        limit = {"httpStatus": 429}
        if error.retry_after is not None:
            limit["retryAfterMs"] = round(error.retry_after * 1000)
    return Failure(
        text=text,
        code=error.code or code,
        icon=icon,
        error={
            "code": number,
            "message": text,
            "errorType": error.error_type or kind,
            "recoverable": recoverable if error.recoverable is None else error.recoverable,
        },
        rate_limit=limit,
    )


def _words(status: int | None) -> tuple[str, str, str, int, str, bool]:
    if status == 429:
        lead = "Rate limit exceeded. Please wait a moment and try again, or choose a different model."
        return lead, "rate_limited", "⏱️", 429, "rate_limit", True
    if status in (401, 403):
        lead = "Authentication failed. Please verify the API key of the provider."
        return lead, "auth_failed", "🔐", status, "auth", False
    if status is None:
        return "The model service could not be reached.", "network_error", "⚠️", -32000, "unknown", True
    lead = "The model service encountered an error. Please try again later."
    return lead, "server_error", "⚠️", -32000, "unknown", True

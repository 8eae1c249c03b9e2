"""Python client of steprail.

`steprail.client` has the client, `steprail.v1` the messages as they are generated from the protos. The errors are here.
"""

from steprail.errors import (
    AlreadyExists,
    CallbackFailed,
    CallTimeout,
    ConnectionFailed,
    CredentialsUnusable,
    CursorInvalid,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    Refused,
    ResourceExhausted,
    StepRailError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)

__all__ = [
    "AlreadyExists",
    "CallTimeout",
    "CallbackFailed",
    "ConnectionFailed",
    "CredentialsUnusable",
    "CursorInvalid",
    "FailedPrecondition",
    "InvalidArgument",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "Refused",
    "ResourceExhausted",
    "StepRailError",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
]

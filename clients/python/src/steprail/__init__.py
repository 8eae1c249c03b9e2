"""Python client of steprail.

`steprail.client` has the client, `steprail.v1` the messages as they are generated from the protos. The errors are here.
"""

from steprail.errors import (
    AlreadyExists,
    CallTimeout,
    ConnectionFailed,
    CredentialsUnusable,
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
)

__all__ = [
    "AlreadyExists",
    "CallTimeout",
    "ConnectionFailed",
    "CredentialsUnusable",
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
]

"""Why nobody answers at an address, in words that say what to do."""

from __future__ import annotations

import os
import stat

_SCHEME = "unix:"
_ADVICE = "start one with `steprail serve`, or set STEPRAIL_ADDRESS"


def why_unreachable(address: str, detail: str) -> str:
    """Give the sentence for a connection that failed. `detail` is gRPC's own text, which is kept."""
    problem = _of_socket(address) if address.startswith(_SCHEME) else ""
    return f"no daemon answers at {address} ({problem or _of_detail(detail) or detail}); {_ADVICE}"


def _of_socket(address: str) -> str:
    """Look at the file of a Unix socket: it tells more than the error of a connection does."""
    path = address.removeprefix(_SCHEME).removeprefix("//")
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a path that begins with `@` or NUL is no path to pathlib
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such socket"
    except PermissionError:
        return "this user may not look into its directory"
    except (OSError, ValueError):
        return ""
    if not stat.S_ISSOCK(mode):
        return "this is a file of another kind, not a socket"
    return "" if os.access(path, os.W_OK) else "this user may not open the socket"


def _of_detail(detail: str) -> str:
    """Tell apart what gRPC reports of a connection that came about and was of no use."""
    folded = detail.lower()
    if "wrong_version_number" in folded:
        return f"what listens there speaks no TLS: do without tls= and $STEPRAIL_TLS_ROOTS; gRPC says: {detail}"
    if "security handshaker" in folded:
        return f"no certificate was found in the roots of tls=Tls(...) or $STEPRAIL_TLS_ROOTS; gRPC says: {detail}"
    if "handshake failed" in folded or "ssl" in folded or "verification check failed" in folded:
        return (
            "the TLS handshake failed: see that tls=Tls(...) or $STEPRAIL_TLS_ROOTS names the root of the daemon's"
            f" certificate, and its name is the address's; gRPC says: {detail}"
        )
    if "socket closed" in folded or "connection reset" in folded:
        return (
            "what listens there ended the connection: where it wants TLS, tls=Tls(...) or $STEPRAIL_TLS_ROOTS is to"
            f" name the root of its certificate; gRPC says: {detail}"
        )
    if "settings frame" in folded or "http1" in folded or "http/1" in folded or "bad preface" in folded:
        return f"what listens there does not speak gRPC, or only with TLS; gRPC says: {detail}"
    return ""

"""The side port: `/metrics`, `/livez` and `/readyz` over HTTP, apart from the API.

It runs on threads of its own, so that a loop that is busy, or stuck, does not keep a probe waiting. It asks nobody who
they are and says nothing of sessions, runs or contents; whoever binds it beyond loopback opens that to the network.

Every wait is bounded: a request has some seconds in all. Beyond `MOST_REQUESTS` at one time the oldest is cut off for a
new one, so that clients which only stay connected do not keep a probe out; it is refused if they all are new.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from steprail_daemon.observability.pulse import Health

MOST_REQUESTS: Final = 8
REQUEST_SECONDS: Final = 10.0
#: A request that took so long already gives way to a new one where there are too many.
PATIENT_SECONDS: Final = 1.0
#: How often it is looked whether to end, and which requests take too long.
LOOK_SECONDS: Final = 0.5

_BUSY: Final = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"

log: Final = logging.getLogger("steprail.http")


class SidePort:
    """Serves until `close`. `health` says how the daemon is, `metrics` is what a scrape gets."""

    def __init__(
        self, address: str, health: Health, metrics: CollectorRegistry, *, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        """Listen.

        Args:
            address: HOST:PORT, an IPv6 host in brackets; port 0 takes any that is free.
            health: What probes are answered from.
            metrics: What a scrape gets.
            request_seconds: How long a request may take.

        Raises:
            OSError: it cannot be listened on; the text says where and why.
        """
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            family, *_, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, target, health, metrics, request_seconds)
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror or error}") from None
        bound = self._server.server_address
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{bound[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_SECONDS,), name="side port", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop to listen. Takes up to `LOOK_SECONDS`; requests under way are left to their bound."""
        self._server.shutdown()
        self._thread.join(2 * LOOK_SECONDS)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(
        self, family: int, target: Any, health: Health, metrics: CollectorRegistry, request_seconds: float
    ) -> None:
        self.address_family = family
        self.health = health
        self.metrics = metrics
        self._request_seconds = request_seconds
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(target, _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of our own name that the library's HTTP server does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless too many do already."""
        with self._lock:
            full = len(self._since) >= MOST_REQUESTS and not self._make_room()
            if not full:
                self._since[request] = time.monotonic()
        if full:
            with contextlib.suppress(OSError):
                request.settimeout(0)
                request.send(_BUSY)
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def _make_room(self) -> bool:
        """Cut off the oldest request, if it had its time."""
        oldest = min(self._since, key=lambda request: self._since[request])
        if time.monotonic() - self._since[oldest] < PATIENT_SECONDS:
            return False
        del self._since[oldest]
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)
        return True

    def shutdown_request(self, request: Any) -> None:
        """Note that a request is over."""
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off what takes too long: a client may send its request byte by byte."""
        latest = time.monotonic() - self._request_seconds
        with self._lock:
            for request in [request for request, since in self._since.items() if since < latest]:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        """Log what a request failed of; a client that left is none of our affair."""
        log.debug("a request failed: %r", sys.exception())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "steprail"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/livez":
            self._livez()
        elif path == "/readyz":
            self._readyz()
        else:
            self._json(HTTPStatus.NOT_FOUND, {"error": "there are /metrics, /livez and /readyz"})

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _metrics(self) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._send(HTTPStatus.OK, content_type, encode(self.server.metrics))

    def _livez(self) -> None:
        health = self.server.health
        live = health.live
        body: dict[str, object] = {"live": live, "silent_seconds": round(health.silent_seconds(), 3)}
        self._json(HTTPStatus.OK if live else HTTPStatus.SERVICE_UNAVAILABLE, body)

    def _readyz(self) -> None:
        reasons = self.server.health.unready()
        body: dict[str, object] = {
            "ready": not reasons,
            "reasons": [{"reason": reason, "message": message} for reason, message in reasons.items()],
        }
        self._json(HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK, body)

    def _json(self, status: HTTPStatus, body: dict[str, object]) -> None:
        self._send(status, "application/json", json.dumps(body).encode() + b"\n")

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log a request; probes come every few seconds."""
        log.debug("http: %s", format % args)

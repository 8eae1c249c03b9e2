"""One end of the control socket: whole packets with descriptors, never waiting. Both parent and worker use it.

The owner registers `fileno()` with its loop: readable calls `receive`, writable, wanted while `backlog` is not 0,
`flush`.
"""

from __future__ import annotations

import array
import errno
import os
import socket
from collections import deque

from steprail_daemon.parent.wire import MAX_PACKET, Malformed, PacketTooLarge

_KERNEL_OVERHEAD = 32
_TRY_LATER = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM})


class ChannelClosed(Exception):
    """The other end is gone."""


class Channel:
    """Sends and receives packets over a connected SOCK_SEQPACKET socket, which it owns.

    `max_descriptors` is how many descriptors a received packet may bring; more are closed by the kernel unseen.
    """

    def __init__(self, sock: socket.socket, max_descriptors: int) -> None:
        sock.setblocking(False)
        # Refused beyond the system's limit without an error; what was granted shows in `max_packet`.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_PACKET)
        self._socket = sock
        self._max_descriptors = max_descriptors
        self._queue: deque[tuple[bytes, tuple[int, ...]]] = deque()
        # One byte more than the largest packet, so that a longer one is seen as cut. Untouched pages cost nothing.
        self._buffer = bytearray(MAX_PACKET + 1)
        granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        self.max_packet = min(MAX_PACKET, granted - _KERNEL_OVERHEAD)

    def fileno(self) -> int:
        """Give the socket's descriptor, -1 once closed."""
        return self._socket.fileno()

    @property
    def backlog(self) -> int:
        """Packets that wait to be sent."""
        return len(self._queue)

    def send(self, packet: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Send a packet, now or from `flush`. The descriptors are the channel's from here on: it closes them.

        Raises:
            PacketTooLarge: the socket cannot carry it; the descriptors are closed.
            ChannelClosed: the other end is gone; the descriptors are closed.
        """
        if len(packet) > self.max_packet:
            _close_all(descriptors)
            raise PacketTooLarge(len(packet), self.max_packet)
        self._queue.append((packet, descriptors))
        if len(self._queue) == 1:
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it.

        Raises:
            ChannelClosed: the other end is gone.
        """
        while self._queue:
            packet, descriptors = self._queue[0]
            try:
                socket.send_fds(self._socket, [packet], list(descriptors))
            except OSError as error:
                if error.errno in _TRY_LATER:
                    return
                raise ChannelClosed(f"sending failed: {error.strerror}") from error
            self._queue.popleft()
            _close_all(descriptors)

    def receive(self) -> tuple[bytes, tuple[int, ...]] | None:
        """Give the next packet and its descriptors, which are the caller's, or None if none is there.

        Raises:
            Malformed: a packet was longer than the law allows; it is gone.
            ChannelClosed: the other end is gone.
        """
        room = socket.CMSG_SPACE(self._max_descriptors * array.array("i").itemsize) if self._max_descriptors else 0
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into([self._buffer], room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelClosed(f"receiving failed: {error.strerror}") from error
        descriptors = _descriptors(ancillary)
        if flags & socket.MSG_TRUNC or size > MAX_PACKET:
            _close_all(descriptors)
            raise Malformed(f"packet is longer than {MAX_PACKET} bytes")
        if size == 0:
            raise ChannelClosed("the other end closed")
        return bytes(memoryview(self._buffer)[:size]), descriptors

    def close(self) -> None:
        """Close the socket and every descriptor that was not sent."""
        while self._queue:
            _close_all(self._queue.popleft()[1])
        self._socket.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return tuple(numbers)


def _close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)

"""The control socket: whole packets or clear errors, never a wait."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from steprail_daemon.parent.channel import Channel, ChannelClosed
from steprail_daemon.parent.wire import MAX_PACKET, Malformed, PacketTooLarge


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(ours, max_descriptors=3)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_packets_arrive_whole_and_in_order_even_when_the_socket_was_full(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    packets = [bytes([number]) * 50_000 for number in range(200)]
    for packet in packets:
        channel.send(packet)
    assert channel.backlog > 0
    received: list[bytes] = []
    while len(received) < len(packets):
        received.append(theirs.recv(MAX_PACKET))
        channel.flush()
    assert received == packets
    assert channel.backlog == 0


def test_the_largest_packet_passes_and_a_larger_one_is_an_error(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    channel.send(b"x" * channel.max_packet)
    assert len(theirs.recv(MAX_PACKET + 1)) == channel.max_packet
    with pytest.raises(PacketTooLarge):
        channel.send(b"x" * (channel.max_packet + 1))
    assert channel.backlog == 0


def test_a_packet_longer_than_the_law_allows_is_refused_and_the_next_one_read(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_PACKET)
    theirs.send(b"x" * (MAX_PACKET + 1))
    theirs.send(b"next")
    with pytest.raises(Malformed):
        channel.receive()
    assert channel.receive() == (b"next", ())
    assert channel.receive() is None


def test_descriptors_pass_and_are_closed_here(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    read, write = os.pipe()
    channel.send(b"take", (write,))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write)
    _, (received,), _, _ = socket.recv_fds(theirs, 100, 1)
    os.write(received, b"through")
    assert os.read(read, 10) == b"through"
    os.close(received)
    os.close(read)


def test_received_descriptors_are_not_inherited_by_programs(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    socket.send_fds(theirs, [b"take"], [0, 1])
    received = channel.receive()
    assert received is not None
    assert [os.get_inheritable(descriptor) for descriptor in received[1]] == [False, False]
    for descriptor in received[1]:
        os.close(descriptor)


def test_the_other_end_s_close_is_told_to_reader_and_writer(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    with pytest.raises(ChannelClosed):
        channel.send(b"anyone?")


def test_what_was_not_sent_is_closed_with_the_channel(ends: tuple[Channel, socket.socket]) -> None:
    channel, _ = ends
    for _ in range(100):
        channel.send(b"x" * 50_000)
    read, write = os.pipe()
    channel.send(b"never", (write,))
    channel.close()
    assert os.read(read, 1) == b""
    os.close(read)

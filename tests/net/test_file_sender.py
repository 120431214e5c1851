"""Pieces of files reach their clients whole and in order, and no other client."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.net.file_sender import PIPE_BYTES, SPLICED_BYTES, FileSender

# Not a whole number of pages, and no two parts are equal.
CONTENT = b"".join(number.to_bytes(4, "big") for number in range(3 * PIPE_BYTES // 4))[:-3]

# Offset of tcpi_data_segs_out in Linux's tcp_info.
DATA_PACKETS_SENT = 156

needs_splice = pytest.mark.skipif(not hasattr(os, "splice"), reason="this system has no splice")


@pytest.fixture
def files() -> Iterator[FileSender]:
    sender = FileSender()
    yield sender
    sender.close()


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "segment.log"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


class Client:
    """Both ends of a connection; the sending end does not block."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.far = socket.create_connection(listening.getsockname())
            self.near, _ = listening.accept()
        self.near.setblocking(False)
        self.received = bytearray()

    def receive(self, size: int) -> None:
        while size:
            chunk = self.far.recv(size)
            assert chunk
            self.received += chunk
            size -= len(chunk)

    def packets_sent(self) -> int:
        """The number of packets with data that were sent."""
        info = self.near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_PACKETS_SENT + 4)
        return int.from_bytes(info[DATA_PACKETS_SENT:], sys.byteorder)

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


@pytest.fixture
def other() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


def send_all(files: FileSender, client: Client, file: int, position: int, length: int) -> None:
    """Send a piece while the client reads."""
    while length:
        sent = files.send(client.near.fileno(), file, position, length, more=False)
        client.receive(sent)
        position, length = position + sent, length - sent


def send_until_full(files: FileSender, client: Client, file: int) -> int:
    """Send the file repeatedly to a client that does not read; return how much the kernel took."""
    total = 0
    while True:
        try:
            position = total % len(CONTENT)
            total += files.send(client.near.fileno(), file, position, len(CONTENT) - position, more=False)
        except BlockingIOError:
            return total


def open_pipes() -> int:
    """The number of open pipe ends; sockets of other tests in this process do not count."""
    links = Path("/proc/self/fd").iterdir()
    return sum(link.is_fifo() for link in links)


@pytest.mark.parametrize("position", [0, 1, 4096, 12_345])
@pytest.mark.parametrize("length", [1, SPLICED_BYTES, SPLICED_BYTES + 1, PIPE_BYTES, 2 * PIPE_BYTES + 7])
def test_a_piece_arrives_whole(
    files: FileSender, segment: int, client: Client, position: int, length: int
) -> None:
    send_all(files, client, segment, position, length)
    assert client.received == CONTENT[position : position + length]


def test_bytes_that_one_client_did_not_take_do_not_reach_another(
    files: FileSender, segment: int, client: Client, other: Client
) -> None:
    taken = send_until_full(files, client, segment)
    send_all(files, other, segment, 5, len(CONTENT) - 5)
    assert other.received == CONTENT[5:]
    client.receive(taken)
    assert client.received == (CONTENT * (taken // len(CONTENT) + 1))[:taken]
    # The first client continues where it stopped.
    send_all(files, client, segment, 77, PIPE_BYTES)
    assert client.received[taken:] == CONTENT[77 : 77 + PIPE_BYTES]


def test_a_client_that_closed_its_connection_leaves_nothing_in_the_pipe(
    files: FileSender, segment: int, client: Client, other: Client
) -> None:
    client.far.close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        while True:
            files.send(client.near.fileno(), segment, 0, len(CONTENT), more=True)
    send_all(files, other, segment, 3, PIPE_BYTES)
    assert other.received == CONTENT[3 : 3 + PIPE_BYTES]


def test_a_file_that_ends_early_is_sent_to_its_end(files: FileSender, segment: int, client: Client) -> None:
    os.ftruncate(segment, 100_000)
    assert files.send(client.near.fileno(), segment, 0, 200_000, more=False) == 100_000
    assert files.send(client.near.fileno(), segment, 100_000, 100_000, more=False) == 0


@needs_splice
def test_following_bytes_share_the_last_packet(
    files: FileSender, segment: int, client: Client, other: Client
) -> None:
    length = SPLICED_BYTES + 1
    for receiver, more in ((client, True), (other, False)):
        receiver.near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert files.send(receiver.near.fileno(), segment, 0, length, more=more) == length
        receiver.near.send(b"the end")
        receiver.receive(length + len(b"the end"))
        assert receiver.received == CONTENT[:length] + b"the end"
    assert client.packets_sent() < other.packets_sent()


@needs_splice
def test_files_are_sent_without_a_descriptor_for_the_pipe(
    files: FileSender, segment: int, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    before = open_pipes()
    monkeypatch.setattr(os, "open", none_left)
    send_all(files, client, segment, 1, len(CONTENT) - 1)
    assert client.received == CONTENT[1:]
    assert open_pipes() == before


def test_files_are_sent_on_a_system_without_splice(
    segment: int, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "splice", raising=False)
    send_all(FileSender(), client, segment, 1, len(CONTENT) - 1)
    assert client.received == CONTENT[1:]


@needs_splice
def test_closing_releases_the_pipe(segment: int, client: Client) -> None:
    files = FileSender()
    before = open_pipes()
    send_all(files, client, segment, 0, PIPE_BYTES)
    assert open_pipes() == before + 2
    files.close()
    assert open_pipes() == before
    send_all(files, client, segment, 0, PIPE_BYTES)
    assert client.received == 2 * CONTENT[:PIPE_BYTES]

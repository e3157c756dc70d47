"""A capture of the frames that machines of tests.servers.network_spaces send to each other and to this one.

As a script (`python -I -S traffic.py FILE`) it writes the frames of its network namespace to a file in the
format of pcap, which Wireshark reads, until SIGTERM.
"""

from __future__ import annotations

import collections
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from tests.servers.network_spaces import Network

_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0x40000, 1)
_EVERYTHING = 3  # ETH_P_ALL
_OUTGOING = 4  # PACKET_OUTGOING
_STATISTICS = (263, 6)  # SOL_PACKET, PACKET_STATISTICS
_LONGEST = 1 << 17  # bytes; segments are not yet cut to the interface's size


class Flow(NamedTuple):
    """One direction of a TCP connection."""

    source: str
    source_port: int
    target: str
    target_port: int


class TrafficCapture:
    """Captures from `__init__` to `stop`; `find` then searches what was sent."""

    def __init__(self, network: Network, file: Path) -> None:
        from deploy.guard.processes import spawn_process

        self.file = file
        python = (sys.executable, "-I", "-S", __file__, file)
        self._log = file.with_suffix(".log")
        with self._log.open("ab") as log:
            command = ["nsenter", f"--target={network.bridge.pid}", "--net", *map(str, python)]
            self._process = spawn_process(command, output=log)
        while not file.exists() or file.stat().st_size < len(_HEADER):
            if self._process.poll() is not None:
                raise RuntimeError(f"the capture did not start: {self._log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the capture. Raises RuntimeError if frames were lost because it was too slow."""
        from deploy.guard.processes import release_process

        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)
            release_process(self._process)
            if self._process.returncode:
                raise RuntimeError(f"the capture failed: {self._log.read_text()}")

    def find(self, *texts: bytes) -> dict[bytes, list[Flow]]:
        """Return which flows contain which of `texts`, also where a text spans several packets."""
        found: dict[bytes, list[Flow]] = {}
        for flow, data in self.streams().items():
            for text in texts:
                if text in data:
                    found.setdefault(text, []).append(flow)
        return found

    def streams(self) -> dict[Flow, bytes]:
        """Return what was sent in each flow, in order and each byte once."""
        segments: dict[Flow, dict[int, bytes]] = collections.defaultdict(dict)
        for frame in _read_frames(self.file):
            if (segment := _parse_segment(frame)) is not None:
                flow, number, data = segment
                if len(data) > len(segments[flow].get(number, b"")):
                    segments[flow][number] = data
        return {flow: _join(parts) for flow, parts in segments.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _read_frames(file: Path) -> Iterator[bytes]:
    data = memoryview(file.read_bytes())
    place = len(_HEADER)
    while place < len(data):
        (size,) = struct.unpack_from("<I", data, place + 8)
        yield bytes(data[place + 16 : place + 16 + size])
        place += 16 + size


def _parse_segment(frame: bytes) -> tuple[Flow, int, bytes] | None:
    """Return flow, sequence number and data of a TCP segment; None for anything else and without data."""
    if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
        return None
    header = 14 + (frame[14] & 15) * 4
    source_port, target_port, number = struct.unpack_from(">HHI", frame, header)
    end = 14 + (struct.unpack_from(">H", frame, 16)[0] or len(frame) - 14)  # 0: larger than its field
    data = frame[header + (frame[header + 12] >> 4) * 4 : end]
    addresses = [socket.inet_ntoa(frame[place : place + 4]) for place in (26, 30)]
    return (Flow(addresses[0], source_port, addresses[1], target_port), number, data) if data else None


def _join(parts: dict[int, bytes]) -> bytes:
    first = next(iter(parts))  # numbers wrap around: all are taken relative to the first that was seen
    stream, reached = bytearray(), None
    for number in sorted(parts, key=lambda number: (number - first + 2**31) % 2**32):
        place, data = (number - first + 2**31) % 2**32, parts[number]
        known = 0 if reached is None else max(0, reached - place)
        stream += data[known:]
        reached = max(reached or 0, place + len(data))
    return bytes(stream)


def _record(file: Path) -> int:
    """Write frames until SIGTERM, and what has arrived until then. Return how many were lost."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERYTHING)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        tap.setblocking(False)
        with file.open("wb") as output:
            output.write(_HEADER)
            output.flush()
            while select.select([tap], [], [], 0.2)[0] or not ending:
                _drain(tap, output.write)
                output.flush()
        return int(struct.unpack("II", tap.getsockopt(*_STATISTICS, 8))[1])


def _drain(tap: socket.socket, write: object) -> None:
    while True:
        try:
            frame, (_, _, kind, *_) = tap.recvfrom(_LONGEST)
        except BlockingIOError:
            return
        if kind != _OUTGOING:  # every frame enters the bridge once, and may leave it several times
            write(struct.pack("<IIII", int(time.time()), 0, len(frame), len(frame)) + frame)  # type: ignore[operator]


if __name__ == "__main__":
    if lost := _record(Path(sys.argv[1])):
        raise SystemExit(f"{lost} frames were lost")

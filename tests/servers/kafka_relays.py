"""Brokers that are reached through a relay, which reads Kafka's frames: one that seems to be old, and one
whose answers to some requests are lost."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

from deploy.embedded.ports import pick_port
from deploy.embedded.services import Kafka
from tests.servers.relay import Relay, Talk

API_VERSIONS, INIT_PRODUCER_ID, END_TXN = 18, 22, 26


class RelayedKafka(Kafka):
    """`bootstrap` is for the tests; clients of the other listener, at `relayed_port`, are directed to
    `seen_port`, where a relay is to be."""

    def __init__(self) -> None:
        super().__init__()
        self.relayed_port, self.seen_port = pick_port(), pick_port()

    def _listeners(self) -> dict[str, int]:
        """Return listener → port, as advertised to clients; `RELAYED` at the relay's."""
        return {"BROKER": self.port, "RELAYED": self.seen_port}

    def _mine(self) -> dict[str, str]:
        reported = self._listeners()
        own = {**reported, "RELAYED": self.relayed_port, "CONTROLLER": self.controller_port}
        return {
            "listeners": ",".join(f"{name}://{self.host}:{port}" for name, port in own.items()),
            "advertised.listeners": ",".join(
                f"{name}://{self.host}:{port}" for name, port in reported.items()
            ),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in own),
        }

    def _list_default_settings(self) -> list[str]:
        mine = self._mine()
        kept = [line for line in super()._list_default_settings() if line.partition("=")[0] not in mine]
        return [*kept, *(f"{name}={value}" for name, value in mine.items())]


class KafkaRelay(Relay):
    """Its pieces are frames, without their length."""

    def pieces(self, side: socket.socket) -> Iterator[bytes]:
        while (head := _exactly(side, 4)) is not None:
            frame = _exactly(side, struct.unpack(">i", head)[0])
            if frame is None:
                return
            yield frame


def _exactly(side: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        more = side.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


class FrameTalk(Talk):
    """Passes frames on. `requests`: correlation id → (API key, version) of those without an answer so far."""

    def __init__(self) -> None:
        self._requests: dict[int, tuple[int, int]] = {}

    def asked(self, reported: bytes) -> bytes | None:
        key, version, number = struct.unpack(">hhi", reported[:8])
        self._requests[number] = key, version
        self.request(key)
        return _framed(reported)

    def answered(self, reported: bytes) -> bytes | None:
        key, version = self._requests.pop(struct.unpack(">i", reported[:4])[0])
        answer = self.poll_answer(key, version, reported)
        return None if answer is None else _framed(answer)

    def request(self, key: int) -> None: ...

    def poll_answer(self, key: int, version: int, reported: bytes) -> bytes | None:
        return reported


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class OldBroker(KafkaRelay):
    """The broker seems to be one that has no transactions: of what it can, InitProducerId is taken out."""

    def talk(self) -> Talk:
        return _Old()


class _Old(FrameTalk):
    def poll_answer(self, key: int, version: int, reported: bytes) -> bytes:
        return without(reported, version) if key == API_VERSIONS else reported


def without(frame: bytes, version: int) -> bytes:
    """Return the answer to a request for what a broker can, without InitProducerId. From version 3 on an
    entry ends with a byte of tags, and the count of entries is one more than they are; it is below 127."""
    head, body = frame[:6], frame[6:]
    size, begin = (7, 1) if version >= 3 else (6, 4)
    count = body[0] - 1 if version >= 3 else struct.unpack(">i", body[:4])[0]
    entries = [body[begin + at * size : begin + (at + 1) * size] for at in range(count)]
    kept = [each for each in entries if struct.unpack(">h", each[:2])[0] != INIT_PRODUCER_ID]
    reported = bytes([len(kept) + 1]) if version >= 3 else struct.pack(">i", len(kept))
    return head + reported + b"".join(kept) + body[begin + count * size :]


class LostAnswers(KafkaRelay):
    """Once `lose` was called, the answer to the next request of this kind is lost, though the broker does
    what it asks for."""

    def __init__(self, behind: int, port: int, api: int) -> None:
        super().__init__(behind, port)
        self._api = api
        self._lose = threading.Event()
        self.lost = 0

    def lose(self) -> None:
        self._lose.set()

    def talk(self) -> Talk:
        return _Losing(self)

    def loses(self, api: int) -> bool:
        if api != self._api or not self._lose.is_set():
            return False
        self._lose.clear()
        self.lost += 1
        return True


class _Losing(FrameTalk):
    def __init__(self, relay: LostAnswers) -> None:
        super().__init__()
        self._relay = relay

    def poll_answer(self, key: int, version: int, reported: bytes) -> bytes | None:
        return None if self._relay.loses(key) else reported

"""Kafka as capture writes to it, without a broker; tests/conformance/event_writer.py judges it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.wire.codec import decode_event

Append = Callable[[str, bytes, bytes | None], int]


class TopicWriter:
    """An `EventWriter` that acknowledges each record at once or, `holding`, when it is waited for.

    `append`: adds a record to a topic and returns its offset. `meanwhile`: runs once, at the next wait.
    """

    def __init__(
        self, append: Append | None = None, *, holding: bool = False, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.sent: list[tuple[str, bytes, bytes | None]] = []
        self.sizes: list[int] = []
        """What each `send_all` was given as the size of its records."""
        self.times: list[float] = []
        self.offsets: dict[str, int] = {}
        self.full = False
        self.meanwhile: Callable[[], None] | None = None
        self._append, self._holding, self._clock = append or self._count, holding, clock
        self._lengths: dict[str, int] = {}
        self._outstanding: list[Callable[[], None]] = []

    def send(
        self, topic: str, key: bytes, value: bytes | None, on_offset: Callable[[int], None] | None = None, /
    ) -> None:
        def acknowledge() -> None:
            offset = self.offsets[topic] = self._append(topic, key, value)
            if on_offset is not None:
                on_offset(offset)

        self.sent.append((topic, key, value))
        self.times.append(self._clock())
        self._outstanding.append(acknowledge)
        if not self._holding:
            self._acknowledge()

    def send_all(self, topic: str, records: list[tuple[bytes, bytes]], size: int, /) -> None:
        self.sizes.append(size)
        for key, value in records:
            self.send(topic, key, value)

    def call_when_acknowledged(self, action: Callable[[], None], /) -> None:
        if self._outstanding:
            self._outstanding.append(action)
        else:
            action()

    def drain(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._acknowledge()

    def flush(self) -> None: ...

    abandon_unacknowledged = flush

    def events(self, topic: str | None = None) -> list[Any]:
        """Return the events that were sent, of a topic or of all."""
        return [decode_event(value) for name, _, value in self.sent if value and topic in (None, name)]

    def list_times(self, topic: str) -> list[float]:
        """Return when a topic's records were sent, by the clock."""
        return [at for at, (name, *_) in zip(self.times, self.sent, strict=True) if name == topic]

    def _acknowledge(self) -> None:
        while self._outstanding:
            self._outstanding.pop(0)()

    def _count(self, topic: str, _key: bytes, _value: bytes | None) -> int:
        self._lengths[topic] = self._lengths.get(topic, -1) + 1
        return self._lengths[topic]

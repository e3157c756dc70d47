"""The limits of topics that take smaller events than rowlock sends, because someone has altered their
`max.message.bytes`.

Kafka compares batches as they are sent, compressed, and capture does not know their size before. So the
settings count only once Kafka has refused a batch of the source: from then on an event is compared with its
topic's limit as it is, uncompressed, and batches are no larger than the smallest limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from producer.kafka.settings import MAX_EVENT_BYTES, MESSAGE_OVERHEAD, count_fitting_records


class EventLimits:
    """The limits of one source's topics, for all runs of its capture in this process.

    `read_limits(topics)`: returns topic → `max.message.bytes`; None for `topics` means all of the source's.
    """

    def __init__(
        self, read_limits: Callable[[Iterable[str] | None], Mapping[str, int]] = lambda _: {}
    ) -> None:
        self._read_limits = read_limits
        self._limits: dict[str, int] = {}
        self._was_refused = False

    def record_refusal(self) -> None:
        """Record that Kafka has refused a batch as too large. It counts from the next `read_topics` on."""
        self._was_refused = True

    def read_topics(self) -> None:
        """Read the settings of the source's topics if Kafka has refused a batch.

        Raises TransientSourceError.
        """
        if self._was_refused:
            self._limits = {}
            self._add_limits(self._read_limits(None))

    def get_limit(self, topic: str) -> int:
        """Return the bytes of key and value that an event of the topic may have."""
        return self._limits.get(topic, MAX_EVENT_BYTES)

    @property
    def batch_bytes(self) -> int | None:
        """The bytes that a batch may have; None: as many as usual."""
        return min(self._limits.values(), default=None)

    def count_fitting(self, topic: str, records: list[tuple[bytes, bytes]]) -> tuple[int, int]:
        """Return how many of the records, from the first on, Kafka accepts, and the bytes of those.

        Before one is refused by the topic's setting, the setting is read again: a person may have raised it.
        Raises TransientSourceError.
        """
        fit, size = count_fitting_records(records, self.get_limit(topic))
        if fit < len(records) and topic in self._limits:
            del self._limits[topic]
            self._add_limits(self._read_limits([topic]))
            fit, size = count_fitting_records(records, self.get_limit(topic))
        return fit, size

    def _add_limits(self, found: Mapping[str, int]) -> None:
        for topic, limit in found.items():
            if limit - MESSAGE_OVERHEAD < MAX_EVENT_BYTES:
                self._limits[topic] = max(1, limit - MESSAGE_OVERHEAD)

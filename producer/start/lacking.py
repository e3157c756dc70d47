"""Finds the tables whose topics have events of given transactions: those that the source's new server lacks
(docs/adr/0047).

Numbers of a series (a server's transactions; on MariaDB a domain's) rise along each log, and positions grow
along a topic. So an event of such a series with a number below all missing ones shows a position that is
below all of them, in every topic. Each topic is read back from its end, until it has an event below such a
position, or begins.
"""

from __future__ import annotations

from collections.abc import Mapping

from producer.ports import TopicRanges
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.start.covered_rows import PlacedEvent, decode_placed_event
from schemas.wire.position import ZERO, Position

_FIRST_WINDOW = 500
"""Events that are read first of each topic; then twice as many."""


class LackingSearch:
    """Searches topics for events of `gtids`. `found`: topic → the missing transactions that it has.

    `cut`: topics that begin too late to show all of them.
    """

    def __init__(self, gtids: GtidSet) -> None:
        self._gtids = gtids
        self._lowest = gtids.find_first_numbers()
        self._below: dict[str, Position] = {}
        self.found: dict[str, GtidSet] = {}
        self._events: dict[str, list[tuple[int, int]]] = {}
        self._gens: dict[str, dict[int, int]] = {}
        self.cut: set[str] = set()

    def search_topics(self, reader: TopicRanges, bounds: Mapping[str, tuple[int, int]]) -> None:
        """Read the topics back from their ends. `bounds`: topic → its first offset and its end.

        Raises TransientSourceError.
        """
        window, open_ = _FIRST_WINDOW, {t: each for t, each in bounds.items() if each[0] < each[1]}
        while open_:
            ranges = {t: [(max(low, end - window), end)] for t, (low, end) in open_.items()}
            reached: dict[str, Position] = {}
            for topic, message in reader.read_all(ranges):
                if message.value() is not None:
                    event = decode_placed_event(message.value())
                    self._note_event(topic, event, message.offset(), reached)
            left = {}
            for topic, (low, _) in open_.items():
                begin = ranges[topic][0][0]
                if self._is_below_all(reached.get(topic)):
                    continue
                if begin > low:
                    left[topic] = (low, begin)
                elif low > 0:
                    self.cut.add(topic)
            open_, window = left, window * 2

    def find_first_event(self, topic: str) -> tuple[int, int] | None:
        """Return the offset of the first event that was found in a topic, and the highest gen before it.
        Events of processes that were superseded already do not count.
        """
        begins = self._gens.get(topic, {})
        for offset, gen in sorted(self._events.get(topic, ())):
            highest = max((each for each, begin in begins.items() if begin < offset), default=0)
            if gen >= highest:
                return offset, highest
        return None

    def _note_event(self, topic: str, event: PlacedEvent, offset: int, reached: dict[str, Position]) -> None:
        position, gtid, gen = event.source.position, event.source.gtid, event.source.gen
        gens = self._gens.setdefault(topic, {})
        gens[gen] = min(offset, gens.get(gen, offset))
        if event.is_in_order:
            reached[topic] = min(reached.get(topic, position), position)
        if gtid is None:
            return
        if gtid in self._gtids:
            self.found.setdefault(topic, type(self._gtids)()).add(gtid)
            self._events.setdefault(topic, []).append((offset, gen))
            return
        source, number = self._gtids.split_series(gtid)
        if event.is_in_order and number < self._lowest.get(source, 0):
            self._below[source] = max(position, self._below.get(source, ZERO))

    def _is_below_all(self, position: Position | None) -> bool:
        """Return whether a topic that was read down to `position` has no missing transaction before it."""
        if position is None or self._below.keys() != self._lowest.keys():
            return False
        return position <= min(self._below.values())

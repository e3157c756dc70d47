"""Topics of a whole run that are followed while it goes on, and judged at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from deploy.embedded.services import Kafka
from tests.kits.waiting import until
from tests.topics.expected import Expected, SourceHistory, Written
from tests.topics.journal import Journal
from tests.topics.judge import judge
from tests.topics.records import TopicReader, whole_topic


@dataclass
class Followed:
    """A topic that is followed. `table`: which of the sources' tables goes there; `sources` by name: who
    writes them."""

    broker: Kafka
    written: Written
    table: str
    sources: Mapping[str, Journal]
    reader: TopicReader = field(init=False)
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.reader = TopicReader(self.broker.bootstrap, self.written.topic)
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})

    @property
    def histories(self) -> dict[str, SourceHistory]:
        return {name: source.history for name, source in self.sources.items()}

    def count(self) -> int:
        """Return how many records of rows a reader has been given so far."""
        return sum(each.key is not None for each in self.reader.read_topic())

    def open_transaction(self) -> bool:
        """Tell whether a partition has records whose transaction has not ended."""
        ends = self._ends(IsolationLevel.READ_UNCOMMITTED)
        return any(ends[at] > stable for at, stable in self._ends(IsolationLevel.READ_COMMITTED).items())

    def _ends(self, level: IsolationLevel) -> dict[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.written.topic, at): latest for at in range(self.written.partitions)}
        found = self.admin.list_offsets(asked, isolation_level=level, request_timeout=15)
        return {each.partition: future.result(60).offset for each, future in found.items()}

    def goes_on(self, more: int, what: str) -> None:
        """Await that so many records come."""
        there = self.count()

        def come() -> bool:
            for source in self.sources.values():
                source.alive()
            return self.count() >= there + more

        until(come, f"{self.written.topic} goes on: {what}", 240)

    def ends(self, what: str) -> None:
        """Await as many records as there must be, now that no process writes the sources, and judge the
        topic, anew and as it was followed."""
        desired = len(Expected(self.written, self.histories).entries)
        until(lambda: self.count() >= desired, f"{desired} records in {self.written.topic}: {what}", 300)
        rows = {name: source.rows(self.table) for name, source in self.sources.items()}
        whole = whole_topic(self.broker.bootstrap, self.written.topic)
        findings = judge(self.written, whole, self.histories, rows)
        assert not findings, "\n".join([what, *findings])
        followed = {(each.partition, each.offset): each for each in self.reader.records}
        assert followed == {(each.partition, each.offset): each for each in whole}, "what was read stays"


@contextlib.contextmanager
def followed(topics: Iterable[Followed]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in topics:
            each.reader.close()


@contextlib.contextmanager
def under_load(journals: Sequence[Journal], least: int) -> Iterator[None]:
    """Change the sources meanwhile; begins once each has made `least` changes."""
    for journal in journals:
        journal.start()
    try:
        for journal in journals:
            until(lambda journal=journal: journal.alive() or journal.count >= least, f"{journal.name} writes")  # type: ignore[misc]
        yield
    finally:
        for journal in journals:
            journal.finish()

"""The topics of routes, as a unit, `check`, `status` and a plan look at them: whether they can be written, and how what is there was written."""

from __future__ import annotations

from msgspec.structs import replace

from consumer.ordering.model import ApplyUnit, TargetTable, TopicOptions
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.kafka.records import OpenedTopics, topic_of
from consumer.targets.kafka.shaping import shape_of
from consumer.targets.kafka.store.progress import KafkaProgress
from consumer.targets.kafka.ways import misplaced
from schemas.table.model import Table


class WithoutDefinitions:
    """The part of a target of events that is about definitions: a topic has none, and nothing but its key is unique there."""

    def read_table(self, schema: str, name: str) -> Table | None:
        return None

    def facts(self, schema: str, name: str) -> TableFacts:
        return TableFacts()

    def create_table(self, table: Table) -> None:
        """Do nothing: `open_topic` makes topics."""

    def displaced(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        return {}


class RoutedTopics(KafkaProgress):
    """See consumer.targets.base.EventTables."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._salt = self._config.mask_salt.get_secret_value()
        self._tables = OpenedTopics(self._topics, self._salt)

    def open_topic(self, table: TargetTable, *, create: bool, gone: bool = False) -> None:
        self._tables.open(table, create=create, gone=gone)

    def judge_topic(self, table: TargetTable, *, create: bool) -> None:
        self._tables.judge(table, create=create)

    def records_lost(self, unit: ApplyUnit, table: TargetTable) -> str | None:
        return misplaced(self._known(unit).written, self._tables.seen(table), topic_of(table))

    def surroundings(self, schema: str, name: str) -> object:
        return self._topics.facts(f"{schema}.{name}")

    def outdated(self, unit: ApplyUnit, options: TopicOptions) -> tuple[str, ...]:
        written = self._progress.refresh().unit(unit).written
        if written is None:
            return ()
        now = replace(written, shape=shape_of(options, self._salt))
        return tuple(sorted({name for name, _ in written.outdated}.union(written.reshaped(now))))

    def conflicts(self, unit: ApplyUnit, table: TargetTable, *, create: bool) -> list[str]:
        written = self._progress.refresh().unit(unit).written
        if written is None:
            return []
        now = self._tables.judge(table, create=create)
        lost = (
            misplaced(written, self._tables.seen(table), topic_of(table))
            if written.topic == now.topic
            else None
        )
        return [lost] if lost is not None else written.changes(now)

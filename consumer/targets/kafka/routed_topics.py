"""The topics of routes for a unit, `check`, `status` and a plan: whether they can be written, and how
their records were written.
"""

from __future__ import annotations

from msgspec.structs import replace

from consumer.ordering.model import ApplyUnit, TargetTable, TopicOptions
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.kafka.records import OpenedTopics, get_target_topic
from consumer.targets.kafka.scheme_checks import explain_misplaced_records
from consumer.targets.kafka.shaping import digest_shape_options
from consumer.targets.kafka.store.progress import KafkaProgress
from schemas.problems import Problem
from schemas.table.model import Table


class DefinitionlessTables:
    """The definition methods of a target of events: a topic has no definition, and only its key is unique."""

    def read_table(self, schema: str, name: str) -> Table | None:
        return None

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        return TableFacts()

    def judge_new_table(self, table: Table) -> list[Problem]:
        return []

    def create_table(self, table: Table) -> None:
        """Do nothing: `open_topic` creates topics."""

    def count_displaced_rows(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        return {}


class RoutedTopics(KafkaProgress):
    """The routed topics of a Kafka target; see consumer.targets.base.EventTables."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._salt = self._config.mask_salt.get_secret_value()
        self._tables = OpenedTopics(self._topics, self._salt)

    def open_topic(self, table: TargetTable, *, create: bool, existed: bool = False) -> None:
        self._tables.open_topic(table, create=create, existed=existed)

    def judge_topic(self, table: TargetTable, *, create: bool) -> None:
        self._tables.judge_table(table, create=create)

    def records_lost(self, unit: ApplyUnit, table: TargetTable) -> Problem | None:
        return explain_misplaced_records(
            self._get_known_unit(unit).written,
            self._tables.read_topic_identity(table),
            get_target_topic(table),
        )

    def read_surroundings(self, schema: str, name: str) -> object:
        return self._topics.read_topic_facts(f"{schema}.{name}")

    def find_outdated_options(self, unit: ApplyUnit, options: TopicOptions) -> tuple[str, ...]:
        written = self._progress.read_new_records().get_unit(unit).written
        if written is None:
            return ()
        now = replace(written, shape=digest_shape_options(options, self._salt))
        return tuple(sorted({name for name, _ in written.outdated}.union(written.list_reshaped_options(now))))

    def find_write_conflicts(self, unit: ApplyUnit, table: TargetTable, *, create: bool) -> list[str]:
        written = self._progress.read_new_records().get_unit(unit).written
        if written is None:
            return []
        now = self._tables.judge_table(table, create=create)
        lost = (
            explain_misplaced_records(
                written, self._tables.read_topic_identity(table), get_target_topic(table)
            )
            if written.topic == now.topic
            else None
        )
        return [str(lost)] if lost is not None else written.list_incompatibilities(now)

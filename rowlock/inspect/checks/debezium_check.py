"""Check of a source that Debezium captures, as far as its topics and its database show.

The connector's own configuration is not read. Where it has to fit the tables, the finding states how.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from rowlock.coordinator.units import NO_TOPICS_REMEDY, explain_missing_topics
from rowlock.errors import CommandError
from rowlock.views.kafka import KafkaView
from rowlock.views.source import source_connection
from rowlock.views.topic_settings import TopicSettings
from schemas.config.model import Config
from schemas.errors import SchemaError, ServerConnectError
from schemas.findings import Finding, add_exclusion, build_error_finding
from schemas.io.mysql_foreign_keys import list_cascading_foreign_keys
from schemas.io.server_errors import TESTED_SOURCES, explain_untested_version
from schemas.table.model import NUMBERED, Table
from schemas.table.names import TableName, format_table_text
from schemas.topic_rules import explain_compaction_refusal, partitions_refusal
from schemas.wire.debezium import format_debezium_topic

UNNAMED_LABEL_REMEDY = "give the empty label a name at the source, or exclude the table"
_PARTITIONED = (
    "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.PARTITIONS "
    "WHERE PARTITION_NAME IS NOT NULL"
)
_COMPRESSION = "SHOW GLOBAL VARIABLES LIKE 'binlog_transaction_compression'"


def yield_debezium_findings(config: Config, name: str, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield findings about source `name` with the selected `tables`. Nothing is written."""
    if not tables:
        return  # that is a finding already
    topics: dict[str, list[str]] = defaultdict(list)
    for table in tables:
        topics[format_debezium_topic(config.kafka.prefix, name, table.db, table.name)].append(
            f"{table.db}.{table.name}"
        )
    yield from _yield_shared_topic_findings(name, topics)
    with contextlib.suppress(CommandError):  # Kafka does not answer: a finding already
        yield from _yield_topic_findings(config, name, topics)
    yield from _yield_server_findings(config, name, tables)
    yield from yield_null_findings(name, tables)
    yield from yield_empty_label_findings(name, tables)


def _yield_shared_topic_findings(name: str, topics: dict[str, list[str]]) -> Iterator[Finding]:
    for topic, places in topics.items():
        if len(places) > 1:
            yield Finding(
                "error",
                f"source {name}",
                f"{', '.join(places)} all go to the topic {topic}: Debezium writes '_' for "
                "what Kafka refuses in a name",
                'exclude all but one (append "!database.table" of each other one to the source\'s `tables`)',
            )


def _yield_topic_findings(config: Config, name: str, topics: dict[str, list[str]]) -> Iterator[Finding]:
    with contextlib.closing(KafkaView(config.kafka)) as view:
        partitions = view.count_partitions()
    found = sorted(topics.keys() & partitions.keys())
    policies: dict[str, str] = {}
    with contextlib.suppress(CommandError):
        policies = TopicSettings(config.kafka).read_cleanup_policies(found)
    for topic in found:
        refusal = partitions_refusal(topic, partitions[topic], debezium=True)
        if refusal := refusal or explain_compaction_refusal(topic, policies.get(topic, "")):
            yield build_error_finding(f"source {name}, topic {topic}", refusal)
    if not found:
        message = explain_missing_topics(config, name).partition(": ")[2]
        yield Finding("warning", f"source {name}", message, NO_TOPICS_REMEDY)


def _yield_server_findings(config: Config, name: str, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield the findings of the server's settings and foreign keys, or why they cannot be read."""
    try:
        yield from _yield_setting_findings(config, name, tables)
    except CommandError as error:
        if not isinstance(error.__cause__, ServerConnectError):  # otherwise it is reported already
            place = f"source {name}"
            what = error.problem.what.removeprefix(f"{place}: ")
            yield Finding("error", place, what, error.problem.action)


def _yield_setting_findings(config: Config, name: str, tables: Sequence[Table]) -> Iterator[Finding]:
    with source_connection(config.sources[name], name) as conn:
        with conn.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            version = str((cursor.fetchone() or ("",))[0])
            cursor.execute(_COMPRESSION)
            found = cursor.fetchone()
            cursor.execute(_PARTITIONED)
            partitioned = {(str(db), str(table)) for db, table in cursor.fetchall()}
        if (
            untested := explain_untested_version(TESTED_SOURCES, config.sources[name].type, version)
        ) is not None:
            yield Finding("warning", f"source {name}", untested.what, untested.remedy)
        yield from yield_partition_findings(name, tables, partitioned)
        for table in tables:
            place = f"source {name}, table {table.db}.{table.name}"
            try:
                cascades = list_cascading_foreign_keys(conn, table.db, table.name)
            except SchemaError as error:
                remedy = add_exclusion(error.problem.action, table.db, table.name)
                yield Finding("warning", place, error.problem.what, remedy)
                continue
            if cascades:
                yield Finding(
                    "warning",
                    place,
                    f"foreign keys change its rows ({'; '.join(cascades)}), which MariaDB, and MySQL before "
                    "9.6, do not log: Debezium does not see it either",
                    add_exclusion(
                        "use NO ACTION and change the child rows in the application, or exclude the table",
                        table.db,
                        table.name,
                    ),
                )
    if found is not None and str(found[1]).upper() in ("ON", "1"):
        yield Finding(
            "error",
            f"source {name}",
            "binlog_transaction_compression is ON: Debezium gives all rows of a transaction one position "
            "then, and their duplicates cannot be distinguished from other rows",
            "SET GLOBAL binlog_transaction_compression = OFF; and set it in the server's configuration; "
            "sessions that are connected go on as they began",
        )


def yield_partition_findings(
    name: str, tables: Sequence[Table], partitioned: Collection[TableName]
) -> Iterator[Finding]:
    """Yield one warning if there are partitioned tables, whose removed rows stay in targets. Pure."""
    places = [
        format_table_text(table.db, table.name) for table in tables if (table.db, table.name) in partitioned
    ]
    if places:
        yield Finding(
            "warning",
            f"source {name}",
            f"{_list_first(places)} {'has' if len(places) == 1 else 'have'} partitions: Debezium's topics do "
            "not show which statements remove rows (DROP, TRUNCATE and EXCHANGE PARTITION), so "
            "`partitions: follow` has no effect, and the rows stay in the target",
            "after such a statement, delete the rows in the target, too: `rowlock verify` finds them",
        )


def _list_first(places: Sequence[str]) -> str:
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f"{', '.join(places[:3])}{more}"


def yield_null_findings(name: str, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield a warning if the JSON converter would write a column's default for NULL. Pure."""
    places = [
        f"{table.db}.{table.name}.{column.name}"
        for table in tables
        for column in table.columns
        if column.nullable and column.default is not None
    ]
    if places:
        yield Finding(
            "warning",
            f"source {name}",
            f"{_list_first(places)} may be NULL and have a default, which Kafka Connect's JSON "
            "converter writes for NULL unless it is configured not to",
            "set value.converter.replace.null.with.default=false in the connector, "
            "before it takes its snapshot",
        )


def yield_empty_label_findings(name: str, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield a warning for each table with ENUM or SET values for which Debezium writes ambiguous texts.
    Pure.
    """
    for table in tables:
        columns = [column.name for column in table.columns if column.type.kind in NUMBERED.values()]
        if columns:
            yield Finding(
                "warning",
                f"source {name}, table {format_table_text(table.db, table.name)}",
                f"column {', '.join(columns)} has an empty label, and Debezium writes labels: a text that "
                "can mean two values stops the table",
                add_exclusion(UNNAMED_LABEL_REMEDY, table.db, table.name),
            )

"""The start of capture at another server of the source: one record that holds the new place, and the stops of
the tables that the two logs do not agree about (docs/adr/0047).

Invariants:

1. Before anything is decided, each topic has an event of this process's gen: what an earlier process still
   sends does not count for readers.
2. The new place is stored together with all stops that follow from it. A start after that is like any other.
3. A table continues only if its topic has no transaction that the new server lacks, if the new log has none
   before the place that is not captured, and if the topic's late events are rows that the new log can
   repeat.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import structlog
from msgspec.structs import replace

from producer.decoders.envelope import SourceContext
from producer.errors import TableStoppedError, TransientSourceError
from producer.ports import EventWriter, TopicRanges
from producer.sources.changes import LogStart, ServerSwitch, list_places
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.start.covered_rows import CoveredRows, LateEvents, build_failover_stop
from producer.start.lacking import LackingSearch
from producer.start.positions import PositionStore
from producer.start.repeated_events import build_definition_context, send_definition
from producer.start.topic_recovery import TopicFindings
from producer.stops import StopCause
from producer.tables import CapturedTables, TableName, TableState, format_table_name
from schemas.clock import read_clock_ms
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import StoredPosition, TableStop

_log = structlog.get_logger("capture")
_SHOWN = 5
"""GTIDs that a message names."""

Topics = Mapping[TableName, str]
"""Table → its topic."""


def read_late_events(
    reader: TopicRanges,
    record: StoredPosition,
    topics: Topics,
    here: tuple[int, int, int] | None = None,
) -> dict[TableName, LateEvents]:
    """Read what the topics have of earlier eras of the history and after the position of `record`.

    `here`: see LateEvents. Raises TransientSourceError.
    """
    captured = GtidSet.parse(record.identity.gtid_set or "")
    found, ranges = {}, {}
    for name, topic in topics.items():
        (low, high), anchor = reader.get_bounds(topic), record.anchors.get(format_table_name(name))
        offset, gen = anchor.settled if anchor is not None else (-1, 0)
        ranges[topic] = [(max(low, offset + 1), high)]
        found[name] = LateEvents(captured, (record.first_era, record.epoch), here, gen)
    tables = {topic: name for name, topic in topics.items()}
    for topic, message in reader.read_all(ranges):
        if message.value() is not None:
            found[tables[topic]].add_event(message.key() or b"", message.value())
    return found


def read_covered_rows(
    reader: TopicRanges, record: StoredPosition, topics: Topics
) -> dict[TableName, CoveredRows]:
    """Return the rows that the log brings again after the position of `record`, of each table that has any.

    Raises TransientSourceError.
    """
    if record.first_era == record.epoch:
        return {}
    late = read_late_events(reader, record, topics)
    return {
        name: CoveredRows(name, rows) for name, each in late.items() if (rows := each.list_transactions())
    }


@dataclass(slots=True)
class ServerSwitcher:
    """Moves capture to another server. `context`: of events under a position."""

    writer: EventWriter
    reader: TopicRanges
    store: PositionStore
    captured: CapturedTables
    context: Callable[[StoredPosition], SourceContext]

    def switch_server(
        self,
        record: StoredPosition,
        start: LogStart,
        switch: ServerSwitch,
        tables: Iterable[TableName],
        found: Mapping[str, TopicFindings],
    ) -> StoredPosition:
        """Return the record of the new place, which is stored. `record`: the claimed one, of the old place.

        `tables`, `found`: the tables with topics, and what those have. Raises TransientSourceError while the
        new server may still get transactions that the topics have.
        """
        topics = {name: self.captured.assign_topic_name(name) for name in tables}
        self._claim_topics(record, topics, found)
        topics = {
            name: topic for name, topic in topics.items() if format_table_name(name) not in record.stops
        }
        here = (record.epoch, parse_binlog_file_number(record.file), record.pos)
        new = build_switched_record(record, start, switch)
        late = read_late_events(self.reader, replace(new, identity=record.identity), topics, here)
        lacking = GtidSet.parse(record.identity.gtid_set or "").subtract(switch.executed)
        for each in late.values():
            for transaction in each.list_transactions():
                if transaction.gtid not in switch.executed:
                    lacking.add(transaction.gtid)
        if lacking.count() and not switch.is_final:
            raise TransientSourceError(
                f"the source's new server lacks transactions that Kafka has ({lacking}), and may still get "
                "them"
            )
        errors = [
            *self._find_lacking(lacking, topics),
            *_find_uncaptured(switch, topics),
            *(
                build_failover_stop(name, _explain_late(name, each))
                for name, each in late.items()
                if each.problem
            ),
        ]
        new = replace(new, stops={**_build_stops(new, errors, self.captured.source), **record.stops})
        self.store.store_position(self.writer, new)
        self.writer.drain()
        _log.warning(
            "source continues at another server", source=new.source, former=record.identity.server_uuid,
            server=new.identity.server_uuid, file=new.file, pos=new.pos, lacking=str(lacking),
            uncaptured=_show_gtids([each.gtid for each in switch.passed]),
        )  # fmt: skip
        return new

    def _claim_topics(
        self, record: StoredPosition, topics: Topics, found: Mapping[str, TopicFindings]
    ) -> None:
        """Repeat a definition in each topic, and read what came before it since the topics were read."""
        context = self.context(record)
        for name, topic_name in topics.items():
            tails, topic = found[topic_name], self.captured.get_topic(name)
            topic.continue_after(tails.highest, tails.end)
            tail = tails.tables.get(name)
            if tail is None or not tail.definitions:
                continue
            position = max(tail.definitions)
            state = TableState(name, topic, tail.definitions[position], position)
            at = build_definition_context(record, position)
            send_definition(self.writer, replace(context, epoch=position[0]), state, at)
        self.writer.drain()
        ends = {topic: self.reader.get_bounds(topic) for topic in topics.values()}
        news = {topic: [(max(low, found[topic].end), high)] for topic, (low, high) in ends.items()}
        for topic_name, message in self.reader.read_all(news):
            if message.value() is not None:
                found[topic_name].add_event(message.offset(), message.value())
        for topic_name, (_, high) in ends.items():
            found[topic_name].extend_range(high)

    def _find_lacking(self, lacking: GtidSet, topics: Topics) -> list[TableStoppedError]:
        """Return the stops of tables with transactions that the new server lacks."""
        if not lacking.count():
            return []
        search = LackingSearch(lacking)
        search.search_topics(self.reader, {topic: self.reader.get_bounds(topic) for topic in topics.values()})
        _log.error(
            "transactions are lost at the source", source=self.captured.source, gtids=str(lacking),
            tables=[format_table_name(name) for name, topic in topics.items() if topic in search.found],
        )  # fmt: skip
        return [
            build_failover_stop(name, _explain_lacking(name, search.found.get(topic)))
            for name, topic in topics.items()
            if topic in search.found or topic in search.cut
        ]


def build_switched_record(record: StoredPosition, start: LogStart, switch: ServerSwitch) -> StoredPosition:
    """Return the record of the new server's place: a new era of the same history. Shadow tables keep their
    statements: those before the place are included."""
    point = (parse_binlog_file_number(start.file), start.pos)
    return replace(
        record,
        epoch=record.epoch + 1,
        began=record.first_era,
        file=start.file,
        pos=start.pos,
        identity=start.identity,
        proof=start.proof,
        prepared={xid: each.tables for xid, each in switch.prepared.items()},
        prepared_at=list_places(switch.prepared),
        shadows=tuple(replace(each, at=point) for each in record.shadows),
    )


def _find_uncaptured(switch: ServerSwitch, topics: Topics) -> list[TableStoppedError]:
    """Return the stops of tables with transactions that precede the place and are not captured."""
    passed = defaultdict[TableName, list[str]](list)
    folded = defaultdict[TableName, list[TableName]](list)  # names that differ in case only are one name here
    for name in topics:
        folded[_fold_name(name)].append(name)
    for each in switch.passed:
        touched = {_fold_name(table) for table in each.tables or ()}
        for name in topics if each.tables is None else chain.from_iterable(folded[key] for key in touched):
            passed[name].append(each.gtid)
    return [
        build_failover_stop(
            name,
            f"the source's new server has transactions on {format_table_name(name)} that were not captured, "
            f"and that precede captured ones in its log: {_show_gtids(gtids)}",
        )
        for name, gtids in passed.items()
    ]


def _fold_name(name: TableName) -> TableName:
    return name[0].casefold(), name[1].casefold()


def _explain_late(name: TableName, late: LateEvents) -> str:
    return (
        f"the log of the source's new server cannot be compared with the topic of {format_table_name(name)}: "
        f"{late.problem}, after the stored position"
    )


def _explain_lacking(name: TableName, gtids: GtidSet | None) -> str:
    table = format_table_name(name)
    if gtids is None:
        return (
            f"the source's new server lacks transactions that Kafka has, and the topic of {table} no longer "
            "shows whether it had any of them"
        )
    return f"the source's new server lacks transactions on {table} that Kafka has: {gtids}"


def _show_gtids(gtids: list[str]) -> str:
    more = f" and {len(gtids) - _SHOWN} more" if len(gtids) > _SHOWN else ""
    return ", ".join(gtids[:_SHOWN]) + more


def _build_stops(
    record: StoredPosition, errors: Iterable[TableStoppedError], source: str
) -> dict[str, TableStop]:
    """Return the stops by "db.table", each with the first error of the table."""
    number, stops = parse_binlog_file_number(record.file), dict[str, TableStop]()
    cause = StopCause(record.epoch, record.file, number, record.pos, read_clock_ms())
    for error in errors:
        for name in error.tables or ():
            if (text := format_table_name(name)) in stops or text in record.stops:
                continue
            stops[text] = cause.build_table_stop(name, error)
            _log.error(
                "table stopped", source=source, table=text, cause=error.cause, reason=error.reason,
                remedy=stops[text].remedy,
            )  # fmt: skip
    return stops

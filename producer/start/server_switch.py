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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import structlog
from msgspec.structs import replace

from producer.decoders.envelope import SourceContext
from producer.errors import SourceRefusedError, TableStoppedError, TransientSourceError
from producer.ports import EventWriter, TopicRanges
from producer.sources.changes import LogStart, PassedTransaction, ServerSwitch, list_places
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.start.covered_rows import CoveredRows, LateEvents, build_failover_stop
from producer.start.lacking import LackingSearch
from producer.start.positions import PositionStore
from producer.start.repeated_events import build_definition_context, send_definition
from producer.start.topic_recovery import TopicFindings
from producer.stops import StopCause
from producer.tables import CapturedTables, TableName, TableState, format_table_name
from schemas.clock import read_clock_ms
from schemas.findings import START_OVER
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Anchor, StoredPosition, TableStop

_log = structlog.get_logger("capture")
_SHOWN = 5
"""GTIDs that a message names."""

Topics = Mapping[TableName, str]
"""Table → its topic."""


def read_late_events(
    reader: TopicRanges,
    record: StoredPosition,
    captured: GtidSet,
    topics: Topics,
    here: tuple[int, int, int] | None = None,
) -> dict[TableName, LateEvents]:
    """Read what the topics have of earlier eras of the history and after the position of `record`, which
    includes `captured`.

    `here`: see LateEvents. Raises TransientSourceError.
    """
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
    reader: TopicRanges, record: StoredPosition, captured: GtidSet, topics: Topics
) -> dict[TableName, CoveredRows]:
    """Return the rows that the log brings again after the position of `record`, which includes `captured`, of
    each table that has any.

    Raises TransientSourceError.
    """
    if record.first_era == record.epoch:
        return {}
    late = read_late_events(reader, record, captured, topics)
    return {
        name: CoveredRows(name, rows) for name, each in late.items() if (rows := each.list_transactions())
    }


@dataclass(slots=True)
class ServerSwitcher:
    """Moves capture to another server. `context`: of events under a position. `parse_gtids`: those of a
    position record.
    """

    writer: EventWriter
    reader: TopicRanges
    store: PositionStore
    captured: CapturedTables
    context: Callable[[StoredPosition], SourceContext]
    parse_gtids: Callable[[str | None], GtidSet]

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
        new, captured = (
            build_switched_record(record, start, switch),
            self.parse_gtids(record.identity.gtid_set),
        )
        repeated = self._find_repeated(switch, topics)
        if switch.ahead:
            new = replace(new, anchors=self._lower_anchors(new, topics, repeated))
            captured = self.parse_gtids(new.identity.gtid_set)
        late = read_late_events(self.reader, new, captured, topics, here)
        lacking = self.parse_gtids(record.identity.gtid_set).subtract(switch.executed)
        if switch.missed is not None:
            lacking.add_all(switch.missed)
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
            *self._find_lacking(lacking, topics, switch.unshown),
            *_find_uncaptured(switch, topics),
            *_find_unpublished(switch, topics, repeated),
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

    def _find_repeated(self, switch: ServerSwitch, topics: Topics) -> LackingSearch:
        """Return where the topics have transactions that the new log brings again."""
        ahead = self.parse_gtids(None)
        for each in switch.ahead:
            ahead.add(each.gtid)
        search = LackingSearch(ahead)
        if switch.ahead:
            search.search_topics(
                self.reader, {topic: self.reader.get_bounds(topic) for topic in topics.values()}
            )
        return search

    def _lower_anchors(
        self, record: StoredPosition, topics: Topics, repeated: LackingSearch
    ) -> dict[str, Anchor]:
        """Return the anchors of `record`, with none settled after the first event that the new log brings
        again: the record's position is before it."""
        anchors = dict(record.anchors)
        for name, topic in topics.items():
            text, first = format_table_name(name), repeated.find_first_event(topic)
            if first is not None and text in anchors and first[0] <= anchors[text].settled[0]:
                settled = (first[0] - 1, first[1])
                anchors[text] = replace(anchors[text], settled=settled)
                self.captured.get_topic(name).restore_settled(settled)
        return anchors

    def _find_lacking(
        self, lacking: GtidSet, topics: Topics, unshown: Sequence[str]
    ) -> list[TableStoppedError]:
        """Return the stops of tables with transactions that the new server lacks.

        Raises SourceRefusedError if the topics do not show whether a domain of `unshown` has any.
        """
        if not lacking.count():
            return []
        search = LackingSearch(lacking)
        search.search_topics(self.reader, {topic: self.reader.get_bounds(topic) for topic in topics.values()})
        if unshown and search.cut:
            raise _build_unshown_error(unshown)
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
    return [
        build_failover_stop(
            name,
            f"the source's new server has transactions on {format_table_name(name)} that were not captured, "
            f"and that precede captured ones in its log: {_show_gtids(gtids)}",
        )
        for name, gtids in _group_by_table(switch.passed, topics).items()
    ]


def _find_unpublished(
    switch: ServerSwitch, topics: Topics, repeated: LackingSearch
) -> list[TableStoppedError]:
    """Return the stops of tables with transactions that the new log brings again after the place, and that
    their topics do not have: a snapshot or a copy has read their rows, perhaps with later changes."""
    stops = []
    for name, gtids in _group_by_table(switch.ahead, topics).items():
        published = repeated.found.get(topics[name])
        if missing := [gtid for gtid in gtids if published is None or gtid not in published]:
            stops.append(
                build_failover_stop(
                    name,
                    f"the log of the source's new server repeats transactions on {format_table_name(name)} "
                    f"that were captured before, and that its topic does not have: {_show_gtids(missing)}",
                )
            )
    return stops


def _group_by_table(transactions: Iterable[PassedTransaction], topics: Topics) -> dict[TableName, list[str]]:
    """Return the GTIDs of the transactions that may have changed each table with a topic."""
    found = defaultdict[TableName, list[str]](list)
    folded = defaultdict[TableName, list[TableName]](list)  # names that differ in case only are one name here
    for name in topics:
        folded[_fold_name(name)].append(name)
    for each in transactions:
        touched = {_fold_name(table) for table in each.tables or ()}
        for name in topics if each.tables is None else chain.from_iterable(folded[key] for key in touched):
            found[name].append(each.gtid)
    return found


def _fold_name(name: TableName) -> TableName:
    return name[0].casefold(), name[1].casefold()


def _build_unshown_error(unshown: Sequence[str]) -> SourceRefusedError:
    shown = ", ".join(unshown)
    return SourceRefusedError(
        f"the source's new server shows nothing of the GTID domains of {shown}, neither in its "
        "gtid_binlog_state nor in its gtid_slave_pos, and the topics no longer show their tables",
        "if no transaction of these domains is missing there, run at that server: STOP ALL SLAVES; "
        f"SET GLOBAL gtid_slave_pos = CONCAT_WS(',', NULLIF(@@gtid_slave_pos, ''), '{','.join(unshown)}'); "
        f"else {START_OVER}",
    )


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

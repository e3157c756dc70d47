"""The start of a capture unit: claims the position, restores the tables' state from the topics, defines
new tables.

The order matters. The gen is claimed durably before the first event. Then every known table's definition
is repeated under the new gen. From that event on readers drop what an earlier process may still write,
so the events before it are all that is valid in the topic, and they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import structlog

from producer.copies.book import CopyBook
from producer.decoders.envelope import SourceContext
from producer.definitions.requests import DefinitionPlace, Proof, UnprovenDefinition
from producer.errors import SourceRefusedError, TransientSourceError
from producer.kafka.topics import SourceTopics
from producer.ports import EventWriter, TopicRanges
from producer.sources.changes import LogStart
from producer.sources.protocols import PublishedRows, SourceDatabase
from producer.start.covered_rows import build_failover_stop
from producer.start.lost_topics import TopicLoss, find_topic_loss, note_topic_loss
from producer.start.positions import CaptureAssignment, PositionRecords, PositionStore
from producer.start.repeated_events import build_definition_context, send_definition
from producer.start.restored_stops import FormerStops
from producer.start.server_switch import ServerSwitcher, read_covered_rows
from producer.start.start_topics import StartTopics
from producer.start.started import StartedCapture
from producer.start.table_topics import TableTopics
from producer.start.topic_recovery import TableTail, TopicFindings, scan_topics
from producer.stops import StopCause, StoppedTable, explain_unseen_table
from producer.tables import CapturedTables, TableName, TableState, format_table_name
from schemas.clock import read_clock_ms
from schemas.config.model import SourceConfig
from schemas.findings import START_OVER
from schemas.problems import Problem
from schemas.table.model import Table, is_same_definition
from schemas.table.names import find_meant_tables
from schemas.table.online_ddl import find_tool_tables
from schemas.wire.copies import copy_topic
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Anchor, StoredPosition, encode_claim_key, format_watermark_topic
from schemas.wire.topic_names import as_stored

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class CaptureStarter:
    """Starts a capture unit."""

    source: SourceDatabase
    config: SourceConfig
    writer: EventWriter
    reader: TopicRanges
    topics: SourceTopics
    store: PositionStore
    captured: CapturedTables
    term: CaptureAssignment

    def start_capture(self, *, new_snapshot: bool) -> StartedCapture:
        """Claim, recover, define.

        Raises SourceRefusedError, KafkaRefusedError, TransientSourceError, DeliveryError.
        """
        selected = self._exclude_tool_tables(self.source.tables.list_table_names(self.config.tables))
        records = self.store.load_records(self.reader)
        topics = StartTopics(TableTopics(self.captured, self.topics, self.reader), records.newest, selected)
        newest, names = topics.record, topics.names
        former = self._list_former_tables(names, newest)
        found = self._scan_topics([*names, *former], topics.created, newest)
        former += topics.add_forgotten_tables([*names, *former], found)
        record, start = self._choose_record(records._replace(newest=newest), found, new_snapshot=new_snapshot)
        record = msgspec.structs.replace(record, topics=as_stored(self.captured.names.assigned))
        record = self.store.claim_position(
            self.writer, self.reader, record, records.older_keys, self._announce_claim
        )
        self.term.record_claim(record.gen)
        if start.switch is not None:
            record = ServerSwitcher(
                self.writer,
                self.reader,
                self.store,
                self.captured,
                self._build_context,
                self.source.parse_gtids,
            ).switch_server(record, start, start.switch, [*names, *former], found)
        context = self._build_context(record)
        fresh = records.newest is None or new_snapshot
        started = StartedCapture(
            record, context, self.captured, {}, {}, fresh,
            copies=CopyBook(record.copies, record.copy_requests, self.config.copy_rows_per_second),
            snapshots=self.config.snapshot != "never",
        )  # fmt: skip
        for name, problem in topics.unusable.items():
            self._leave_out(started, name, problem)
        self._define_all(started, names, former, found, topics.unusable)
        published = collect_published(found, self.captured, record.epoch, captured_before=not fresh)
        covered = read_covered_rows(
            self.reader, record, self.source.parse_gtids(record.identity.gtid_set),
            {name: state.topic.name for name, state in self.captured.tables.items()},
        )  # fmt: skip
        return replace(started, published=published, covered=covered)

    def _build_context(self, record: StoredPosition) -> SourceContext:
        return self.source.build_context(self.captured.source, record.epoch, record.gen)

    def _announce_claim(self, gen: int) -> None:
        """Let readers ignore the watermarks that a replaced process still sends: from the first event of
        this process on they drop its rows.
        """
        topic = format_watermark_topic(self.captured.prefix, self.captured.source)
        self.writer.send(topic, encode_claim_key(gen), None)

    def _exclude_tool_tables(self, names: list[TableName]) -> list[TableName]:
        """Return `names` without the shadow tables of gh-ost and similar tools."""
        patterns = self.source.tables.names.fold_patterns(self.config.tables)
        left_out = find_tool_tables(names, self.config.online_ddl.names, patterns, set(names))
        for name, table in left_out.items():
            _log.warning(
                "table of a tool skipped",
                source=self.captured.source,
                table=format_table_name(name),
                tool=format_table_name(table),
            )
        return [name for name in names if name not in left_out]

    def _list_former_tables(self, names: list[TableName], record: StoredPosition | None) -> list[TableName]:
        """Return the tables in the record that have topics and are not selected (any more)."""
        known = {
            name
            for text in ({**record.anchors, **record.stops} if record else {})
            for name in find_meant_tables(text)
        }
        return sorted(name for name in known - set(names) if self.captured.names.has_topic(name))

    def _scan_topics(
        self, names: list[TableName], created: set[str], record: StoredPosition | None
    ) -> dict[str, TopicFindings]:
        """Read what counts of each topic. Anchors of a topic that has lost events do not count."""
        anchors: dict[str, dict[TableName, Anchor]] = defaultdict(dict)
        for name in names:
            anchor = (record.anchors if record else {}).get(format_table_name(name))
            topic = self.captured.assign_topic_name(name)
            anchors[topic].update({name: anchor} if anchor else {})
        # The ids are noted before anything of the topics is read.
        self.captured.topic_ids.update(self.topics.fetch_topic_ids(anchors))
        bounds = {topic: self.reader.get_bounds(topic) for topic in anchors if topic not in created}
        losses = self._find_losses(anchors, bounds)
        old = {topic: {} if topic in losses else anchors[topic] for topic in bounds}
        found = {topic: TopicFindings() for topic in created} | scan_topics(self.reader, old, bounds)
        for topic, known in old.items():
            settled = min((each.settled for each in known.values()), default=(-1, 0))
            self.captured.get_named_topic(topic).restore_settled(settled)
        for topic, loss in losses.items():
            note_topic_loss(found[topic], loss, anchors[topic])
        return found

    def _find_losses(
        self, anchors: Mapping[str, Mapping[TableName, Anchor]], bounds: Mapping[str, tuple[int, int]]
    ) -> dict[str, TopicLoss]:
        """Return the topics that have lost events. A topic without bounds was created by this start."""
        ids, found = self.captured.topic_ids, {}
        for topic, known in anchors.items():
            _, end = bounds.get(topic, (0, 0))
            loss = find_topic_loss(
                topic, known.values(), ids.get(topic, ""), end, created=topic not in bounds
            )
            if loss is not None:
                found[topic] = loss
        return found

    # --- the record

    def _choose_record(
        self, records: PositionRecords, found: dict[str, TopicFindings], *, new_snapshot: bool
    ) -> tuple[StoredPosition, LogStart]:
        """Return the record to claim: the stored one under the next gen, or a new beginning at the log's
        end; and the place of the log.
        """
        stored = records.newest
        self.term.check_not_superseded(self.captured.source, stored)
        gen = max([stored.gen if stored else 0, *(tails.gen for tails in found.values())]) + 1
        gen = max(gen, self.term.at_least)
        assigned = max(stored.assigned if stored else 0, self.term.at_least)
        eras = [tails.highest[0] for tails in found.values() if tails.highest]
        if stored is None and eras and not new_snapshot:
            raise SourceRefusedError(
                f"topics of source {self.captured.source} hold events, but {self.store.topic} has no "
                "position: it was deleted, or another installation uses the prefix",
                START_OVER,
            )
        if stored is not None and not new_snapshot:
            here = self.source.resume_log(stored)
            claimed = msgspec.structs.replace(stored, gen=gen, ts_ms=here.ts_ms, assigned=assigned)
            if here.switch is None:
                claimed = msgspec.structs.replace(claimed, identity=here.identity, proof=here.proof)
            return claimed, here
        here = self.source.find_log_end()
        before = max([*eras, *([stored.epoch] if stored else [])], default=-1)
        return StoredPosition(
            source=self.captured.source, gen=gen, epoch=before + 1, file=here.file, pos=here.pos,
            identity=here.identity, ts_ms=here.ts_ms, assigned=assigned, proof=here.proof,
            copy_requests=self._requests_end(),
        ), here  # fmt: skip

    def _requests_end(self) -> int:
        """Return the offset of the first copy request after this beginning.

        Earlier ones are fulfilled by it, or belong to an older one.
        """
        topic = copy_topic(self.captured.prefix, self.captured.source)
        return self.reader.get_bounds(topic)[1] if topic in self.topics.count_partitions() else 0

    # --- definitions

    def _define_all(
        self,
        started: StartedCapture,
        names: list[TableName],
        former: list[TableName],
        found: dict[str, TopicFindings],
        unusable: Mapping[TableName, Problem],
    ) -> None:
        """Restore the tables that topics know (`former`: not selected any more), and define new ones.

        `unusable`: tables with topics that must not be written, and why.
        """
        known: list[TableName] = []
        for name in [*names, *former]:
            tails = found[self.captured.assign_topic_name(name)]
            topic = self.captured.get_topic(name)
            topic.continue_after(tails.highest, tails.end)
            tail = tails.tables.get(name)
            if tail is not None and self._restore_table(started, name, tail):
                known.append(name)
        FormerStops(
            self.source.tables, self.source.definitions, self.config, self.writer, self.captured
        ).take_over_stops(started, names, former, found, unusable)
        new = [name for name in names if name not in self.captured.tables and name not in unusable]
        self._define_new(started, new)
        self.writer.drain()
        self._require_alone(new)
        self._rescan_topics(started, known, found)

    def _restore_table(self, started: StartedCapture, name: TableName, tail: TableTail) -> bool:
        """Restore a table from its topic, and repeat its definition under the new gen.

        Return whether it has an active one.
        """
        record = started.record
        started.tails[name] = tail
        here = (record.epoch, parse_binlog_file_number(record.file), record.pos, -1)
        active = tail.find_definition(here[1], here[2], record.epoch)
        begun = tail.find_last_copy(record.first_era)
        if begun is not None and not begun.mark.keys and begun.position > here:
            active = begun.position, tail.definitions[begun.position]
            started.begins[name] = begun.position
        elif active is None and (active := tail.find_first_definition(record.epoch)) is not None:
            started.begins[name] = active[0]  # capture has been at this place before
        if active is None or started.fresh:
            return False
        position, table = active
        state = TableState(
            name,
            self.captured.get_topic(name),
            table,
            position,
            marker_offset=tail.marker_offset,
            begun=begun,
        )
        self.captured.tables[name] = state
        send_definition(self.writer, started.context, state, build_definition_context(record, position))
        return True

    def _define_new(self, started: StartedCapture, names: list[TableName]) -> None:
        """Define the tables without an active definition, if it can be proven at the record's position."""
        record = started.record
        missing = []
        for name in names:
            if name not in self.captured.stopped:
                missing.append(name)
        if not missing:
            return
        proofs = self.source.definitions.prove_definitions(
            DefinitionPlace(record.file, record.pos, beginning=True), missing
        )
        for name, proof in proofs.items():
            former = started.find_former_definition(name)
            if former is not None and (why := explain_changed(name, former, proof)) is not None:
                self._stop_changed(started, name, why)
            elif isinstance(proof, UnprovenDefinition):
                self._postpone_table(started, name, proof)
            elif proof.table is None:
                self._leave_out(started, name, proof.problem or explain_unseen_table(name))
            else:
                self._define_table(started, name, proof.table)

    def _stop_changed(self, started: StartedCapture, name: TableName, why: str) -> None:
        """Stop a table that the source's new server defines otherwise. Until the stop is stored, each start
        finds it again."""
        record, error = started.record, build_failover_stop(name, why)
        number = parse_binlog_file_number(record.file)
        cause = StopCause(record.epoch, record.file, number, record.pos, read_clock_ms())
        stop = cause.build_table_stop(name, error)
        self.captured.stop_table(name, StoppedTable(stop))
        text = format_table_name(name)
        started.copies.handle_table_stop(text, stop.cause, stop.reason, read_clock_ms())
        _log.error(
            "table stopped", source=self.captured.source, table=text, cause=stop.cause, reason=stop.reason
        )

    def _postpone_table(self, started: StartedCapture, name: TableName, proof: UnprovenDefinition) -> None:
        """Leave a table out until the later statements in the log that concern it are captured.

        Without snapshots it is defined at its first row.
        """
        reason = explain_unproven(name, started.record.file, started.record.pos, proof)
        if self.config.snapshot != "never":
            started.late[name] = proof.last
            started.errors[name] = Problem(reason, WAITS)
        _log.warning("table waits", source=self.captured.source, table=format_table_name(name), reason=reason)

    def _leave_out(self, started: StartedCapture, name: TableName, problem: Problem) -> None:
        started.errors[name] = problem
        _log.error(
            "table skipped", source=self.captured.source, table=format_table_name(name), reason=str(problem)
        )

    def _define_table(self, started: StartedCapture, name: TableName, table: Table) -> None:
        record, topic = started.record, self.captured.get_topic(name)
        at = (record.epoch, parse_binlog_file_number(record.file), record.pos)
        if topic.ceiling is not None and (*at, 0) <= topic.ceiling:
            started.late[name] = at[1:]
            return
        position = (*at, topic.compute_definition_row(at))
        state = TableState(name, self.captured.get_topic(name), table, position)
        if started.find_former_definition(name) is not None:
            tail = started.tails[name]
            state.restore_tail({}, tail.marker_offset, tail.find_last_copy(record.first_era))
        self.captured.tables[name] = state
        self.captured.known.add(name)
        transaction = build_definition_context(record, position)
        send_definition(self.writer, started.context, state, transaction, copy=started.get_copy_mark(name))

    def _require_alone(self, new: list[TableName]) -> None:
        """Raise TransientSourceError if an earlier process, which has not ended, added a new table since
        the topic was read.

        Readers take what that process wrote, and would drop lower positions that this one writes. From
        now on they drop its events.
        """
        for state in [self.captured.tables[name] for name in new if name in self.captured.tables]:
            if state.definition_offset != state.topic.end:
                raise TransientSourceError(
                    f"an earlier capture process of source {self.captured.source} still runs (it has just "
                    f"written to {state.topic.name}): capture restarts, and continues after these events"
                )

    def _rescan_topics(
        self, started: StartedCapture, known: list[TableName], found: dict[str, TopicFindings]
    ) -> None:
        """Read what an earlier process wrote between the first reading and the repeated definitions."""
        names = {topic for topic, tails in found.items() if tails.tables}
        bounds = {name: self.reader.get_bounds(name) for name in names}
        news = {name: [(max(low, found[name].end), high)] for name, (low, high) in bounds.items()}
        for topic_name, message in self.reader.read_all(news):
            if message.value() is not None:
                found[topic_name].add_event(message.offset(), message.value())
        for topic_name in names:
            topic = self.captured.topics[topic_name]
            topic.continue_after(found[topic_name].highest, found[topic_name].end)
        for name in known:
            state, tail = self.captured.tables[name], started.tails[name]
            state.restore_tail(
                tail.definitions, tail.marker_offset, tail.find_last_copy(started.record.first_era)
            )
        for name, stopped in self.captured.stopped.items():
            if (tails := found.get(self.captured.assign_topic_name(name))) is None:
                continue  # it has no topic
            begun = tails.find_last_copy(name)
            if begun is not None and stopped.position is not None and begun.position > stopped.position:
                # An earlier process has begun a copy, which ends here: the topic gets the stop after it.
                stopped.position = None
                self.captured.unsaid.add(name)


def collect_published(
    found: dict[str, TopicFindings], captured: CapturedTables, era: int, *, captured_before: bool
) -> PublishedRows:
    """Return which rows of a log that deletes what was read are in the topics already.

    Events of a superseded process do not count.
    """
    rows: dict[TableName, list[tuple[str, int]]] = {}
    for tails in found.values():
        rows |= tails.logged
    here = [each.highest[2] for each in found.values() if each.highest and each.highest[0] == era]
    tables = {state.name: state.table for state in captured.tables.values()}
    bare = {
        state.name for state in captured.tables.values() if state.topic.ceiling in (None, state.defined_at)
    }
    cut = {name for name in tables if found[captured.assign_topic_name(name)].cut}
    return PublishedRows(rows, max(here, default=None), captured_before, tables, bare, cut)


def explain_changed(name: TableName, former: Table, proof: Proof) -> str | None:
    """Return why a table cannot continue at the source's new server with the definition `former`; None: it
    can.
    """
    table = format_table_name(name)
    if isinstance(proof, UnprovenDefinition):
        return (
            f"the definition of {table} on the source's new server cannot be proven: a later statement in "
            f"its log (file {proof.last[0]} at {proof.last[1]}) may have changed the table"
        )
    if proof.table is None or (
        is_same_definition(former, proof.table) and former.left_out == proof.table.left_out
    ):
        return None
    return f"the source's new server defines {table} otherwise than its topic does"


WAITS = "capture of the table begins, with a snapshot, after that statement"


def explain_unproven(name: TableName, file: str, pos: int, proof: UnprovenDefinition) -> str:
    """Return why the definition of a table at a position of the log is not known."""
    return (
        f"the definition of {format_table_name(name)} at {file}:{pos} cannot be proven: a later "
        f"statement in the log (file {proof.last[0]} at {proof.last[1]}) may have changed the "
        "table, and the catalog shows it only as it is after that statement"
    )

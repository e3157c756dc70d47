"""The simulation runs the product's code: a function that fails, whichever it is, breaks seeds."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import pytest

from consumer.attempt import applier, attempt, attempt_state, lane_group, recovery, spec, transactions
from consumer.attempt.copies import (
    begin,
    key_sweep,
    marker,
    passed_ranges,
    quarantined_keys,
    removal,
    sweep,
    table_sweep,
    window,
)
from consumer.attempt.copies import copies as applied_copies
from consumer.attempt.evolution import next_definition
from consumer.attempt.readers import reader
from consumer.ordering import dedup, dispatch, layout, netchange, progress, reasons, tickets
from consumer.ordering import recovery as recovery_plan
from consumer.ordering.lanes import batches, lane
from producer import tables
from producer.barriers import barriers, impact, new_tables
from producer.copies import book, limits, states
from producer.definitions import index, logged_statements, proof, scan, statement_search
from producer.kafka import writer
from producer.loop import copies as table_copies
from producer.loop import (
    copy_begins,
    loop,
    position,
    rows,
    table_stops,
    ticker,
)
from producer.snapshot import chunk_sender, chunks, jobs, scheduler
from producer.snapshot import reader as snapshot
from producer.sources import changes, chunk_data
from producer.sources.binlog import (
    assembly,
    binlog_log,
    event_groups,
    log_proof,
    log_stream,
    prepared_xa,
    proven_log,
)
from producer.sources.binlog import transactions as source_transactions
from producer.sources.mariadb import mariadb_gtids
from producer.sources.mysql import mysql_gtids
from producer.start import (
    positions,
    repeated_events,
    restored_stops,
    started,
    startup,
    topic_recovery,
)
from tests.sim.world import PipelineSimulation

MODULES: tuple[ModuleType, ...] = (
    applier, attempt, attempt_state, next_definition, lane_group, reader, spec, transactions, dedup, dispatch,
    lane, batches, layout, netchange, progress, reasons, tickets,
    begin, key_sweep, marker, passed_ranges, quarantined_keys, removal, sweep, table_sweep, window,
    applied_copies, recovery, recovery_plan,
)  # fmt: skip
CAPTURE: tuple[ModuleType, ...] = (
    book, limits, states, table_copies, copy_begins, loop, position, rows, table_stops, ticker, assembly,
    event_groups, barriers, impact, new_tables, chunks, mariadb_gtids, writer, positions, log_proof, snapshot,
    mysql_gtids, proven_log, log_stream, scheduler, chunk_sender, jobs, index, proof, logged_statements, scan,
    statement_search, startup, restored_stops, repeated_events, started, tables, topic_recovery,
    source_transactions, prepared_xa, binlog_log, changes, chunk_data,
)  # fmt: skip
SEEDS = 150
#: Functions that one seed in hundreds calls → a seed that does; others are tried where it no longer does. And
#: a function whose failure the first seed that calls it survives, because the unit is assigned anew at that
#: moment.
SELDOM = {
    "applier.log_displaced_rows": 19,
    "producer.book.CopyBook._recover_sweep": 155,
    "applier.Applier._apply_contended": 78,
    "applier.Applier._is_too_much": 1093,
    "applier.Applier._leave_lanes": 186,
    "recovery.RecoveryPlan.end": 153,
    "batches._has_float_zero": 153,
    "producer.topic_recovery._read_source": 156,
    "producer.copies.TableCopies.handle_recreated_table": 261,
    "recovery._halve_trial": 809,
    "recovery.RecoveryPlan.record_failure": 279,
    "producer.prepared_xa._build_unknown_stop": 388,
    "recovery.recover_keys": 153,
}
MOST_SEEDS = 2000
NOT_SIMULATED = {
    "producer.restored_stops.FormerStops._log_stop": "a table whose right is revoked, or that is taken out "
    "(tests/unit/test_stops.py)",
    "producer.log_stream.LogStream.skip_to": "a file above 4 GiB (tests/unit/test_capture_writer.py)",
    **dict.fromkeys(
        ("recovery.RecoveryPlan._forget_blocked_keys", "recovery._remove_keys"),
        "keys that swap unique values: no seed in 1,500 (twin `cycle`, "
        "tests/unit/test_quarantine_waits_for_value.py)",
    ),
    "recovery._log_failure": "a target that fails in all trials (tests/unit/test_quarantine_recovers.py)",
    "producer.log_stream.LogStream._raise_half_written": "an event that is still written "
    "(tests/unit/test_log_proof.py)",
    "attempt.Attempt.define_initially": "Debezium's topics alone",
    "attempt.Attempt.continue_in_topic": "no topic is lost here (tests/unit/test_recreated_topic_units.py)",
    "producer.book.CopyBook.forget_begin": "no topic is lost here (tests/unit/test_lost_topics.py)",
    "producer.states.CopyStates.set_rate": "nobody asks for another rate (tests/unit/test_copies.py)",
    "attempt_state.build_recreated_topic_error": "a topic that was made again",
    "producer.proof.DefinitionReader.may_have_converted": "what a session's settings made of values "
    "(tests/unit/test_conversions.py)",
    "producer.changes.Barrier.build_from_verdict": "a source that judges them (tests/sim/test_oracle.py)",
    "producer.positions.PositionStore.is_superseded": "a log that is used up (tests/sim/test_oracle.py)",
    "sweep.build_reread_error": "Kafka loses nothing here",
    "marker.build_removed_rows_error": "a key of the target that the source's does not give "
    "(tests/unit/test_key_sweeps.py)",
    "passed_ranges.build_altered_key_error": "a target whose key is altered "
    "(tests/unit/test_passed_ranges.py)",
    "key_sweep.PassedRange.note_keys": "five keys fit into memory (tests/unit/test_passed_ranges.py)",
    "key_sweep.KeySweep.list_unread_ranges": "five keys fit into memory (tests/unit/test_passed_ranges.py)",
    "passed_ranges._read_keys_again": "five keys fit into memory (tests/unit/test_passed_ranges.py)",
    "table_sweep.TableSweep._note_later": "a row that is written while a whole table is compared: no "
    "seed in 150 (tests/unit/test_table_sweeps.py)",
    "sweep.Sweep.sweep_refused_ranges": "a key that the target cannot hold (tests/unit/test_apply_copies.py)",
    "dispatch._get_source_collation": "a target that compares exactly what the source does not",
    "netchange._build_mixed_sort_key": "keys of several types",
    "progress.find_lost_offsets": "asked at a takeover",
    "reader.EnvelopeReader._collect_undecodable": "values that the source cannot decode",
    "reader.EnvelopeReader._refuse_undefined": "a topic without its beginning",
    "reader.build_undefined_error": "a topic without its beginning",
    "dedup.Deduplicator._build_gap_error": "a gap, which no rule of capture leaves",
    **dict.fromkeys(
        (
            "netchange._needs_padding",
            "netchange._loses_fraction",
            "netchange._loses_spaces",
            "netchange._loses_spaces_by_bytes",
        ),
        "no column of a seed's target would change a value (tests/unit/test_lossy_columns.py)",
    ),
    "tickets.TicketTable.__len__": "tests ask it",
    "netchange.EveryChangeReducer.__init__": "a topic as a target (tests/integration/test_kafka_attempts.py)",
    "netchange.EveryChangeReducer.reduce": "a topic as a target (tests/integration/test_kafka_attempts.py)",
    "tickets.TicketTable.kept": "tests ask it",
    "netchange.replace_snapshot_rows": "no batch of a seed may skip the look at old rows "
    "(tests/unit/test_kafka_formats_own.py)",
    "spec._find_no_table": "the simulation knows the table of each topic",
    "producer.book.CopyBook.mark_table_altered": "no table is altered within its "
    "copy (tests/unit/test_copies.py)",
    "producer.book.CopyBook._begin_anew": "no table is altered within its copy (tests/unit/test_copies.py)",
    "producer.new_tables._build_taken_up_twice_stop": "a predecessor that takes a table up beside a "
    "successor that passed it over: one seed in thousands",
    "producer.mariadb_gtids.has_reached_gtids": "the description of MariaDB holds it: "
    "breaking its name breaks nothing",
}
_THREADS = "threads, connections and Kafka's client: the product's, not the simulation's"
_STATEMENTS = "none of these statements stands in the log"
_STOPS = "no such row stands in the log"
_PROOF = "the log is never another one"
_ASKED = "nobody asks for a part of a table"
_XA = "the server locks prepared rows, loses none, and keeps their log (tests/unit/test_prepared_xa.py)"
_FAILOVER = (
    "no source has a second server here (tests/sim/test_failover.py, tests/unit/test_failover_start.py)"
)
_LARGE = "no event above 32 MB and no damaged one (tests/unit/test_large_rows.py, test_log_proof.py)"
_ONLY = "asked with `snapshot: only`"
_SAID = "text for people and tests"
NOT_SIMULATED |= {
    f"producer.{name}": why
    for why, names in {
        _THREADS: """writer.make_client_factory writer.KafkaWriter.limit_waiting loop.CaptureLoop.write_heartbeat ticker.CaptureTicker.write_heartbeat
            reader.BackgroundChunkReader.__init__ reader.BackgroundChunkReader._run_reads reader.BackgroundChunkReader.close
            reader.BackgroundChunkReader.poll_answer reader.BackgroundChunkReader.submit reader.ChunkReader.close
            reader.make_connection_opener mysql_gtids.GtidSet.encode scan.make_statement_scan log_stream.open_stream proven_log.ProvenLog._open_stream""",  # noqa: E501
        _STATEMENTS: """barriers.BarrierHandler._build_unfit_stop startup.CaptureStarter._leave_out proof._await_statements""",  # noqa: E501
        _ASKED: """limits.explain_unbalanced_condition""",
        _XA: """prepared_xa._list_tables prepared_xa.RecoveredXa.find_lost prepared_xa._build_altered_stop
            prepared_xa._build_unplaced_stop prepared_xa.build_purged_stop prepared_xa._build_unordered_stop
            binlog_log.BinlogLog._report_lost_xa""",
        _FAILOVER: """mysql_gtids.GtidSet.intersect mysql_gtids.GtidSet.count mysql_gtids.GtidSet.subtract
            mysql_gtids.GtidSet.add_all mysql_gtids.GtidSet.remove_from mysql_gtids.GtidSet.remove_server
            mysql_gtids.GtidSet._subtract_range mysql_gtids.GtidSet.name_order
            mysql_gtids.GtidSet.split_series mysql_gtids.SetComparison.__init__
            mysql_gtids.SetComparison.accept mysql_gtids.SetComparison.is_complete
            mariadb_gtids.DomainComparison.__init__ mariadb_gtids.DomainComparison.accept
            mariadb_gtids.DomainComparison.is_complete mariadb_gtids.DomainComparison.left
            mariadb_gtids.DomainOrder.__init__ mariadb_gtids.DomainOrder.accept mariadb_gtids.find_executed
            mariadb_gtids.MariadbGtidSet.find_first_numbers mariadb_gtids.MariadbGtidSet.remove_server
            mariadb_gtids.MariadbGtidSet.split_series mariadb_gtids.MariadbGtidSet.take_numbers
            mysql_gtids.GtidSet.find_first_numbers mysql_gtids._subtract_intervals startup.explain_changed
            startup.CaptureStarter._stop_changed rows.RowSender._leave_out_covered
            topic_recovery.TopicFindings.extend_range""",
        _LARGE: """log_stream.LogStream._read_large_packet log_stream.LogStream._verify_large_checksum
            log_stream.LogStream._build_damage_error""",
        _ONLY: """states.CopyStates.busy copies.TableCopies.busy""",
        _STOPS: """transactions.TransactionAssembler.skip_uncaptured transactions.CapturedRows.withdraw_rows binlog_log.BinlogLog.skip_uncaptured binlog_log._build_decoding_stop
            transactions._build_partial_rows_stop transactions._build_stream_stop transactions._build_unknown_event_stop
            writer._build_too_large_error writer._explain_refused_messages""",  # noqa: E501
        _PROOF: """log_proof.build_other_history_error
            assembly._reads_differently assembly.TransactionBuffer._handle_ungrouped mysql_gtids._merge_intervals""",  # noqa: E501
        _SAID: """mysql_gtids.GtidSet.__eq__ mysql_gtids.GtidSet.__repr__ tables.CapturedTables.list_tables_in_schema
            assembly._build_byte_class""",  # noqa: E501
    }.items()
    for name in names.split()
}


class BrokenError(Exception):
    """Raised instead of what a function does."""


def functions() -> Iterator[tuple[str, Any, str]]:
    """Yield (name, what holds it, attribute) of every function that the modules define."""
    for module in (*MODULES, *CAPTURE):
        short = module.__name__.rpartition(".")[2]
        short = f"producer.{short}" if module in CAPTURE else short
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", None) != module.__name__:
                continue
            if isinstance(thing, FunctionType):
                yield f"{short}.{name}", module, name
            elif inspect.isclass(thing):
                for method, value in vars(thing).items():
                    if getattr(value, "__isabstractmethod__", False):
                        continue
                    if isinstance(
                        value, FunctionType | property | staticmethod | classmethod
                    ) and method in _written(thing):
                        yield f"{short}.{name}.{method}", thing, method


@cache
def _written(kind: type) -> set[str]:
    """Return the names of the methods that stand in the source: a dataclass and a Protocol have others."""
    if getattr(kind, "_is_protocol", False):
        return set()
    return {
        line.split("(")[0].split()[-1]
        for line in inspect.getsource(kind).splitlines()
        if " def " in f" {line}"
    }


FUNCTIONS = {name: (place, attribute) for name, place, attribute in functions()}


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(NOT_SIMULATED)))
def test_a_function_that_fails_breaks_seeds(name: str) -> None:
    seeds = range(SEEDS) if name not in SELDOM else [SELDOM[name], *range(MOST_SEEDS)]
    with broken(*FUNCTIONS[name]) as called:
        for seed in seeds:
            try:
                PipelineSimulation(seed).run()
            except Exception:  # noqa: BLE001  # whatever the break comes to
                assert called.called, f"seed {seed} is wrong without {name}"
                return
            assert not called.called, f"seed {seed} is right, although {name} failed in it"
    pytest.fail(f"{len(seeds)} seeds never come to {name}")


@contextmanager
def broken(place: Any, attribute: str) -> Iterator[mock.Mock]:
    """Let a function fail wherever it is bound; yields what tells whether it was called."""
    called = mock.Mock(side_effect=BrokenError(attribute))
    was = vars(place)[attribute]
    value: Any = lambda *_, **__: called()  # noqa: E731
    if isinstance(was, property):
        value = property(value)
    elif isinstance(was, staticmethod | classmethod):
        value = type(was)(value)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(place, attribute, value))
        for module in [
            each
            for name, each in sys.modules.items()
            if name.startswith(("consumer.", "producer.", "tests.sim."))
        ]:
            if vars(module).get(attribute) is was:
                stack.enter_context(mock.patch.object(module, attribute, value))
        yield called


def test_what_is_not_simulated_exists() -> None:
    assert set(NOT_SIMULATED) <= set(FUNCTIONS)

"""Requests to copy a table, written to Kafka, where capture reads them, and their state, read from
capture's watermarks.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaException

from coordinator.server.operators.copies import (
    CopyRefusedError,
    CopyRequested,
    CopyRequestStored,
    CopyRow,
    DebtRow,
)
from rowlock.errors import CommandError
from rowlock.views.kafka import KafkaView
from schemas.clock import read_clock_ms
from schemas.config.model import Config
from schemas.findings import format_copy_remedy
from schemas.io.kafka_clients import ClientLog, build_client_settings, ignore_client_error, open_producer
from schemas.patience import scale_timeout
from schemas.problems import Problem, decode_problem
from schemas.table.names import TableName, format_table_text
from schemas.table.patterns import PatternError, is_selected_by_patterns, split_parts
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import (
    CopyOutcome,
    CopyRequest,
    CopyState,
    RemovedRows,
    copy_topic,
    select_copy,
)
from schemas.wire.debezium_snapshot import encode_snapshot_signal
from schemas.wire.records import Watermark

REQUEST_SEND_TIMEOUT_S = 10.0
REQUESTED_BY_OPERATOR = "operator"
"""`CopyRequest.by` of requests that people make."""


class ExplainUnknown(Protocol):
    """Returns why a table can be no table of a source; None: it is one. `must_exist`: the source must have it
    now. Raises CommandError.
    """

    def __call__(
        self, config: Config, source: str, table: TableName, /, *, must_exist: bool
    ) -> Problem | None: ...


class KafkaCopyDesk:
    """Copies over the configuration's Kafka; implements
    `coordinator.server.operators.copies.CopyRequests`.
    """

    def __init__(self, config: Config, explain_unknown: ExplainUnknown) -> None:
        self._config, self._explain_unknown = config, explain_unknown

    def use_config(self, config: Config, changed: Collection[str]) -> None:
        """Use this configuration from now on."""
        del changed
        self._config = config

    def request_copy(self, asked: CopyRequested, *, by: str) -> CopyRequestStored:
        """Send the request. Raises CopyRefusedError for an unknown table or source, a table that its source
        does not have, a capture that has never run, or an error of Kafka.
        """
        del by  # the leader's events name the caller; capture only distinguishes people from programs
        db, table = parse_table_name(asked.table)
        source = self._find_source(asked, db, table)
        self._require_table(source, (db, table), must_exist=not (asked.cancel or asked.rate_only))
        request = CopyRequest(
            id=uuid.uuid4().hex, db=db, table=table, by=REQUESTED_BY_OPERATOR, requested_ms=read_clock_ms(),
            where=asked.where, cancel=asked.cancel, max_rows_per_second=asked.max_rows_per_second,
            rate_only=asked.rate_only,
        )  # fmt: skip
        self._send_request(copy_topic(self._config.kafka.prefix, source), request)
        return CopyRequestStored(request.id, source, format_table_text(db, table))

    def list_copies(self) -> Sequence[CopyRow]:
        """Return the copies of all sources. Raises CopyRefusedError if Kafka does not answer."""
        with self._open_view() as view:
            marks = {name: self._read_watermark(view, name) for name in self._config.sources}
        return copy_rows(marks)

    def _find_source(self, asked: CopyRequested, db: str, table: str) -> str:
        """Return the source that has the table according to the configuration's patterns."""
        sources = self._config.sources
        if asked.source is not None and asked.source not in sources:
            raise CopyRefusedError(
                f"there is no source {asked.source!r}", f"name one of {', '.join(sources)}"
            )
        named = [asked.source] if asked.source is not None else list(sources)
        having = [name for name in named if is_selected_by_patterns(sources[name].tables, db, table)]
        if not having:
            whose = f"source {asked.source}" if asked.source else "any source"
            raise CopyRefusedError(
                f"{db}.{table} is not among the `tables:` of {whose}",
                "add it to them, or correct the name (database.table)",
            )
        if len(having) > 1:
            raise CopyRefusedError(
                f"{db}.{table} may be a table of {', '.join(having)}", "name one with --source"
            )
        if sources[having[0]].events == "debezium":
            raise CopyRefusedError.from_problem(
                explain_debezium_signal(self._config.kafka.prefix, having[0], db, table)
            )
        return having[0]

    def _require_table(self, source: str, table: TableName, *, must_exist: bool) -> None:
        """Raise CopyRefusedError for a table that does not exist: capture would drop the request silently."""
        try:
            problem = self._explain_unknown(self._config, source, table, must_exist=must_exist)
        except CommandError as error:
            raise CopyRefusedError.from_problem(error.problem) from error
        if problem is not None:
            raise CopyRefusedError.from_problem(problem)

    def _send_request(self, topic: str, request: CopyRequest) -> None:
        kafka = self._config.kafka
        with self._open_view() as view:
            known = topic in view.list_topics()
        if not known:
            raise CopyRefusedError(
                f"there is no topic {topic}; capture of the source creates it when it starts",
                "start `rowlock run` (or the agents) first",
            )
        settings = build_client_settings(
            kafka.bootstrap, kafka.options, {"acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        failed: list[str] = []

        def record_failure(error: Any, _: object) -> None:
            if error is not None:
                failed.append(error.str())

        producer = open_producer(settings, log=ClientLog.QUIET, on_error=ignore_client_error)
        try:
            producer.produce(
                topic, encode_copy_request(request), request.id.encode(), on_delivery=record_failure
            )
            left = producer.flush(scale_timeout(REQUEST_SEND_TIMEOUT_S))
        except KafkaException as error:
            raise CopyRefusedError(
                f"Kafka did not take the request: {error.args[0].str()}", "ask again"
            ) from error
        if left or failed:
            seen = failed[0] if failed else "no answer in time"
            raise CopyRefusedError(
                f"Kafka did not take the request ({seen})",
                "see with `rowlock copy` whether it arrived, and ask again",
            )

    @contextlib.contextmanager
    def _open_view(self) -> Iterator[KafkaView]:
        view = KafkaView(self._config.kafka)
        try:
            yield view
        except CommandError as error:
            raise CopyRefusedError.from_problem(error.problem) from error
        finally:
            view.close()

    def _read_watermark(self, view: KafkaView, source: str) -> Watermark | None:
        if self._config.sources[source].events == "debezium":
            return None
        return (view.read_watermark(source) or (0, None))[1]


def parse_table_name(text: str) -> tuple[str, str]:
    """Return (database, table) of "database.table". Raises CopyRefusedError."""
    try:
        db, table = ("".join(piece for piece, _ in part) for part in split_parts(text))
    except PatternError as error:
        raise CopyRefusedError(
            f"{text!r} is no table: {error}",
            "write database.table, names with special characters in backticks",
        ) from error
    return db, table


def copy_rows(marks: Mapping[str, Watermark | None]) -> list[CopyRow]:
    """Return the copies in the sources' last watermarks, by source and table, and after a key sweep the
    last copy before it.
    """
    return [
        _build_row(source, outcome, mark.ts_ms, state.retry_ms)
        for source, mark in sorted(marks.items())
        if mark is not None
        for _, state in sorted(mark.copies.items())
        for outcome in (state, state.last_copy)
        if outcome is not None
    ]


def _build_row(source: str, state: CopyOutcome, now_ms: int, retry_ms: int | None) -> CopyRow:
    return CopyRow(
        source, format_table_text(state.db, state.table), state.id, state.phase, state.by, state.cause,
        state.where, state.rows, state.estimate, state.requested_ms, state.began_ms, state.ended_ms,
        state.restarts, explain_copy(state), estimate_remaining_s(state, now_ms),
        state.max_rows_per_second, retry_ms if state.phase == "refused" else None,
        build_debt(_find_removed_rows(state)),
    )  # fmt: skip


def _find_removed_rows(state: CopyOutcome) -> RemovedRows | None:
    return state.removed if isinstance(state, CopyState) else None


def build_debt(removed: RemovedRows | None) -> DebtRow | None:
    """Return a debt as JSON shows it; None: there is none."""
    if removed is None:
        return None
    return DebtRow(removed.ddl, removed.statements, removed.at, removed.since_ms)


def explain_copy(state: CopyOutcome) -> str:
    """Return why a copy was refused or cancelled, or which rows targets may still have without it."""
    removed = _find_removed_rows(state)
    if state.reason or removed is None:
        return str(decode_problem(state.reason))
    return removed.describe()


def explain_remedy(remedy: str, state: CopyState | None) -> str:
    """Return what to do about a stop with this remedy, given the state of the table's copy.

    If a copy alone is the remedy, and one is on its way, there is nothing to do.
    """
    copy = select_copy(state)
    if state is None or copy is None or remedy != format_copy_remedy(state.db, state.table):
        return remedy
    if copy.phase in ("waiting", "running"):
        return "nothing to do: its copy begins or goes on by itself (`rowlock copy` shows the progress)"
    if state.retry_ms is not None and copy.phase == "refused":
        problem = decode_problem(copy.reason)
        return f"{problem.what}; {problem.action}"
    return remedy


def estimate_remaining_s(state: CopyOutcome, now_ms: int) -> float | None:
    """Return in how many seconds a running copy has read all its rows, at its rate so far; None: not
    known.
    """
    if state.phase != "running" or state.began_ms is None or not state.rows or state.estimate is None:
        return None
    return max(0, state.estimate - state.rows) * max(1, now_ms - state.began_ms) / 1000 / state.rows


def explain_debezium_signal(prefix: str, source: str, db: str, table: str) -> Problem:
    """Return how to copy a table that Debezium captures: by Debezium's own signal. `prefix`: of Kafka's
    topics.
    """
    asked = encode_snapshot_signal(db, table)
    data = asked.partition('"data":')[2][:-1].replace("\\", "\\\\").replace("'", "''")
    return Problem(
        f"Debezium captures {source}, so Debezium copies {db}.{table}. A unit that is stopped "
        "continues with the rows that Debezium reads, and deletes rows that the source no longer "
        "has; a unit that runs overwrites the target's rows, retries those in quarantine, and "
        "deletes nothing (see `rowlock docs debezium`)",
        f"put its signal into the connector's signal topic, under the key {prefix}.{source}: {asked} or "
        "into its signal table: INSERT INTO <signal.data.collection> (id, type, data) VALUES (UUID(), "
        f"'execute-snapshot', '{data}')",
    )

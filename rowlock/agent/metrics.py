"""The metrics of an agent: what its processes report, and the units and leases that it holds."""

from __future__ import annotations

import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from coordinator.core.agent_unit import AgentUnit
from coordinator.rest.exposition import (
    BUILD_INFO,
    MetricDefinition,
    MetricValue,
    build_registry,
    create_metrics_app,
)
from coordinator.rest.server import Certificate, RestServer
from rowlock import __version__
from rowlock.agent.reported import ReportedFigures
from rowlock.errors import CommandError
from schemas.config.model import Config
from schemas.units import ApplyName, UnitPhase, parse_unit_name

_LOG = structlog.get_logger()

RETRY_S = 10.0
"""Seconds until it is tried again to serve metrics on an address that was not free."""

_TOPIC = ("pipeline", "topic")

HELD_UNITS = MetricDefinition(
    "rowlock_held_units",
    "gauge",
    "Units that this agent holds, by kind and phase: `preparing`, `prepared`, `replicating`, `stopping`, "
    "`stopped`.",
    ("kind", "phase"),
)
LEASE_END = MetricDefinition(
    "rowlock_lease_end_timestamp_seconds",
    "gauge",
    "When the first lease of a replicating unit of this agent ends, unless the leader renews it. A unit "
    "whose lease has ended stops writing.",
)
UNIT_APPLIED_TO = MetricDefinition(
    "rowlock_unit_applied_to_timestamp_seconds",
    "gauge",
    "Source commit time up to which the topic is applied.",
    _TOPIC,
)
STARTS = MetricDefinition(
    "rowlock_process_starts_total",
    "counter",
    "Processes that the agent has started: one for all apply units (kind `apply`, no source), and one for "
    "each source that it captures (`capture`). The first start counts, too.",
    ("kind", "source"),
)
CAPTURED_ROWS = MetricDefinition(
    "rowlock_captured_rows_total",
    "counter",
    "Rows of the log that this agent has captured into Kafka, without those of snapshots and copies.",
    ("source",),
)
CAPTURE_HEARD = MetricDefinition(
    "rowlock_heard_timestamp_seconds",
    "gauge",
    "When the source's capture process last reported progress, which it does every second, also without "
    "events in the log.",
    ("source",),
)
CAPTURE_FINISHED = MetricDefinition(
    "rowlock_capture_finished",
    "gauge",
    "Whether this agent has the source's unit, and its snapshot was all it had to do (`snapshot: only`) and "
    "is complete in Kafka: 1 or 0. Times up to which the source is captured and applied do not move on then.",
    ("source",),
)
SNAPSHOTS = MetricDefinition(
    "rowlock_snapshot_pending_tables",
    "gauge",
    "Tables whose snapshot is not complete in Kafka.",
    ("source",),
)
TABLE_STOPPED = MetricDefinition(
    "rowlock_table_stopped",
    "gauge",
    "Always 1: capture publishes no event of this table until a copy of it begins. `cause` is the stable "
    "cause of the stop.",
    ("source", "table", "cause"),
)
COPIES = MetricDefinition(
    "rowlock_copies",
    "gauge",
    "Tables by the phase of their last copy: `waiting`, `running`, `done`, `refused`, `cancelled`. A copy "
    "is forgotten a day after its end.",
    ("source", "phase"),
)
COPY_ROWS = MetricDefinition(
    "rowlock_copy_rows",
    "gauge",
    "Rows that a copy, which runs, has published so far.",
    ("source", "table"),
)
COPY_ESTIMATE = MetricDefinition(
    "rowlock_copy_estimated_rows",
    "gauge",
    "About how many rows a copy, which runs, will have.",
    ("source", "table"),
)
REMOVED_ROWS = MetricDefinition(
    "rowlock_removed_rows_timestamp_seconds",
    "gauge",
    "When a statement (DROP PARTITION) removed rows at the source that targets may still have. The value "
    "ends when a key sweep or a copy of the table has ended.",
    ("source", "table"),
)
APPLIED_EVENTS = MetricDefinition(
    "rowlock_applied_events_total",
    "counter",
    "Events that were applied to the target.",
    _TOPIC,
)
APPLIED_ROWS = MetricDefinition(
    "rowlock_applied_rows_total",
    "counter",
    "Rows that were written to (`op` is `upsert`) or deleted from (`delete`) the target. Several events of "
    "one key in a transaction are one row.",
    (*_TOPIC, "op"),
)
QUARANTINED = MetricDefinition(
    "rowlock_quarantined_events_total",
    "counter",
    "Events that were quarantined, because the target refused them or an earlier event of their key.",
    _TOPIC,
)
OPEN_QUARANTINE = MetricDefinition(
    "rowlock_quarantine_open_events",
    "gauge",
    "Events in quarantine, as the last attempt to apply the topic has seen them. There is no value until the "
    "topic has an event after the agent prepared it, and `rowlock quarantine skip` and `retry` change the "
    "value with the next event only. `rowlock quarantine list` reads the target itself.",
    _TOPIC,
)
RESOLVED = MetricDefinition(
    "rowlock_quarantine_resolved_events_total",
    "counter",
    "Events that have left the quarantine, because a later row of their key was written, or the source has "
    "deleted it. Of a key that changes often only the first event and the newest stay in quarantine; those "
    "in between are not counted, nor what `rowlock quarantine skip` and `retry` resolve.",
    _TOPIC,
)
DISPLACED = MetricDefinition(
    "rowlock_displaced_rows_total",
    "counter",
    "Rows of the target that had to make room for events, because the target had drifted.",
    _TOPIC,
)
LOCK_WAITS = MetricDefinition(
    "rowlock_lock_waits_total",
    "counter",
    "How often a lane waited for the commit of another lane, because their events have a unique value in "
    "common.",
    _TOPIC,
)
LOCK_WAIT_SECONDS = MetricDefinition(
    "rowlock_lock_wait_seconds_total",
    "counter",
    "How long lanes waited for each other; lanes that wait at the same time count each.",
    _TOPIC,
)
LOCK_CHAIN = MetricDefinition(
    "rowlock_lock_chain_longest",
    "gauge",
    "The most lanes that have waited one for the next since the agent started.",
    _TOPIC,
)

AGENT_METRICS = (
    BUILD_INFO, HELD_UNITS, LEASE_END, UNIT_APPLIED_TO, STARTS, CAPTURED_ROWS, CAPTURE_HEARD,
    CAPTURE_FINISHED, SNAPSHOTS, TABLE_STOPPED, COPIES, COPY_ROWS, COPY_ESTIMATE, REMOVED_ROWS,
    APPLIED_EVENTS, APPLIED_ROWS, QUARANTINED, OPEN_QUARANTINE, RESOLVED, DISPLACED, LOCK_WAITS,
    LOCK_WAIT_SECONDS, LOCK_CHAIN,
)  # fmt: skip
"""All metrics of an agent, in the order of a scrape."""

_COPY_PHASES = ("waiting", "running", "done", "refused", "cancelled")


@dataclass(frozen=True, slots=True)
class AgentNumbers:
    """The numbers of an agent."""

    reported: ReportedFigures
    list_held: Callable[[], Sequence[AgentUnit]]
    """Returns the units that the agent holds."""
    per_topic: int
    """With more topics than this, no metric has a value for each topic."""
    clock: Callable[[], float] = time.monotonic
    """The clock of leases."""
    wall: Callable[[], float] = time.time

    def read_values(self) -> Iterator[MetricValue]:
        """Yield the present numbers. Never waits."""
        yield BUILD_INFO, (__version__, "agent"), 1
        yield from self._read_held()
        for process, count in sorted(self.reported.list_starts().items()):
            yield STARTS, process, count
        yield from self._read_captured()
        yield from self._read_applied()

    def _read_held(self) -> Iterator[MetricValue]:
        held = [unit for unit in self.list_held() if unit.state is not UnitPhase.ABSENT]
        phases = Counter((unit.unit.partition("/")[0], unit.state) for unit in held)
        for kind in ("capture", "apply"):
            for phase in UnitPhase:
                if phase is not UnitPhase.ABSENT:
                    yield HELD_UNITS, (kind, phase.value), phases[kind, phase]
        leases = [unit.deadline for unit in held if unit.state is UnitPhase.REPLICATING]
        if leases:
            yield LEASE_END, (), self.wall() + min(leases) - self.clock()
        applied = {
            named: unit.mark.checkpoint_ts
            for unit in held
            if unit.mark is not None and isinstance(named := parse_unit_name(unit.unit), ApplyName)
        }
        if len(applied) <= self.per_topic:
            for named, time_ms in applied.items():
                if time_ms:
                    yield UNIT_APPLIED_TO, named, time_ms / 1000

    def _read_captured(self) -> Iterator[MetricValue]:
        for source, figures in self.reported.list_sources().items():
            yield CAPTURED_ROWS, (source,), figures.rows
            yield CAPTURE_FINISHED, (source,), float(figures.finished)
            if not figures.heard_at:
                continue
            yield CAPTURE_HEARD, (source,), figures.heard_at
            yield SNAPSHOTS, (source,), len(figures.last.snapshot_pending)
            stops, copies = sorted(figures.last.stops.items()), sorted(figures.last.copies.items())
            yield from ((TABLE_STOPPED, (source, table, cause), 1) for table, cause in stops)
            phases = Counter(copy.phase for _, copy in copies)
            yield from ((COPIES, (source, phase), phases[phase]) for phase in _COPY_PHASES)
            for table, copy in copies:
                if copy.phase == "running":
                    yield COPY_ROWS, (source, table), copy.rows
                    if copy.estimate is not None:
                        yield COPY_ESTIMATE, (source, table), copy.estimate
            for table, since_ms in sorted(figures.last.removed.items()):
                yield REMOVED_ROWS, (source, table), since_ms / 1000

    def _read_applied(self) -> Iterator[MetricValue]:
        for labels, figures in self.reported.list_units(self.per_topic).items():
            lanes = figures.lanes
            yield APPLIED_EVENTS, labels, figures.applied
            yield APPLIED_ROWS, (*labels, "upsert"), lanes.upserted
            yield APPLIED_ROWS, (*labels, "delete"), lanes.deleted
            yield QUARANTINED, labels, figures.held
            if lanes.open_quarantine is not None:
                yield OPEN_QUARANTINE, labels, lanes.open_quarantine
            yield RESOLVED, labels, lanes.resolved
            yield DISPLACED, labels, figures.displaced
            yield LOCK_WAITS, labels, lanes.lock_waits
            yield LOCK_WAIT_SECONDS, labels, lanes.lock_wait_ms / 1000
            yield LOCK_CHAIN, labels, lanes.lock_chain


class MetricsServer:
    """Serves the metrics on an address. While the address is not free, it tries again every `RETRY_S`:
    replication does not depend on it.
    """

    def __init__(
        self,
        config: Config,
        address: str,
        numbers: AgentNumbers,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """`wait(closing, seconds)` waits before the next attempt; it returns True when `closing` is set.

        Raises CommandError if the certificate of the configuration cannot be used.
        """
        settings = config.coordination
        self._config, self._address, self._wait = config, address, wait
        self._certificate = Certificate(settings.tls.cert, settings.tls.key) if settings.tls else None
        self._registry = build_registry(AGENT_METRICS, numbers.read_values)
        self._closing = threading.Event()
        self._server: RestServer | None = None
        self._thread = threading.Thread(target=self._serve_later, name="metrics", daemon=True)
        if self._certificate is not None:
            _check_certificate(self._certificate)

    @property
    def address(self) -> str:
        """The address with the actual port, once it is served."""
        return self._address if self._server is None else self._server.address

    def start(self) -> None:
        """Serve the metrics, or try again later."""
        if not self._try_to_serve():
            self._thread.start()

    def await_start(self) -> None:
        """Wait until later attempts have succeeded or ended."""
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop serving, and trying to."""
        self._closing.set()
        self.await_start()
        if self._server is not None:
            self._server.close()

    def _serve_later(self) -> None:
        while not self._wait(self._closing, RETRY_S):
            if self._try_to_serve():
                return

    def _try_to_serve(self) -> bool:
        settings = self._config.coordination
        app = create_metrics_app(self._registry, token=settings.token, prefix=self._config.kafka.prefix)
        server = RestServer(app, self._address, self._certificate)
        try:
            server.start()
        except OSError as error:
            _LOG.error(
                "metrics not served",
                address=self._address,
                error=str(error),
                remedy="choose a free address of this machine with --metrics or coordination.agent_metrics",
                retry_in_s=RETRY_S,
            )
            return False
        self._server = server
        _LOG.info("metrics served", address=server.address)
        return True


def _check_certificate(files: Certificate) -> None:
    """Raise CommandError if HTTPS cannot be served with the certificate."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.cert, files.key)
    except OSError as error:  # ssl.SSLError is one
        raise CommandError(
            f"metrics cannot be served with the certificate {files.cert} and the key {files.key}: {error}",
            "mend coordination.tls: its cert and key must be readable PEM files that belong together",
        ) from error

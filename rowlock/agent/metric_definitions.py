"""The metrics of an agent: what each means. `metrics` reads their values."""

from __future__ import annotations

from coordinator.rest.exposition import BUILD_INFO, MetricDefinition

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
SLOTS = MetricDefinition(
    "rowlock_slots",
    "gauge",
    "Slots of the agent in Spark's tasks: `open`, and `configured`. There is no value before all are open, "
    "or some are missing for 30 seconds. While some are missing, the others or the apply process itself "
    "apply the units.",
    ("state",),
)
CAPTURED_ROWS = MetricDefinition(
    "rowlock_captured_rows_total",
    "counter",
    "Rows of the log that this agent has captured into Kafka, without those of snapshots and copies.",
    ("source",),
)
DELIVERY_FAILURES = MetricDefinition(
    "rowlock_kafka_delivery_failures_total",
    "counter",
    "How often Kafka has not taken an event of capture. Capture then begins again at its last position, and "
    "loses nothing. While brokers are away it waits, which is no failure.",
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
RETENTION = MetricDefinition(
    "rowlock_retention_seconds",
    "gauge",
    "For how long the log of a source (`source NAME`) or the topics of a pipeline (`pipeline NAME`: the "
    "topic with the least of that time left) are kept, by the settings of the server and of Kafka. These are "
    "read every five minutes, for units that run on this agent. There is no value without a limit of age, or "
    "if the settings cannot be read. Limits of size: see `rowlock check`.",
    ("place",),
)
HEADROOM_END = MetricDefinition(
    "rowlock_headroom_end_timestamp_seconds",
    "gauge",
    "When the oldest part that is still needed there may be deleted, at the earliest: what capture has not "
    "read, an open XA transaction needs, or the pipeline has not applied. Minus `time()` it is the headroom, "
    "with the label of `rowlock_retention_seconds`.",
    ("place",),
)
BACKLOG_EVENTS = MetricDefinition(
    "rowlock_unit_lag_events",
    "gauge",
    "The backlog: events of the topic that were in Kafka a second ago and are not applied yet. It grows "
    "while the unit is stopped; for a topic of Debezium it is as of the last attempt to apply it. There is "
    "no value before the unit runs on this agent.",
    _TOPIC,
)
TRANSACTION_SECONDS = MetricDefinition(
    "rowlock_apply_transaction_seconds",
    "histogram",
    "Times of the transactions in the target that have written events, from their begin to their commit.",
    ("pipeline",),
)
VISIBLE_SECONDS = MetricDefinition(
    "rowlock_commit_to_visible_seconds",
    "histogram",
    "Times from the commit at the source to the commit in the target, of each event. All events of a "
    "transaction in the target count as old as its first one. Rows of snapshots and copies count from when "
    "they were read. The clocks of the source's server and of this agent's machine are compared, and many "
    "servers log whole seconds, so that a time can be a second too long.",
    ("pipeline",),
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
    BUILD_INFO, HELD_UNITS, LEASE_END, UNIT_APPLIED_TO, STARTS, SLOTS, CAPTURED_ROWS, DELIVERY_FAILURES,
    CAPTURE_HEARD, CAPTURE_FINISHED, SNAPSHOTS, TABLE_STOPPED, COPIES, COPY_ROWS, COPY_ESTIMATE,
    REMOVED_ROWS, RETENTION, HEADROOM_END, BACKLOG_EVENTS,
    TRANSACTION_SECONDS, VISIBLE_SECONDS, APPLIED_EVENTS, APPLIED_ROWS, QUARANTINED, OPEN_QUARANTINE,
    RESOLVED, DISPLACED, LOCK_WAITS, LOCK_WAIT_SECONDS, LOCK_CHAIN,
)  # fmt: skip
"""All metrics of an agent, in the order of a scrape."""

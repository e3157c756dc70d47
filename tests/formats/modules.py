"""Every type that is not in the registry, and every module that writes or reads JSON or msgpack: which
structure, or why none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from consumer.tables.event_decoder import SlimEvent
from consumer.tables.shared_tables import UnitTable
from consumer.targets.kafka.formats.rowlock import _Read
from producer.start.covered_rows import PlacedEvent, _Images
from producer.start.topic_recovery import _Event
from rowlock.agent.reported import CapturedLine
from schemas.wire.codec import _Versioned
from schemas.wire.debezium import _LooseEvent, _LooseEventWithSchema
from schemas.wire.debezium_schema import _Field
from schemas.wire.debezium_snapshot import _Record
from tests.formats.structure import FOLDER, ROOT, View

_MEMORY = "never leaves its process"
_SLOTS = "passes between processes of one installation, which start together"
_GRPC = "the order of its fields is the format: tests/wire_golden.py"
_CONFIGURATION = (
    "keys of the configuration file: docs/reference/configuration.md, and the examples that tests load"
)

#: Types in modules (or of a name in a module) that have no golden file in tests/golden/stored → the reason.
EXEMPT = {
    "consumer.ordering.model:RowChange": _MEMORY,
    "consumer.ordering.model:AgedEntry": _MEMORY,
    "consumer.attempt.reports:Report": _SLOTS,
    "consumer.attempt.reports:CopyNeed": _SLOTS,
    "consumer.slots.messages": _SLOTS,
    "consumer.units.messages": _MEMORY,
    "consumer.units.unit": _MEMORY,
    "consumer.targets.displaced_rows:DisplacedRow": _MEMORY,
    "coordinator.core.messages": _GRPC,
    "coordinator.rest.copies:_NamedTable": "its fields are those of the models that inherit them",
    "coordinator.rest.models:Answer": "it has no fields",
    "coordinator.transport.events:LeaderInfo": _GRPC,
    "coordinator.transport.wire": _GRPC,
    "producer.binlog_format": _MEMORY,
    "producer.decoders": _MEMORY,
    "producer.snapshot.chunks:ChunkState": _MEMORY,
    "producer.sources.tdsql_json.literals:LiteralForm": _MEMORY,
    "producer.sources.tdsql_json.messages:SubscribedEvent": "another product's messages, which are only read",
    "schemas.config.base": _CONFIGURATION,
    "schemas.config.coordination": _CONFIGURATION,
    "schemas.config.kinds": _CONFIGURATION,
    "schemas.config.model": _CONFIGURATION,
    "schemas.config.online_ddl": _CONFIGURATION,
    "schemas.config.changes.pipeline_text:PipelineText": _SLOTS,
    "schemas.config.servers": _CONFIGURATION,
    "schemas.config.spark": _CONFIGURATION,
    "schemas.findings:Finding": "rowlock.commands.tables.as_dict names the members",
    "schemas.wire.codec:_RequiredFormat": "its bytes are those of position-record/other-names",
    "schemas.wire.debezium:DebeziumChange": _MEMORY,
    "schemas.wire.debezium:EventOrigin": _MEMORY,
    "schemas.wire.debezium:ConnectorModes": "pickled for Spark's workers, which run the same installation",
}

_KEYS = "bytes by which keys are compared within one process"
_FOREIGN = "another product's document"
_MARKED = "rows of Kafka topics that are compared within one process"

#: Module → the structures whose bytes it writes or reads, or the reason why they are no structure of ours.
MODULES = {
    "consumer/attempt/copies/keys.py": _KEYS,
    "consumer/attempt/copies/snapshots.py": _KEYS,
    "consumer/attempt/copies/source_keys.py": "a key in a message for people",
    "consumer/attempt/spec.py": "known-table",
    "consumer/ordering/lanes/batches.py": "rowlock_displaced, rowlock_quarantine",
    "consumer/ordering/layout.py": "layout",
    "consumer/ordering/model.py": "rowlock_quarantine",
    "consumer/process/instructions.py": "apply-lines",
    "consumer/reporting/protocol.py": "unit-command, unit-line",
    "consumer/reporting/slot_lines.py": "apply-lines",
    "consumer/reporting/status_lines.py": "apply-lines",
    "consumer/slots/messages.py": _SLOTS,
    "consumer/slots/pipeline.py": _SLOTS,
    "consumer/tables/event_decoder.py": "event",
    "consumer/tables/evolution/plans.py": "change-mark",
    "consumer/tables/shared_tables.py": "stored-definition",
    "consumer/tables/stored.py": "stored-definition",
    "consumer/spark/slot_task.py": _SLOTS,
    "consumer/targets/bookkeeping.py": "rowlock_progress",
    "consumer/targets/kafka/compacted/topic_contents.py": _MARKED,
    "consumer/targets/kafka/compacted/topic_rows.py": _MARKED,
    "consumer/targets/kafka/formats/canal_json.py": "topic-canal-json",
    "consumer/targets/kafka/formats/debezium.py": "topic-debezium, topic-debezium-schemas",
    "consumer/targets/kafka/formats/key_forms.py": "progress-topic",
    "consumer/targets/kafka/formats/keyed.py": _KEYS,
    "consumer/targets/kafka/formats/plain.py": "topic-plain",
    "consumer/targets/kafka/formats/rowlock.py": "topic-rowlock",
    "consumer/targets/kafka/store/state.py": "progress-topic, closed-topic",
    "consumer/targets/kafka/verifying/canal.py": "topic-canal-json",
    "consumer/targets/kafka/verifying/reading.py": "topic-canal-json, topic-debezium, "
        "topic-plain, topic-rowlock",
    "consumer/targets/kafka/verifying/topic_reading.py": _MARKED,
    "consumer/targets/mysql/apply.py": "rowlock_displaced",
    "consumer/targets/oracle/apply.py": "rowlock_displaced",
    "consumer/targets/oracle/values.py": "values of JSON columns",
    "consumer/targets/displaced_rows.py": "rowlock_displaced",
    "coordinator/control/codec.py": "control-topic",
    "coordinator/rest/app.py": "rest-answers",
    "coordinator/rest/copies.py": "rest-answers, rest-questions",
    "coordinator/rest/problems.py": "rest-answers",
    "coordinator/transport/wire.py": "grpc",
    "deploy/embedded/__main__.py": "addresses of the demo's services, for people",
    "deploy/fetch/ivy.py": "checksums of downloads, a file of this repository",
    "producer/binlog_format/tabled_charsets.py": "the tables of character sets that the package contains",
    "producer/decoders/row_codec.py": "event",
    "producer/kafka/control_events.py": "event",
    "producer/main.py": "capture-command, capture-lines",
    "producer/sources/oracle/rows.py": "event",
    "producer/sources/tdsql_json/messages.py": _FOREIGN,
    "producer/sources/tdsql_json/texts.py": "JSON documents in another product's messages",
    "producer/start/covered_rows.py": "event",
    "producer/start/topic_recovery.py": "event",
    "producer/stops.py": "event",
    "rowlock/agent/apply.py": "unit-command, unit-line",
    "rowlock/agent/capture.py": "capture-command",
    "rowlock/agent/reported.py": "apply-lines, capture-lines",
    "rowlock/cli.py": "cli-status, cli-check, cli-verify, cli-quarantine, cli-cutover",
    "rowlock/commands/cluster.py": "rest-answers",
    "rowlock/commands/copying.py": "rest-answers",
    "rowlock/coordinator/leader_client.py": "rest-answers",
    "rowlock/demo/waits.py": "cli-verify",
    "rowlock/inspect/cutover.py": "cli-cutover",
    "rowlock/inspect/observed/displaced.py": "cli-quarantine",
    "rowlock/inspect/planned/plan.py": "cli-check",
    "rowlock/inspect/observed/slots.py": "rest-answers",
    "rowlock/inspect/status.py": "cli-status",
    "rowlock/processes/child.py": "unit-line",
    "rowlock/processes/child_process.py": "log lines of child processes, which are shown only",
    "rowlock/spark_package/contents.py": "a file of the slots' archive; no program reads it",
    "schemas/config/changes/handed.py": "configuration-line",
    "schemas/config/changes/parts.py": "digests that are compared between processes of one version",
    "schemas/config/load.py": _CONFIGURATION,
    "schemas/config/model.py": _CONFIGURATION,
    "schemas/config/online_ddl.py": _CONFIGURATION,
    "schemas/config/servers.py": _CONFIGURATION,
    "schemas/values/packed.py": "keys in one text, as a statement of ours lets the server write them",
    "schemas/table/equality.py": "values of JSON columns, compared within one process",
    "schemas/table/filters.py": "literals of SQL",
    "schemas/table/text_types.py": "the text of a VECTOR, a value in an event",
    "schemas/wire/codec.py": "event, position-record, watermark, copy-request, stored-definition",
    "schemas/wire/debezium.py": _FOREIGN,
    "schemas/wire/debezium_schema.py": _FOREIGN,
    "schemas/wire/debezium_snapshot.py": "debezium-signal",
    "schemas/wire/images.py": "names of columns, compared within one process",
}  # fmt: skip


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _views() -> tuple[View, ...]:
    events = tuple(
        json.loads(path.read_text()) for path in (ROOT / "schemas" / "golden" / "v1").glob("*.json")
    )
    events = tuple(each for each in events if "op" in each) + tuple(
        event for version in (1, 5) for event in _lines(FOLDER / "event" / f"all-fields.v{version}.json")
    )
    values = [value for _, value in _lines(FOLDER / "topic-debezium" / "records.v1.json") if value]
    whole = [value for _, value in _lines(FOLDER / "topic-debezium-schemas" / "records.v1.json") if value]
    return (
        View(_Event, events),
        View(PlacedEvent, events),
        View(_Images, events),
        View(SlimEvent, events),
        View(_Versioned, events),
        View(
            _Read, tuple(value for _, value in _lines(FOLDER / "topic-rowlock" / "records.v1.json") if value)
        ),
        View(_LooseEvent, tuple(values)),
        View(_LooseEventWithSchema, tuple(whole)),
        View(_Field, tuple(each["schema"] for each in whole)),
        View(_Record, (*values, *whole)),
        View(UnitTable, tuple(_lines(FOLDER / "stored-definition" / "definition.v8.json"))),
        View(CapturedLine, tuple(_lines(FOLDER / "capture-lines" / "captured.v4.json"))),
    )


VIEWS = _views()

"""The Structured Streaming query, and the reasons for its settings.

A query reads whole topics (`assign`, one partition each), coalesced to the task slots without a shuffle,
runs `consumer.spark.task` inside `mapInArrow`, and ends in the `noop` sink with asynchronous progress
tracking: the valid progress is in the target. A query into a whole-batch target ends in `foreachBatch`
instead, and the driver applies it. A query never continues from its checkpoint: every start has a new
folder and explicit offsets.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger(__name__)

SPARK_KAFKA_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
JARS_ENV = "ROWLOCK_SPARK_JARS"
"""Comma-separated jars of Spark's Kafka source, from the environment; Spark downloads them if it is not
set."""

DAEMON_ENV = "ROWLOCK_PYTHON_DAEMON"
"""Module of the daemon of Spark's Python workers, from the environment, instead of rowlock's own.

`pyspark.daemon` is PySpark's own: for a comparison if rowlock's patches are suspected, and for the
benchmark.
"""

SPLITTING_OPTIONS = frozenset({"minpartitions", "maxrecordsperpartition", "maxbytespertrigger"})
"""Options of the Kafka source that would spread a topic over tasks, or split it elsewhere than requested."""

MAX_OFFSETS_PER_TRIGGER = 200_000
"""Events of one micro-batch over all topics. Bounds how long the other topics wait for one with a backlog."""
CATCH_UP_PER_TRIGGER = 500_000
"""The same for a query that reads backlogs only. Each batch begins and ends with half a second of idle
lanes."""

ArrowTask = Callable[[Iterable[Any]], Iterator[Any]]
TopicRange = tuple[str, int, int]
"""(topic, first offset, last offset), both inclusive."""


def set_environment(env: dict[str, str]) -> None:
    """Set the environment that Spark reads: this Python for the workers, and loopback only."""
    env["PYSPARK_PYTHON"] = sys.executable
    env["PYSPARK_DRIVER_PYTHON"] = sys.executable
    env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers must find `consumer` also in a source tree that is not installed.
    root = str(Path(__file__).resolve().parent.parent.parent)
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in paths:
        env["PYTHONPATH"] = os.pathsep.join([root, *paths])


def build_session_settings(
    *,
    master: str,
    memory: str,
    jars: str | None,
    local_dir: str,
    log4j: str | None,
    daemon: str | None = None,
    classes: Iterable[str] = (),
) -> dict[str, str]:
    """Return Spark's settings.

    `log4j`: path of a log4j2 configuration. `local_dir`: scratch space. `daemon`: see DAEMON_ENV.
    `classes`: Java's options for the archive of its classes (consumer.spark.class_archive).
    """
    # The JVM only passes bytes from Kafka to Arrow: the optimising compiler would cost more than it gains.
    java = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # Spark creates a folder "artifacts" in Java's working directory, which should not be that of the caller.
    java.append(f"-Duser.dir={Path(local_dir).resolve().parent}")
    java += classes
    if log4j:
        java.append(f"-Dlog4j2.configurationFile={log4j}")
    return {
        "spark.master": master,
        "spark.app.name": "rowlock-apply",
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": local_dir,
        "spark.python.daemon.module": daemon or "consumer.spark.daemon",
        "spark.python.worker.reuse": "true",
        # The target's fence drops a second attempt beside the first, so speculation is never useful.
        "spark.speculation": "false",
        "spark.kafka.consumer.cache.capacity": "4096",
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.sql.streaming.stopTimeout": "20s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        **({"spark.jars": jars} if jars else {"spark.jars.packages": SPARK_KAFKA_PACKAGE}),
    }


def start_session(settings: Mapping[str, str]) -> Any:
    """Return a SparkSession with `settings`."""
    from pyspark.sql import SparkSession

    set_environment(os.environ)  # type: ignore[arg-type]
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


JAVA_ENDED = 4
"""Exit code of a process after its Java process has ended."""
JAVA_LOOK_S = 1.0


def get_java_process(session: Any) -> subprocess.Popen[bytes]:
    """Return the Java process of `session`."""
    process: subprocess.Popen[bytes] = session.sparkContext._gateway.proc
    return process


def end_with_java(
    java: subprocess.Popen[bytes], stop: threading.Event, end: Callable[[int], object]
) -> threading.Thread:
    """End this process when its Java process ends for any reason (kill -9, memory), unless `stop` is
    set.

    Otherwise nothing would be applied any more, without any message. The supervisor starts another
    process.
    """

    def watch() -> None:
        while not stop.wait(JAVA_LOOK_S):
            if (code := java.poll()) is not None:
                log.critical("Spark's Java process has ended, and this process with it", code=code)
                end(JAVA_ENDED)
                return

    thread = threading.Thread(target=watch, name="java", daemon=True)
    thread.start()
    return thread


def parse_slots(master: str) -> int:
    """Return N of `local[N,F]`; 2 for another master.

    Raises ValueError for a local master with which one dead Python worker would end the query.
    """
    if not master.startswith("local"):
        return 2
    inside = master.partition("[")[2].rstrip("]")
    number, _, failures = inside.partition(",")
    if not failures.strip().isdigit() or int(failures) < 2:
        raise ValueError(
            f"spark.master {master!r}: one dead Python worker would end the query; use local[N,4]"
        )
    return int(number) if number.strip().isdigit() else os.cpu_count() or 2


MAX_SLOTS = 16


def build_local_master(master: str, queries: int) -> str:
    """Return the local master for a session of `queries` queries at once: slots for each, up to
    MAX_SLOTS.

    Spark gives a free slot to the query that asked first, so a batch with a backlog would delay the
    events of all other queries. The operating system's scheduler shares the processors better. Other
    masters are returned unchanged.
    """
    if not master.startswith("local["):
        return master
    slots = parse_slots(master)
    _, _, failures = master[len("local[") : -1].partition(",")
    return f"local[{max(slots, min(slots * queries, MAX_SLOTS))},{failures}]"


def build_kafka_options(
    bootstrap: str,
    starting: Mapping[str, int],
    options: Mapping[str, str],
    extra: Mapping[str, str],
    *,
    per_trigger: int = MAX_OFFSETS_PER_TRIGGER,
) -> dict[str, str]:
    """Return the options of Spark's Kafka source.

    `starting`: topic → first offset (-1: the end). `options`: librdkafka settings of the configuration.
    `extra`: further options of the source. Raises ValueError for options that would split a topic over
    tasks.
    """
    refused = sorted(name for name in extra if name.lower() in SPLITTING_OPTIONS)
    if refused:
        raise ValueError(f"{refused}: would split a topic over several tasks and lose its order")
    return {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps({topic: [0] for topic in starting}),
        "startingOffsets": json.dumps({topic: {"0": offset} for topic, offset in starting.items()}),
        "maxOffsetsPerTrigger": str(per_trigger),
        # A consumer sends its next fetch as soon as it has records, and the broker answers one request
        # of a connection after the other. Spark's two requests for the topic's bounds, in every task and
        # for every topic, therefore wait for that fetch, up to this time. Nothing polls while there are
        # no records, so waiting is never useful.
        "kafka.fetch.max.wait.ms": "1",
        "kafka.max.poll.records": "5000",
        "kafka.fetch.max.bytes": str(16 << 20),
        "kafka.max.partition.fetch.bytes": str(8 << 20),
        **{f"kafka.{name}": value for name, value in to_java_options(options).items()},
        **extra,
    }


def to_java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's security settings under the Java client's names; other settings are left out.

    PEM certificates work in both (`ssl.ca.location` → a PEM truststore).
    """
    out = {"security.protocol": options["security.protocol"]} if "security.protocol" in options else {}
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    if mechanism:
        out["sasl.mechanism"] = mechanism
        module = "scram.Scram" if mechanism.startswith("SCRAM") else "plain.Plain"
        user, password = options.get("sasl.username", ""), options.get("sasl.password", "")
        out["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f"username={json.dumps(user)} password={json.dumps(password)};"
        )
    if "ssl.ca.location" in options:
        out["ssl.truststore.type"] = "PEM"
        out["ssl.truststore.location"] = options["ssl.ca.location"]
    return out


def start_query(
    session: Any, *, name: str, options: Mapping[str, str], task: ArrowTask, slots: int, checkpoints: Path
) -> Any:
    """Start a query with tasks that apply, and return it.

    `checkpoints`: the folder for its new checkpoint.
    """
    frame = _read_records(session, options).coalesce(slots).mapInArrow(task, "applied long")
    return (
        frame.writeStream.format("noop")
        .queryName(name)
        .option("checkpointLocation", _make_fresh_name(checkpoints))
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "1000")
        .trigger(processingTime="0 seconds")
        .start()
    )


def start_batches(
    session: Any,
    *,
    name: str,
    options: Mapping[str, str],
    each: Callable[[list[TopicRange]], None],
    every: float,
    slots: int,
    checkpoints: Path,
) -> Any:
    """Start a query that passes each micro-batch to `each` in the driver, every `every` seconds, and
    return it.
    """
    return (
        _read_records(session, options)
        .coalesce(slots)
        .writeStream.foreachBatch(lambda frame, _number: each(list_topic_ranges(frame)))
        .queryName(name)
        .option("checkpointLocation", _make_fresh_name(checkpoints))
        .trigger(processingTime=f"{round(every * 1000)} milliseconds")
        .start()
    )


def list_topic_ranges(frame: Any) -> list[TopicRange]:
    """Return the offsets of each topic in a micro-batch.

    The records stay in Spark; only topics and offsets are read.
    """
    offsets = frame.select("topic", "offset").toArrow().group_by("topic")
    found = offsets.aggregate([("offset", "min"), ("offset", "max")]).to_pydict()
    return sorted(zip(found["topic"], found["offset_min"], found["offset_max"], strict=True))


def _read_records(session: Any, options: Mapping[str, str]) -> Any:
    return session.readStream.format("kafka").options(**options).load().select("topic", "offset", "value")


def _make_fresh_name(checkpoints: Path) -> str:
    """Empty `checkpoints`, and return the path of a new folder in it."""
    shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir(parents=True, exist_ok=True)
    return str(checkpoints / uuid.uuid4().hex)


def find_cause(lines: list[str]) -> str:
    """Return the last informative line of a Java or Python trace."""
    messages = [
        line.strip() for line in lines if line.strip() and not line.strip().startswith(("at ", "..."))
    ]
    errors = [line for line in messages if "Error" in line or "Exception" in line]
    return (errors or messages or ["unknown"])[-1][:400]

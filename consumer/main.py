"""`python -m consumer.main --config F`: the apply process of an agent, for the units of all pipelines that it is given on stdin.

Ends when SIGTERM or SIGINT arrives, or when stdin reaches its end (the agent is gone): the batch in flight ends, every unit is
fenced, exit 0. stdout carries JSON lines (consumer.assigned.lines, consumer.status), stderr the log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from consumer.assigned.lines import Lines
from consumer.assigned.own_folder import own_folder
from consumer.assigned.process import AssignedProcess
from consumer.assigned.warming import AFTER_S
from consumer.logs import log_to_stderr
from consumer.query import (
    DAEMON_ENV,
    JARS_ENV,
    assigned_master,
    end_with_java,
    java_of,
    session_settings,
    slots_of,
    start_session,
)
from schemas.config import Config, ConfigErrors, load_config
from schemas.signals import stopped_by_signals

log = structlog.get_logger(__name__)

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} spark %p %c{1}: %m%n%ex{3}
logger.kafka.name = org.apache.kafka
logger.kafka.level = error
logger.bound.name = org.apache.spark.sql.kafka010
logger.bound.level = error
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.task.name = org.apache.spark.scheduler
logger.task.level = error
logger.executor.name = org.apache.spark.executor
logger.executor.level = error
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process. Returns the exit code: 0 after a clean stop, 2 for a wrong configuration or no Spark."""
    arguments = _arguments(argv)
    log_to_stderr()
    try:
        config = load_config(arguments.config)
        slots = slots_of(config.spark.master)
    except (ConfigErrors, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    with stopped_by_signals() as stop, own_folder(config.state_dir / "apply") as folder:
        return _run(config.model_copy(update={"state_dir": folder}), slots, stop, arguments.warm_after)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="consumer.main", description="Apply the units that are given on stdin, as JSON lines."
    )
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument(
        "--warm-after", type=float, default=AFTER_S, help="seconds without a unit before Spark is warmed up"
    )
    return parser.parse_args(argv)


def _run(config: Config, slots: int, stop: threading.Event, warm_after: float) -> int:
    lines = Lines(sys.stdout)
    started = time.monotonic()
    master = assigned_master(config.spark.master, 2 * len(config.pipelines))
    spark = _start_spark(config, config.state_dir, master)
    lines.write(json.dumps({"kind": "ready", "seconds": round(time.monotonic() - started, 2)}) + "\n")
    end_with_java(java_of(spark), stop, os._exit)
    try:
        AssignedProcess(config, spark, slots, lines, warm_after).run(stop)
    finally:
        spark.stop()
    log.info("apply process ended")
    return 0


def _start_spark(config: Config, where: Path, master: str) -> Any:
    folder = where.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    settings = session_settings(
        master=master,
        memory=config.spark.memory,
        jars=os.environ.get(JARS_ENV),
        local_dir=str(folder / "spark"),
        log4j=str(log4j),
        daemon=os.environ.get(DAEMON_ENV),
    )
    return start_session(settings)


if __name__ == "__main__":
    sys.exit(main())

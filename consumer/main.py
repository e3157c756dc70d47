"""`python -m consumer.main --config F --pipeline P`: the apply process of one pipeline, as `rowlock run` starts it;
with `--assigned` instead of a pipeline: of all pipelines' units that an agent gives it on stdin (consumer.assigned).

Ends when SIGTERM or SIGINT arrives, or when stdin reaches its end (the supervisor is gone): the batch in flight ends,
progress is written, exit 0. stdout carries JSON lines (consumer.status), stderr the log.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
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
from consumer.driver import Driver
from consumer.pipeline import Pipeline
from consumer.query import JARS_ENV, assigned_master, session_settings, slots_of, start_session
from consumer.status import StatusWriter
from schemas.config import Config, ConfigErrors, load_config

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
    _log_to_stderr()
    try:
        config = load_config(arguments.config)
        slots = slots_of(config.spark.master)
        pipeline = None if arguments.assigned else Pipeline.of(config, arguments.pipeline, slots)
    except (ConfigErrors, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyError as error:
        sys.stderr.write(f"{arguments.config}: no pipeline or target {error}\n")
        return 2
    stop = threading.Event()
    _stop_on_signals(stop)
    if pipeline is None:
        return _run_assigned(config, slots, stop, arguments.warm_after)
    _stop_on_eof(stop, arguments.keep_stdin)
    return _run(config, pipeline, stop)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="consumer.main", description="Apply one pipeline, or what is assigned."
    )
    parser.add_argument("--config", required=True, type=Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pipeline")
    what.add_argument("--assigned", action="store_true", help="units are given on stdin, as JSON lines")
    parser.add_argument(
        "--warm-after", type=float, default=AFTER_S, help="seconds without a unit; with --assigned"
    )
    parser.add_argument("--keep-stdin", action="store_true", help="do not end when stdin ends (by hand)")
    return parser.parse_args(argv)


def _run(config: Config, pipeline: Pipeline, stop: threading.Event) -> int:
    status = StatusWriter(pipeline.name, sys.stdout)
    started = time.monotonic()
    spark = _start_spark(config, pipeline.state_dir, config.spark.master)
    status.ready(time.monotonic() - started)
    driver = Driver(pipeline, spark, status, stop.is_set)
    try:
        driver.run()
    finally:
        driver.close()
        spark.stop()
    log.info("apply process ended", pipeline=pipeline.name)
    return 0


def _run_assigned(config: Config, slots: int, stop: threading.Event, warm_after: float) -> int:
    with own_folder(config.state_dir / "apply") as folder:
        return _run_in(config.model_copy(update={"state_dir": folder}), slots, stop, warm_after)


def _run_in(config: Config, slots: int, stop: threading.Event, warm_after: float) -> int:
    lines = Lines(sys.stdout)
    started = time.monotonic()
    master = assigned_master(config.spark.master, 2 * len(config.pipelines))
    spark = _start_spark(config, config.state_dir, master)
    lines.write(json.dumps({"kind": "ready", "seconds": round(time.monotonic() - started, 2)}) + "\n")
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
    )
    return start_session(settings)


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _stop_on_eof(stop: threading.Event, keep: bool) -> None:
    """End with the supervisor: its death closes our stdin, whatever it died of."""
    if keep:
        return

    def watch() -> None:
        while os.read(0, 4096):
            pass
        stop.set()

    threading.Thread(target=watch, name="stdin", daemon=True).start()


def _log_to_stderr() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


if __name__ == "__main__":
    sys.exit(main())

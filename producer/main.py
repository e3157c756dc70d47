"""The capture unit as a process: `python -m producer.main --config F --source NAME`.

It ends when its standard input does, so that it never outlives the process that started it; with
`--detached` it does not watch it. With `--wait` it gets ready, writes `{"kind":"prepared"}` to stdout
and touches nothing until a line (`CaptureCommand`) lets it start. Then it captures, and writes its
progress as `{"kind":"captured",…}` about once a second, and
`{"kind":"trouble","error":…,"delivery_failed":…}` before it
restarts.
SIGTERM and SIGINT end it cleanly: what was sent is acknowledged, the position written, exit 0. For an
error that needs a person's action it writes one message to stderr, then a line of JSON, and exits with
2. After a line of standard input that it cannot read it ends as cleanly, with exit 1.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import sys
import threading
from functools import partial
from pathlib import Path

import msgspec
import structlog

from producer.capture import run_capture
from producer.errors import CaptureError, SupersededError
from producer.sources.source_session import source_errors
from schemas.config.changes.handed import is_handed, load_handed_config, rebuild_config
from schemas.config.model import ConfigErrors
from schemas.errors import SchemaError
from schemas.io.input_lines import UNREADABLE, describe_line, read_lines
from schemas.io.kafka_passwords import use_kafka_passwords
from schemas.io.refused_logins import REFUSED_LOGINS
from schemas.io.signals import on_stop_signals
from schemas.problems import Problem, encode_problem
from schemas.units import CaptureCommand, OldestAgents
from schemas.versions import explain_unknown_removals
from schemas.wire.records import Watermark

EXIT_INTERNAL_ERROR = 1
"""Exit code after an error of the program itself."""
EXIT_SUPERSEDED = 4
"""Exit code of a process that ends because another one captures the source."""


class Orders:
    """The orders and reports so far of the process that started this one."""

    def __init__(self) -> None:
        self.go, self.stop = threading.Event(), threading.Event()
        self.failure: Problem | None = None
        """Why a line could not be carried out; None: all were."""
        self._oldest: OldestAgents | None = None

    def handle_line(self, line: bytes) -> None:
        """Carry out a line of stdin. Of a new configuration only the passwords of Kafka are used."""
        if is_handed(line):
            use_kafka_passwords(rebuild_config(line))
            return
        command = msgspec.json.decode(line, type=CaptureCommand)
        if command.oldest_agents is not None:
            self._oldest = command.oldest_agents
        if command.start:
            self.go.set()

    def note_failure(self, failure: Problem) -> None:
        """Let the end of the process be that of an error."""
        self.failure = failure

    def end(self) -> None:
        """Let the process end, also if it has not begun."""
        self.stop.set()
        self.go.set()

    def explain_old_agents(self) -> str:
        """Return why an agent cannot apply the event of removed rows; "": every agent can."""
        return explain_unknown_removals(self._oldest)


def main(arguments: list[str] | None = None) -> int:
    """Run the unit and return the exit code."""
    options = _build_parser().parse_args(arguments)
    _configure_log()
    _spare_the_collector()
    orders = Orders()
    with on_stop_signals(lambda _signal: orders.end()):
        if not options.detached:
            threading.Thread(target=_watch_stdin, args=(orders,), name="stdin", daemon=True).start()
        code = _run_unit(options, orders)
    if code or orders.failure is None:
        return code
    _write_line(kind="failed", source=options.source, error=encode_problem(orders.failure))
    return EXIT_INTERNAL_ERROR


def _run_unit(options: argparse.Namespace, orders: Orders) -> int:
    try:
        config = load_handed_config(options.config, options.handed)
        if options.source not in config.sources:
            return _report_failure(
                options.source,
                Problem(
                    f"no source {options.source} in {options.config}",
                    f"there are {', '.join(config.sources)}",
                ),
                wait=options.wait,
            )
        if config.sources[options.source].events != "rowlock":
            return _report_failure(
                options.source,
                Problem(f"source {options.source} is captured by Debezium (`events`), not by rowlock"),
                wait=options.wait,
            )
        if options.wait:
            _write_line(kind="prepared", source=options.source)
            orders.go.wait()
            if orders.stop.is_set():
                return 0
        with source_errors():  # a driver's error that was not translated below
            run_capture(
                config, options.source, orders.stop,
                new_snapshot=options.new_snapshot, gen_at_least=options.gen_at_least,
                on_watermark=_report_watermark if options.wait else None,
                on_trouble=partial(_report_trouble, options.source) if options.wait else None,
                explain_old_agents=orders.explain_old_agents if options.wait else None,
            )  # fmt: skip
    except SupersededError as error:
        _report_failure(options.source, error.problem, wait=options.wait)
        return EXIT_SUPERSEDED
    except (CaptureError, SchemaError) as error:
        return _report_failure(options.source, error.problem, wait=options.wait)
    except ConfigErrors as error:
        return _report_failure(options.source, Problem(str(error)), wait=options.wait)
    except Exception as error:  # noqa: BLE001 - logged, and said to who started this process
        structlog.get_logger("capture").exception(
            "capture failed by an internal error", source=options.source
        )
        lines = str(error).strip().splitlines()
        named = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
        _write_line(
            kind="failed",
            source=options.source,
            error=encode_problem(Problem(f"internal error of rowlock ({named})")),
        )
        return EXIT_INTERNAL_ERROR
    return 0


def _spare_the_collector() -> None:
    """Make the garbage collector run seldom.

    The events of a transaction are held until its end, and each collection walks all of them in vain,
    because they have no cycles. With Python's own thresholds that took a third of capture's rate.
    """
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


def _configure_log() -> None:
    """Write the log to stderr, in the form that the agent has chosen if it has started this process."""
    if not structlog.is_configured():
        # structlog's default prints the variables of every frame, and passwords among them
        plain = structlog.dev.plain_traceback
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain),
            ]
        )
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m producer.main", description="Captures one source into Kafka."
    )
    parser.add_argument("--config", required=True, type=Path, help="the configuration file")
    parser.add_argument(
        "--handed", type=int, metavar="FD", help="file descriptor from which the configuration is read"
    )
    parser.add_argument("--source", required=True, help="name of the source in the configuration")
    parser.add_argument("--detached", action="store_true", help="do not end when standard input ends")
    parser.add_argument(
        "--new-snapshot", action="store_true",
        help=("discard the stored position: begin at the log's end with a new snapshot of all tables; "
"apply units of this version refuse to continue afterwards"),
    )  # fmt: skip
    parser.add_argument(
        "--wait", action="store_true", help="prepare, and begin when a line arrives on standard input"
    )
    parser.add_argument(
        "--gen-at-least", type=int, metavar="E",
        help="the assignment: the number under which this process captures the source (`gen` in events); the "
        "process ends when another one captures the source",
    )  # fmt: skip
    return parser


def _watch_stdin(orders: Orders) -> None:
    """Carry out the lines of stdin until it ends, or until one cannot be carried out: what this process is to
    do is uncertain then, so it ends.
    """
    line = b""
    try:
        for line in read_lines(0):
            orders.handle_line(line)
    except Exception as error:  # noqa: BLE001  # it is logged, and ends the process
        named = f"{type(error).__name__}: {error}"
        structlog.get_logger("capture").critical(
            "process ends: line of standard input cannot be carried out",
            line=describe_line(line),
            error=named,
            exc_info=None if isinstance(error, UNREADABLE) else error,
        )
        orders.note_failure(Problem(f"internal error of rowlock (line of standard input: {named})"))
    finally:
        orders.end()


def _write_line(**fields: object) -> None:
    """Write a JSON line to stdout, for the process that started this one. Several threads do."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{json.dumps(fields)}\n")  # in one piece: print() writes the newline by itself
        sys.stdout.flush()


def _report_watermark(mark: Watermark) -> None:
    _write_line(
        kind="captured", source=mark.source, gen=mark.gen, commit_ts_ms=mark.commit_ts_ms,
        position=mark.position, events=mark.events, idle=mark.idle, snapshot_pending=mark.snapshot_pending,
        error=mark.error, stops={name: stop.cause for name, stop in mark.stops.items()},
        copies={
            name: {"phase": copy.phase, "rows": copy.rows, "estimate": copy.estimate}
            for name, copy in mark.copies.items()
        },
        removed={
            name: copy.removed.since_ms for name, copy in mark.copies.items() if copy.removed is not None
        },
        prepared_ms=min((place.ts_ms for place in mark.prepared.values()), default=0),
    )  # fmt: skip


def _report_trouble(source: str, why: str, *, delivery_failed: bool) -> None:
    _write_line(kind="trouble", source=source, error=why, delivery_failed=delivery_failed)


def _report_failure(source: str, problem: Problem, *, wait: bool = False) -> int:
    """Report why this process ends, and return its exit code. `wait`: an agent has started it."""
    message = str(problem)
    refused = bool(REFUSED_LOGINS)
    _write_line(kind="failed", source=source, error=encode_problem(problem), login_refused=refused)
    if wait:  # the agent reports it
        return 2
    ended = json.dumps({"unit": f"capture {source}", "exit": 2, "error": message})
    sys.stderr.write(f"capture of {source} stopped: {message}\n{ended}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())

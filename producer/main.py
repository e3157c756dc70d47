"""The capture unit as a process: `python -m producer.main --config F --source NAME`.

It ends when its standard input does, so that it never outlives the process that started it; with `--detached` it does
not look. SIGTERM and SIGINT end it cleanly: what is sent is acknowledged, the position written, exit 0. An error that
a person must act on: one message on stderr, then a line of JSON, exit 2.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import structlog

from producer.capture import run_capture
from producer.errors import CaptureError
from schemas.config import ConfigErrors, load_config


def main(arguments: list[str] | None = None) -> int:
    """Run the unit; returns the exit code."""
    options = _parser().parse_args(arguments)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if not options.detached:
        threading.Thread(target=_watch_stdin, args=(stop,), daemon=True).start()
    try:
        config = load_config(options.config)
        if options.source not in config.sources:
            return _failed(
                options.source,
                f"no source {options.source} in {options.config}: there are {', '.join(config.sources)}",
            )
        run_capture(config, options.source, stop, new_snapshot=options.new_snapshot)
    except (CaptureError, ConfigErrors) as error:
        return _failed(options.source, str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m producer.main", description="Captures one source into Kafka."
    )
    parser.add_argument("--config", required=True, type=Path, help="the configuration file")
    parser.add_argument("--source", required=True, help="name of the source in it")
    parser.add_argument("--detached", action="store_true", help="do not end when standard input ends")
    parser.add_argument(
        "--new-snapshot", action="store_true",
        help="give up the stored position: begin at the log's end with a new snapshot of all tables (epoch + 1)",
    )  # fmt: skip
    return parser


def _watch_stdin(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


def _failed(source: str, message: str) -> int:
    print(f"capture of {source} stopped: {message}", file=sys.stderr)  # noqa: T201
    print(json.dumps({"unit": f"capture {source}", "exit": 2, "error": message}), file=sys.stderr, flush=True)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main())

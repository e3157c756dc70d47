"""`python -m consumer.main --config F`: an agent's apply process for the units of all pipelines, named
on stdin.

SIGTERM, SIGINT or the end of stdin (the agent has ended) stop it: the batch in flight ends, every unit
is fenced, exit code 0. A line of stdin that cannot be read stops it as well, with exit code 3. stdout
carries JSON lines (consumer.reporting.protocol, consumer.reporting.status_lines), stderr the log.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

from consumer.logs import log_to_stderr
from consumer.process.instructions import ApplyProcess
from consumer.process.scratch_dir import own_folder
from consumer.reporting.protocol import LineWriter
from schemas.config.changes.handed import load_handed_config
from schemas.config.model import Config, ConfigErrors
from schemas.io.signals import stopped_by_signals

log = structlog.get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; return the exit code.

    0 after a clean stop, 2 for a wrong configuration, 3 after an error of the program itself, 5 if Spark
    cannot be started.
    """
    arguments = _parse_arguments(argv)
    log_to_stderr()
    try:
        config = load_handed_config(arguments.config, arguments.handed)
    except ConfigErrors as error:
        sys.stderr.write(f"{error}\n")
        return 2
    with stopped_by_signals() as stop, own_folder(config.state_dir / "apply") as folder:
        return _run_process(config.model_copy(update={"state_dir": folder}), stop)


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="consumer.main", description="Apply the units that are given on stdin, as JSON lines."
    )
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument(
        "--handed", type=int, metavar="FD", help="the parent has handed the configuration over there"
    )
    return parser.parse_args(argv)


def _run_process(config: Config, stop: threading.Event) -> int:
    lines = LineWriter(sys.stdout)
    process = ApplyProcess(config, lines)
    code = process.run(stop)
    log.info("apply process ended")
    return code


if __name__ == "__main__":
    sys.exit(main())

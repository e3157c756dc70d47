"""Off a terminal every line of a process's log is a JSON object, whoever wrote it."""

from __future__ import annotations

import ast
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from schemas.io.logs import StructlogHandler, forward_logs_to_structlog

ROOT = Path(__file__).resolve().parents[2]
NOISE = """
import logging, socket, sys, warnings
{configure}
import grpc
from concurrent.futures import ThreadPoolExecutor
from confluent_kafka import Consumer
from schemas.io.logs import make_librdkafka_logger

logging.getLogger("grpc._server").error("a call failed with %s", "words")
try:
    raise ValueError("inner")
except ValueError:
    logging.getLogger("asyncio").exception("a task failed")
warnings.warn("an old function", stacklevel=1)
consumer = Consumer({{"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}}, logger=make_librdkafka_logger())
consumer.subscribe(["t"])
consumer.poll(2.0)
consumer.close()
taken = socket.create_server(("127.0.0.1", 0))
server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
try:
    server.add_insecure_port("127.0.0.1:%d" % taken.getsockname()[1])
except RuntimeError:
    pass
"""


def lines(configure: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-c", NOISE.format(configure=configure)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def _whole(found: list[dict[str, object]]) -> None:
    reported = {str(line["event"]) for line in found}
    assert "a call failed with words" in reported
    assert "a task failed" in reported
    assert any("an old function" in each for each in reported)
    assert any("ECONNREFUSED" in each or "Connect to" in each or "brokers" in each for each in reported), (
        reported
    )
    assert any("inner" in str(line.get("exception")) for line in found)
    assert {line["level"] for line in found} <= {"info", "warning", "error"}


def test_the_command_line_s_processes_write_json_only() -> None:
    _whole(lines("from rowlock.processes import log; log.configure_logging()"))


def test_the_apply_process_and_its_workers_write_json_only() -> None:
    _whole(lines("from consumer.logs import log_to_stderr; log_to_stderr()"))


def test_what_libraries_log_and_warn_of_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    root, captured = logging.getLogger(), list[bool]()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(logging, "captureWarnings", captured.append)
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    for _ in range(2):
        forward_logs_to_structlog()
        assert [type(handler) for handler in root.handlers] == [StructlogHandler], "once"
    assert captured == [True, True]


@pytest.mark.parametrize(
    ("logger", "text", "is_logged"),
    [
        ("psycopg", "error ignored terminating <psycopg.Pipeline [BAD]>: the connection is lost", False),
        ("psycopg", "the connection is lost", True),
        ("asyncio", "error ignored terminating a task", True),
    ],
)
def test_an_error_that_psycopg_ignores_is_no_line(logger: str, text: str, is_logged: bool) -> None:
    """psycopg raises the error that came before it, and that one is reported."""
    with capture_logs() as logs:
        StructlogHandler().handle(logging.makeLogRecord({"name": logger, "msg": text, "levelno": 30}))
    assert [line["event"] for line in logs] == [text] * is_logged


CONFIGURATIONS = [
    "from producer.main import _configure_log; _configure_log()",
    "from consumer.logs import log_to_stderr; log_to_stderr()",
    "from rowlock.processes.log import configure_logging; configure_logging()",
]
SPLIT = """
import sys
class Pieces:
    def __init__(self, stream):
        self.stream, self.pieces = stream, []
    def write(self, text):
        self.pieces.append(text)
    def flush(self):
        pass
    def isatty(self):
        return False
sys.stdout, sys.stderr = seen = Pieces(sys.stdout), Pieces(sys.stderr)
{script}
for each in seen:
    each.stream.write("".join(f"{{piece!r}}\\n" for piece in each.pieces))
"""


def split(script: str) -> list[str]:
    """Return what a script writes to stdout and stderr, in the pieces that it writes."""
    ended = subprocess.run(
        [sys.executable, "-c", SPLIT.format(script=script)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ast.literal_eval(line) for line in (ended.stdout + ended.stderr).splitlines()]


@pytest.mark.parametrize(
    "script",
    [
        *(
            f"{each}; import structlog; structlog.get_logger().warning('unit stops')"
            for each in CONFIGURATIONS
        ),
        "from producer import main; main._report_trouble('b1', 'no route', delivery_failed=False)",
        "from producer import main; main._report_failure('b1', main.Problem('no route'))",
        "from schemas.config.changes.handed import *; announce_config(Config.model_construct())",
    ],
)
def test_a_line_is_written_in_one_piece(script: str) -> None:
    """Threads and processes share stdout and stderr; with PYTHONUNBUFFERED each piece goes out at once."""
    pieces = split(script)
    assert pieces
    assert all(piece.endswith("\n") for piece in pieces)


@pytest.mark.parametrize("configure", CONFIGURATIONS)
def test_a_traceback_shows_no_variables(configure: str) -> None:
    """structlog's default shows those of every frame, where rich is installed."""
    script = f"""
import structlog
{configure}
def connect(password):
    raise ValueError("no route")
try:
    connect("top" + "secret")
except ValueError as error:
    structlog.get_logger("capture").critical("process ends", exc_info=error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "no route" in ended.stderr
    assert "topsecret" not in ended.stderr

"""Lines that a process reads from the one that started it: what one that cannot be read leads to."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumer.process import instructions
from consumer.process.instructions import ApplyProcess
from consumer.reporting.protocol import LineWriter
from consumer.slots.faults import FAULT_EXIT_CODE
from producer import main as capture_main
from producer.main import EXIT_INTERNAL_ERROR, Orders
from schemas.io.input_lines import describe_line, read_lines

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources: {b1: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: ["a.*"]}}
"""
HANDED = b'{"kind":"configuration","file":"/c.yaml","text":"password: s3cret'
UNREADABLE = {
    "no JSON": b"guess what",
    "no text": b"\xff\xfe\xff",
    "another shape": b'{"do":7,"start":"s"}',
    "cut configuration": HANDED,
    "refused configuration": HANDED + b'"}',
}
each_line = pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)


def test_lines_are_read_whole_and_empty_ones_are_passed_over() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as pipe:
        pipe.write(b"one\n\n \ntw")
        pipe.flush()
        lines = read_lines(reading)
        assert next(lines) == b"one"
        pipe.write(b"o\nthree without an end")
        pipe.close()
        assert list(lines) == [b"two"]


def test_a_line_is_shown_shortened_and_a_configuration_by_its_length() -> None:
    assert describe_line(b"short \xff") == "short �"
    assert describe_line(b"x" * 500) == "x" * 80 + "… (500 bytes)"
    assert describe_line(HANDED) == f"a configuration of {len(HANDED)} bytes"


def feed(monkeypatch: pytest.MonkeyPatch, module: Any, *lines: bytes) -> None:
    """Let `module` read `lines` from stdin."""
    monkeypatch.setattr(module, "read_lines", lambda _descriptor: iter(lines))


def find_critical(logs: list[Any]) -> dict[str, Any]:
    """Return the critical line of the log, which has no secret and no traceback."""
    (line,) = [line for line in logs if line["log_level"] == "critical"]
    assert "s3cret" not in str(line)
    assert not line.get("exc_info")
    return dict(line)


@each_line
def test_capture_ends_with_an_error_after_a_line_that_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: bytes
) -> None:
    def run_unit(_options: object, orders: Orders) -> int:
        assert orders.stop.wait(60)
        return 0

    feed(monkeypatch, capture_main, line, b'{"start":true}')
    monkeypatch.setattr(capture_main, "_run_unit", run_unit)
    monkeypatch.setattr(capture_main.structlog, "configure", lambda **_: None)
    monkeypatch.setattr(capture_main, "_spare_the_collector", lambda: None)
    with capture_logs() as logs:
        code = capture_main.main(["--config", "c.yaml", "--source", "b1"])
    assert code == EXIT_INTERNAL_ERROR != 0
    assert find_critical(logs)["line"] == describe_line(line)
    failed = json.loads(capsys.readouterr().out)
    assert failed["kind"] == "failed"
    assert failed["error"].startswith("internal error of rowlock (line of standard input: ")
    assert "s3cret" not in failed["error"]


def test_an_error_of_its_own_is_not_hidden_by_the_end_of_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Orders()
    feed(monkeypatch, capture_main, b'{"start":true}')
    monkeypatch.setattr(orders.go, "set", fail_once(orders.go.set))
    with capture_logs() as logs:
        capture_main._watch_stdin(orders)
    (line,) = logs
    assert line["log_level"] == "critical"
    assert isinstance(line["exc_info"], KeyError), "with its traceback"
    assert orders.failure is not None
    assert orders.stop.is_set()


def fail_once(function: Callable[[], None]) -> Callable[[], None]:
    calls = iter([KeyError("broken")])

    def call() -> None:
        if (error := next(calls, None)) is not None:
            raise error
        function()

    return call


@each_line
def test_apply_stops_its_units_with_an_error_after_a_line_that_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    config: Any = SimpleNamespace(
        sources={}, kafka=SimpleNamespace(prefix="p", bootstrap="b", options={}), pipelines={}
    )
    process, stop = ApplyProcess(config, LineWriter(io.StringIO())), threading.Event()
    feed(monkeypatch, instructions, line, b'{"do":"remove","unit":"apply/p/t","assignment":1}')
    monkeypatch.setattr(process, "_take_command", lambda *_: pytest.fail("a later line is carried out"))
    monkeypatch.setattr("os._exit", lambda code: pytest.fail(f"units are not fenced (exit {code})"))
    with capture_logs() as logs:
        process._read_instructions(stop)
    assert find_critical(logs)["line"] == describe_line(line)
    assert stop.is_set()
    assert process._code == FAULT_EXIT_CODE != 0


def test_the_capture_process_itself_ends_so(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "producer.main", "--config", str(tmp_path / "c.yaml")]
    ended = subprocess.run(
        [*command, "--source", "b1", "--wait"], input=HANDED + b"\n", capture_output=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ended.returncode == EXIT_INTERNAL_ERROR
    assert b"process ends: line of standard input" in ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["kind"] == "failed"
    assert b"s3cret" not in ended.stdout + ended.stderr

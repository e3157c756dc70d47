"""SIGTERM and SIGINT end what runs long: also what has not begun yet, and in whatever step of its main thread
they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from producer import main as capture_main
from schemas.io.signals import on_stop_signals, stopped_by_signals
from schemas.problems import Problem

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources: {b1: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: ["a.*"]}}
"""
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@BOTH
def test_a_signal_sets_the_event_and_the_handlers_of_before_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with capture_logs() as logs, stopped_by_signals() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(20)
    assert signal.getsignal(number) is before
    assert [(line["event"], line["reason"]) for line in logs] == [("stopping", number.name)]


def test_a_handler_takes_no_lock_that_the_main_thread_may_hold() -> None:
    """An event that is set in the handler itself deadlocks where the signal comes while the main thread is
    inside `wait`."""
    lock, asked = threading.Lock(), threading.Event()

    def ask(_name: str) -> None:
        with lock:
            asked.set()

    with on_stop_signals(ask):
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
        assert asked.wait(20)


def test_elsewhere_than_in_the_main_thread_nothing_is_watched() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        with stopped_by_signals() as stop:
            seen.append((signal.getsignal(signal.SIGTERM), stop.is_set()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert seen == [(before, False)]


def test_a_signal_ends_the_wait_of_capture_for_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_options: object, orders: capture_main.Orders) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 0 if orders.go.wait(20) and orders.stop.is_set() else 1

    monkeypatch.setattr(capture_main, "_run_unit", run)
    monkeypatch.setattr(capture_main, "_spare_the_collector", lambda: None)
    monkeypatch.setattr(capture_main.structlog, "configure", lambda **_: None)
    assert capture_main.main(["--config", "c.yaml", "--source", "b1", "--wait", "--detached"]) == 0


def test_a_capture_that_stops_reports_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code = capture_main._report_failure("b1", Problem("it is full", "make room"))
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (code, last) == (2, {"unit": "capture b1", "exit": 2, "error": "it is full: make room"})


def test_a_capture_of_an_agent_leaves_the_line_about_its_stop_to_the_agent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = capture_main._report_failure("b1", Problem("it is full", "make room"), wait=True)
    printed = capsys.readouterr()
    assert (code, printed.err) == (2, "")
    assert json.loads(printed.out)["kind"] == "failed"


@BOTH
def test_a_capture_process_that_waits_for_its_beginning_ends(number: signal.Signals, tmp_path: Path) -> None:
    """A unit that is taken back before it was started: its process ended only when it was killed."""
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    command = [sys.executable, "-m", "producer.main", "--config", str(file), "--source", "b1", "--wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert '"prepared"' in process.stdout.readline()
            process.send_signal(number)
            assert process.wait(300) == 0, "nothing of it is a failure, and nothing was touched"
        finally:
            process.kill()

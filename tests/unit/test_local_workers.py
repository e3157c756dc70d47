"""Children of an agent: lines both ways, everything of theirs ended with them, every unit ended exactly
once."""

from __future__ import annotations

import os
import queue
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from producer.main import EXIT_SUPERSEDED
from rowlock import __version__
from rowlock.agent import apply
from rowlock.agent import capture as capture_worker
from rowlock.agent.capture import CaptureWorkers
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.unit_ledger import UnitLedger
from rowlock.agent.workers import LocalWorkers
from rowlock.processes import child_process
from rowlock.processes.child_process import ChildProcess, end_session
from schemas.backoff import Backoff
from schemas.config.model import Config, load_config
from schemas.findings import TRIES_AGAIN
from schemas.problems import decode_problem
from schemas.slots import SlotReport
from schemas.units import OldestAgents, Prepared, UnitProgress, UnitProgressed, WorkerEnded, WorkerEvent
from tests.kits.apply import until

Said = queue.SimpleQueue[tuple[str, WorkerEvent]]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "c.yaml"
    path.write_text(
        textwrap.dedent("""
        kafka: {bootstrap: "127.0.0.1:1"}
        sources:
          s: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: ["b.*"]}
          once: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: ["b.*"], snapshot: only}
        targets:
          t: {type: postgres, host: 127.0.0.1, port: 1, user: u, password: p, database: d}
        pipelines:
          p: {sources: [s], target: t}
        """)  # noqa: E501
    )
    return load_config(path)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let children run a script instead of rowlock's modules; `say` writes a line, `lines` are those of
    stdin."""
    head = """
        import json, os, sys, signal, time, subprocess
        def say(**fields): print(json.dumps(fields), flush=True)
        lines = iter(sys.stdin.readline, "")
    """

    def use(body: str) -> None:
        text = textwrap.dedent(head) + textwrap.dedent(body)
        command = lambda module, config, *rest: [sys.executable, "-c", text, module, *rest]  # noqa: E731
        for module in (apply, capture_worker):
            monkeypatch.setattr(module, "build_child_command", command)

    return use


@pytest.fixture
def workers(config: Config) -> Iterator[tuple[LocalWorkers, Said]]:
    reported: Said = queue.SimpleQueue()
    found = LocalWorkers(config)
    found._ledger.listen(lambda unit, event: reported.put((unit, event)))
    yield found, reported
    found.close()


CAPTURE = """
    say(kind="prepared")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    next(lines)
    say(kind="captured", commit_ts_ms=5, position=[0, 1, 2, -1], events=9)
    next(lines)
"""


def test_a_capture_unit_from_open_to_stop(workers: Any, script: Any) -> None:
    script(CAPTURE)
    local, reported = workers
    local.prepare("capture/s", 7, None)
    assert reported.get(timeout=120) == ("capture/s", Prepared(7))
    local.start("capture/s", 6, None)  # late: of another assignment
    local.start("capture/s", 7, None)
    _, event = reported.get(timeout=120)
    assert isinstance(event, UnitProgressed)
    assert event.mark == UnitProgress(5, 5, (0, 1, 2, -1))
    local.remove("capture/s", 7)
    local.remove("capture/s", 7)
    assert reported.get(timeout=120) == ("capture/s", WorkerEnded(7, event.mark))
    local.close()
    assert reported.empty()


HEARS = """
    say(kind="prepared")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for line in lines:
        say(kind="trouble", error=line.strip())
"""


def test_capture_hears_of_the_oldest_agents_at_its_start_and_later(workers: Any, script: Any) -> None:
    script(HEARS)
    local, reported = workers
    local.use_oldest_agents(OldestAgents("0.2.0", ("b",)))
    local.prepare("capture/s", 7, None)
    assert reported.get(timeout=120) == ("capture/s", Prepared(7))
    local.start("capture/s", 7, None)
    assert _next_error(reported) == TRIES_AGAIN + '{"start":true,"oldest_agents":["0.2.0",["b"]]}'
    local.use_oldest_agents(OldestAgents("0.3.0", ("a", "b")))
    assert _next_error(reported) == TRIES_AGAIN + '{"oldest_agents":["0.3.0",["a","b"]]}'


REFUSES = """
    import pathlib
    say(kind="prepared")
    next(lines)
    mended = pathlib.Path(os.environ["ROWLOCK_TEST_MENDED"])
    if not mended.exists():
        say(kind="failed", error="log_bin is OFF: switch it on")
        sys.exit(2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    say(kind="captured", commit_ts_ms=5, position=[0, 1, 2, -1], events=9)
    next(lines)
"""


@pytest.fixture
def waiting(
    config: Config, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[CaptureWorkers, Said, list[str], Path]]:
    """A capture unit that waits for a person until a file is there. Yields workers, events, the errors
    reported to a person, the file."""
    mended = tmp_path / "mended"
    monkeypatch.setenv("ROWLOCK_TEST_MENDED", str(mended))
    script(REFUSES)
    reported: Said = queue.SimpleQueue()
    notified: list[str] = []
    ledger = UnitLedger()
    ledger.listen(lambda unit, event: reported.put((unit, event)))
    workers = CaptureWorkers(
        config,
        ledger,
        ReportedFigures(),
        on_refusal=lambda _, error: notified.append(error),
        retry_backoff=Backoff(first=0.05, longest=120.0),
    )
    ledger.register_unit("capture/s", 7)
    workers.prepare("capture/s", 7, None)
    assert reported.get(timeout=120) == ("capture/s", Prepared(7))
    workers.start("capture/s", 7)
    assert _next_error(reported) == "log_bin is OFF: switch it on"
    yield workers, reported, notified, mended
    workers.close()


def _next_error(reported: Said) -> str | None:
    """Return what the unit cannot go on for, by the next event that is no repeated Prepared."""
    while isinstance(event := reported.get(timeout=120)[1], Prepared):
        continue
    assert isinstance(event, UnitProgressed)
    return event.error


def test_a_capture_unit_that_waits_for_a_person_stays_and_goes_on_when_that_is_done(waiting: Any) -> None:
    _, reported, notified, mended = waiting
    with capture_logs() as logs:
        assert _next_error(reported) == "log_bin is OFF: switch it on", "it looks again"
    assert "capture ended" not in {line["event"] for line in logs}, "each end has the same reason"
    mended.touch()
    while _next_error(reported) is not None:
        continue
    assert notified == ["log_bin is OFF: switch it on"], "a person is told once"


def test_a_capture_unit_that_waits_ends_when_it_is_stopped(waiting: Any) -> None:
    workers, reported, _, _ = waiting
    workers.remove("capture/s", 7)
    until(lambda: _ended(reported))
    workers.close()


def _ended(reported: Said) -> bool:
    event = reported.get(timeout=120)[1]
    return isinstance(event, WorkerEnded) and event.error is None


def test_a_capture_unit_whose_source_another_process_captures_ends(workers: Any, script: Any) -> None:
    """It waits for nobody: the coordinator has assigned it elsewhere, or does so now."""
    script(
        'say(kind="prepared"); next(lines); say(kind="failed", error="captured elsewhere"); '
        f"sys.exit({EXIT_SUPERSEDED})"
    )
    local, reported = workers
    local.prepare("capture/s", 7, None)
    reported.get(timeout=120)
    local.start("capture/s", 7, None)
    assert reported.get(timeout=120)[1] == WorkerEnded(7, None, "captured elsewhere")


def test_trouble_that_passes_by_itself_is_told_as_such(workers: Any, script: Any) -> None:
    script("""
        say(kind="prepared")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        next(lines)
        say(kind="trouble", error="no database answers", delivery_failed=False)
        say(kind="trouble", error="Kafka did not accept a message", delivery_failed=True)
        say(kind="captured", commit_ts_ms=5, position=[0, 1, 2, -1], events=9)
        next(lines)
    """)
    local, reported = workers
    local.prepare("capture/s", 7, None)
    assert reported.get(timeout=120) == ("capture/s", Prepared(7))
    local.start("capture/s", 7, None)
    assert reported.get(timeout=120)[1].error == f"{TRIES_AGAIN}no database answers"
    assert reported.get(timeout=120)[1].error == f"{TRIES_AGAIN}Kafka did not accept a message"
    assert reported.get(timeout=120)[1].error is None
    assert local.figures.list_sources()["s"].delivery_failures == 1


def test_a_capture_units_mark_never_goes_back(workers: Any, script: Any) -> None:
    """MariaDB counts commits in whole seconds, and an idle source is as far as the clock, in ms."""
    script("""
        say(kind="prepared")
        next(lines)
        say(kind="captured", commit_ts_ms=5132, position=[0, 1, 2, -1], events=1)
        say(kind="captured", commit_ts_ms=5000, position=[0, 1, 3, -1], events=2)
        next(lines)
    """)
    local, reported = workers
    local.prepare("capture/s", 7, None)
    assert reported.get(timeout=120) == ("capture/s", Prepared(7))
    local.start("capture/s", 7, None)
    marks = [reported.get(timeout=120)[1].mark for _ in range(2)]
    assert marks == [UnitProgress(5132, 5132, (0, 1, 2, -1)), UnitProgress(5132, 5132, (0, 1, 3, -1))]


def test_rows_a_second_of_a_capture_unit(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process counts events since its start; the rate is what came since it last said how far it is."""
    now = 100.0
    rates: list[int] = []

    class Rates:
        def report_event(self, unit: str, event: WorkerEvent) -> None:
            assert isinstance(event, UnitProgressed)
            rates.append(event.rows_per_s)

    monkeypatch.setattr(capture_worker, "monotonic", lambda: now)
    capture = capture_worker.CaptureWorkers(config, Rates(), ReportedFigures())
    unit = capture_worker._CaptureUnit("capture/s", 7, "s", config, counted_at=now)
    for seconds, events in ((2.0, 1_000), (2.0, 1_600), (0.0, 1_610), (5.0, 1_610), (1.0, 5_610)):
        now += seconds
        line = {"kind": "captured", "commit_ts_ms": 5, "position": [0, 1, 2, -1], "events": events}
        capture._handle_line(unit, line)
    assert rates == [500, 300, 100, 0, 4_000], "two lines at once count as a tenth of a second apart"


def test_a_capture_process_that_fails_says_why(workers: Any, script: Any) -> None:
    script('say(kind="prepared"); next(lines); say(kind="failed", error="no binary log"); sys.exit(1)')
    local, reported = workers
    local.prepare("capture/s", 7, None)
    reported.get(timeout=120)
    local.start("capture/s", 7, None)
    assert reported.get(timeout=120)[1] == WorkerEnded(7, None, "no binary log")


def test_a_finished_snapshot_stays_a_unit_until_it_is_stopped(workers: Any, script: Any) -> None:
    script('say(kind="prepared"); next(lines)')
    local, reported = workers
    local.prepare("capture/once", 7, None)
    reported.get(timeout=120)
    local.start("capture/once", 7, None)
    until(lambda: local.figures.list_sources()["once"].finished, seconds=20)
    assert reported.empty()
    local.remove("capture/once", 7)
    assert reported.get(timeout=120)[1] == WorkerEnded(7, None)
    assert not local.figures.list_sources()["once"].finished


APPLY = """
    for line in lines:
        asked = json.loads(line)
        said = {"assignment": asked["assignment"], "mark": asked["mark"] or [0, 0], "rows_per_s": 3, "error": None}
        if asked["unit"].endswith("/die") and asked["do"] == "start":
            sys.exit(9)
        said["event"] = {"prepare": "prepared", "start": "progressed", "remove": "ended"}[asked["do"]]
        say(kind="unit", unit=asked["unit"], event=said)
"""  # noqa: E501


def test_apply_units_share_a_process_that_comes_again(
    workers: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "APPLY_RESTART_BACKOFF", Backoff(first=0.01, longest=30.0))
    script(APPLY)
    local, reported = workers
    local.prepare("apply/p/a", 1, UnitProgress(4, 5, (0, 1, 2, 3)))  # before there is a process
    local._apply.warm_up()
    assert reported.get(timeout=120) == ("apply/p/a", Prepared(1))
    local.prepare("apply/p/die", 2, None)
    reported.get(timeout=120)
    local.start("apply/p/a", 1, None)
    assert reported.get(timeout=120) == ("apply/p/a", UnitProgressed(1, UnitProgress(0, 0), 3))
    local.start("apply/p/die", 2, None)
    ends = sorted((reported.get(timeout=120) for _ in range(2)), key=str)
    assert [(unit, event.assignment) for unit, event in ends] == [("apply/p/a", 1), ("apply/p/die", 2)]
    assert all("code 9" in event.error for _, event in ends)
    local.remove("apply/p/a", 1)  # has ended already
    local.prepare("apply/p/a", 3, None)
    assert reported.get(timeout=120) == ("apply/p/a", Prepared(3))
    local.remove("apply/p/a", 3)
    assert reported.get(timeout=120) == ("apply/p/a", WorkerEnded(3, UnitProgress(0, 0)))
    assert reported.empty()


def test_slots_of_the_apply_process_are_known_while_it_runs(workers: Any, script: Any) -> None:
    script(
        'say(kind="slots", open=1, configured=2, short_s=30, failures={"h": "no room"}); '
        "next(lines); sys.exit(9)"
    )
    local, _ = workers
    with capture_logs() as logs:
        local._apply.warm_up()
        until(lambda: any(each["event"] == "slots missing" for each in logs))
    missing = [each for each in logs if each["event"] == "slots missing"]
    assert local.figures.get_slots() == SlotReport(1, 2, 30, None, {"h": "no room"})
    assert [(each["open"], each["configured"], each["log_level"]) for each in missing] == [(1, 2, "warning")]
    local._apply._process.send_line("end")
    until(lambda: local.figures.get_slots() is None)


def test_close_ends_every_unit(workers: Any, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a process that does not react."""
    monkeypatch.setattr(apply, "APPLY_STOP_GRACE_S", 0.3)
    script(
        APPLY.replace("for line", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    for line")
        + "    time.sleep(999)"
    )
    local, reported = workers
    local._apply.warm_up()
    local.prepare("apply/p/a", 1, None)
    assert reported.get(timeout=120) == ("apply/p/a", Prepared(1))
    process = local._apply._process
    local.close()
    unit, event = reported.get(timeout=120)
    assert (unit, event.assignment, reported.empty()) == ("apply/p/a", 1, True)
    assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize("unit", ["apply/nobody/t", "capture/nobody", "x/y"])
def test_units_of_another_configuration_are_refused(workers: Any, unit: str) -> None:
    local, _ = workers
    with pytest.raises(ValueError, match=r"nobody|units are"):
        local.prepare(unit, 1, None)


def test_nothing_of_a_session_survives_also_not_what_is_stopped_or_in_a_group_of_its_own() -> None:
    script = textwrap.dedent("""
        import json, os, subprocess, sys, time, signal
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(999)"], process_group=0)
        os.kill(child.pid, signal.SIGSTOP)
        print(json.dumps({"child": child.pid}), flush=True)
        time.sleep(999)
    """)
    lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    ended = threading.Event()
    process = ChildProcess("c", [sys.executable, "-c", script], lines.put, lambda _code: ended.set())
    child = psutil.Process(lines.get(timeout=120)["child"])
    process.kill()
    assert ended.wait(20)
    assert process.wait_for_exit(1)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("unit", "line", "seen"),
    [
        (
            "apply/p/a",
            '{"kind": "slots"}',
            "the apply process reports (ValidationError: Object missing required field `open`)",
        ),
        ("capture/s", '{"kind": "captured"}', "the capture s process reports (KeyError: 'position')"),
    ],
)
def test_a_process_whose_reports_cannot_be_processed_is_killed(
    workers: Any, script: Any, unit: str, line: str, seen: str
) -> None:
    """It ran on unheard: its units looked as if they made no progress, and nothing was logged as an error."""
    local, reported = workers
    script(f"""
        next(lines)
        print('{line}', flush=True)
        time.sleep(999)
    """)
    local.listen(lambda unit, event: reported.put((unit, event)))
    with capture_logs() as logs:
        local.prepare(unit, 1, None)
        local.start(unit, 1, None)
        ended = reported.get(timeout=120)
    assert ended[0] == unit
    assert isinstance(ended[1], WorkerEnded)
    problem = decode_problem(str(ended[1].error))
    assert problem.what == f"this agent cannot process what {seen}, and has killed it"
    (error,) = [each for each in logs if each["log_level"] == "error"]
    assert error["event"] == "report of a process not processed"
    assert isinstance(error["exc_info"], Exception)


def test_reports_are_read_on_if_stderr_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rowlock run 2>&1 | head`: a line of Java that cannot be passed on ended the reading."""
    lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def refuse(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setenv("ROWLOCK_LOG", "json")
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=refuse, flush=lambda: None))
    script = "print('a line of Java'); print('{\"got\": 1}', flush=True)"
    with capture_logs():
        process = ChildProcess("c", [sys.executable, "-c", script], lines.put, lambda _code: None)
        assert lines.get(timeout=120) == {"got": 1}
        assert process.wait_for_exit(20)


def test_a_process_is_killed_also_if_its_end_cannot_be_reported() -> None:
    script = "import time; print('{}', flush=True); time.sleep(999)"
    codes: queue.SimpleQueue[int] = queue.SimpleQueue()
    seen: list[dict[str, Any]] = []

    def refuse(line: dict[str, Any]) -> None:
        seen.append(line)
        raise ValueError("no")

    ChildProcess("c", [sys.executable, "-c", script], refuse, codes.put)
    assert codes.get(timeout=120) == -signal.SIGKILL
    assert [line.get("kind") for line in seen] == [None, "failed"]


def test_a_session_that_is_gone_is_no_error() -> None:
    assert end_session(2**22 + 1)


def test_a_child_gets_its_stdin_through_the_one_that_watches_the_parent(tmp_path: Path) -> None:
    """rowlock.processes.child reads the pipe to the parent, and hands on what comes."""
    module = tmp_path / "echoing.py"
    module.write_text(
        "import sys, json\nfor line in sys.stdin: print(json.dumps({'got': line.strip()}), flush=True)\n"
        "print(json.dumps({'end': True}), flush=True)\n"
    )
    command = [sys.executable, "-m", "rowlock.processes.child", "echoing"]
    lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{before}"
    try:
        process = ChildProcess("echo", command, lines.put, lambda _code: None)
    finally:
        os.environ["PYTHONPATH"] = before
    for number in range(3):
        process.send_line(f"line {number}")
    assert [lines.get(timeout=120)["got"] for _ in range(3)] == ["line 0", "line 1", "line 2"]
    process.end_input()
    assert process.wait_for_exit(20)


def test_a_child_of_another_version_refuses_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "working.py").write_text("print('{\"worked\": true}', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, "-m", "rowlock.processes.child", "working"]
    for parent, word, code in (("0.0.9", "failed", 2), (__version__, "worked", 0)):
        monkeypatch.setattr(child_process, "__version__", parent)
        lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        codes: queue.SimpleQueue[int] = queue.SimpleQueue()
        ChildProcess("working", command, lines.put, codes.put)
        line = lines.get(timeout=120)
        assert word in (line.get("kind"), *line)
        assert codes.get(timeout=120) == code
        if parent != __version__:
            assert "rowlock 0.0.9" in line["error"]
            assert line["error"].endswith("they were replaced while it ran: restart it")


def test_an_apply_process_that_refuses_to_run_ends_its_units_with_its_reason(
    workers: Any, script: Any
) -> None:
    local, reported = workers
    script("""
        next(lines)
        say(kind="failed", error="the files were replaced: restart it")
        sys.exit(2)
    """)
    local.listen(lambda unit, event: reported.put((unit, event)))
    local.prepare("apply/p/a", 1, None)
    assert reported.get(timeout=120) == (
        "apply/p/a",
        WorkerEnded(1, None, "the files were replaced: restart it"),
    )


def test_a_unit_ends_once() -> None:
    reported: Said = queue.SimpleQueue()
    ledger = UnitLedger()
    ledger.listen(lambda unit, event: reported.put((unit, event)))
    ledger.register_unit("u", 2)
    ledger.report_event("u", WorkerEnded(1))
    ledger.report_event("u", WorkerEnded(2))
    ledger.report_event("u", WorkerEnded(2))
    assert reported.get() == ("u", WorkerEnded(2))
    assert reported.empty()


def test_the_effort_of_a_capture_process_grows_while_it_works(workers: Any, script: Any) -> None:
    local, _ = workers
    script("while True: pass")
    local.prepare("capture/s", 7, None)
    until(lambda: local._capture.measure_effort("capture/s", 7) > 0.0)
    first = local._capture.measure_effort("capture/s", 7)
    until(lambda: local._capture.measure_effort("capture/s", 7) > first + 0.05)
    assert local._capture.measure_effort("capture/s", 6) == 0.0


def test_the_effort_of_the_apply_process_is_its_own_until_it_runs_and_then_the_units_it_gets_ready(
    workers: Any, script: Any
) -> None:
    local, _ = workers
    script("""
        next(lines)
        say(kind="unit", unit="apply/p/a", event={"event": "prepared", "assignment": 1})
        next(lines)
        say(kind="unit", unit="apply/p/b", event={"event": "prepared", "assignment": 2})
        next(lines, None)
    """)
    local.listen(lambda _unit, _event: None)
    until(lambda: 0.0 < local._apply.measure_effort("apply/p/a", 1) < 1e6)
    efforts = []
    for unit, epoch in (("apply/p/a", 1), ("apply/p/b", 2)):
        local.prepare(unit, epoch, None)
        until(lambda unit=unit: unit not in dict(local._ledger.list_preparing()))
        efforts.append(local._apply.measure_effort(unit, epoch))
    assert 1e9 <= efforts[0] < efforts[1]


def test_a_capture_that_has_not_begun_reports_its_error_without_progress() -> None:
    reported: list[Any] = []
    workers = object.__new__(CaptureWorkers)
    workers._ledger = SimpleNamespace(report_event=lambda *event: reported.append(event))  # type: ignore[assignment]
    unit: Any = SimpleNamespace(name="capture/b1", assignment=7, mark=None)
    workers._report_trouble(unit, "no right")
    assert reported == [("capture/b1", UnitProgressed(7, UnitProgress(0, 0), 0, "no right"))]

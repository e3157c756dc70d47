"""What `python -m deploy.embedded up` prints: sentences for a person, JSON for a program."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from deploy.embedded import __main__ as embedded
from deploy.embedded.server_process import ServerProcess
from deploy.embedded.services import Kafka, PostgreSQL
from deploy.fetch import progress
from rowlock.commands.init import USUAL_BROKER


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kafka]:
    """A broker that counts as running without a start."""
    monkeypatch.setattr(embedded, "combine_services", lambda *_: nullcontext())
    monkeypatch.setattr(signal, "pause", lambda: None)
    with closing(Kafka()) as service:
        yield service


def test_terminal_shows_the_address_to_copy_and_how_to_end(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    embedded._run_services({"kafka": kafka})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"kafka: Kafka {Kafka.read_version()} runs",
        f"  bootstrap: 127.0.0.1:{kafka.port}",
        f"  data and log: {kafka.home.folder}",
        "Ctrl-C ends everything above and removes its data.",
        "`--keep DIR` keeps Kafka's data for the next start; without them every table is copied again.",
    ]


@pytest.mark.parametrize("others", [False, True])
def test_terminal_shows_what_stays_of_kept_data(tmp_path: Path, *, others: bool) -> None:
    with closing(Kafka(home=tmp_path)) as broker, closing(PostgreSQL()) as database:
        end = embedded._describe_end({"kafka": broker} | ({"postgres": database} if others else {}))
    removed = " and removes the data of all others" if others else ""
    assert end == [
        f"Ctrl-C ends everything above{removed}. Kafka's data stay:",
        f"`--keep {tmp_path}` at the next start continues with them.",
    ]


def test_program_gets_json(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(kafka.process), "pid", 7)
    embedded._run_services({"kafka": kafka})
    assert json.loads(capsys.readouterr().out)["kafka"]["port"] == kafka.port


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ([], "name a service, such as --kafka"),
        (["--postgres", "--port", "9092"], "--port and --keep are options of the Kafka broker"),
        (["--postgres", "--keep", "x"], "--port and --keep are options of the Kafka broker"),
        (["--kafka", "--port", "65536"], "is no port"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], seen: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["embedded", "up", *options])
    with pytest.raises(SystemExit):
        embedded.main()
    assert seen in capsys.readouterr().err


def test_help_describes_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["embedded", "up", "--help"])
    with pytest.raises(SystemExit):
        embedded.main()
    described = re.findall(r"^  --(\w+)(?: [A-Z]+)?\s+[a-z]", capsys.readouterr().out, re.MULTILINE)
    assert described == ["kafka", "port", "keep", "mariadb", "postgres", "mysql"]


def test_kafka_has_the_port_that_init_proposes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "is_free", lambda _: True)
    for port, expected in ((None, USUAL_BROKER), (9093, "127.0.0.1:9093")):
        assert embedded._prepare_kafka(port, None).bootstrap == expected
    assert embedded._prepare_kafka(0, None).port not in (0, 9092)


def test_taken_port_is_refused_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Kafka, "fetch", lambda: pytest.fail("a download"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sys, "argv", ["embedded", "up", "--kafka", "--port", str(port)])
        assert embedded.main() == 2
    seen = capsys.readouterr().err
    assert f"port {port} on 127.0.0.1" in seen
    assert "name another port with --port" in seen


def test_folder_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "below")
    monkeypatch.setattr(sys, "argv", ["embedded", "up", "--kafka", "--port", "0", "--keep", folder])
    assert embedded.main() == 2
    assert f"{folder}: it cannot be used (Not a directory)" in " ".join(capsys.readouterr().err.split())


def test_download_without_a_terminal_reports_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.1)
    sizes = iter([12_000_000, *[50_000_000] * 99])
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.35)"])
    progress.watch_process("downloading kafka", process, 44_000_000, lambda: next(sizes))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "downloading kafka (44 MB)",
        lines[1],
        lines[2],
    ]
    assert re.fullmatch(r"downloading kafka: 12 of 44 MB, \d+\.\d MB/s, about \d+ s left", lines[1])
    assert re.fullmatch(r"downloading kafka: 44 of 44 MB, \d+\.\d MB/s, about 0 s left", lines[2])
    assert lines[-1].startswith("downloading kafka: ended after")


def test_the_slow_beginning_of_a_download_is_no_forecast() -> None:
    """Ivy first asks for hundreds of small files. A download of 48 s began with "about 33 min left"."""
    pace = progress.DownloadPace(44_000_000, 0.0)
    shown = []
    for second, arrived in (
        (10, 222_000),
        (20, 620_000),
        (30, 1_500_000),
        (40, 14_000_000),
        (50, 27_000_000),
    ):
        pace.record_arrived(arrived, float(second))
        shown.append(pace.describe())
    assert shown == [
        "0 of 44 MB, 22.2 kB/s",
        "1 of 44 MB, 31.0 kB/s",
        "2 of 44 MB, 63.9 kB/s",
        "14 of 44 MB, 0.7 MB/s, about 45 s left",
        "27 of 44 MB, 1.3 MB/s, about 13 s left",
    ]


def test_pace_of_a_slow_download_is_that_of_the_last_seconds() -> None:
    pace = progress.DownloadPace(44_000_000, 0.0)
    pace.record_arrived(10_000_000, 10.0)
    assert pace.describe() == "10 of 44 MB, 1.0 MB/s, about 34 s left"
    for second in range(20, 200, 10):
        pace.record_arrived(10_000_000 + 5_000 * second, float(second))
    assert pace.describe() == "11 of 44 MB, 5.0 kB/s, about 110 min left"
    for second in range(200, 250, 10):
        pace.record_arrived(10_950_000, float(second))
    assert pace.describe() == "11 of 44 MB, nothing has arrived for 50 s"


def test_pace_before_anything_has_arrived() -> None:
    pace = progress.DownloadPace(44_000_000, 0.0)
    pace.record_arrived(0, 10.0)
    assert pace.describe() == "0 of 44 MB, nothing has arrived for 10 s"


def test_each_step_of_a_start_is_a_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first start takes a minute and more on a slow machine. Stdout has the JSON alone."""
    monkeypatch.setattr(signal, "pause", lambda: None)
    monkeypatch.setattr(Kafka, "fetch", lambda *_: None)
    monkeypatch.setattr(Kafka, "_prepare_data", lambda _: None)
    monkeypatch.setattr(Kafka, "_build_command", lambda _: None)
    monkeypatch.setattr(ServerProcess, "pid", 7)
    for step in ("start", "await_answer"):
        monkeypatch.setattr(ServerProcess, step, lambda *_: None)
    kafka = Kafka()
    folder, log = kafka.home.folder, kafka.home.log
    embedded._run_services({"kafka": kafka})
    shown = capsys.readouterr()
    assert json.loads(shown.out)["kafka"]["pid"] == 7
    assert re.sub(r"after \d+ s", "after N s", shown.err).splitlines() == [
        f"Kafka: creating its data in {folder}",
        f"Kafka: starting at port {kafka.port}, log: {log}",
        f"Kafka: answers at port {kafka.port} after N s",
    ]

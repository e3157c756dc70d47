"""What `python -m deploy.embedded up` prints: sentences for a person, JSON for a program."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext

import pytest

from deploy.embedded import __main__ as embedded
from deploy.embedded.services import Kafka


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
    ]


def test_program_gets_json(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(kafka.process), "pid", 7)
    embedded._run_services({"kafka": kafka})
    assert json.loads(capsys.readouterr().out)["kafka"]["port"] == kafka.port


def test_up_without_a_service_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["embedded", "up"])
    with pytest.raises(SystemExit):
        embedded.main()
    assert "name a service, such as --kafka" in capsys.readouterr().err

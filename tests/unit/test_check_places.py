"""`check` tries what a run will need: `state_dir` is tested by writing, ports are named for what answers
there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowlock.errors import CommandError
from rowlock.inspect import check
from rowlock.inspect.checks import kafka_check
from rowlock.inspect.checks.kafka_check import ask_kafka
from rowlock.views.kafka import KafkaView
from schemas.config.model import Config, load_config
from tests.kits.listening import http, listening

CONFIG = """\
kafka: {{bootstrap: "127.0.0.1:{port}"}}
state_dir: {folder}
sources:
  b1: {{type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: ["*.*"]}}
targets:
  hq: {{type: postgres, host: 127.0.0.1, port: 1, user: u, password: p, database: d}}
pipelines:
  p: {{sources: [b1], target: hq, routes: [{{from: "*.*", to: "public.{{table}}"}}]}}
"""


def config(folder: Path, state: Path, port: int = 1) -> Config:
    file = folder / "c.yaml"
    file.write_text(CONFIG.format(folder=state, port=port))
    return load_config(file)


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    assert list(check._yield_state_dir_findings(config(tmp_path, state))) == []
    assert not (tmp_path / "deep").exists(), "check leaves nothing behind"
    state.mkdir(parents=True)
    (state / "kept").touch()
    assert list(check._yield_state_dir_findings(config(tmp_path, state))) == []
    assert [each.name for each in state.iterdir()] == ["kept"]


@pytest.mark.parametrize("below", ["", "state"])
def test_a_folder_that_cannot_be_written_is_a_finding(tmp_path: Path, below: str) -> None:
    """A plain file stands where the folder is to be: that stops root as well."""
    (tmp_path / "file").touch()
    (found,) = check._yield_state_dir_findings(config(tmp_path, tmp_path / "file" / below))
    assert "no file can be written" in found.message
    assert found.remedy


def test_another_server_at_kafka_s_port_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.views.kafka.KAFKA_VIEW_TIMEOUT_S", 1.0)
    with listening(http) as port:
        _, found = ask_kafka(config(tmp_path, tmp_path, port).kafka)
    assert found is not None
    assert f"at 127.0.0.1:{port} answers an HTTP server, not a Kafka broker" in found.what


@pytest.mark.parametrize(
    ("bootstrap", "is_here"), [("127.0.0.1:1", True), ("localhost:1,kafka2:9092", False)]
)
def test_trial_broker_is_named_only_where_the_broker_would_be_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str, is_here: bool
) -> None:
    def refuse(_: object) -> KafkaView:
        raise CommandError("Kafka does not answer", "start the broker")

    monkeypatch.setattr(kafka_check, "KafkaView", refuse)
    monkeypatch.setattr(kafka_check, "explain_wrong_service", lambda *_: None)
    config(tmp_path, tmp_path)
    file = tmp_path / "c.yaml"
    file.write_text(file.read_text().replace('bootstrap: "127.0.0.1:1"', f'bootstrap: "{bootstrap}"'))
    _, found = ask_kafka(load_config(file).kafka)
    assert found is not None
    assert found.remedy.startswith("start the broker")
    assert ("`python -m deploy.embedded up --kafka --keep broker`" in found.remedy) is is_here

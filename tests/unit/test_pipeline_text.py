"""Executors that read the secrets themselves get a text without them, and make the same settings from it."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from consumer.slots.pipeline import PipelineSettings, decode_pipeline
from schemas.config.changes.pipeline_text import select_pipeline_text
from schemas.config.model import Config, ConfigErrors, load_config
from schemas.config.servers import KafkaTargetConfig

TEXT = """
coordination:
  {rest: "10.0.0.1:7780", listen: "127.0.0.1:7701", token: "${REST_TOKEN}", lease_s: 2.5, interval_s: 0.5}
kafka:
  bootstrap: k:9092
  options: {security.protocol: SASL_SSL, sasl.username: app, sasl.password_file: kafka.password}
state_dir: state
spark: {secrets: executor}
sources:
  branch: {type: mysql, host: b, user: app, password: 0123456, tables: ["bank.*"]}
  other: {type: mysql, host: o, user: app, password_file: other.password, tables: ["bank.*"]}
  door: {type: mysql, host: d, user: app, password: "${DOOR}", tables: ["bank.*"], events: debezium}
targets:
  hq: {type: postgres, host: h, user: hq, password_file: hq.password, database: hq}
  unused: {type: postgres, host: u, user: u, password: "${UNUSED}", database: u}
  events: {type: kafka, bootstrap: "k:9092"}
pipelines:
  to-hq: {sources: [branch, door], target: hq, routes: [{from: "bank.*", to: "public.{table}"}]}
  others: {sources: [other], target: unused, routes: [{from: "bank.*", to: "public.{table}"}]}
  to-kafka: {sources: [other], target: events, routes: [{from: "bank.*", to: "bank.{table}"}]}
"""
ALL = {"REST_TOKEN": "t0p", "DOOR": "d00r", "UNUSED": "u"}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    for name, text in (("kafka", "k4fka"), ("other", "0ther"), ("hq", "hq-s3cret")):
        (tmp_path / f"{name}.password").write_text(text)
    (tmp_path / "rowlock.yaml").write_text(TEXT)
    return load_config(tmp_path / "rowlock.yaml", env=ALL)


def test_the_text_has_no_secret_that_is_elsewhere(config: Config) -> None:
    settings = PipelineSettings.from_config(config, "to-hq")
    sent = settings.encode_for_executor()
    for secret in ("t0p", "d00r", "k4fka", "0ther", "hq-s3cret", "0123456"):
        assert secret.encode() not in sent
    assert b"hq-s3cret" in settings.encode(), "the apply process's own slot gets it"


def test_an_executor_makes_the_same_settings_from_it(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR", "d00r")
    settings = PipelineSettings.from_config(config, "to-hq")
    made = decode_pipeline(settings.encode_for_executor(), Path("/scratch"))
    assert made.target == settings.target
    assert made.target.password.get_secret_value() == "hq-s3cret"
    assert made.kafka == settings.kafka
    assert made.debezium == settings.debezium
    own = {"state_dir": Path("/scratch"), "tables": None, "text": None}
    assert replace(made, **own) == replace(settings, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{}, {"agent_metrics": "0.0.0.0:7799", "advertise": "host-a"}])
def test_an_executor_knows_the_lease_and_nothing_else_of_coordination(
    config: Config, arguments: dict[str, str]
) -> None:
    changes = {("coordination", name): value for name, value in arguments.items()}
    config = load_config(config.path, env=ALL, changes=changes)
    settings = PipelineSettings.from_config(config, "to-kafka")
    made = decode_pipeline(settings.encode_for_executor())
    assert isinstance(made.target, KafkaTargetConfig)
    assert made.target.lease_s == 2.5
    assert made.target == settings.target
    assert settings.text is not None
    sent = yaml.safe_load(settings.text.text)["coordination"]
    assert (sent, settings.text.changes) == ({"lease_s": 2.5, "interval_s": 0.5}, ())


def test_a_lease_of_the_command_line_is_that_of_an_executor(config: Config) -> None:
    changes = {("coordination", "lease_s"): "7"}
    settings = PipelineSettings.from_config(load_config(config.path, env=ALL, changes=changes), "to-kafka")
    made = decode_pipeline(settings.encode_for_executor())
    assert isinstance(made.target, KafkaTargetConfig)
    assert made.target.lease_s == 7


def test_a_text_without_coordination_is_selected(config: Config) -> None:
    config.path.write_text(re.sub(r"coordination:\n .*", "", TEXT))
    settings = PipelineSettings.from_config(load_config(config.path, env=ALL), "to-kafka")
    assert decode_pipeline(settings.encode_for_executor()).target == settings.target


def test_an_executor_reads_secrets_again_when_settings_are_replaced(config: Config, tmp_path: Path) -> None:
    raw = PipelineSettings.from_config(config, "others").encode_for_executor()
    (tmp_path / "kafka.password").write_text("another")
    with pytest.raises(ConfigErrors, match="the environment has no UNUSED"):
        decode_pipeline(raw)


def test_a_secret_that_the_executor_lacks_is_named(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR", "d00r")
    raw = PipelineSettings.from_config(config, "to-hq").encode_for_executor()
    (tmp_path / "hq.password").unlink()
    (tmp_path / "other.password").unlink()
    with pytest.raises(ConfigErrors) as refused:
        decode_pipeline(raw)
    (problem,) = refused.value.problems
    assert (problem.place, problem.seen) == (
        "targets.hq.password", "cannot read hq.password: No such file or directory",
    )  # fmt: skip


def test_without_the_option_settings_are_sent_whole(config: Config) -> None:
    spark = config.spark.model_copy(update={"secrets": "channel"})
    settings = PipelineSettings.from_config(config.model_copy(update={"spark": spark}), "to-hq")
    assert isinstance(pickle.loads(settings.encode_for_executor()), PipelineSettings)  # our own


def test_a_text_with_anchors_is_selected(tmp_path: Path) -> None:
    text = TEXT.replace('0123456, tables: ["bank.*"]', '"", tables: &all ["bank.*"]')
    text = text.replace('other.password, tables: ["bank.*"]', "other.password, tables: *all")
    for name in ("kafka", "other", "hq"):
        (tmp_path / f"{name}.password").write_text("x")
    (tmp_path / "rowlock.yaml").write_text(text)
    made_of = load_config(tmp_path / "rowlock.yaml", env=ALL).made_of
    selected = yaml.safe_load(select_pipeline_text(made_of, "others").text)
    assert selected["sources"]["other"]["tables"] == ["bank.*"]

"""A Kafka target in the configuration: what it takes, what it refuses, and that a file with every default
written out loads again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from schemas.config.kinds.targets import TARGET_KINDS
from schemas.config.model import KafkaTargetConfig
from tests.kits.configurations import GOOD, load, problems

KAFKA = """\
kafka:
  bootstrap: 127.0.0.1:9092
sources:
  branch1:
    type: mariadb
    host: 127.0.0.1
    user: rowlock
    password: x
    tables: [bank.*]
targets:
  feed:
    type: kafka
    bootstrap: 127.0.0.1:9092
    prefix: feed
pipelines:
  out:
    sources: [branch1]
    target: feed
    routes:
      - from: bank.*
        to: head.{table}
        add: {branch: "{source}"}
        kafka:
          format: rowlock
          key: [branch, id]
          columns: [branch, id, name, status]
          where: {status: [open, held, null]}
          masks: {name: "***"}
"""


def test_a_kafka_target_has_its_own_keys(tmp_path: Path) -> None:
    target = load(tmp_path, KAFKA).targets["feed"]
    assert isinstance(target, KafkaTargetConfig)
    assert (target.bootstrap, target.prefix, target.replication) == ("127.0.0.1:9092", "feed", 1)
    route = load(tmp_path, KAFKA).pipelines["out"].routes[0].kafka
    assert route is not None
    assert (route.key, route.partitioner, route.tombstones) == (["branch", "id"], "murmur2", True)
    assert route.where == {"status": ["open", "held", None]}


def test_a_topic_may_have_one_partition(tmp_path: Path) -> None:
    text = KAFKA.replace("format: rowlock", "format: rowlock\n          partitions: 1")
    route = load(tmp_path, text).pipelines["out"].routes[0].kafka
    assert route is not None
    assert route.partitions == 1


def change(old: str, new: str) -> str:
    assert old in KAFKA
    return KAFKA.replace(old, new)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (change("prefix: feed", "prefix: ö"), ("14: targets.feed.prefix: 'ö' cannot "
        "begin a topic's name; use up to")),
        (change("prefix: feed", "host: h"), ("14: targets.feed.host: it is about a "
        "database; write bootstrap: host:port")),
        (change("prefix: feed", "password: x"), ("14: targets.feed.password: it is about a "
        "database; write options: {sasl")),
        (change("prefix: feed", "tls: {}"), ("14: targets.feed.tls: it is about a "
        "database; write options: {security")),
        (change("prefix: feed", "options: {acks: 1}"), ("14: targets.feed.options.acks: this "
        "setting cannot be changed; an event")),
        (change("    bootstrap: 127.0.0.1:9092\n    prefix", "    bootstrap: here\n    prefix"), ("13: "
        "targets.feed.bootstrap: 'here' is no broker")),
        (change("    bootstrap: 127.0.0.1:9092\n    prefix", "    prefix"), ("11: targets.feed.bootstrap: "
        "'bootstrap' is missing; add bootstrap: Brokers")),
        (change("to: head.{table}", "to: rowlock.{table}"), ("21: pipelines.out.routes.0.to: topics that "
        "begin with 'rowlock' are rowlock's own")),
        (change("to: head.{table}", "to: ä.{table}"), ("21: pipelines.out.routes.0.to: 'ä.{table}' cannot "
        "be a topic's name; use letters")),
        (change("format: rowlock", "format: avro"), ("24: pipelines.out.routes.0.kafka.format: 'avro' is not "
        "known; one of 'rowlock', 'debezium'")),
        (change("format: rowlock", "form: plain"), ("24: pipelines.out.routes.0.kafka.form: unknown key "
        "'form'; did you mean 'format'?")),
        (change("format: rowlock", "format: plain\n          tombstones: false"), ("25: "
        "pipelines.out.routes.0.kafka.tombstones: format plain marks")),
        (change("[branch, id]", "[branch, branch]"), ("25: pipelines.out.routes.0.kafka.key.1: column "
        "'branch' is named twice; name it once")),
        (change("columns: [branch, id, ", "columns: [branch, "), ("26: pipelines.out.routes.0.kafka.columns: "
        "'id' is missing: the routing key")),
        (change('masks: {name: "***"}', 'masks: {id: "***"}'), ("28: pipelines.out.routes.0.kafka.masks.id: "
        "'id' is in the routing key")),
        (change('masks: {name: "***"}', "masks: {branch: sha256}"), ("28: "
        "pipelines.out.routes.0.kafka.masks.branch: 'branch' is in the primary key")),
        (change('masks: {name: "***"}', "masks: {pan: sha256}"), ("28: "
        "pipelines.out.routes.0.kafka.masks.pan: 'pan' is not written; remove it")),
        (change("    target: feed", "    target: feed\n    lanes: 2"), ("19: pipelines.out.lanes: a target of "  # noqa: E501
        "type 'kafka' takes whole batches")),
        (change("    target: feed", "    target: feed\n    on_drop: drop"), ("19: pipelines.out.on_drop: "
        "'drop' would delete a topic")),
        (change("    target: feed", "    target: feed\n    schema_changes: ignore"), ("19: "
        "pipelines.out.schema_changes: 'ignore' leaves out")),
        (change("    target: feed", "    target: feed\n    conflicts: quarantine"), ("19: "
        "pipelines.out.conflicts: a topic has no unique values")),
        (change("    target: feed", "    target: feed\n    history: 7d"), ("19: "
        "pipelines.out.history: the history of a Kafka target is a topic")),
        (change("to: head.{table}", "to: head.{table}\n        partitions: keep"), ("22: "
        "pipelines.out.routes.0.partitions: a target of type 'kafka' cannot keep rows that a statement")),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith(line), found


def test_a_database_has_no_topics(tmp_path: Path) -> None:
    text = GOOD.replace("${SECRET}", "x").replace("    database: hq", "    database: hq\n    bootstrap: h:1")
    (found,) = problems(tmp_path, text)
    assert found.startswith("18: targets.hq.bootstrap: unknown key 'bootstrap'")
    text = GOOD.replace("${SECRET}", "x") + "        kafka: {format: plain}\n"
    assert problems(tmp_path, text) == [
        "26: pipelines.to-hq.routes.0.kafka: a target of type 'postgres' has no topics; remove it"
    ]


def test_secrets_of_a_kafka_target_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("0123\n")
    more = "prefix: feed\n    mask_salt_file: pw\n    options: {sasl.password_file: pw}"
    target = load(tmp_path, change("prefix: feed", more)).targets["feed"]
    assert isinstance(target, KafkaTargetConfig)
    assert (target.mask_salt.get_secret_value(), target.options) == ("0123", {"sasl.password": "0123"})
    assert "0123" not in repr(target)


def written_out(value: Any) -> Any:
    """Return a model with all its values, as a file has them."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {field.alias or name: written_out(getattr(value, name)) for name, field in fields.items()}
    if isinstance(value, dict):
        return {name: written_out(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [written_out(each) for each in value]
    return str(value) if isinstance(value, Path) else value


@pytest.mark.parametrize("word", sorted(TARGET_KINDS))
def test_a_file_with_every_default_written_out_loads_again(tmp_path: Path, word: str) -> None:
    text = (
        KAFKA
        if word == "kafka"
        else GOOD.replace("${SECRET}", "x").replace("type: postgres", f"type: {word}")
    )
    first = load(tmp_path, text)
    second = load(tmp_path, yaml.safe_dump(written_out(first)))
    for section in ("kafka", "sources", "targets", "pipelines"):
        assert written_out(getattr(second, section)) == written_out(getattr(first, section))

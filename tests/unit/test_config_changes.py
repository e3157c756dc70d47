"""A configuration that changes: handed on whole, compared key by key, distinguished by digests without
secrets; held by coordinator and agent."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.core.schedulers import UnitKind
from coordinator.server.operators.configuration import ConfigurationRefusedError
from rowlock.agent.run import AgentConfiguration
from rowlock.coordinator.inventory import InventoryReader
from rowlock.coordinator.run import ActiveConfiguration
from schemas.config.changes import handed
from schemas.config.changes.parts import (
    _convert_to_plain,
    collect_config_parts,
    compute_config_digest,
    compute_part_digests,
)
from schemas.config.changes.plan import HIDDEN_VALUE, plan_config_change
from schemas.config.model import Config, ConfigErrors, PipelineConfig, Route, SourceConfig, load_config

RAW: dict[str, Any] = {
    "kafka": {"bootstrap": "127.0.0.1:1", "prefix": "x",
     "options": {"sasl.password": "s3cret", "client.rack": "a"}},
    "sources": {
        "b1": {"type": "mariadb", "host": "h1", "user": "u", "password_file": "pw",
         "tables": ["bank.*", "other.*"]},
        "b2": {"type": "mysql", "host": "h2", "user": "u", "password": "${RELOAD_PW}", "tables": ["bank.*"]},
        "d": {"type": "mysql", "host": "h3", "user": "u", "password": "p", "tables": ["bank.*"],
         "events": "debezium"},
    },
    "targets": {
        "hq": {"type": "postgres", "host": "t", "port": 5432, "user": "u", "password": "p", "database": "d"},
        "dr": {"type": "mysql", "host": "t", "port": 3306, "user": "u", "password": "p", "database": "d"},
    },
    "pipelines": {
        "p": {"sources": ["b1", "d"], "target": "hq", "routes": [{"from": "bank.*", "to": "public.{table}"}]},
        "q": {"sources": ["b2"], "target": "dr"},
    },
}  # fmt: skip
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setenv("RELOAD_PW", "from the environment")
    (tmp_path / "pw").write_text("first\n")

    def file(*changes: Change) -> Path:
        raw = yaml.safe_load(yaml.safe_dump(RAW))
        for change in changes:
            change(raw)
        path = tmp_path / "c.yaml"
        path.write_text(yaml.safe_dump(raw, sort_keys=False))
        return path

    return file


@pytest.fixture
def old(write: Callable[..., Path]) -> Config:
    return load_config(write())


def test_what_is_handed_on_is_the_same_whatever_the_files_say_by_then(
    old: Config, tmp_path: Path, write: Callable[..., Path]
) -> None:
    line = handed.encode_config(old)
    assert handed.is_handed(line)
    assert not handed.is_handed(b'{"do":"prepare","unit":"u","assignment":1}')
    (tmp_path / "pw").write_text("second")
    write(lambda raw: raw.pop("sources"))
    found = handed.rebuild_config(line)
    assert found == old
    assert found.sources["b1"].password.get_secret_value() == "first"
    assert found.path == old.path
    assert found.find_line("sources", "b1", "tables") == old.find_line("sources", "b1", "tables")
    descriptor = handed.make_nameless_file(line)
    assert (
        handed.load_handed_config(
            tmp_path / "nowhere.yaml", descriptor, {("kafka", "prefix"): "y"}
        ).kafka.prefix
        == "y"
    )
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(ConfigErrors):
        handed.load_handed_config(old.path, None)
    with pytest.raises(ConfigErrors, match="sources"):
        handed.reload_config_file(old)


def test_what_the_command_line_gave_is_handed_on_and_read_again_and_not_said_to_the_parent(
    write: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(write(), changes={("kafka", "prefix"): "given"})
    for again in (handed.rebuild_config(handed.encode_config(config)), handed.reload_config_file(config)):
        assert again.kafka.prefix == "given"
    handed.announce_config(config)
    line = yaml.safe_load(capsys.readouterr().out)
    assert handed.is_announced_config(line)
    assert not handed.is_announced_config({"kind": "ready"})
    assert handed.decode_announced_config(line).kafka.prefix == "x"


def test_the_parts_are_what_units_run_under(old: Config) -> None:
    assert {part: len(sections) for part, sections in collect_config_parts(old).items()} == {
        "source/b1": 1, "source/b2": 1, "pipeline/p": 3, "pipeline/q": 2
    }  # fmt: skip


def _same(_: dict[str, Any]) -> None: ...


def _reordered(raw: dict[str, Any]) -> None:
    raw["pipelines"] = dict(reversed(raw["pipelines"].items()))


@pytest.mark.parametrize(
    ("change", "concerned", "shown"),
    [
        (_same, set(), ()),
        (_reordered, set(), ()),
        (lambda r: r["sources"]["b1"]["tables"].append("!bank.tmp"), {"source/b1"}, ("sources.b1.tables: [bank.*, other.*] → [bank.*, other.*, !bank.tmp]",)),  # noqa: E501
        (lambda r: r["sources"]["b1"].update(port=3307), {"source/b1"}, ("sources.b1.port: 3306 → 3307",)),
        (lambda r: r["sources"]["d"].update(port=3307), {"pipeline/p"}, ("sources.d.port: 3306 → 3307",)),
        (lambda r: r["sources"]["d"].update(events="rowlock"), {"source/d", "pipeline/p"}, ("sources.d.events: debezium → rowlock",)),  # noqa: E501
        (lambda r: r["targets"]["dr"].update(user="other"), {"pipeline/q"}, ("targets.dr.user: u → other",)),
        (lambda r: r["targets"]["dr"].update(password="other"), {"pipeline/q"}, ("targets.dr.password: another value",)),  # noqa: E501
        (lambda r: r["pipelines"]["p"].update(conflicts="quarantine"), {"pipeline/p"}, ("pipelines.p.conflicts: replace → quarantine",)),  # noqa: E501
        (lambda r: r["pipelines"]["p"].update(repair="stop"), {"pipeline/p", "source/b1"}, ("pipelines.p.repair.mode: copy → stop",)),  # noqa: E501
        (lambda r: r["pipelines"]["p"]["routes"][0].update(schema_changes="evolve"), {"pipeline/p"},
         (("pipelines.p.routes: [{from: bank.*, to: public.{table}}] → [{from: bank.*, to: "
         "public.{table}, schema_changes: evolve}]"),)),
        (lambda r: r["pipelines"].pop("q"), set(), ("pipelines.q: removed",)),
        (lambda r: r["pipelines"].update(n={"sources": ["b2"], "target": "hq"}), {"pipeline/n"}, ("pipelines.n: new",)),  # noqa: E501
    ],
)  # fmt: skip
def test_a_change_is_shown_and_concerns_whoever_runs_under_it(
    old: Config, write: Callable[..., Path], change: Change, concerned: set[str], shown: tuple[str, ...]
) -> None:
    new = load_config(write(change))
    found = plan_config_change(old, new)
    assert set(found.parts) == concerned
    assert tuple(map(str, found.changes)) == shown
    assert found.refused == ()
    missing = set(collect_config_parts(old)) - set(collect_config_parts(new))
    assert found.removed == missing


def test_every_key_of_a_section_is_compared() -> None:
    """Whatever keys there will be: the walk is over the models' fields, and a part is its whole sections."""
    for model in (SourceConfig, PipelineConfig, Route):
        assert {field.repr for field in model.model_fields.values()} == {True}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda r: r["kafka"].update(prefix="y"), "kafka.prefix"),
        (lambda r: r["kafka"]["options"].update({"sasl.username": "n3w"}), "kafka.options.sasl.username"),
        (lambda r: r.update(state_dir="elsewhere"), "state_dir"),
        (lambda r: r.update(spark={"memory": "2g"}), "spark.memory"),
        (lambda r: r.update(coordination={"lease_s": 20}), "coordination.lease_s"),
    ],
)
def test_what_a_process_has_built_on_is_refused(
    old: Config, write: Callable[..., Path], change: Change, place: str
) -> None:
    found = plan_config_change(old, load_config(write(change)))
    (line,) = found.refused
    assert f": {place}: " in line
    assert line.endswith("this cannot change while rowlock runs: restart it")
    assert "n3w" not in line
    assert "s3cret" not in line


def test_secrets_show_in_the_comparison_and_not_in_digests(
    old: Config, write: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "pw").write_text("second")
    new = load_config(write())
    assert [dataclasses.astuple(each) for each in plan_config_change(old, new).changes] == [
        ("sources.b1.password", HIDDEN_VALUE, HIDDEN_VALUE)
    ]
    assert plan_config_change(old, new).parts == {"source/b1"}
    assert compute_config_digest(new) == compute_config_digest(old)
    assert compute_part_digests(new) == compute_part_digests(old)


def test_a_digest_tells_what_is_not_a_machines_own(old: Config, write: Callable[..., Path]) -> None:
    tls = load_config(write(lambda r: r["sources"]["b1"].update(tls={"ca": "ca.pem"})))
    elsewhere = load_config(write(lambda r: r["sources"]["b1"].update(tls={"ca": "/etc/ca.pem"})))
    weaker = load_config(write(lambda r: r["sources"]["b1"].update(tls={"ca": "ca.pem", "verify": "none"})))
    assert compute_config_digest(old) != compute_config_digest(tls)
    assert compute_config_digest(tls) == compute_config_digest(elsewhere)
    assert compute_config_digest(tls) != compute_config_digest(weaker)
    prefix = load_config(write(lambda r: r["kafka"].update(prefix="y")))
    assert compute_config_digest(prefix) != compute_config_digest(old)
    assert compute_config_digest(load_config(write(_reordered))) == compute_config_digest(old)


# who holds one


class Topics:
    def list_topics(self) -> list[str]:
        return ["x.b1.bank.acct", "x.b2.bank.acct", "x.b1.other.t"]

    def fetch_topic_ids(self, topics: Any) -> dict[str, str]:
        return dict.fromkeys(topics, "1")

    def find_topic_tables(self, sources: Any, topics: Any) -> dict[str, tuple[str, str]]:
        del sources
        return {topic: tuple(topic.split(".")[2:]) for topic in topics}


def test_a_coordinator_goes_by_what_is_in_force(old: Config, write: Callable[..., Path]) -> None:
    reader = InventoryReader(old, Topics(), without=("pipeline/p", "pipeline/q"))
    taken: list[Config] = []
    held = ActiveConfiguration(old, (reader.use_config,), taken.append)
    assert [unit.kind for unit in reader().units] == [UnitKind.CAPTURE] * 2
    write(lambda r: r["pipelines"]["p"]["routes"].append({"from": "other.*", "to": "o.{table}"}))
    found = held.read_file()
    assert found.changed == {"pipeline/p"}
    assert reader().digest == compute_config_digest(old), "nothing is taken by reading"
    held.adopt_config("another")
    assert reader().digest == compute_config_digest(old)
    held.adopt_config(found.digest)
    inventory = reader()
    assert (inventory.digest, inventory.parts) == (found.digest, found.parts)
    applied = {unit.unit for unit in inventory.units if unit.kind is UnitKind.APPLY}
    assert applied == {"apply/p/x.b1.bank.acct", "apply/p/x.b1.other.t"}, "p has changed, q is left out still"
    assert [compute_config_digest(each) for each in taken] == [found.digest]


def test_a_coordinator_refuses_and_keeps_what_it_has(old: Config, write: Callable[..., Path]) -> None:
    reader = InventoryReader(old, Topics())
    held = ActiveConfiguration(old, (reader.use_config,))
    path = write(lambda r: r["sources"]["b1"].update(port="many", snapshot="sometimes"))
    with pytest.raises(ConfigurationRefusedError) as refused:
        held.read_file()
    assert len(refused.value.lines) == 2
    assert all(line.startswith(f"{path}:") for line in refused.value.lines)
    write(lambda r: r.update(spark={"memory": "2g"}))
    with pytest.raises(ConfigurationRefusedError, match="restart it"):
        held.read_file()
    assert reader().digest == compute_config_digest(held.config) == compute_config_digest(old)


def test_an_elected_coordinator_catches_up_with_its_file(old: Config, write: Callable[..., Path]) -> None:
    new = load_config(write(lambda r: r["pipelines"]["p"].update(lanes=2)))
    held = ActiveConfiguration(old, ())
    held.catch_up("of nobody's file")
    assert compute_config_digest(held.config) == compute_config_digest(old)
    held.catch_up(compute_config_digest(new))
    assert compute_config_digest(held.config) == compute_config_digest(new)
    write(lambda r: r.pop("sources"))
    held.catch_up(compute_config_digest(old))
    assert compute_config_digest(held.config) == compute_config_digest(new)


def test_an_agent_takes_only_what_is_in_force(
    old: Config, write: Callable[..., Path], tmp_path: Path
) -> None:
    used: list[Config] = []
    agent = AgentConfiguration(old, used.append)
    assert agent.read_file() == (compute_config_digest(old), ())
    new = load_config(write(lambda r: r["pipelines"]["p"].update(lanes=2)))
    assert agent.read_file() == (compute_config_digest(new), ())
    assert agent.digest == compute_config_digest(old)
    assert not agent.adopt_config("another")
    assert used == []
    assert agent.adopt_config(compute_config_digest(new))
    assert (agent.digest, used) == (compute_config_digest(new), [new])
    (tmp_path / "pw").write_text("second")
    assert agent.adopt_config(compute_config_digest(new))
    assert used[-1].sources["b1"].password.get_secret_value() == "second"
    path = write(lambda r: r["pipelines"]["p"].update(lanes="many"))
    seen, problems = agent.read_file()
    assert (seen, len(problems)) == ("", 1)
    assert problems[0].startswith(f"{path}:")
    assert not agent.adopt_config(compute_config_digest(old))
    assert agent.adopt_config(compute_config_digest(new)), "somebody edits it: what was read is in force"
    assert len(used) == 2
    write(lambda r: r.update(spark={"memory": "2g"}))
    assert agent.read_file()[1][0].endswith("restart it")


def test_a_key_that_the_last_release_does_not_know_changes_no_digest_while_it_is_unused(
    write: Callable[..., Path],
) -> None:
    """Agents of both versions are given units only with the digest that the leader has."""
    route = load_config(write()).pipelines["p"].routes[0]
    assert "rename" in type(route).model_fields
    assert '"rename"' not in json.dumps(_convert_to_plain(route))
    used = route.model_validate({**route.model_dump(by_alias=True), "rename": {"columns": {"ctid": "c"}}})
    assert '"rename"' in json.dumps(_convert_to_plain(used))


def test_a_configuration_without_newer_keys_has_the_digest_that_0_2_0_computes() -> None:
    """Otherwise agents of 0.2.0 get no units from a leader of this version, nor the other way round. The
    digests were computed by 0.2.0's own code."""
    server = {"host": "h", "user": "u", "password": ""}
    config = Config.model_validate(
        {
            "kafka": {"bootstrap": "h:1", "prefix": "t"},
            "sources": {"s": {"type": "mariadb", **server, "tables": ["bank.*"]}},
            "targets": {"t": {"type": "postgres", **server, "database": "d"}},
            "pipelines": {
                "p": {"sources": ["s"], "target": "t", "routes": [{"from": "bank.*", "to": "public.{table}"}]}
            },
        }
    )
    assert compute_part_digests(config) == {"source/s": "3c2c75766240", "pipeline/p": "f3ffca5b4a17"}
    assert compute_config_digest(config) == "1c65d6bdb4f3"

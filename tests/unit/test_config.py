"""The configuration file: what it gives, and everything that can be wrong with it, said at once."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel, SecretStr

from rowlock.credentials import load_agent_token
from rowlock.processes.run import build_run_commands
from schemas.config.changes.plan import ConfigPlan, plan_config_change
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.kinds.targets import TARGET_KINDS
from schemas.config.load import NOT_YET
from schemas.config.model import Config, ConfigErrors, PipelineConfig, SourceConfig, TargetConfig, load_config
from schemas.config.secrets import PlacedSecret
from schemas.config.yaml_lines import parse_yaml
from tests.kits.configurations import GOOD
from tools.docs.config import render

ROOT = Path(__file__).resolve().parents[2]
ENV = {"SECRET": "s3cret-from-env", "PORT": "3307"}


def load(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load_config(file, ENV)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path, text)
    return [line.removeprefix(str(tmp_path) + "/") for line in caught.value.lines]


def test_a_file_with_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert config.kafka.prefix == "rowlock"
    assert config.sources["branch1"].port == 3306
    assert config.sources["branch1"].password.get_secret_value() == "s3cret-from-env"
    assert config.pipelines["to-hq"].routes[0].add == {"branch": "{source}"}
    assert config.pipelines["to-hq"].lanes == 4
    assert config.state_dir == tmp_path / "state"
    assert config.path == tmp_path / "c.yaml"
    assert config.find_line("sources", "branch1", "host") == f"{tmp_path}/c.yaml:6"
    assert config.find_line("sources", "branch1", "port") == f"{tmp_path}/c.yaml:4"


HOSTS = """
kafka: {bootstrap: "k:1"}
sources:
  bank: {type: TYPE, user: u, password: p, tables: [bank.*], MORE}
"""


def with_hosts(more: str, kind: str = "mysql") -> str:
    return HOSTS.replace("TYPE", kind).replace("MORE", more)


def test_a_source_has_a_section_for_each_of_its_hosts(tmp_path: Path) -> None:
    (bank,) = load(tmp_path, with_hosts('hosts: ["a:1", "[::1]:2"]')).sources.values()
    assert [(each.host, each.port, each.hosts) for each in bank.list_servers()] == [
        ("a", 1, []),
        ("::1", 2, []),
    ]
    (bank,) = load(tmp_path, with_hosts("host: a")).sources.values()
    assert bank.list_servers() == (bank,)


@pytest.mark.parametrize(
    ("more", "kind", "seen"),
    [
        ('hosts: ["a:1"], host: a', "mysql", "sources.bank.host: 'host' and 'hosts' exclude each other"),
        ('hosts: ["a:1"], port: 1', "mysql", "sources.bank.port: 'port' and 'hosts' exclude each other"),
        ("snapshot: never", "mysql", "sources.bank.host: 'host' is missing"),
        ('hosts: ["a"]', "mysql", "sources.bank.hosts: 'a' is no address"),
        ('hosts: ["a:1", "a:1"]', "mysql", "sources.bank.hosts: an address is named twice"),
        (
            'hosts: ["a:1"], database: X',
            "oracle",
            "capture does not follow a source of type 'oracle' to another server",
        ),
        ('hosts: ["a:1"], events: debezium', "mysql", "rowlock does not capture this source"),
    ],
)
def test_hosts_that_cannot_be_used_are_refused(tmp_path: Path, more: str, kind: str, seen: str) -> None:
    (problem,) = problems(tmp_path, with_hosts(more, kind))
    assert seen in problem


@pytest.mark.parametrize(
    ("kind", "port"), [("mysql", 3306), ("mariadb", 3306), ("postgres", 5432), ("oracle", 1521)]
)
def test_target_port_defaults_to_the_servers_own(tmp_path: Path, kind: str, port: int) -> None:
    text = GOOD.replace("    port: 5432\n", "").replace("type: postgres", f"type: {kind}")
    assert load(tmp_path, text).targets["hq"].port == port


@pytest.mark.parametrize(("kind", "port"), [("mysql", 3306), ("mariadb", 3306), ("oracle", 1521)])
def test_source_port_defaults_to_the_servers_own(tmp_path: Path, kind: str, port: int) -> None:
    service = "\n    database: FREE" if kind == "oracle" else ""
    text = GOOD.replace("type: mariadb", f"type: {kind}{service}")
    assert load(tmp_path, text).sources["branch1"].port == port


def test_the_example_is_accepted(tmp_path: Path) -> None:
    secret = tmp_path / "hq"
    secret.write_text("x\n")
    text = (ROOT / "deploy" / "config.example.yaml").read_text().replace("/run/secrets/hq", str(secret))
    file = tmp_path / "c.yaml"
    file.write_text(text)
    config = load_config(file, {"BRANCH1_PASSWORD": "a", "BRANCH2_PASSWORD": "b"})
    assert config.targets["hq"].password.get_secret_value() == "x"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("type: mariadb", None),
        ("type: mariadb\n    events: debezium", "of the source branch1, Debezium does not show which"),
        ("type: oracle\n    database: FREEPDB1", "of the source branch1, an Oracle does not show which"),
    ],
)
def test_only_a_source_that_shows_the_statements_can_have_its_removed_rows_kept(
    tmp_path: Path, source: str, why: str | None
) -> None:
    text = GOOD.replace("type: mariadb", source) + "        partitions: keep\n"
    if why is None:
        assert load(tmp_path, text).pipelines["to-hq"].routes[0].partitions == "keep"
    else:
        assert [why in each for each in problems(tmp_path, text)] == [True]


def test_a_source_of_debezium_s(tmp_path: Path) -> None:
    config = load(
        tmp_path, GOOD.replace("type: mariadb", "type: mariadb\n    events: debezium\n    decimals: string")
    )
    source = config.sources["branch1"]
    assert (source.events, source.decimals) == ("debezium", "string")


def test_no_secret_in_any_text(tmp_path: Path) -> None:
    text = GOOD.replace(
        "bootstrap: 127.0.0.1:9092", "bootstrap: 127.0.0.1:9092\n  options: {sasl.password: verysecret}"
    )
    config = load(tmp_path, text)
    assert config.kafka.options["sasl.password"] == "verysecret"
    for shown in (repr(config), str(config), repr(config.kafka)):
        assert "verysecret" not in shown
        assert "geheim" not in shown
        assert "s3cret" not in shown


def test_no_secret_in_errors(tmp_path: Path) -> None:
    text = GOOD.replace("port: 5432", 'port: "${SECRET}"').replace("password: geheim", "password: [geheim]")
    assert not [line for line in problems(tmp_path, text) if "geheim" in line or "s3cret" in line]


def test_a_password_is_taken_as_it_is_written(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD.replace("password: geheim", "password: 0123"))
    assert config.targets["hq"].password.get_secret_value() == "0123"


def test_passwords_know_where_they_were_read(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("geheim")
    text = GOOD.replace("password: geheim", "password_file: pw")
    config = load(tmp_path, text)
    source, target = config.sources["branch1"].password, config.targets["hq"].password
    assert isinstance(source, PlacedSecret)
    assert source.place == "the environment variable SECRET"
    assert isinstance(target, PlacedSecret)
    assert target.place == f"the file {tmp_path / 'pw'}"
    assert target == SecretStr("geheim")
    in_text = load(tmp_path, GOOD)
    assert not isinstance(in_text.targets["hq"].password, PlacedSecret)
    assert plan_config_change(in_text, config) == ConfigPlan(), "the same password"
    assert plan_config_change(config, in_text) == ConfigPlan()


def test_secret_files_and_environment(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("from file \n")
    text = GOOD.replace("password: geheim", "password_file: pw").replace("host: 127.0.0.1", 'host: "a$$b"', 1)
    config = load(tmp_path, text.replace("user: rowlock", 'port: "${PORT}"\n    user: rowlock', 1))
    assert config.targets["hq"].password.get_secret_value() == "from file "
    assert config.sources["branch1"].port == 3307
    assert config.sources["branch1"].host == "a$b"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "type: mariadb",
            "type: maria",
            "c.yaml:5: sources.branch1.type: 'maria' is not known; one of 'mysql', ",
        ),
        (
            "host: 127.0.0.1",
            "hst: 127.0.0.1",
            "c.yaml:6: sources.branch1.hst: unknown key 'hst'; did you mean 'host'?",
        ),
        (
            "port: 5432",
            "port: 70000",
            "c.yaml:14: targets.hq.port: 70000 does not fit; a number of at most 65535",
        ),
        ("port: 5432", "port: many", "c.yaml:14: targets.hq.port: 'many' does not fit; a whole number"),
        (
            "${SECRET}",
            "${NOPE}",
            "c.yaml:8: sources.branch1.password: the environment has no NOPE; set NOPE ",
        ),
        (
            "${SECRET}",
            "${NO-PE}",
            "c.yaml:8: sources.branch1.password: ${NO-PE} is no name of a variable; write ${NAME}",
        ),
        (
            "password: geheim",
            "password_file: nix",
            "c.yaml:16: targets.hq.password: cannot read nix: No such file",
        ),
        (
            "password: geheim",
            "pw: geheim",
            "c.yaml:11: targets.hq.password: 'password' is missing; give password: ${NAME}",
        ),
        ("9092", "x", "c.yaml:2: kafka.bootstrap: '127.0.0.1:x' is no broker; write host:port"),
        ("9092", "65536", "c.yaml:2: kafka.bootstrap: '127.0.0.1:65536' is no broker; write host:port"),
        ("9092", "²", "c.yaml:2: kafka.bootstrap: '127.0.0.1:²' is no broker; write host:port"),
        (
            "bootstrap: 127",
            "prefix: a/b\n  bootstrap: 127",
            "c.yaml:2: kafka.prefix: 'a/b' cannot begin a topic's name",
        ),
        (
            "bootstrap: 127",
            "options: {acks: 1}\n  bootstrap: 127",
            "c.yaml:2: kafka.options.acks: this setting cannot be",
        ),
        (
            "branch1:",
            "bran.ch:",
            "c.yaml:4: sources.bran.ch: the name 'bran.ch' cannot be used; use up to 64 letters",
        ),
        (
            "branch1:",
            "control:",
            "c.yaml:4: sources.control: the name 'control' is one of rowlock's own topics",
        ),
        (
            "[bank.*,",
            "[bank,",
            (
                "c.yaml:9: sources.branch1.tables.0: 'bank' is no table pattern: database or table is "
                "missing; write database.table"
            ),
        ),
        (
            "[bank.*,",
            "[",
            "c.yaml:9: sources.branch1.tables: every pattern excludes tables; begin with patterns",
        ),
        (
            "[branch1]",
            "[branch2]",
            "c.yaml:20: pipelines.to-hq.sources.0: there is no source 'branch2'; did you mean",
        ),
        (
            "[branch1]",
            "[branch1, branch1]",
            "c.yaml:20: pipelines.to-hq.sources.1: source 'branch1' is named twice",
        ),
        ("target: hq", "target: zz", "c.yaml:21: pipelines.to-hq.target: there is no target 'zz'; known: hq"),
        (
            "public.{table}",
            "'{table}'",
            (
                "c.yaml:24: pipelines.to-hq.routes.0.to: '{table}' is no target table: database or table is "
                "missing; write schema"
            ),
        ),
        (
            "public.{table}",
            "public.{tabel}",
            "c.yaml:24: pipelines.to-hq.routes.0.to: 'public.{tabel}' has an unknown",
        ),
        (
            '"{source}"}',
            '"{src}"}',
            "c.yaml:25: pipelines.to-hq.routes.0.add.branch: '{src}' has an unknown placeholder",
        ),
        (
            "from: bank.*",
            "from: bank",
            "c.yaml:23: pipelines.to-hq.routes.0.from: 'bank' is no table pattern",
        ),
        (
            "target: hq",
            "target: hq\n    target: hq",
            "c.yaml:22: pipelines.to-hq.target: 'target' is given twice; give",
        ),
        (
            "target: hq",
            "lanes: 0\n    target: hq",
            "c.yaml:21: pipelines.to-hq.lanes: 0 does not fit; a number of at least",
        ),
        ("  hq:\n", "  hq:\n   x: ]\n", "c.yaml:12: not YAML: "),
        (
            "host: 127.0.0.1",
            "decimals: string\n    host: 127.0.0.1",
            (
                "c.yaml:6: sources.branch1.decimals: 'string' is about a connector of "
                "Debezium's; remove it, or set events"
            ),
        ),
        (
            "host: 127.0.0.1",
            "snapshot: never\n    events: debezium\n    host: 127.0.0.1",
            (
                "c.yaml:6: sources.branch1.snapshot: 'never' is not possible here: Debezium "
                "takes the snapshot; remove it"
            ),
        ),
    ],
)
def test_one_mistake_one_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    lines = problems(tmp_path, GOOD.replace(old, new, 1))
    assert any(line.startswith(expected) for line in lines), lines


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("maria", "x").replace("5432", "x").replace("target: hq", "target: no\n    lanes: x")
    places = [line.split(": ")[1] for line in problems(tmp_path, text)]
    assert places == [
        "sources.branch1.type",
        "targets.hq.port",
        "pipelines.to-hq.target",
        "pipelines.to-hq.lanes",
    ]


def test_an_earlier_route_that_takes_all(tmp_path: Path) -> None:
    text = GOOD + "      - {from: bank.*, to: x.y}\n"
    assert problems(tmp_path, text)[0].startswith(
        "c.yaml:26: pipelines.to-hq.routes.1.from: an earlier route takes all"
    )


@pytest.mark.parametrize("text", ["", "[]", "3", "kafka: 3\nsources: []\n"])
def test_files_of_the_wrong_shape(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match="cannot be read: No such file"):
        load_config(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [(section, key, value) for (section, key), values in NOT_YET.items() for value in values],
)
def test_what_is_not_built_yet_is_refused_as_such(tmp_path: Path, section: str, key: str, value: str) -> None:
    line, (old, new), instead = {
        ("sources", "type"): (5, ("type: mariadb", "type: {}"), "use 'mysql', 'mariadb' or 'oracle'"),
        ("sources", "topics"): (6, ("host: 127.0.0.1", "topics: {}\n    host: 127.0.0.1"), "use 'table'"),
        ("sources", "events"): (6, ("host: 127.0.0.1", "events: {}\n    host: 127.0.0.1"),
         "use 'rowlock' or 'debezium'"),
        ("targets", "type"): (12, ("type: postgres", "type: {}"),
         "use 'mysql', 'mariadb', 'postgres', 'oracle' or 'kafka'"),
        ("pipelines", "consistency"): (21, ("target: hq", "consistency: {}\n    target: hq"), "use 'row'"),
    }[section, key]  # fmt: skip
    (found,) = problems(tmp_path, GOOD.replace(old, new.format(value), 1))
    name = {"sources": "branch1", "targets": "hq", "pipelines": "to-hq"}[section]
    assert found.startswith(
        f"c.yaml:{line}: {section}.{name}.{key}: '{value}' is not supported in this version of"
    )
    assert found.endswith(f"; {instead}")


def test_a_refusal_names_what_is_missing_where_parts_are_built(tmp_path: Path) -> None:
    (found,) = problems(
        tmp_path, GOOD.replace("host: 127.0.0.1", "events: tdsql-json\n    host: 127.0.0.1", 1)
    )
    assert "reads neither their topic nor the tables' definitions (see `rowlock docs tdsql`)" in found


def test_what_is_built_is_no_longer_named_as_missing() -> None:
    models: dict[str, type[BaseModel]] = {
        "sources": SourceConfig,
        "targets": TargetConfig,
        "pipelines": PipelineConfig,
    }
    for (section, key), values in NOT_YET.items():
        field = models[section].model_fields[key]
        kinds = SOURCE_KINDS if section == "sources" else TARGET_KINDS
        built = kinds if field.json_schema_extra else get_args(field.annotation)
        assert built
        assert not {*built} & {*values}


def test_a_value_of_no_version_is_not_known(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, GOOD.replace("type: mariadb", "type: db2", 1))
    assert line == "c.yaml:5: sources.branch1.type: 'db2' is not known; one of 'mysql', 'mariadb', 'oracle'"


def coordination(tmp_path: Path, section: str) -> Config:
    return load(tmp_path, GOOD + f"coordination: {section}\n")


@pytest.mark.parametrize(
    ("written", "master"),
    [
        ("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[3]", "local[3,4]"), ("local[3, 2]", "local[3,2]"),  # noqa: E501
        ("local[*,4]", "local[*,4]"),
    ],
)  # fmt: skip
def test_a_task_of_spark_s_is_tried_again_however_the_master_is_written(
    tmp_path: Path, written: str, master: str
) -> None:
    assert load(tmp_path, GOOD + f"spark: {{master: '{written}'}}\n").spark.master == master


@pytest.mark.parametrize("written", ["local[3,1]", "local[0]", "local[]", "local[3,4"])
def test_a_master_with_one_try_is_refused(tmp_path: Path, written: str) -> None:
    (line,) = problems(tmp_path, GOOD + f"spark: {{master: '{written}'}}\n")
    assert f"spark.master: '{written}' does not fit" in line
    assert "local[N,4]" in line


def test_coordination_needs_nothing_on_one_machine(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD).coordination
    assert (
        config.coordinators
        == [config.listen]
        == [config.get_reachable_address(config.listen)]
        == ["127.0.0.1:7701"]
    )
    assert config.advertised_rest == config.rest == "127.0.0.1:7780"
    assert (config.token, config.tls) == (None, None)
    assert config.lease_s >= 3 * config.interval_s


def test_smallest_numbers_are_accepted(tmp_path: Path) -> None:
    assert coordination(tmp_path, "{burst: 1}").coordination.burst == 1


def test_runs_of_one_machine_have_addresses_of_their_own_unless_the_file_says_which(tmp_path: Path) -> None:
    ours = build_run_commands(load(tmp_path, GOOD))
    listen = ours["coordinator"][ours["coordinator"].index("--listen") + 1]
    assert ours["agent"][ours["agent"].index("--coordinator") + 1] == listen
    assert listen != "127.0.0.1:7701"
    assert "--or-any-port" in ours["coordinator"]
    config = coordination(tmp_path, "{listen: '127.0.0.1:7701'}")
    reported = build_run_commands(config)
    assert not {"--listen", "--rest"} & set(reported["coordinator"])
    assert "--coordinator" not in reported["agent"]


@pytest.mark.parametrize(
    "section",
    [
        "{listen: 'host:80', tls: {ca: a, cert: b, key: c}}",
        "{listen: 'host:80', tls: {ca: a, cert: b, key: c, mutual: false}, token: x}",
        "{listen: '[::1]:80'}",
    ],
)
def test_agents_prove_themselves_beyond_loopback_by_certificate_or_token(
    tmp_path: Path, section: str
) -> None:
    config = coordination(tmp_path, section).coordination
    mutual = config.tls is not None and config.tls.mutual
    assert load_agent_token(config) == ("x" if config.token and not mutual else "")


def test_coordination_of_several_machines(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("very-secret\n")
    section = """{coordinators: [a:1, b:1], listen: "0.0.0.0:1", rest: "[::]:2", advertise: a, token_file: token,
      tls: {ca: ca.pem, cert: /c.pem, key: k.pem}, apart: {branch1: x}}"""  # noqa: E501
    config = coordination(tmp_path, section).coordination
    assert (config.get_reachable_address(config.listen), config.advertised_rest) == ("a:1", "a:2")
    assert config.token is not None
    assert config.token.get_secret_value() == "very-secret"
    assert "very-secret" not in repr(config)
    assert config.tls is not None
    assert (config.tls.ca, config.tls.cert) == (tmp_path / "ca.pem", Path("/c.pem"))
    assert config.tls.mutual


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "{rest: '10.0.0.1:80'}",
            "rest: 10.0.0.1 can be reached from other machines and requires no token; set",
        ),
        (
            "{rest: 'host:80', token: ''}",
            "rest: host can be reached from other machines and requires no token",
        ),
        (
            "{agent_metrics: '0.0.0.0:80'}",
            "agent_metrics: 0.0.0.0 can be reached from other machines and requires no token; set",
        ),
        ("{agent_metrics: '7790'}", "agent_metrics: '7790' is no address; write host:port"),
        (
            "{listen: '127.0.0.1:80', rest: '[::]:0', token: x}",
            "rest: :: means every address of this machine, so agents cannot learn",
        ),
        (
            "{listen: '10.0.0.1:80'}",
            "listen: 10.0.0.1 can be reached from other machines without TLS: any of them",
        ),
        ("{listen: 'host:80', token: x}", "listen: host can be reached from other machines without TLS"),
        (
            "{listen: 'host:80', tls: {ca: a, cert: b, key: c, mutual: false}}",
            (
                "tls: host can be reached from other machines, and agents are not "
                "authenticated; set coordination.tls.mutual"
            ),
        ),
        ("{coordinators: ['[::]:80']}", "coordinators.0: '[::]:80' is no place to connect to; name the host"),
        ("{coordinators: [a]}", "coordinators.0: 'a' is no address; write host:port"),
        ("{coordinators: []}", "coordinators: an empty list does not fit; at least one entry"),
        ("{listen: '::1:80'}", "listen: '::1:80' is no address; write host:port (IPv6: [address]:port)"),
        ("{listen: 'a:65536'}", "listen: 'a:65536' is no address"),
        ("{listen: ':7701'}", "listen: ':7701' is no address"),
        ("{lease_s: 2}", "interval_s: heartbeats every 1 s are too few for a lease of 2 s; make lease_s at"),
        ("{lease_s: many}", "lease_s: 'many' does not fit; a number"),
        ("{tls: {ca: a, cert: b}}", "tls.key: 'key' is missing; add key: File with its private key."),
        ("{apart: {branch2: x}}", "apart.branch2: there is no source 'branch2'; did you mean 'branch1'?"),
        ("{tokn: x}", "tokn: unknown key 'tokn'; did you mean 'token'?"),
    ],
)
def test_one_mistake_in_coordination(tmp_path: Path, section: str, expected: str) -> None:
    lines = problems(tmp_path, GOOD + f"coordination: {section}\n")
    assert len(lines) == 1
    assert lines[0].startswith(f"c.yaml:26: coordination.{expected}"), lines


def test_values_of_the_command_line_are_checked_like_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(GOOD)
    changes = {("coordination", "rest"): "127.0.0.1:1", ("coordination", "listen"): "127.0.0.1:2"}
    config = load_config(file, ENV, changes=changes)
    assert (config.coordination.rest, config.coordination.listen) == ("127.0.0.1:1", "127.0.0.1:2")
    with pytest.raises(ConfigErrors, match="can be reached from other machines and requires no token"):
        load_config(file, ENV, changes={("coordination", "rest"): "0.0.0.0:1"})
    file.write_text(GOOD + "coordination: 3\n")
    with pytest.raises(ConfigErrors, match="coordination: 3 does not fit; a mapping of keys"):
        load_config(file, ENV, changes=changes)


def test_the_reference_is_current() -> None:
    page = ROOT / "docs" / "reference" / "configuration.md"
    assert page.read_text() == render(), "run: python -m tools.docs.config > docs/reference/configuration.md"


@pytest.mark.parametrize(
    ("text", "line", "seen", "right"),
    [
        (
            "a:\n  - x\n  - !bank.t*\n",
            3,
            'a value that begins with "!" needs quotes',
            'in quotes: "!bank.t*"',
        ),
        ("a: !x {b: 1}\n", 1, 'a value that begins with "!" needs quotes', 'in quotes: "!x"'),
        ("password: !abc\n", 1, 'a value that begins with "!" needs quotes', "write it in quotes"),
        ("a: !!int x\n", 1, "'x' is no value", "write it in quotes"),
        ("a: <<\n", 1, "'<<' is no value", "write it in quotes"),
    ],
)
def test_a_value_that_yaml_takes_for_a_type_is_a_problem_on_its_line(
    text: str, line: int, seen: str, right: str
) -> None:
    """YAML's own errors ended the program with a traceback, and a password became empty."""
    (problem,) = parse_yaml(text, {}, str).problems
    assert (problem.line, problem.seen) == (line, seen)
    assert right in problem.right
    assert "abc" not in str(problem), "a secret"

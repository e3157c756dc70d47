"""From two URLs to a first configuration: what is written is read as it was meant, whatever names contain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.checks.binlog_server import check_server_settings
from producer.checks.log_guards import LogFacts, log_findings
from rowlock.errors import CommandError
from rowlock.inspect.first_config.config_text import (
    ConfigDraft,
    DraftServer,
    choose_server_names,
    format_scalar,
    name_variable,
    render_config,
)
from rowlock.inspect.first_config.copy_estimate import COPIED_ROWS_PER_S, START_S, CopyEstimate
from rowlock.inspect.first_config.needed_statements import list_needed_settings, list_needed_statements
from rowlock.inspect.first_config.server_url import SCHEMES, ServerUrl, Side, parse_server_url
from rowlock.inspect.first_config.table_choice import ChosenTables, ListedTable, TableList, choose_tables
from schemas.config import yaml_lines
from schemas.config.load import build_config
from schemas.config.model import Config, ConfigErrors
from schemas.findings import Finding
from schemas.problems import Problem
from schemas.table.patterns import is_selected_by_patterns

HOSTS = st.sampled_from(
    ["branch1", "db.bank.example", "127.0.0.1", "::1", "fe80::1%eth0", "localhost", "9x", "control"]
)
TEXTS = st.text(st.one_of(st.sampled_from("`'\"$%@:/#?[]{}*!. \\é表😀\t\n"), st.characters(codec="utf-8")))
NAMES = TEXTS.filter(bool)
PASSWORDS = TEXTS.filter(lambda text: not set(text) & set("\r\n"))
DATABASES = NAMES.filter(lambda text: not set(text) & set("{}"))
PORTS = st.one_of(st.none(), st.integers(1, 65535))
PAIRS = [(one, two) for one in SCHEMES["source"] for two in SCHEMES["target"]]
NO_KEY = Problem("table bank.audit has no primary key", "add a primary key, or exclude the table")
LISTED = TableList((
    ListedTable(("bank", "acct"), 1000, 4096),
    ListedTable(("bank", "audit"), 5, 10, NO_KEY),
    ListedTable(("bank", "card"), 0, 0),
    ListedTable(("my.db", "`x"), 7, 70),
))  # fmt: skip


def encode_url(scheme: str, url: ServerUrl) -> str:
    """Return the URL with each part percent-encoded."""
    user, password, database = (quote(each or "", safe="") for each in (url.user, url.password, url.database))
    login = f"{user}:{password}@" if url.password is not None else f"{user}@" if user else ""
    host = f"[{quote(url.host, safe=':')}]" if ":" in url.host else url.host
    return f"{scheme}://{login}{host}{'' if url.port is None else f':{url.port}'}/{database}"


def load_draft(draft: ConfigDraft) -> Config:
    """Return what rowlock reads of the text of a draft."""
    variables = {name_variable(each.name): "secret" for each in (draft.source, draft.target)}
    return build_config(Path("/x/rowlock.yaml"), render_config(draft), variables, read_secret=lambda _: "pw")


def make_draft(source: ServerUrl, target: ServerUrl, choice: ChosenTables) -> ConfigDraft:
    first, second = choose_server_names(source, target)
    return ConfigDraft(
        "127.0.0.1:9092", DraftServer(first, source, "a.password"), DraftServer(second, target), choice
    )


@given(user=TEXTS, password=st.one_of(st.none(), PASSWORDS), host=HOSTS, port=PORTS, database=NAMES)
def test_encoded_url_is_read_as_its_parts(**parts: Any) -> None:
    url = ServerUrl("postgres", **parts)
    assert parse_server_url(encode_url("postgresql", url), "target") == url
    assert "password" not in repr(url)


@pytest.mark.parametrize(
    ("text", "side", "seen"),
    [
        ("root:hunter2@branch1/bank", "source", "is not of the form"),
        ("mysql://root:hunter2@x@branch1/bank", "source", "is not of the form"),
        ("mysql://root:hunter2@branch1/bank?tls=1", "source", "is not of the form"),
        ("mysql://root:hunter2@branch1/bank/acct", "source", "is not of the form"),
        ("mysql://root:hunter2@branch1:/bank", "source", "is not of the form"),
        ("mysql://root:hunter2@/bank", "source", "is not of the form"),
        ("mysql://root:hunter2@branch1:70000/bank", "source", "has the port 70000"),
        ("mysql://root:hunter2%0A@branch1/bank", "source", "has a line break"),
        ("mysql://root:hunter2@branch1/%FF", "source", "is not UTF-8"),
        ("postgresql://root:hunter2@branch1/bank", "source", "postgresql is no kind of source"),
        ("oracle://root:hunter2@branch1", "source", "names no service"),
        ("postgresql://root:hunter2@hq", "target", "names no database"),
        ("kafka://root:hunter2@broker", "target", "Kafka's are client settings"),
    ],
)
def test_wrong_url_is_refused_without_its_password(text: str, side: Side, seen: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_server_url(text, side)
    assert seen in caught.value.problem.what
    assert caught.value.problem.remedy
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_of_kinds_is_read_as_it_was_written(source: str, target: str) -> None:
    one = parse_server_url(f"{source}://app@branch1/bank", "source")
    two = parse_server_url("kafka://broker/out" if target == "kafka" else f"{target}://u@hq/hq", "target")
    config = load_draft(make_draft(one, two, ChosenTables(("bank.*",))))
    assert (config.sources["branch1"].type, config.sources["branch1"].tables) == (one.kind, ["bank.*"])
    assert config.sources["branch1"].password.get_secret_value() == "pw"
    [(name, pipeline)] = config.pipelines.items()
    [route] = pipeline.routes
    written = config.targets[pipeline.target]
    schema = {"postgres": "public", "oracle": "u", "kafka": "out"}.get(two.kind, "hq")
    assert (name, route.from_, route.to) == (f"to-{pipeline.target}", "bank.*", f"{schema}.{{table}}")
    assert written.type == two.kind
    if two.has_login:
        assert (written.host, written.user, written.database) == ("hq", "u", "hq")
        assert written.password.get_secret_value() == "secret"


@given(
    pair=st.sampled_from(PAIRS),
    hosts=st.tuples(HOSTS, HOSTS),
    ports=st.tuples(PORTS, PORTS),
    users=st.tuples(NAMES, DATABASES),
    databases=st.tuples(DATABASES, DATABASES),
    table=NAMES,
)
@example(PAIRS[0], ("a", "b"), (None, None), ("u", "u"), ("d", "d"), "\n: \a\x85")
def test_weird_names_survive_the_file(
    pair: tuple[str, str],
    hosts: tuple[str, str],
    ports: tuple[int | None, int | None],
    users: tuple[str, str],
    databases: tuple[str, str],
    table: str,
) -> None:
    source, target = (
        ServerUrl(schemes[scheme], *rest)
        for schemes, scheme, *rest in zip(
            SCHEMES.values(), pair, hosts, ports, users, (None, None), databases, strict=True
        )
    )
    if target.kind == "kafka":
        target = replace(target, user="", database="out")
    listed = TableList((
        ListedTable((databases[0], table), 1, 1),
        ListedTable((databases[0], table + "x"), 1, 1, Problem(f"table {table} has no key")),
    ))  # fmt: skip
    choice = choose_tables(listed, ["all"])
    draft = make_draft(source, target, choice)
    config = load_draft(draft)
    [(name, read)] = config.sources.items()
    assert (read.host, read.port, read.user) == (source.host, source.real_port, source.user)
    assert is_selected_by_patterns(read.tables, databases[0], table)
    assert not is_selected_by_patterns(read.tables, databases[0], table + "x")
    [(other, written)] = config.targets.items()
    assert name_variable(name) != name_variable(other)
    if target.kind == "kafka":
        return
    assert (written.host, written.port) == (target.host, target.real_port)
    assert (written.user, written.database) == (target.user, target.database)


@given(TEXTS)
@example("$$")
@example("${HOME}")
@example("on")
@example("1:20")
@example("2026-11-28")
def test_scalar_is_read_as_its_text(text: str) -> None:
    document = yaml_lines.parse_yaml(f"a:\n  - {format_scalar(text)}  # x\n", {}, lambda _: "")
    assert (document.data, document.problems) == ({"a": [text]}, [])


def test_usual_ports_are_left_out() -> None:
    source = ServerUrl("mysql", "b", 3306, user="u")
    target = ServerUrl("postgres", "h", 5432, user="u", database="hq")
    assert "port:" not in render_config(make_draft(source, target, ChosenTables(("bank.*",))))
    moved = replace(source, port=5432)
    assert "    port: 5432\n" in render_config(make_draft(moved, target, ChosenTables(("bank.*",))))


def test_braces_in_a_target_database_are_refused() -> None:
    source, target = ServerUrl("mysql", "b", user="u"), ServerUrl("mysql", "h", user="u", database="{db}")
    with pytest.raises(CommandError, match="placeholders in a route"):
        render_config(make_draft(source, target, ChosenTables(("bank.*",))))


def test_tables_of_several_databases_keep_their_databases() -> None:
    source, target = ServerUrl("mysql", "b", user="u"), ServerUrl("postgres", "h", user="u", database="hq")
    config = load_draft(make_draft(source, target, ChosenTables(("bank.*", "card.*", "!bank.x"))))
    assert config.pipelines["to-h"].routes[0].to == "{db}.{table}"


@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        (("branch1.bank.example", "bank"), ("hq", "hq"), ("branch1", "hq")),
        (("127.0.0.1", "bank"), ("::1", "hq"), ("bank", "hq")),
        (("localhost", "bank"), ("localhost", "Bank"), ("bank", "Bank-target")),
        (("10.0.0.1", "表"), ("10.0.0.2", "表"), ("mysql", "postgres")),
        (("control", ""), ("9-a.b", "x"), ("control-db", "9-a")),
        (("b" * 80, ""), ("a_b", "x"), ("b" * 40, "a_b")),
    ],
)
def test_servers_are_named_by_host_or_database(
    source: tuple[str, str], target: tuple[str, str], names: tuple[str, str]
) -> None:
    one, two = (
        ServerUrl(kind, host, database=database)
        for kind, (host, database) in (("mysql", source), ("postgres", target))
    )
    assert choose_server_names(one, two) == names


@pytest.mark.parametrize(
    ("answers", "patterns", "excluded"),
    [
        (["all"], ("bank.*", "`my.db`.*"), ["audit"]),
        (["1", "3"], ("bank.acct", "`my.db`.```x`"), []),
        ([" 1-2 ", ""], ("bank.acct", "bank.card"), []),
        (["a*"], ("bank.a*",), ["audit"]),
        (["bank.*", "!bank.c*"], ("bank.*", "!bank.c*"), ["audit"]),
    ],
)
def test_choice_of_tables(answers: list[str], patterns: tuple[str, ...], excluded: list[str]) -> None:
    choice = choose_tables(LISTED, answers, "bank")
    assert choice.patterns == patterns
    assert [each.name[1] for each in choice.excluded] == excluded


@pytest.mark.parametrize(
    ("answers", "seen"),
    [
        (["4"], "has no number 4"),
        (["0"], "has no number 0"),
        (["2-1"], "has no number 2-1"),
        (["a["], "is no pattern"),
        (["bank.audit"], "has no primary key"),
        (["bank.nothing"], "no table is selected"),
        ([""], "no table is selected"),
    ],
)
def test_wrong_choice_is_refused(answers: list[str], seen: str) -> None:
    with pytest.raises(CommandError, match=seen):
        choose_tables(LISTED, answers, "bank")


def test_user_without_rights_chooses_the_database_of_the_url() -> None:
    assert choose_tables(TableList(()), ["all"], "bank").patterns == ("bank.*",)
    with pytest.raises(CommandError, match="sees no table"):
        choose_tables(TableList(()), ["all"])


@pytest.mark.parametrize(
    ("remedy", "statements"),
    [
        ("GRANT SELECT ON `a;b`.* TO `u`@`%`;", ["GRANT SELECT ON `a;b`.* TO `u`@`%`;"]),
        ("SET GLOBAL x = ''; and reconnect; then more", ["SET GLOBAL x = '';  -- and reconnect; then more"]),
        ('GRANT A TO "U"; GRANT B TO "U"', ['GRANT A TO "U";', 'GRANT B TO "U";']),
        ("SET GLOBAL x = 1; in the server's file, too", ["SET GLOBAL x = 1;  -- in the server's file, too"]),
        ("SET GLOBAL x = ON", ["SET GLOBAL x = ON;"]),
        ("remove the options and restart it", ["-- remove the options and restart it"]),
        ("write log_bin = x into the server's configuration and restart it", []),
        ("SET GLOBAL x = 1; and set it in the server's configuration", []),
        ("correct host and port, start the server", []),
        ("ALTER TABLE … ENGINE=InnoDB, or exclude the table", []),
        ("", []),
    ],
)
def test_statements_of_a_remedy(remedy: str, statements: list[str]) -> None:
    assert list_needed_statements([Finding("error", "source b", "x", remedy)] * 2) == statements


def test_what_needs_a_restart_comes_before_what_a_restart_ends() -> None:
    remedies = ["SET GLOBAL x = 1;", "write y = 1 into the options and restart it", "GRANT A TO u;"]
    assert list_needed_statements([Finding("error", "source b", "x", each) for each in remedies]) == [
        "-- write y = 1 into the options and restart it", "SET GLOBAL x = 1;", "GRANT A TO u;",
    ]  # fmt: skip


def test_each_needed_setting_is_listed_once_with_the_statements_for_the_running_server() -> None:
    """The remedies are those of the checks, so that a change of their words is found here."""
    variables = {
        "log_bin": "OFF",
        "binlog_format": "MIXED",
        "binlog_row_metadata": "MINIMAL",
        "gtid_mode": "OFF",
    }
    urls = ServerUrl("mysql", "b", user="u"), ServerUrl("postgres", "h", user="u", database="hq")
    source = load_draft(make_draft(*urls, ChosenTables(("a.*",)))).sources["b"]
    findings = list(check_server_settings(variables, source, "source b"))
    untested = check_server_settings({**variables, "version": "9.0.1"}, source, "source b")
    (warning,) = (each for each in untested if "not with this version" in each.message)
    assert warning.level == "warning"
    findings += log_findings(LogFacts({"sync_binlog": "0"}), "source b")
    assert list_needed_statements(findings) == []
    found = {each.variable: each for each in list_needed_settings(findings + findings)}
    assert [(name, each.value, each.is_required) for name, each in found.items()] == [
        ("log_bin", "binlog", True), ("binlog_format", "ROW", True), ("enforce_gtid_consistency", "ON", True),
        ("gtid_mode", "ON", True), ("binlog_row_metadata", "FULL", False), ("sync_binlog", "1", False),
    ]  # fmt: skip
    assert found["log_bin"].statements == ()
    assert found["gtid_mode"].statements == (
        "SET GLOBAL gtid_mode = OFF_PERMISSIVE;", "SET GLOBAL gtid_mode = ON_PERMISSIVE;",
        "SET GLOBAL gtid_mode = ON;",
    )  # fmt: skip
    assert found["binlog_format"].statements == (
        "SET GLOBAL binlog_format = ROW;  -- and reconnect the clients (sessions keep their own value)",
    )
    assert found["sync_binlog"].statements == (
        "SET GLOBAL sync_binlog = 1;  -- after a crash let `rowlock verify` compare",
    )


def test_copy_is_estimated_by_the_measured_rate() -> None:
    copy = CopyEstimate.from_tables([ListedTable(("b", "t"), 2 * COPIED_ROWS_PER_S, 10)] * 3)
    assert (copy.tables, copy.bytes, copy.duration_s) == (3, 30, START_S + 6)


def test_wrong_broker_is_refused() -> None:
    source, target = ServerUrl("mysql", "b", user="u"), ServerUrl("postgres", "h", user="u", database="hq")
    with pytest.raises(ConfigErrors, match="is no broker"):
        load_draft(replace(make_draft(source, target, ChosenTables(("a.*",))), kafka="nowhere"))

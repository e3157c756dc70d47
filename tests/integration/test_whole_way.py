"""The whole way on real services: MySQL and MariaDB at once into PostgreSQL, MySQL and MariaDB, by the
command line alone.

One system serves all tests of the module: rows for the snapshot and a `run --until-caught-up`, changes while
nothing runs, then `rowlock run`, which all tests share; each has tables of its own.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from schemas.table.model import Row, Value
from tests.kits.running import ACCOUNTS, KEYS, Load, Witness, rows
from tests.kits.schemas_strategies import TABLE, b64, bound_rows, point
from tests.kits.schemas_strategies import rows as any_rows
from tests.kits.waiting import until
from tests.kits.whole_way import (
    SOURCES,
    STRICT,
    TARGETS,
    WholeWay,
    create_everything,
    insert_everything,
    overwrite,
    texts,
    update_everything,
    whole_way,
)

pytestmark = pytest.mark.timeout(1800)  # three Sparks start twice, perhaps on a busy machine

TABLES = (
    (
        "CREATE TABLE merged (id INT PRIMARY KEY, code VARCHAR(20) COLLATE utf8mb4_bin UNIQUE, "
        "n INT) CHARACTER SET utf8mb4"
    ),
    "CREATE TABLE sync_table (id INT PRIMARY KEY, name VARCHAR(11) UNIQUE, age INT)",
    "CREATE TABLE odd (id INT PRIMARY KEY, day DATE NULL, note VARCHAR(20) NULL)",
    "CREATE TABLE altered (id INT PRIMARY KEY, note VARCHAR(20))",
    "CREATE TABLE zero_keys (f FLOAT PRIMARY KEY, d DOUBLE UNIQUE, v FLOAT)",
    "CREATE TABLE zeros (id INT PRIMARY KEY, f FLOAT, d DOUBLE)",
    "INSERT INTO zero_keys VALUES (-0.0e0, -0.0e0, -0.0e0)",
    "INSERT INTO zeros VALUES (1, -0.0e0, -0.0e0), (2, 0.0e0, 0.0e0), (3, 1.5e0, 1.5e0)",
)
ZEROS = (
    "UPDATE zero_keys SET f = 0.0 WHERE f = -0.0",
    "UPDATE zero_keys SET d = 0.0, v = 0.0",
    "INSERT INTO zeros VALUES (4, -0.0e0, -0.0e0)",
    "UPDATE zeros SET f = 0.0, d = 0.0 WHERE id = 1",
    "UPDATE zeros SET f = -0.0e0, d = -0.0e0 WHERE id IN (2, 3)",
)
MERGED = [(1, "a", 10), (2, "b", 20), (3, None, 30)]
RANDOM = 40


@st.composite
def a_row(draw: st.DrawFn) -> Row:
    """A row whose strategy has a short name: Hypothesis writes names into its notes."""
    return draw(any_rows(TABLE))


def random_rows(seed: int) -> list[Row]:
    """Return rows of any values, the same ones for the same seed."""
    found: list[Row] = []

    @hypothesis.seed(seed)
    @settings(max_examples=RANDOM, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))  # fmt: skip  # noqa: E501
    @given(a_row())
    def collect(row: Row) -> None:
        found.append(row)

    collect()
    return found


def numbered(found: list[Row], first: int) -> list[Row]:
    return [(first + i, *row[1:]) for i, row in enumerate(found)]


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, mysql: MySQL, mariadb: MariaDB,
    postgres: PostgreSQL
) -> Iterator[WholeWay]:  # fmt: skip
    folder = tmp_path_factory.mktemp("way")
    with whole_way(folder, kafka, mysql, mariadb, postgres) as made:
        prepare(made)
        caught_up = made.run.call("run", "--until-caught-up")
        assert caught_up.returncode == 0, caught_up.stderr[-3000:]
        made.first = made.verify("--settle", "0")
        change_everything(made)
        made.run.start()
        yield made


def prepare(system: WholeWay) -> None:
    """Rows for the snapshot, and a target table of the user's own that is narrower than its source."""
    for source in SOURCES:
        create_everything(system.sources[source], system.db)
        system.change(source, *TABLES, *map(insert_everything, [*bound_rows(TABLE), *TAMPERED]))
        system.change(source, *map(insert_everything, numbered(random_rows(1), 1000)))
        system.change(source, *(("INSERT INTO merged VALUES (%s, %s, %s)", row) for row in MERGED))
    system.change("ma", *ACCOUNTS)
    system.change("ma", "CREATE TABLE narrow (id INT PRIMARY KEY, note VARCHAR(20))")
    system.sources["my"].execute(
        "CREATE TABLE narrow_ma (id INT PRIMARY KEY, note VARCHAR(6))", database=f"{system.db}_t"
    )


def change_everything(system: WholeWay) -> None:
    """Rows of all types through the log: inserted, every value updated to another, deleted, and keys that
    move."""
    bounds = bound_rows(TABLE)
    turned = [(row[0], *other[1:]) for row, other in zip(bounds, [*bounds[3:], *bounds[:3]], strict=True)]
    for source in SOURCES:
        system.change(source, *map(insert_everything, numbered(bounds, 2000)))
        system.change(source, *map(update_everything, turned), apart=False)
        system.change(source, *map(insert_everything, numbered(random_rows(2), 3000)))
        system.change(source, *map(update_everything, numbered(random_rows(3), 1000)))
        system.change(source, "DELETE FROM everything WHERE id BETWEEN 3010 AND 3014")
        system.change(source, *ZEROS)
        system.change(source, "UPDATE everything SET id = id + 5000 WHERE id BETWEEN 3020 AND 3024")


# --- 1: all types

#: A pair for every column: two values as near to each other as a careless comparison would take them for
#: equal.
NEAR: dict[str, tuple[Value, Value]] = {
    "i8": (-1, 1), "i16": (0, None), "i24": (8388607, -8388608), "i32": (7, 8),
    "i64": ("9007199254740993", 2**53), "u8": (255, 127), "u16": (65535, 32767), "u24": (0, 1),
    "u32": (4294967295, 2147483647), "u64": ("18446744073709551615", "18446744073709551614"),
    "dec": ("0.10", "0.11"), "dec0": ("999999999999999999", "999999999999999998"),
    "dec_u": ("0.000001", "0.000000"), "dec_all": ("1." + "0" * 29 + "1", "1." + "0" * 29 + "2"),
    "flt": (1.0, 1.0000001192092896), "dbl": (0.1, math.nextafter(0.1, 1)), "bit1": (1, 0),
    "bit8": (255, 127), "bit53": (2**52, 2**52 + 1), "bit54": (str(2**53 + 1), 2**53),
    "bit64": (str(2**64 - 1), str(2**64 - 2)), "yr": (0, 2000), "ch": ("a", "A"), "ch_l": ("e", "é"),
    "vc": ("a", "a "), "vc_l": ("a", "a "), "tx8": ("é", "e\u0301"), "tx16": ("", None),
    "tx24": ("NULL", None), "tx32": ("\\N", None), "bin": (b64(b"a\0\0\0\0\0"), b64(b"a\0\0\0\0\1")),
    "vb": (b64(b"a"), b64(b"a\0")), "bl8": (b64(b""), None), "bl16": (b64(b"a"), b64(b"A")),
    "bl24": (b64(b"\xff"), b64(b"\xfe")), "bl32": (b64(b"a"), b64(b"a ")), "dt": ("2024-02-29", "2024-02-28"),
    "ti0": ("00:00:01", "-00:00:01"), "ti3": ("24:00:00.000", "24:00:00.001"),
    "ti6": ("838:59:58.000000", "838:59:58.000001"), "dt0": ("2024-01-01 00:00:00", "2024-01-01 00:00:01"),
    "dt3": ("2024-01-01 00:00:00.000", "2024-01-01 00:00:00.001"),
    "dt6": ("2024-01-01 00:00:00.000001", "2024-01-01 00:00:00.000002"),
    "ts0": ("2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"), "ts3": ("2024-01-01T00:00:00.000Z", None),
    "ts6": ("2024-01-01T00:00:00.000001Z", "2024-01-01T00:00:00.000002Z"),
    "js": ('{"a": [1, 2]}', '{"a": [2, 1]}'), "en": ("open", "ü"), "st": ("", "vip"),
    "en_n": (2, 1), "st_n": (14, 15), "st_64": (str(2**63 + 1), str(2**63)),
    "geo": (point(1.0, 2.0, 0), point(1.0, 2.0, 4326)),
}  # fmt: skip
NAMES = TABLE.column_names[1:]
BASE: Row = tuple(NEAR[name][0] for name in NAMES)
#: A row for every column, to be tampered with in that column.
TAMPERED = [(4000 + i, *BASE) for i, _ in enumerate(NAMES)]


def test_existing_rows_of_all_types_are_equal_after_until_caught_up(system: WholeWay) -> None:
    for target in TARGETS:
        for source in SOURCES:
            verdict = system.first[target, source, "everything"]
            assert verdict["equal"], verdict
            assert verdict["rows"] == len(bound_rows(TABLE)) + len(NAMES) + RANDOM


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_rows_of_all_types_through_the_log_are_equal(system: WholeWay, source: str, target: str) -> None:
    expected = texts(system.sources[source], system.db, "everything")
    assert len(expected) == 2 * len(bound_rows(TABLE)) + 2 * RANDOM + len(NAMES) - 5
    server, database = system.target(target)
    system.run.until(lambda: expected == texts(server, database, f"everything_{source}"), "equal", 400)
    verdict = system.verify("--pipeline", target, "--table", f"{system.db}.everything")
    assert verdict[target, source, "everything"]["equal"]


@pytest.mark.parametrize("target", TARGETS)
def test_verify_finds_exactly_one_tampered_value_of_each_type(system: WholeWay, target: str) -> None:
    system.run.until(
        lambda: all(verdict["equal"] for verdict in everything(system, target)), "equal before", 400
    )
    changed = [(4000 + i, *BASE[:i], NEAR[name][1], *BASE[i + 1 :]) for i, name in enumerate(NAMES)]
    try:
        for row, name in zip(changed, NAMES, strict=True):
            overwrite(system, target, "everything_my", row, name)
        mine, other = everything(system, target)
        assert other["equal"]
        found = {(each["kind"], tuple(each["key"]), tuple(each["columns"])) for each in mine["differences"]}
        assert found == {("different", (4000 + i,), (name,)) for i, name in enumerate(NAMES)}
    finally:
        for row, name in zip(TAMPERED, NAMES, strict=True):
            overwrite(system, target, "everything_my", row, name)
    assert everything(system, target)[0]["equal"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_zeros_keep_their_signs(system: WholeWay, source: str, target: str) -> None:
    """From the snapshot and from the log; as key, as unique value and in other columns."""
    for each in ("zero_keys", "zeros"):
        assert system.first[target, source, each]["equal"]
    minus = "-0.0"
    expected = {("0.0", "0.0", "0.0"), ("1", "0.0", "0.0"), *((each, minus, minus) for each in "234")}
    assert zeros(system.sources[source], system.db, "") == expected
    server, database = system.target(target)
    system.run.until(lambda: zeros(server, database, f"_{source}") == expected, "the same signs", 400)


def zeros(server: Any, database: str, end: str) -> set[tuple[str, ...]]:
    """Return the rows of both tables, in which a zero shows its sign."""
    form = "{}" if isinstance(server, PostgreSQL) else "{} * 1e0"
    columns = [("zero_keys", [*map(form.format, "fdv")]), ("zeros", ["id", *map(form.format, "fd")])]
    return {
        tuple(map(repr, row))
        for table, names in columns
        for row in server.execute(f"SELECT {', '.join(names)} FROM {table}{end}", database=database)
    }


@pytest.mark.parametrize("target", TARGETS)
def test_a_key_whose_zero_has_the_other_sign_is_listed_and_a_copy_heals_it(
    system: WholeWay, target: str
) -> None:
    """As an earlier version has left it."""
    server, database = system.target(target)
    system.run.until(lambda: ("0.0", "0.0", "0.0") in zeros(server, database, "_my"), "applied before", 400)
    server.execute("UPDATE zero_keys_my SET f = '-0.0'", database=database)
    assert ("-0.0", "0.0", "0.0") in zeros(server, database, "_my")
    words = ("--pipeline", target, "--table", f"{system.db}.zero_keys")
    [different] = system.verify(*words)[target, "my", "zero_keys"]["differences"]
    assert (different["kind"], different["columns"]) == ("different", ["f"])
    taken = system.invoke("copy", f"{system.db}.zero_keys", "--source", "my")
    assert taken.exit_code == 0, taken.output
    system.run.until(
        lambda: system.verify(*words)[target, "my", "zero_keys"]["equal"], "healed by the copy", 400
    )


def everything(system: WholeWay, target: str) -> list[dict[str, Any]]:
    """Return the verdicts of MySQL's and MariaDB's rows in one target."""
    found = system.verify("--pipeline", target, "--table", f"{system.db}.everything", "--settle", "0")
    return [found[target, source, "everything"] for source in SOURCES]


# --- 2: many to one


def test_two_sources_share_a_table_and_never_each_others_rows(system: WholeWay) -> None:
    query = "SELECT branch, id, code, n FROM {} ORDER BY branch, id"
    both = [(source, *row) for source in ("ma", "my") for row in MERGED]
    for target in TARGETS:
        assert system.first[target, "my", "merged"]["equal"]
        assert system.first[target, "ma", "merged"]["equal"]
    system.arrives(query.format("merged"), both)  # equal keys and equal codes stand side by side
    system.change(
        "my",
        "UPDATE merged SET n = 21, code = 'a2' WHERE id = 1",
        "UPDATE merged SET code = 'a' WHERE id = 2",
    )
    mine = [("my", 1, "a2", 21), ("my", 2, "a", 20), ("my", 3, None, 30)]
    system.arrives(query.format("merged"), [*both[:3], *mine])
    system.change("ma", "TRUNCATE merged", "INSERT INTO merged VALUES (2, 'a2', 5)")
    system.arrives(query.format("merged"), [("ma", 2, "a2", 5), *mine])
    assert all(each["equal"] for each in system.verify("--table", f"{system.db}.merged").values())


def test_check_refuses_two_sources_in_a_table_that_does_not_keep_them_apart(
    system: WholeWay, tmp_path: Path
) -> None:
    def no_add(raw: dict[str, Any]) -> None:
        for pipeline in raw["pipelines"].values():
            pipeline["routes"] = [{**pipeline["routes"][0], "to": pipeline["routes"][0]["to"] + "2"}]
            del pipeline["routes"][0]["add"]

    config = system.changed(tmp_path, no_add)
    refused = system.invoke("check", "--output", "json", config=config)
    assert refused.exit_code == 1
    findings = [each for each in json.loads(refused.stdout)["findings"] if each["level"] == "error"]
    assert len(findings) >= len(TARGETS)
    assert all("merged2" in each["place"] + each["what"] for each in findings), findings
    assert all("add" in each["remedy"] for each in findings), findings
    assert system.invoke("run", config=config).exit_code == 2


@pytest.mark.parametrize("finer", SOURCES)
def test_check_judges_a_shared_table_for_each_of_its_sources(
    system: WholeWay, tmp_path: Path, unique: str, finer: str
) -> None:
    for source in SOURCES:
        collation = "utf8mb4_bin" if source == finer else "utf8mb4_general_ci"
        server = system.sources[source]
        server.create_database(unique)
        server.execute(
            "CREATE TABLE mixed (id INT PRIMARY KEY, code VARCHAR(9) COLLATE "
            f"{collation} UNIQUE) CHARSET utf8mb4",
            database=unique,
        )
    system.sources["my"].execute(
        f"CREATE TABLE {unique}.target (id INT, code VARCHAR(9) COLLATE utf8mb4_general_ci, branch "
        "VARCHAR(64), PRIMARY KEY (branch, id), UNIQUE code (branch, code)) CHARSET utf8mb4"
    )

    def select(raw: dict[str, Any]) -> None:
        raw["pipelines"] = {"my": raw["pipelines"]["my"]}
        for source in raw["sources"].values():
            source["tables"] = [f"{unique}.mixed"]
        route = {"from": f"{unique}.*", "to": f"{unique}.target", "add": {"branch": "{source}"}}
        raw["pipelines"]["my"]["routes"] = [route]

    try:
        refused = system.invoke("check", "--output", "json", config=system.changed(tmp_path, select))
    finally:
        for source in SOURCES:
            system.sources[source].drop_database(unique)
    findings = [each for each in json.loads(refused.stdout)["findings"] if each["level"] == "error"]
    assert [each["place"] for each in findings] == [f"target table {unique}.target"], findings
    assert "compares code by utf8mb4_general_ci" in findings[0]["what"]


# --- 3: unique values that move, into three targets, with faults


@pytest.mark.slow  # tests/faults/test_whole_system.py has these faults one by one
def test_moving_unique_values_through_a_dead_driver_and_a_restarted_target(system: WholeWay) -> None:
    system.arrives("SELECT count(*) FROM acct_ma", [(KEYS // 2,)])
    witnesses = [Witness(*system.target(target), table="acct_ma") for target in TARGETS]
    load = Load(system.sources["ma"], system.db)
    for each in (*witnesses, load):
        each.start()
    try:
        until(lambda: load.count > 100, "load before the faults")
        for victim in system.run.until(lambda: system.run.find("consumer.main"), "the apply process"):
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        until(lambda: load.count > 200, "load after the driver's death")
        system.sources["my"].restart()
        until(lambda: load.count > 500, "load after the target's restart")
    finally:
        load.finish()
    expected = rows(system.sources["ma"], system.db)
    for target in TARGETS:
        system.run.until(
            lambda target=target: moved(system, target) == expected,
            f"equal in {target}",
            200,
        )  # type: ignore[misc]
    for each in witnesses:
        each.finish()
    assert [each.regressions for each in witnesses] == [[], [], []]
    assert all(each.reads > 0 for each in witnesses)
    assert all(each["equal"] for each in system.verify("--table", f"{system.db}.acct").values())
    assert system.read("my", "SELECT * FROM rowlock_displaced") == []


def moved(system: WholeWay, target: str) -> list[tuple[Any, ...]] | None:
    return system.read(target, "SELECT id, version, owner, amount FROM acct_ma ORDER BY id")


# --- 4: values a target cannot hold


def test_refused_values_wait_and_hold_their_keys_only(system: WholeWay) -> None:
    query = "SELECT id, CAST(day AS CHAR(10)), note FROM odd_ma ORDER BY id"
    system.change(
        "ma",
        "INSERT INTO odd VALUES (1, '2024-01-01', 'a'), (2, '0000-00-00', 'b'), (3, NULL, 'x\\0y')",
        "UPDATE odd SET note = 'bb' WHERE id = 2",
        "UPDATE odd SET day = '2024-02-02' WHERE id = 2",  # PostgreSQL can hold it now
        "INSERT INTO odd VALUES (4, NULL, 'd')",
    )
    whole = [(1, "2024-01-01", "a"), (2, "2024-02-02", "bb"), (3, None, "x\0y"), (4, None, "d")]
    system.arrives(query, whole, ("my", "ma"))
    system.arrives(query, [whole[0], whole[1], whole[3]], ("pg",))  # key 2 recovers with its last row
    system.run.until(lambda: len(odd_ones(system)) == 1, "one event is held")
    (held,) = odd_ones(system)
    assert (held["pipeline"], held["key"]) == ("pg", "[3]")
    assert "note" in held["error"]
    again = system.invoke("quarantine", "retry", "--pipeline", "pg")
    assert again.exit_code == 1, again.output  # the NUL stays
    assert "still held" in again.output
    assert system.invoke("quarantine", "skip", "--pipeline", "pg", "--key", "[3]", "--yes").exit_code == 0
    system.change("ma", "UPDATE odd SET note = 'xy' WHERE id = 3", "INSERT INTO odd VALUES (5, NULL, 'e')")
    system.arrives(query, [*whole[:2], (3, None, "xy"), whole[3], (5, None, "e")])  # all go on by themselves
    assert all(each["equal"] for each in system.verify("--table", f"{system.db}.odd").values())


def test_a_row_too_wide_for_a_mysql_target_waits_until_the_column_is_wider(system: WholeWay) -> None:
    system.change("ma", "INSERT INTO narrow VALUES (1, 'fits'), (2, 'far too long'), (3, 'too')")
    system.arrives("SELECT id FROM narrow_ma ORDER BY id", [(1,), (3,)], ("my",))
    system.arrives("SELECT id FROM narrow_ma ORDER BY id", [(1,), (2,), (3,)], ("pg", "ma"))
    system.change(
        "ma", "UPDATE narrow SET note = 'still too long' WHERE id = 2", "DELETE FROM narrow WHERE id = 3"
    )
    system.arrives("SELECT id FROM narrow_ma ORDER BY id", [(1,)], ("my",))
    unit = system.run.until(lambda: behind_refused(system), "both events of the key are held", 60)
    assert unit["state"] in ("current", "behind")
    system.sources["my"].execute("ALTER TABLE narrow_ma MODIFY note VARCHAR(20)", database=f"{system.db}_t")
    done = system.invoke("quarantine", "retry", "--pipeline", "my")
    assert done.exit_code == 0, done.output
    system.change("ma", "INSERT INTO narrow VALUES (4, 'after')")
    system.arrives(
        "SELECT id, note FROM narrow_ma ORDER BY id", [(1, "fits"), (2, "still too long"), (4, "after")]
    )


def behind_refused(system: WholeWay) -> dict[str, Any] | None:
    unit = system.unit("my", "ma", "narrow")
    return unit if unit and unit["quarantined"] == 2 else None


def odd_ones(system: WholeWay) -> list[dict[str, Any]]:
    """Return what the quarantine has of the table `odd`."""
    result = system.invoke("quarantine", "list", "--output", "json")
    assert result.exit_code == 0, result.output
    held: list[dict[str, Any]] = json.loads(result.stdout)["held"]
    odd = [each for each in held if each["topic"].endswith(".odd")]
    return sorted(odd, key=lambda each: (each["pipeline"], each["topic"], each["offset"], each["part"]))


# --- 5: tables that appear, change, or have no key


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_that_appears_while_it_runs_is_picked_up(system: WholeWay, source: str) -> None:
    system.change(
        source,
        "CREATE TABLE fresh (id INT PRIMARY KEY, name VARCHAR(9) UNIQUE)",
        "INSERT INTO fresh VALUES (1, 'x'), (2, 'y')",
        "UPDATE fresh SET name = NULL WHERE id = 1",
        "UPDATE fresh SET name = 'x' WHERE id = 2",
    )
    system.arrives(f"SELECT id, name FROM fresh_{source} ORDER BY id", [(1, None), (2, "x")])
    assert all(
        verdict["equal"] for (_, name, _),
        verdict in system.verify("--table", f"{system.db}.fresh").items() if name == source
    )  # fmt: skip


def test_an_alter_is_followed_or_stops_its_table_alone_and_status_says_so(system: WholeWay) -> None:
    system.change("ma", "INSERT INTO altered VALUES (1, 'before')")
    system.arrives("SELECT * FROM altered_ma", [(1, "before")])
    system.change("ma", "ALTER TABLE altered ADD extra INT", "INSERT INTO altered VALUES (2, 'after', 1)")
    unit = system.run.until(lambda: stopped(system, STRICT), f"the unit stops in {STRICT}", 200)
    assert "ALTER TABLE altered ADD extra INT" in unit["stopped"], unit
    followers = [target for target in TARGETS if target != STRICT]
    system.arrives("SELECT * FROM altered_ma ORDER BY id", [(1, "before", None), (2, "after", 1)], followers)
    assert not any(stopped(system, target) for target in followers)
    shown = system.invoke("status")
    assert shown.exit_code == 1
    assert "stopped" in shown.stdout
    assert "ALTER TABLE" in shown.stdout
    system.change("my", "INSERT INTO altered VALUES (7, 'goes on')")
    system.arrives("SELECT id FROM altered_my", [(7,)])
    # nothing behind the ALTER came through
    system.arrives("SELECT * FROM altered_ma", [(1, "before")], (STRICT,))


def stopped(system: WholeWay, target: str) -> dict[str, Any] | None:
    unit = system.unit(target, "ma", "altered")
    return unit if unit and unit["state"] == "stopped" else None


def test_a_table_without_any_key_is_refused_by_check(system: WholeWay, tmp_path: Path, unique: str) -> None:
    for server in (system.sources["my"], system.sources["ma"]):
        server.create_database(unique)
        server.execute("CREATE TABLE keyless (a INT, UNIQUE (a))", database=unique)
        server.execute("CREATE TABLE keyed (a INT NOT NULL, UNIQUE (a))", database=unique)

    def select(raw: dict[str, Any]) -> None:
        for source in raw["sources"].values():
            source["tables"] = [f"{unique}.*"]
        for pipeline in raw["pipelines"].values():
            pipeline["routes"] = [{"from": f"{unique}.*", "to": pipeline["routes"][1]["to"]}]

    try:
        refused = system.invoke("check", "--output", "json", config=system.changed(tmp_path, select))
    finally:
        for server in (system.sources["my"], system.sources["ma"]):
            server.drop_database(unique)
    findings = [each for each in json.loads(refused.stdout)["findings"] if each["level"] == "error"]
    assert refused.exit_code == 1
    assert [each["place"] for each in findings] == [
        f"source {name}, table {unique}.keyless" for name in ("ma", "my")
    ]
    assert all("neither a primary key" in each["what"] for each in findings)
    assert all("add a primary key" in each["remedy"] for each in findings)


def test_a_keyless_table_that_appears_is_left_out_and_said(system: WholeWay) -> None:
    system.change(
        "my",
        "CREATE TABLE keyless (a INT)",
        "INSERT INTO keyless VALUES (1)",
        "INSERT INTO odd VALUES (8, NULL, 'goes on')",
    )
    try:
        system.arrives("SELECT id FROM odd_my", [(8,)])
        system.run.until(lambda: keyless_error(system), "the source's status reports it", 60)
        shown = system.invoke("verify", "--pipeline", "pg")
        assert shown.exit_code == 1
        assert [line for line in shown.stdout.splitlines() if "keyless" in line and "primary key" in line]
        odd = system.verify("--table", f"{system.db}.odd", "--pipeline", "pg")
        assert odd["pg", "my", "odd"]["equal"]
    finally:
        system.change("my", "DROP TABLE keyless")


def keyless_error(system: WholeWay) -> bool:
    """Whether the source's status names what the table lacks. Where another test of this server has
    just logged a statement whose tables cannot be determined, it reports for a moment that the table waits
    for that statement."""
    (found,) = (each for each in system.status()["sources"] if each["name"] == "my")
    error = found["error"] or ""
    return "keyless" in error and "primary key" in error


def _source_password(raw: dict[str, Any]) -> None:
    raw["sources"]["my"] |= {"user": "nobody", "password": "wr0ng"}


def _source_port(raw: dict[str, Any]) -> None:
    raw["sources"]["my"]["port"] = 1


def _target_password(raw: dict[str, Any]) -> None:
    raw["targets"]["my"] |= {"user": "nobody", "password": "wr0ng"}


def _target_port(raw: dict[str, Any]) -> None:
    raw["targets"]["ma"]["port"] = 1


def _target_database(raw: dict[str, Any]) -> None:
    raw["targets"]["my"]["database"] = "no_such_database"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_source_password, ("source my", "nobody")),
        (_source_port, ("source my", "127.0.0.1:1")),
        (_target_password, ("target my", "nobody")),
        (_target_port, ("target ma", "127.0.0.1:1")),
        (_target_database, ("target my", "no_such_database")),
    ],
)
def test_a_server_that_refuses_is_one_clear_message(
    system: WholeWay, tmp_path: Path, change: Callable[[dict[str, Any]], None], words: tuple[str, ...]
) -> None:
    config = system.changed(tmp_path, change)
    checked = system.invoke("check", "--output", "json", config=config)
    assert checked.exit_code == 1, checked.output
    findings = [each for each in json.loads(checked.stdout)["findings"] if each["level"] == "error"]
    findings = [each for each in findings if "altered_ma" not in each["place"]]  # another test's
    assert len(findings) == 1, findings
    reported = f"{findings[0]['place']}: {findings[0]['what']}"
    assert all(word in reported for word in words), reported
    compared = system.invoke("verify", config=config)
    assert compared.exit_code == 2, compared.output
    assert all(word in compared.stderr for word in words), compared.stderr
    assert len(compared.stderr.splitlines()) == 1
    assert not {"wr0ng", "Traceback"} & set((checked.output + compared.output).replace(":", " ").split())


# --- 6: the paper's scenario


@pytest.mark.parametrize("source", SOURCES)
def test_the_papers_scenario_word_for_word(system: WholeWay, source: str) -> None:
    query = f"SELECT id, name, age FROM sync_table_{source}"
    scenario = (
        "INSERT INTO sync_table VALUES (1, 'lucy', 18)",
        "DELETE FROM sync_table WHERE id = 1 AND name = 'lucy' AND age = 18",
        "INSERT INTO sync_table VALUES (2, 'lucy', 20)",
    )
    for apart in (True, False):
        system.change(source, *scenario, apart=apart)
        system.arrives(query, [(2, "lucy", 20)])
        system.change(source, "DELETE FROM sync_table", "INSERT INTO sync_table VALUES (9, 'end', 0)")
        system.arrives(query, [(9, "end", 0)])
        system.change(source, "DELETE FROM sync_table")

"""Statements are found in texts of every kind, only those that a case may run, and their databases are
marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from peers.cases import case, read, write
from peers.fill import without_expectations
from peers.literals import parts_of
from peers.repositories import Repository, order
from peers.sql_text import databases, defined, filled, marked, runnable, statements


def test_a_text_is_cut_at_semicolons_that_end_a_statement() -> None:
    text = """-- one; not two
    INSERT INTO t VALUES ('a;b', "c;d", `e;f`); /* gone; */ # gone;
    DELETE FROM t /*!50000 LIMIT 1 */;
    DELIMITER //
    CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW BEGIN SET NEW.a = 1; SET NEW.b = 2; END//
    delimiter ;
    COMMIT"""
    assert statements(text) == [
        "INSERT INTO t VALUES ('a;b', \"c;d\", `e;f`)",
        "DELETE FROM t /*!50000 LIMIT 1 */",
        "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW BEGIN SET NEW.a = 1; SET NEW.b = 2; END",
        "COMMIT",
    ]


@pytest.mark.parametrize(
    ("statement", "runs"),
    [
        ("CREATE TABLE t (id INT)", True),
        ("create or replace definer = root@localhost sql security invoker view v as select 1", True),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", True),
        ("SET SESSION sql_mode = ''", True),
        ("XA START 'a'", True),
        ("SELECT 1", False),
        ("GRANT ALL ON *.* TO u", False),
        ("SET GLOBAL general_log = 1", False),
        ("SET @@global.general_log = 1", False),
        ("SET sql_log_bin = 0", False),
        ("SET SESSION binlog_format = 'STATEMENT'", False),
        ("INSERT INTO t VALUES (SLEEP(5))", False),
        ("DELETE FROM `mysql`.user", False),
        ("DELETE FROM mysql_of_mine.user", True),
        ("CREATE USER u", False),
    ],
)
def test_only_what_changes_a_case_s_own_tables_runs(statement: str, runs: bool) -> None:
    assert runnable(statement) is runs


def test_databases_become_marks_that_are_filled_in() -> None:
    text = (
        "INSERT INTO `shop`.t (shop) SELECT shop.u.shop, 'shop.x' FROM shop.u "
        "JOIN other . u ON shop.u.a = u.b"
    )
    assert databases(text) == {"shop", "other"}
    there = marked(text, {"shop", "other"})
    assert (
        there == "INSERT INTO ⟦shop⟧.t (shop) SELECT ⟦shop⟧.u.shop, 'shop.x' FROM ⟦shop⟧.u JOIN "
        "⟦other⟧ . u ON ⟦shop⟧.u.a = u.b"
    )
    assert filled("USE ⟦shop⟧", {"shop": "p1"}) == "USE `p1`"
    assert marked("DROP DATABASE IF EXISTS shop", {"shop"}) == "DROP DATABASE IF EXISTS ⟦shop⟧"
    assert databases("CREATE SCHEMA IF NOT EXISTS a") | databases("USE `b c`") == {"a", "b c"}
    assert databases("RENAME TABLE a.t TO b.t") == {"a", "b"}
    assert databases("CREATE TABLE t (`from` INT) COMMENT 'on x.y'") == set()


def test_a_java_test_s_literals_are_joined_and_those_with_holes_left() -> None:
    source = '''
    @Test
    public void first() {
        run("CREATE TABLE a (id INT, " + // a remark with a "quote"
            "v VARCHAR(9) DEFAULT \\"x\\\\n\\")");
        run("INSERT INTO " + name + " VALUES (1)");
        run(String.format("DELETE FROM %s", name));
        log("nothing of SQL");
    }
    @Test
    void second() { run("""
        UPDATE a SET id = 2;
        COMMIT;
        """); }
    '''
    assert parts_of("java", source) == [
        ("first", ['CREATE TABLE a (id INT, v VARCHAR(9) DEFAULT "x\\n")']),
        ("second", ["UPDATE a SET id = 2", "COMMIT"]),
    ]


def test_a_go_test_s_raw_literals_are_taken_as_they_are() -> None:
    source = """
func TestOne(t *testing.T) {
	run(`CREATE TABLE a (v VARCHAR(9) DEFAULT '\\n')`)
	run("ALTER TABLE a ADD w " + "INT")
}
func (s *Suite) TestTwo(c *C) {
	run("DROP TABLE a", 'x')
}
"""
    assert parts_of("go", source) == [
        ("TestOne", ["CREATE TABLE a (v VARCHAR(9) DEFAULT '\\n')", "ALTER TABLE a ADD w INT"]),
        ("TestTwo", ["DROP TABLE a"]),
    ]


def test_a_python_test_begins_with_its_class_s_set_up() -> None:
    source = """
class TestIt:
    def setUp(self):
        self.execute("SET SESSION sql_mode = ''")
    def test_a(self):
        made = "CREATE TABLE a " "(id INT)"
        self.execute(made)
        self.execute("INSERT INTO a VALUES (1)")
        self.execute("INSERT INTO a VALUES (%s)" % 2)
    def helper(self):
        self.execute("DROP TABLE a")
"""
    begin = "SET SESSION sql_mode = ''"
    assert parts_of("py", source) == [
        ("test_a", [begin, "CREATE TABLE a (id INT)", "INSERT INTO a VALUES (1)"])
    ]


def test_a_shell_case_begins_as_its_run_case_says() -> None:
    source = """
function DM_A_CASE() {
    run_sql_source1 "alter table ${shardddl1}.${tb1} add a int;"
    run_sql_source2 "insert into ${shardddl1}.${tb1} values (1)"
    run_sql_tidb "drop table t"
}
function DM_A() {
    run_case A "conf" "init_table 111 212" "clean_table" ""
}
function DM_B_CASE() {
    run_sql_source1 "truncate ${shardddl1}.${tb1}"
}
function DM_B() {
    run_case B "conf" \\
        "run_sql_both_source \\"create table ${shardddl1}.${tb1} (a int);\\"" "clean_table" ""
}
"""
    found = dict(parts_of("sh", source))
    assert found["DM_A_CASE"] == [
        "create table shardddl1.tb1 (id int primary key)",
        "create table second_shardddl1.tb2 (id int primary key)",
        "alter table shardddl1.tb1 add a int",
        "insert into second_shardddl1.tb1 values (1)",
    ]
    assert found["DM_B_CASE"] == [
        "create table shardddl1.tb1 (a int)",
        "create table second_shardddl1.tb1 (a int)",
        "truncate shardddl1.tb1",
    ]


def test_what_a_test_expects_is_taken_out() -> None:
    text = "insert into t values (1);\n  -> {a: 1,\n      b: 2}\ndelete from t;\n-> {}\n"
    assert statements(without_expectations(text)) == ["insert into t values (1)", "delete from t"]


def test_files_of_a_case_stand_together_in_their_order() -> None:
    repository = Repository("x", "o/x", (r"\.sql$",), leave="skip", together="/data/")
    paths = [
        "a/data/db1.increment10.sql", "a/data/db1.increment2.sql", "a/data/db1.prepare.sql",
        "a/data/db2.prepare.sql", "a/one.sql", "a/two.sql", "a/skip.sql", "a/none.txt",
    ]  # fmt: skip
    assert sorted(repository.groups(paths)) == [
        ("a/data/db1.prepare.sql", "a/data/db1.increment2.sql", "a/data/db1.increment10.sql"),
        ("a/data/db2.prepare.sql",),
        ("a/one.sql",),
        ("a/two.sql",),
    ]
    assert sorted(["finish.sql", "b.sql", "prepare.sql"], key=order) == ["prepare.sql", "b.sql", "finish.sql"]


def test_a_case_without_rows_of_its_own_is_sown() -> None:
    assert defined("CREATE TABLE IF NOT EXISTS `a b` . c (id INT)") == "`a b` . c"
    assert defined("DROP TABLE t") is None
    made = case("s", "n", ["f"], ["USE shop", "CREATE TABLE t (id INT)", "ALTER TABLE shop.t ADD v INT"])
    assert made is not None
    assert made.databases == ("", "shop")
    assert made.statements == (
        "USE ⟦shop⟧",
        "CREATE TABLE t (id INT)",
        "INSERT IGNORE INTO t () VALUES ()",
        "ALTER TABLE ⟦shop⟧.t ADD v INT",
        "INSERT IGNORE INTO ⟦shop⟧.t () VALUES ()",
    )
    assert case("s", "n", ["f"], ["INSERT INTO t VALUES (1)"]) is None


def test_cases_of_the_same_statements_are_read_once(tmp_path: Path) -> None:
    one = case("a", "x", ["f"], ["CREATE TABLE t (id INT)"])
    other = case("b", "y", ["g"], ["CREATE TABLE t (id INT)"])
    assert one is not None
    assert other is not None
    write(tmp_path, "a", [one])
    write(tmp_path, "b", [other])
    assert list(read(tmp_path)) == [one]
    assert list(read(tmp_path, "b")) == [other]

"""Which GRANT a server's message asks for, and which rights `check` finds missing: texts as real servers
write them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from consumer.errors import MissingGrantError
from consumer.targets.checks.rights import ROW_RIGHTS, RequiredRights, TablePlace
from consumer.targets.mysql import rights as mysql_rights
from consumer.targets.mysql.rights import grant_to_connect, parse_account
from consumer.targets.postgres import rights as postgres_rights
from consumer.targets.postgres.dialect import build_bookkeeping
from consumer.targets.postgres.rights import PostgresRights

ALL = "SELECT, INSERT, UPDATE, DELETE"
BOOKS = build_bookkeeping().tables.list_rights()


@pytest.mark.parametrize(
    ("message", "grant"),
    [
        ("permission denied for schema public\nLINE 1: CREATE TABLE …", 'USAGE, CREATE ON SCHEMA "public"'),
        ("permission denied for table people", f'{ALL} ON TABLE "hq"."people"'),
        ("permission denied for relation people", f'{ALL} ON TABLE "hq"."people"'),
        ("permission denied for view people", f'{ALL} ON TABLE "hq"."people"'),
        ("permission denied for table elsewhere", f'{ALL} ON TABLE "elsewhere"'),
        ('permission denied for table 100% of "it"', f'{ALL} ON TABLE "s""s"."100% of ""it"""'),
        ("permission denied for sequence people_id_seq", 'USAGE, SELECT ON SEQUENCE "people_id_seq"'),
        ("permission denied for database hq", 'CREATE ON DATABASE "hq"'),
        ('permission denied to create temporary tables in database "hq"', 'TEMPORARY ON DATABASE "hq"'),
        (
            ('connection failed: … FATAL:  permission denied for database "hq"\nDETAIL:  User '
            'does not have CONNECT privilege.'),
            'CONNECT ON DATABASE "hq"',
        ),
        (
            ('permission denied to terminate process\nDETAIL:  Only roles with privileges of the '
            'role whose process is being terminated or with privileges of the "pg_signal_backend" '
            'role may terminate this process.'),
            "pg_signal_backend",
        ),
        (
            "must be a member of the role whose process is being terminated or member of pg_signal_backend",
            "pg_signal_backend",
        ),
    ],
)  # fmt: skip
def test_what_postgresql_refuses(message: str, grant: str) -> None:
    hint = 'INSERT INTO "hq"."people" SELECT 1 FROM "s""s"."100%% of ""it"""'
    assert postgres_rights.grant_for(message, 'the "one"', hint) == f'GRANT {grant} TO "the ""one""";'


def test_a_table_that_is_to_be_changed_needs_its_owner() -> None:
    statement = 'LOCK TABLE "hq"."people" IN ACCESS EXCLUSIVE MODE'
    for message in ("must be owner of table people", "must be owner of relation people"):
        found = postgres_rights.grant_for(message, "u", statement)
        assert found == 'ALTER TABLE "hq"."people" OWNER TO "u";'


@pytest.mark.parametrize(
    "message",
    [
        (
            "permission denied to terminate process\nDETAIL:  Only roles with the SUPERUSER attribute may "
            "terminate processes of roles with the SUPERUSER attribute."
        ),
        "must be a superuser to terminate superuser process",
        'new row violates row-level security policy for table "people"',
        "must be owner of function f",
        "keine Berechtigung für Tabelle people",
    ],
)
def test_what_no_grant_of_postgresql_helps(message: str) -> None:
    assert postgres_rights.grant_for(message, "u") is None


HERE = "`u`@`10.%`"


@pytest.mark.parametrize(
    ("message", "grant"),
    [
        ("INSERT command denied to user 'u'@'localhost' for table 'people'", "INSERT ON `h_q`.`people`"),
        ("INSERT command denied to user 'u'@'localhost' for table `h_q`.`people`", "INSERT ON `h_q`.`people`"),  # noqa: E501
        ("SELECT, UPDATE command denied to user 'u'@'::1' for table 'people'", "SELECT, UPDATE ON `h_q`.`people`"),  # noqa: E501
        (
            "SELECT with locking clause command denied to user 'u'@'h' for table 'people'",
            "SELECT, UPDATE ON `h_q`.`people`",
        ),
        ("CREATE command denied to user 'u'@'h' for table 'people'", r"CREATE ON `h\_q`.*"),
        ("SELECT command denied to user 'u'@'h' for column 'a' in table 'people'", "SELECT ON `h_q`.`people`"),  # noqa: E501
        ("DELETE command denied to user 'u'@'h' for table 'it`s'", "DELETE ON `h_q`.`it``s`"),
        ("execute command denied to user 'u'@'h' for routine 'h_q.f'", r"EXECUTE ON `h\_q`.*"),
        ("Access denied for user 'u'@'10.%' to database 'h_q'", rf"{ALL}, CREATE ON `h\_q`.*"),
        (
            "Access denied; you need (at least one of) the PROCESS privilege(s) for this operation",
            "PROCESS ON *.*",
        ),
        (
            ("Access denied; you need (at least one of) the SUPER or CONNECTION_ADMIN "
            "privilege(s) for this operation"),
            "CONNECTION_ADMIN ON *.*",
        ),
        (
            ("Access denied; you need (at least one of) the SUPER, CONNECTION ADMIN "
            "privilege(s) for this operation"),
            "CONNECTION ADMIN ON *.*",
        ),
        ("Access denied; you need (at least one of) the SUPER privilege(s) for this operation", "SUPER ON *.*"),  # noqa: E501
    ],
)  # fmt: skip
def test_what_mysql_refuses(message: str, grant: str) -> None:
    statement = "INSERT INTO `h_q`.`people` SELECT * FROM `h_q`.`it``s`"
    assert mysql_rights.grant_for(message, HERE, statement) == f"GRANT {grant} TO {HERE};"


@pytest.mark.parametrize(
    "message",
    [
        "INSERT command denied to user 'u'@'h' for table 'elsewhere'",
        "ANALYZE command denied to user 'u'@'h' for table 'people'",
        "You are not owner of thread 7",
        "Access denied for user 'u'@'h' (using password: YES)",
        "etwas anderes",
    ],
)
def test_what_mysql_does_not_say(message: str) -> None:
    assert mysql_rights.grant_for(message, HERE, "INSERT INTO `h_q`.`people`") is None


@pytest.mark.parametrize(
    "message",
    [
        "cannot connect as u@h:1: Access denied for user 'u'@'%' to database 'h_q' (1044)",
        "cannot connect as u@h:1: Accès refusé pour l'utilisateur: 'u'@'%'. Base 'h_q' (1044)",
        "cannot connect as u@h:1: Benutzer 'u'@'%' hat keine Zugriffsberechtigung für Datenbank 'h_q' (1044)",
    ],
)
def test_a_log_in_that_is_refused_names_the_account(message: str) -> None:
    assert grant_to_connect(message, "u", "h_q") == f"GRANT {ALL}, CREATE ON `h\\_q`.* TO 'u'@'%';"
    assert grant_to_connect(message, "other", "h_q") is None


def test_an_account_is_quoted_as_grant_takes_it() -> None:
    assert parse_account("a@b'c@%") == "'a@b''c'@'%'"


# -- before a run

PEOPLE, DOGS = ("public", "people"), ("public", "dogs")
WANTED = RequiredRights("public", BOOKS, (PEOPLE, DOGS), create=True)
HAS = PostgresRights(
    user="u",
    database="hq",
    create=False,
    temporary=True,
    schemas={"public": (True, True)},
    tables={PEOPLE: frozenset(ROW_RIGHTS), **{("public", name): frozenset(ROW_RIGHTS) for name in BOOKS}},
)


def missing(has: PostgresRights, expected: RequiredRights = WANTED) -> list[str]:
    return [each.statement for each in postgres_rights.find_lacking_rights(has, expected)]


def test_a_role_of_postgresql_with_all_rights_lacks_none() -> None:
    assert missing(HAS) == []
    assert missing(replace(HAS, tables={})) == []


def test_each_right_that_a_role_of_postgresql_lacks() -> None:
    assert missing(replace(HAS, temporary=False)) == ['GRANT TEMPORARY ON DATABASE "hq" TO "u";']
    assert missing(replace(HAS, schemas={"public": (True, False)})) == [
        'GRANT CREATE ON SCHEMA "public" TO "u";'
    ]
    assert missing(replace(HAS, schemas={})) == ['CREATE SCHEMA "public" AUTHORIZATION "u";']
    tables = {**HAS.tables, PEOPLE: frozenset({"SELECT"}), DOGS: frozenset({"SELECT"})}
    assert missing(replace(HAS, tables=tables)) == [
        'GRANT INSERT, UPDATE, DELETE ON TABLE "public"."dogs", "public"."people" TO "u";'
    ]
    tables = {**HAS.tables, ("public", "rowlock_unit"): frozenset({"SELECT", "INSERT"})}
    assert missing(replace(HAS, tables=tables)) == ['GRANT UPDATE ON TABLE "public"."rowlock_unit" TO "u";']


def test_who_changes_or_drops_a_table_of_postgresql_owns_it() -> None:
    expected = replace(WANTED, alter=frozenset({PEOPLE, DOGS}))
    own = ['ALTER TABLE "public"."people" OWNER TO "u";']
    assert missing(HAS, expected) == own, "what is not there yet will be the role's own"
    assert missing(HAS, replace(WANTED, drop=frozenset({PEOPLE}))) == own
    assert missing(replace(HAS, owned=frozenset({PEOPLE})), expected) == []
    schemas = {"public": (True, True), "bank": (True, False)}
    acct = ("bank", "acct")
    there = {**HAS.tables, acct: frozenset(ROW_RIGHTS)}
    has = replace(HAS, schemas=schemas, tables=there, owned=frozenset({acct}))
    expected = replace(WANTED, tables=(acct,))
    assert missing(has, expected) == []
    assert missing(has, replace(expected, alter=frozenset({acct}))) == [
        'GRANT CREATE ON SCHEMA "bank" TO "u";'
    ], "an index"


def test_a_schema_of_a_route() -> None:
    expected = replace(WANTED, tables=(("bank", "acct"), ("shop", "order")))
    assert missing(HAS, expected) == ['GRANT CREATE ON DATABASE "hq" TO "u";']
    assert missing(HAS, replace(expected, create=False)) == [], "that the table is missing is said elsewhere"
    assert missing(replace(HAS, create=True), expected) == []
    schemas = {"public": (True, True), "bank": (True, False), "shop": (False, False)}
    there = {**HAS.tables, ("bank", "acct"): frozenset(ROW_RIGHTS)}
    found = postgres_rights.find_lacking_rights(replace(HAS, schemas=schemas, tables=there), expected)
    assert [each.statement for each in found] == ['GRANT USAGE, CREATE ON SCHEMA "shop" TO "u";']
    assert [each.hides for each in found] == [{("shop", "order")}]


MY = RequiredRights("h_q", BOOKS, (("h_q", "people"), ("other", "people")), create=False)
USAGE = "GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*ON `h_q`.* TO '"
ROWS_ = "GRANT SELECT, INSERT, UPDATE, DELETE"
OTHER = rf"{ROWS_} ON `other`.* TO `u`@`%`"


def lacks(*lines: str, expected: RequiredRights = MY, there: tuple[tuple[str, str], ...] = ()) -> list[str]:
    return [
        each.statement
        for each in mysql_rights.find_lacking_rights([USAGE, *lines], "`u`@`%`", expected, there)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [r"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `h\_q`.* TO `u`@`%`", OTHER],
        ["GRANT ALL PRIVILEGES ON `h_q`.* TO `u`@`%`", "GRANT ALL PRIVILEGES ON `oth%`.* TO `u`@`%`"],
        ["GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION"],
        ["GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `u`@`%`"],
        ["GRANT CREATE ON *.* TO `u`@`%`", f"{ROWS_} ON `h_q`.* TO `u`@`%`", OTHER],
        [
            "GRANT CREATE ON *.* TO `u`@`%`",
            f"{ROWS_} ON `h_q`.* TO `u`@`%`",
            "GRANT SELECT (`id`, `b`), INSERT (`id`), UPDATE, DELETE ON `other`.`people` TO `u`@`%`",
        ],
        [
            "GRANT `r1` TO `u`@`%`",
            "GRANT USAGE ON *.* TO `r1`",
            "GRANT `r2` TO `r1`",
            "GRANT ALL PRIVILEGES ON `h_q`.* TO `r2`",
            f"{ROWS_} ON `other`.`people` TO PUBLIC",
        ],
    ],
)
def test_a_user_of_mysql_who_may_do_it_all(lines: list[str]) -> None:
    assert lacks(*lines) == []


def test_what_a_user_of_mysql_lacks_is_one_statement_a_database() -> None:
    assert lacks() == [
        rf"GRANT {ALL}, CREATE ON `h\_q`.* TO `u`@`%`;",
        f"GRANT {ALL} ON `other`.* TO `u`@`%`;",
    ]
    assert lacks("GRANT SELECT ON *.* TO `u`@`%`", OTHER) == [
        r"GRANT INSERT, UPDATE, DELETE, CREATE ON `h\_q`.* TO `u`@`%`;"
    ]
    assert lacks(OTHER, rf"{ROWS_} ON `hxq`.* TO `u`@`%`", rf"{ROWS_} ON `h\_q`.* TO `u`@`%`") == [
        r"GRANT CREATE ON `h\_q`.* TO `u`@`%`;"
    ]
    assert (
        lacks("GRANT PROXY ON ''@'%' TO 'u'@'%'", "GRANT EXECUTE ON PROCEDURE `h_q`.`p` TO `u`@`%`", OTHER)
        != []
    )


def test_who_changes_or_drops_a_table_of_mysql_needs_a_right_for_that() -> None:
    everywhere = f"{ROWS_}, CREATE ON *.* TO `u`@`%`"
    place = ("other", "people")
    alter, drop = replace(MY, alter=frozenset({place})), replace(MY, drop=frozenset({place}))
    assert lacks(everywhere) == []
    assert lacks(everywhere, expected=alter) == ["GRANT ALTER ON `other`.* TO `u`@`%`;"]
    assert lacks(everywhere, expected=drop, there=(place,)) == ["GRANT DROP ON `other`.* TO `u`@`%`;"]
    assert lacks(expected=replace(alter, drop=alter.alter, create=True))[1:] == [
        f"GRANT {ALL}, CREATE, ALTER, DROP, TRIGGER ON `other`.* TO `u`@`%`;"
    ]
    assert lacks(everywhere, "GRANT ALTER ON `other`.`people` TO `u`@`%`", expected=alter) == []


def test_a_table_that_will_be_created_must_be_visible_in_full() -> None:
    """Otherwise it stops a minute after the start, when it is checked."""
    creating = replace(MY, create=True)

    def find_process(*lines: str, there: tuple[TablePlace, ...] = ()) -> list[str]:
        found = mysql_rights.find_lacking_process([USAGE, *lines], "`u`@`%`", creating, there)
        return [each.statement for each in found]

    assert find_process() == ["GRANT PROCESS ON *.* TO `u`@`%`;"]
    assert find_process("GRANT PROCESS ON *.* TO `u`@`%`") == []
    assert find_process(there=MY.tables) == [], "they are judged themselves"
    everywhere = f"{ROWS_}, CREATE ON *.* TO `u`@`%`"
    assert lacks(everywhere, expected=creating, there=MY.tables[:1]) == [
        "GRANT TRIGGER ON `other`.* TO `u`@`%`;"
    ]
    assert lacks(everywhere, expected=creating, there=MY.tables) == []


def test_a_role_that_is_not_active_gives_nothing() -> None:
    assert lacks("GRANT `inactive`@`%` TO `u`@`%`") == lacks() != []


def test_who_was_given_rights_by_table_gets_them_by_table() -> None:
    have = [
        "GRANT ALL PRIVILEGES ON `h_q`.* TO `u`@`%`",
        "GRANT SELECT, INSERT ON `other`.`people` TO `u`@`%`",
    ]
    assert lacks(*have) == ["GRANT UPDATE, DELETE ON `other`.`people` TO `u`@`%`;"]
    creating = replace(MY, create=True)
    assert lacks(*have, expected=creating) == [
        "GRANT UPDATE, DELETE, CREATE, TRIGGER ON `other`.`people` TO `u`@`%`;"
    ]
    assert lacks(*have, expected=creating, there=(("other", "people"),)) == lacks(*have)


def test_a_table_that_cannot_be_seen_is_not_judged_further() -> None:
    found = mysql_rights.find_lacking_rights([USAGE, "GRANT SELECT ON `h_q`.* TO `u`@`%`"], "`u`@`%`", MY, ())
    assert [("other", "people") in each.hides for each in found] == [False, True]
    assert ("h_q", "people") not in found[0].hides


def test_the_error_survives_a_worker_process() -> None:
    error = MissingGrantError("the target refuses", "GRANT x TO y;")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "the target refuses; run: GRANT x TO y;"
    assert again.statement == "GRANT x TO y;"

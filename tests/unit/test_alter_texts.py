"""The statements that change a table, as each dialect writes them: every step, and steps that meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from consumer.errors import TargetConfigError
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropUnique,
    RenameColumn,
    apply_alterations,
)
from consumer.targets.mysql import alter_statements as mysql
from consumer.targets.mysql.alterer import has_renames
from consumer.targets.postgres import alter_statements as postgres
from schemas.table.collations import make_collation_chooser, make_key_collation_chooser
from schemas.table.model import Column, ColumnType, IndexPart, Kind, TextOf, UniqueIndex
from schemas.table.typemap import MYSQL_CATALOG
from tests.kits.alter_texts import (
    AVAILABLE,
    BIG,
    INT,
    REAL_MYSQL,
    REAL_POSTGRES,
    TABLE,
    column,
    in_mysql,
    in_postgres,
)
from tests.kits.targets import index, text_type


def change(name: str, type_: ColumnType, *, lossless: bool = True, null: bool = True) -> ChangeColumn:
    return ChangeColumn(TABLE.get_column(name), column(name, type_, null=null), lossless)


TEXT = ColumnType(kind=Kind.TEXT, length=65535, charset="utf8mb4", collation="utf8mb4_bin")
STAMP = ColumnType(kind=Kind.TIMESTAMP)
ADDRESS = ColumnType(**MYSQL_CATALOG["inet4"])
#: steps → statements of PostgreSQL, of MySQL and MariaDB.
GOLDEN: dict[str, tuple[Sequence[Alteration], list[str], list[str]]] = {
    "add": (
        [AddColumn(column("n"))],
        ['ADD COLUMN "n" integer'],
        ["ADD COLUMN `n` int NULL"],
    ),
    "add with a default": (
        [AddColumn(column("n", text_type(9), default="5%'\\"))],
        ["ADD COLUMN \"n\" varchar(9) DEFAULT E'5%%''\\\\'"],
        ["ADD COLUMN `n` varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL DEFAULT '5%%\\'\\\\'"],
    ),
    "add not null": (
        [AddColumn(column("n", null=False))],
        ["ADD COLUMN \"n\" integer DEFAULT '0' NOT NULL", 'ALTER COLUMN "n" DROP DEFAULT'],
        ["ADD COLUMN `n` int NOT NULL"],
    ),
    "add not null where a text column would have an empty text": (
        [AddColumn(column("n", ADDRESS, null=False))],
        ["ADD COLUMN \"n\" inet DEFAULT '0.0.0.0' NOT NULL", 'ALTER COLUMN "n" DROP DEFAULT'],
        [
            (
                "ADD COLUMN `n` varchar(15) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL "
                "DEFAULT '0.0.0.0'"
            ),
            "ALTER COLUMN `n` DROP DEFAULT",
        ],
    ),
    "add with another value in the rows": (
        [AddColumn(column("n", null=False, default="5"), fill=6), AddColumn(column("m", null=False), fill=7)],
        [
            "ADD COLUMN \"n\" integer DEFAULT '6' NOT NULL, ADD COLUMN \"m\" integer DEFAULT '7' NOT NULL",
            "ALTER COLUMN \"n\" SET DEFAULT '5', ALTER COLUMN \"m\" DROP DEFAULT",
        ],
        [
            "ADD COLUMN `n` int NOT NULL DEFAULT 6, ADD COLUMN `m` int NOT NULL DEFAULT 7",
            "ALTER COLUMN `n` SET DEFAULT 5, ALTER COLUMN `m` DROP DEFAULT",
        ],
    ),
    "add nullable with a value in the rows: without any default MySQL refuses "
        "rows that lack it later (1364)": (
        [AddColumn(column("n"), fill=7)],
        ["ADD COLUMN \"n\" integer DEFAULT '7'", 'ALTER COLUMN "n" DROP DEFAULT'],
        ["ADD COLUMN `n` int NULL DEFAULT 7", "ALTER COLUMN `n` SET DEFAULT NULL"],
    ),
    "add a text with a default": (
        [AddColumn(column("n", TEXT, null=False, default="x"))],
        ["ADD COLUMN \"n\" text DEFAULT 'x' NOT NULL"],
        ["ADD COLUMN `n` text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ('x')"],
    ),
    "add a time that rows have no value for": (
        [AddColumn(column("n", STAMP, null=False))],
        ['ADD COLUMN "n" timestamptz(0)'],
        ["ADD COLUMN `n` timestamp(0) NOT NULL DEFAULT '0000-00-00 00:00:00'",
         "ALTER COLUMN `n` DROP DEFAULT"],
    ),
    "add a geometry": (
        [AddColumn(column("n", ColumnType(kind=Kind.GEOMETRY), null=False))],
        ['ADD COLUMN "n" bytea'],
        ["ADD COLUMN `n` geometry NULL"],
    ),
    "drop": ([DropColumn("note")], ['DROP COLUMN "note"'], ["DROP COLUMN `note`"]),
    "drop what a unique index holds": (
        [DropColumn("land")],
        ['DROP COLUMN "land"'],
        ["DROP INDEX `by hand`, DROP COLUMN `land`"],
    ),
    "rename": (
        [RenameColumn("note", 'a"`%')],
        ['RENAME COLUMN "note" TO "a""`%%"'],
        ['RENAME COLUMN `note` TO `a"``%%`'],
    ),
    "rename in a circle": (
        [RenameColumn("note", "mail"), RenameColumn("mail", "note")],
        [
            'RENAME COLUMN "note" TO "rowlock renames 0"',
            'RENAME COLUMN "mail" TO "rowlock renames 1"',
            'RENAME COLUMN "rowlock renames 0" TO "mail"',
            'RENAME COLUMN "rowlock renames 1" TO "note"',
        ],
        ["RENAME COLUMN `mail` TO `note`, RENAME COLUMN `note` TO `mail`"],
    ),
    "widen": (
        [change("passport", BIG), change("note", TEXT)],
        [('ALTER COLUMN "passport" TYPE bigint USING "passport"::bigint, ALTER COLUMN "note" '
            'TYPE text USING "note"::text')],
        [("MODIFY COLUMN `passport` bigint NULL, MODIFY COLUMN `note` text CHARACTER SET "
            "utf8mb4 COLLATE utf8mb4_bin NULL")],
    ),
    "allow NULL": (
        [ChangeColumn(column("n", null=False), column("n"), lossless=True)],
        ['ALTER COLUMN "n" DROP NOT NULL'],
        ["MODIFY COLUMN `n` int NULL"],
    ),
    "require a value": (
        [change("note", text_type(100), null=False)],
        ["UPDATE \"s\".\"people\" SET \"note\" = '' WHERE \"note\" IS NULL",
         'ALTER COLUMN "note" SET NOT NULL'],
        [mysql.LENIENT,
         "MODIFY COLUMN `note` varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"],
    ),
    "require a value that nothing stands for": (
        [ChangeColumn(column("n", STAMP), column("n", STAMP, null=False), lossless=True)],
        [],
        [mysql.LENIENT, "MODIFY COLUMN `n` timestamp(0) NOT NULL"],
    ),
    "require a value of a unique index": (
        [change("passport", INT, null=False)],
        [],
        [mysql.LENIENT, "MODIFY COLUMN `passport` int NOT NULL"],
    ),
    "narrow": (
        [change("note", text_type(3), lossless=False)],
        [('ALTER COLUMN "note" TYPE varchar(3) USING CASE WHEN pg_input_is_valid("note"::text, '
            '\'varchar(3)\') THEN "note"::text::varchar(3) END')],
        [mysql.LENIENT, "MODIFY COLUMN `note` varchar(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL"],
    ),
    "another kind": (
        [change("note", ColumnType(kind=Kind.VARBINARY, length=5), lossless=False, null=False)],
        [("ALTER COLUMN \"note\" TYPE bytea USING COALESCE(NULL::bytea, E'\\\\x'::bytea), ALTER "
            "COLUMN \"note\" SET NOT NULL")],
        [mysql.LENIENT, "MODIFY COLUMN `note` varbinary(5) NOT NULL"],
    ),
    "another type of what is never NULL": (
        [ChangeColumn(replace(column("n", text_type(9), null=False), default="'x'::text"),
         column("n", null=False), lossless=False)],
        [
            """ALTER COLUMN "n" DROP DEFAULT, ALTER COLUMN "n" TYPE integer USING COALESCE(CASE WHEN pg_input_is_valid("n"::text, 'integer') THEN "n"::text::integer END, '0'::integer)""",  # noqa: E501
        ],
        [mysql.LENIENT, "MODIFY COLUMN `n` int NOT NULL"],
    ),
    "a kind that not every value comes to": (
        [change("note", ColumnType(kind=Kind.JSON), lossless=False)],
        ['ALTER COLUMN "note" TYPE jsonb USING NULL::jsonb'],
        ["DROP COLUMN `note`, ADD COLUMN `note` json NULL"],
    ),
    "more bits": (
        [ChangeColumn(column("n", ColumnType(kind=Kind.BIT, length=3)),
         column("n", ColumnType(kind=Kind.BIT, length=9)), lossless=True)],
        ["ALTER COLUMN \"n\" TYPE bit(9) USING lpad(\"n\"::text, 9, '0')::bit(9)"],
        ["MODIFY COLUMN `n` bit(9) NULL"],
    ),
    "a key of another type": (
        [change("id", text_type(30), lossless=False, null=False)],
        ['ALTER COLUMN "id" TYPE varchar(30) USING "id"::text::varchar(30)'],
        [mysql.LENIENT, "MODIFY COLUMN `id` varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"],
    ),
    "unique": (
        [AddUnique(UniqueIndex(name="u",
         parts=(IndexPart(column="note", prefix=5), IndexPart(column="id"))))],
        ['ADD CONSTRAINT "people_u_key" UNIQUE ("note", "id")'],
        ["ADD UNIQUE KEY `u` (`note`(5), `id`)"],
    ),
    "unique under a name that is taken": (
        [AddUnique(index("ordinary", "note"))],
        ['ADD CONSTRAINT "people_ordinary_key" UNIQUE ("note")'],
        ["ADD UNIQUE KEY `ordinary_2` (`note`)"],
    ),
    "no unique, by columns": (
        [DropUnique(index("whatever", "mail")), DropUnique(index("whatever", "land", "passport"))],
        ['DROP CONSTRAINT IF EXISTS "people_mail_key"', 'DROP INDEX IF EXISTS "s"."by hand"'],
        ["DROP INDEX `mail`, DROP INDEX `by hand`"],
    ),
    "key": (
        [ChangeKey(TABLE.key, index("PRIMARY", "id", "note"))],
        ['DROP CONSTRAINT IF EXISTS "people_pkey", ADD PRIMARY KEY ("id", "note")'],
        ["DROP PRIMARY KEY, ADD PRIMARY KEY (`id`, `note`)"],
    ),
    "renamed, then changed, then dropped from an index": (
        [RenameColumn("mail", "post"),
         ChangeColumn(column("post", text_type(60)), column("post", text_type(90)), lossless=True),
          DropUnique(index("mail", "post"))],
        [
            'RENAME COLUMN "mail" TO "post"',
            ('ALTER COLUMN "post" TYPE varchar(90) USING "post"::varchar(90), DROP '
                'CONSTRAINT IF EXISTS "people_mail_key"'),
        ],
        [("DROP INDEX `mail`, CHANGE COLUMN `mail` `post` varchar(90) CHARACTER SET "
            "utf8mb4 COLLATE utf8mb4_bin NULL")],
    ),
    "dropped and new": (
        [DropColumn("note"), AddColumn(column("note"))],
        ['DROP COLUMN "note"', 'ADD COLUMN "note" integer'],
        ["DROP COLUMN `note`, ADD COLUMN `note` int NULL"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_postgresql(name: str) -> None:
    steps, expected, _ = GOLDEN[name]
    assert in_postgres(*steps) == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_mysql(name: str) -> None:
    steps, _, expected = GOLDEN[name]
    assert in_mysql(*steps) == expected


def test_every_step_has_a_text() -> None:
    used = {type(step) for steps, _, _ in GOLDEN.values() for step in steps}
    assert used == {AddColumn, DropColumn, RenameColumn, ChangeColumn, AddUnique, DropUnique, ChangeKey}


def test_no_steps_are_no_statements() -> None:
    assert in_postgres() == in_mysql() == []


def test_a_column_that_comes_into_a_key_keeps_apart_all_that_the_source_does() -> None:
    """MySQL's own collation is near the source's, but no twin: a column of a key gets a binary one."""
    foreign = text_type(20, "utf8mb4_uca1400_ai_ci")
    assert "COLLATE utf8mb4_0900_ai_ci" in in_mysql(AddColumn(column("n", foreign)))[0]
    for keyed in (AddUnique(index("u", "n")), ChangeKey(TABLE.key, index("PRIMARY", "n"))):
        assert "COLLATE utf8mb4_0900_bin" in in_mysql(AddColumn(column("n", foreign, null=False)), keyed)[0]
    labels = replace(foreign, kind=Kind.ENUM, members=("a", "A"))
    assert "COLLATE utf8mb4_0900_bin" in in_mysql(AddColumn(column("n", labels)))[0]
    none = replace_choosers(("latin1_bin",))
    with pytest.raises(TargetConfigError, match="no collation that distinguishes"):
        in_mysql(AddColumn(column("n", foreign, null=False)), AddUnique(index("u", "n")), real=none)


def replace_choosers(available: Sequence[str]) -> mysql.MySqlRealTable:
    return mysql.MySqlRealTable(
        REAL_MYSQL.unique,
        REAL_MYSQL.names,
        make_key_collation_chooser(available),
        make_collation_chooser(available),
        renames=False,
    )


def test_an_older_server_renames_with_the_whole_definition() -> None:
    old = replace_choosers(AVAILABLE)
    assert in_mysql(RenameColumn("passport", "p"), real=old) == ["CHANGE COLUMN `passport` `p` int NULL"]
    assert has_renames("8.0.40")
    assert has_renames("11.4.5-MariaDB-log")
    assert has_renames("10.5.2-MariaDB")
    assert not has_renames("10.5.1-MariaDB")
    assert not has_renames("5.7.44-log")


def test_an_older_postgresql_empties_what_it_cannot_ask_about() -> None:
    old = postgres.PostgresRealTable(REAL_POSTGRES.indexes, version=150000)
    texts = in_postgres(change("note", INT, lossless=False), real=old)
    assert texts == ['ALTER COLUMN "note" TYPE integer USING NULL::integer']


def test_a_column_of_pgvector_and_an_array_keep_their_kind() -> None:
    """pgvector's input function raises an error for a vector of another size, so rows are emptied."""
    three, four = (ColumnType(kind=Kind.TEXT, text_of=TextOf.VECTOR, precision=size) for size in (3, 4))
    step = ChangeColumn(column("n", three), column("n", four), lossless=False)
    real = dataclasses.replace(REAL_POSTGRES, native=frozenset({TextOf.VECTOR}))
    assert in_postgres(step, real=real) == ['ALTER COLUMN "n" TYPE vector(4) USING NULL::vector(4)']
    assert in_postgres(step, real=dataclasses.replace(real, arrays=frozenset({"n"}))) == []
    assert in_postgres(step) == [], "a server without pgvector"
    assert in_postgres(AddColumn(column("v", three)), real=real) == ['ADD COLUMN "v" vector(3)']
    renamed = [RenameColumn("n", "m"), ChangeColumn(column("m", three), column("m", four), lossless=False)]
    table = replace(TABLE, columns=(*TABLE.columns, column("n", three)))
    array = dataclasses.replace(real, arrays=frozenset({"n"}))
    assert in_postgres(*renamed, table=table, real=array) == ['RENAME COLUMN "n" TO "m"']


def test_a_number_that_the_target_gave_itself_is_given_no_more() -> None:
    counted = replace(TABLE, columns=(replace(TABLE.columns[0], auto_increment=True), *TABLE.columns[1:]))
    texts = in_mysql(ChangeKey(TABLE.key, index("PRIMARY", "note")), table=counted)
    assert texts == ["DROP PRIMARY KEY, MODIFY COLUMN `id` bigint NOT NULL, ADD PRIMARY KEY (`note`)"]
    texts = in_mysql(AddColumn(Column(name="n", type=INT, auto_increment=True)))
    assert texts == ["ADD COLUMN `n` int NULL"]


def test_what_a_key_was_that_is_no_primary_one_goes() -> None:
    table = replace(TABLE, key=index("mail", "mail"), unique=())
    real = postgres.PostgresRealTable(REAL_POSTGRES.indexes[1:])
    assert in_postgres(ChangeKey(table.key, index("k", "id")), table=table, real=real) == [
        'DROP CONSTRAINT IF EXISTS "people_mail_key", ADD PRIMARY KEY ("id")'
    ]
    unique = mysql.MySqlRealTable({"mail": ("mail",)}, frozenset({"mail"}), REAL_MYSQL.exact, REAL_MYSQL.near)
    assert in_mysql(ChangeKey(table.key, index("k", "id")), table=table, real=unique) == [
        "DROP INDEX `mail`, ADD PRIMARY KEY (`id`)"
    ]


def test_the_table_that_steps_come_to() -> None:
    steps = [
        RenameColumn("mail", "note"),
        RenameColumn("note", "mail"),
        DropColumn("land"),
        AddColumn(column("n")),
        change("passport", BIG),
        AddUnique(index("u", "n")),
        DropUnique(index("u", "note")),
        ChangeKey(TABLE.key, index("PRIMARY", "n")),
    ]
    found = apply_alterations(AlterTable(TABLE, steps))
    assert found.column_names == ("id", "note", "passport", "mail", "n")
    assert found.get_column("passport").type == BIG
    assert found.key.columns == ("n",)
    assert found.unique == (index("u", "n"),)

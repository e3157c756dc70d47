"""Oracle's stand (a): a PostgreSQL whose triggers keep `mlog$_…` by the rules that Oracle documents, reached
through the DB-API seam of producer/sources/oracle.

It runs capture's own SQL, but for `PHRASES`. What it has of Oracle: the catalogue's views as tables, logs
with SEQUENCE$$ from a sequence that does not follow commits, ROWIDs (ctid) that are given again, rows that
are seen at their commit, XID$$. What it does not have: everything that is Oracle's own (types, NLS, undo,
RAC, refreshes): that is for `make test-oracle`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg

from producer.sources.oracle.session import OracleDriver

OWNER = "BANK"
_GATE = 4711
#: Oracle's words → PostgreSQL's, all that capture's SQL is changed by.
PHRASES = (
    (r"ROWIDTOCHAR\((l\.)ROWID\)", r"\1ctid::text"),
    (r"\bROWID = :1", "ctid = (:1)::tid"),
    (r"TO_CHAR\((\S+), 'TM9', 'NLS_NUMERIC_CHARACTERS=''\.,'''\)", r"(\1)::text"),
    (r"SYS_EXTRACT_UTC\(SYSTIMESTAMP\)", "stand_utc()"),
    (r"SYSDATE - 2 / 86400", "stand_now() - interval '2 seconds'"),
    (r"\bSYSDATE\b", "stand_now()"),
    (r"TO_DATE\((:\d+), '[^']*'\)", r"(\1)::timestamp"),
    (r"^BEGIN DBMS_MVIEW\.REFRESH\(:1, 'F'\); END;$", "SELECT refresh(:1)"),
    (r"\bFF3\b", "MS"),
    (r"\bSYYYY\b", "YYYY"),
    (r"(TABLEOBJ|RESETLOGS_CHANGE)#", r"\1_no"),
    (r"^ALTER SESSION SET TIME_ZONE = '\+00:00' .*$", "SET TIME ZONE 'UTC'"),
    (r"%", "%%"),
    (r":\d+", "%s"),
)  # fmt: skip

_CATALOGUE = """
CREATE TABLE stand_clock (at timestamp);
CREATE FUNCTION stand_now() RETURNS timestamp LANGUAGE sql AS
    $body$ SELECT coalesce((SELECT at FROM stand_clock), date_trunc('second', clock_timestamp()::timestamp))
      $body$;
CREATE FUNCTION stand_utc() RETURNS timestamp LANGUAGE sql AS
    $body$ SELECT coalesce((SELECT at FROM stand_clock), clock_timestamp() AT TIME ZONE 'UTC') $body$;
CREATE FUNCTION spelled(t timestamp) RETURNS text LANGUAGE sql AS $body$ SELECT to_char(t,
  'YYYY-MM-DD:HH24:MI:SS') $body$;
CREATE SEQUENCE cdc_rsid_seq;
CREATE SEQUENCE cdc_rsid_seq2 START 1000000; -- of the second instance
CREATE SEQUENCE commit_scns START 5000;
CREATE SEQUENCE object_ids START 100;
CREATE TABLE dual (dummy text); INSERT INTO dual VALUES ('X');
CREATE TABLE "v$database" (dbid numeric, resetlogs_change_no numeric); INSERT INTO "v$database"
  VALUES (4711, 1);
CREATE TABLE "gv$instance" (n int); INSERT INTO "gv$instance" VALUES (1);
CREATE TABLE product_component_version (product text, version text);
INSERT INTO product_component_version VALUES ('Oracle Database 19c', '19.0.0.0.0');
CREATE TABLE all_mview_logs (log_owner text, master text, log_table text, primary_key text DEFAULT 'YES',
  sequence text DEFAULT 'YES',
    include_new_values text DEFAULT 'YES', commit_scn_based text DEFAULT 'NO', staging_log text DEFAULT 'NO');
CREATE TABLE all_tables (owner text, table_name text, num_rows numeric, avg_row_len numeric);
CREATE TABLE all_objects (owner text, object_name text, object_type text, object_id numeric,
  data_object_id numeric,
    last_ddl_time timestamp DEFAULT stand_now() - interval '1 hour',
      "timestamp" text DEFAULT spelled(stand_now() - interval '1 hour'));
CREATE TABLE all_sumdelta (tableobj_no numeric, scn numeric);
CREATE TABLE all_summap (xid numeric PRIMARY KEY, commit_scn numeric);
CREATE FUNCTION committed() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM all_summap WHERE xid = NEW."XID$$") THEN INSERT INTO all_summap
      VALUES (NEW."XID$$", nextval('commit_scns')); END IF;
    RETURN NULL; END $body$;
CREATE TABLE all_tab_cols (owner text, table_name text, column_name text, data_type text, data_length numeric,
  char_length numeric,
    data_precision numeric, data_scale numeric, nullable text, virtual_column text DEFAULT 'NO',
      default_length numeric, hidden_column text
    DEFAULT 'NO', column_id serial);
CREATE TABLE all_constraints (owner text, table_name text, constraint_name text, constraint_type text,
  status text DEFAULT 'ENABLED');
CREATE TABLE all_cons_columns (owner text, constraint_name text, column_name text, position numeric);
CREATE TABLE all_indexes (owner text, index_name text, table_owner text, table_name text, uniqueness text);
CREATE TABLE all_ind_columns (index_owner text, index_name text, column_name text, column_position numeric);
CREATE TABLE all_base_table_mviews (owner text, master text, mview_id numeric,
  mview_last_refresh_time timestamp);
CREATE TABLE all_policies (object_owner text, object_name text, policy_name text, sel text, enable text);
CREATE TABLE session_privs (privilege text);
CREATE TABLE all_registered_mviews (name text, mview_id numeric);
CREATE FUNCTION stamp(of_table text, t timestamp) RETURNS void LANGUAGE plpgsql AS $body$ BEGIN
    EXECUTE format('UPDATE "BANK".%I SET "SNAPTIME$$" = $1 WHERE "SNAPTIME$$" > $1',
      'MLOG$_' || of_table) USING t; END $body$;
CREATE FUNCTION refresh(view text) RETURNS void LANGUAGE plpgsql AS $body$ DECLARE t timestamp := stand_now();
  id numeric; of_table text; BEGIN
    SELECT b.mview_id, b.master INTO STRICT id, of_table FROM all_base_table_mviews b
    JOIN all_registered_mviews r USING (mview_id) WHERE r.name = view;
    PERFORM stamp(of_table, t);
    UPDATE all_base_table_mviews SET mview_last_refresh_time = t WHERE mview_id = id;
    EXECUTE format('DELETE FROM "BANK".%I WHERE "SNAPTIME$$" <= (SELECT min(mview_last_refresh_time) FROM all_base_table_mviews WHERE master = $1)',
        'MLOG$_' || of_table) USING of_table; END $body$;
CREATE FUNCTION sys_context(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'PDB1' $$;
CREATE FUNCTION to_char(numeric) RETURNS text LANGUAGE sql AS $$ SELECT $1::text $$;
"""  # noqa: E501

#: A log's trigger: DMLTYPE$$ and OLD_NEW$$ of each image, and a primary key that moves as D and I.
_TRIGGER = """
CREATE OR REPLACE FUNCTION "{owner}"."log {table}"() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'INSERT' THEN {new_i}
    ELSIF TG_OP = 'DELETE' THEN {old_d}
    ELSIF {key_moved} THEN {old_d} {new_i}
    ELSE {old_u} {new_u}
    END IF;
    RETURN NULL;
END $body$;
CREATE OR REPLACE TRIGGER mlog AFTER INSERT OR UPDATE OR DELETE ON "{owner}"."{table}"
    FOR EACH ROW EXECUTE FUNCTION "{owner}"."log {table}"();
"""


#: SQLSTATE → the number that Oracle's error has.
_NUMBERS = {"42P01": 942, "42703": 904, "42501": 1031, "42601": 933, "22P02": 1722, "22012": 1476}


class StandError(Exception):
    """What the driver raises: python-oracledb's errors have such an object for their argument."""

    def __init__(self, error: psycopg.Error, code: str = "") -> None:
        state = error.sqlstate or ""
        number = _NUMBERS.get(state, 933 if state.startswith("42") else 0)  # what is wrong with a statement
        super().__init__(
            SimpleNamespace(code=number, full_code=code or f"ORA-{number:05d}", message=str(error))
        )

    def __str__(self) -> str:
        return f"{self.args[0].full_code}: {self.args[0].message}"


@contextmanager
def _as_of_oracle() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StandError(error) from error


class KilledError(BaseException):
    """The process was killed at this statement."""


def translated(sql: str) -> str:
    for oracle, own in PHRASES:
        sql = re.sub(oracle, own, sql)
    return sql


class _Cursor:
    def __init__(self, cursor: psycopg.Cursor[Any], before: Callable[[str], None]) -> None:
        self._cursor, self._before, self.rowcount = cursor, before, -1

    def execute(self, sql: str, binds: Sequence[object] = ()) -> None:
        self._before(sql)
        with _as_of_oracle():
            self._cursor.execute(translated(sql).encode(), list(binds))

    def executemany(self, sql: str, binds: Sequence[Sequence[object]]) -> None:
        self._before(sql)
        with _as_of_oracle():
            self._cursor.executemany(translated(sql).encode(), [list(each) for each in binds])
        self.rowcount = self._cursor.rowcount

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def close(self) -> None:
        self._cursor.close()

    def __enter__(self) -> _Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _nothing(_sql: str) -> None: ...


class Connection:
    """`before`: is told each statement before it runs."""

    def __init__(self, connection: psycopg.Connection[Any], before: Callable[[str], None] = _nothing) -> None:
        self._connection, self._before = connection, before

    def cursor(self) -> _Cursor:
        return _Cursor(self._connection.cursor(), self._before)

    def commit(self) -> None:
        self._before("COMMIT")
        with _as_of_oracle():
            self._connection.commit()

    def rollback(self) -> None:
        with _as_of_oracle():
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


class OracleStand:
    """One database of a PostgreSQL, as an Oracle with the schema BANK. `before`: receives each statement of
    capture before it runs, and may raise."""

    def __init__(self, connect: Callable[..., psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self.own = connect()
        self.before: Callable[[str], None] = lambda _sql: None
        self.do(_CATALOGUE)
        self.do(f'CREATE SCHEMA "{OWNER}"')

    def driver(self) -> OracleDriver:
        return OracleDriver(lambda: Connection(self._connect(autocommit=False), self._told), StandError)

    def _told(self, sql: str) -> None:
        self.before(sql)

    def close(self) -> None:
        self.own.close()

    def session(self, instance: str = "") -> psycopg.Connection[Any]:
        """An application's own connection, without autocommit. `instance`: "2" for the second one of RAC,
        whose numbers are all above the first one's."""
        made = self._connect(autocommit=False)
        if instance:
            made.execute(b"SELECT set_config('stand.instance', %s, false)", (instance,))
            made.commit()
        return made

    def open_instance(self) -> None:
        """The database is opened by a second instance."""
        self.do('INSERT INTO "gv$instance" VALUES (2)')

    def do(self, sql: str, binds: Sequence[object] = ()) -> list[Any]:
        cursor = self.own.execute(sql.encode(), binds or None)
        return cursor.fetchall() if cursor.description else []

    # --- tables and logs

    def create(
        self,
        table: str,
        columns: dict[str, tuple[str, str]],
        key: Sequence[str] = ("id",),
        unique: Sequence[str] = (),
        when_checked: str = "",
    ) -> None:
        """Make a table with its log. `columns`: name → (type of Oracle, type here). `when_checked`:
        DEFERRABLE for a key that is checked at the end of a statement, as an Oracle does always (ON CONFLICT
        does not take it)."""
        listed = ", ".join(f'"{name}" {own}' for name, (_, own) in columns.items())
        keys = ", ".join(f'"{name}"' for name in key)
        with self.own.transaction():
            self.do(f'CREATE TABLE "{OWNER}"."{table}" ({listed}, PRIMARY KEY ({keys}) {when_checked})')
            for name in unique:
                self.do(
                    f'ALTER TABLE "{OWNER}"."{table}" ADD UNIQUE ("{name}") DEFERRABLE INITIALLY IMMEDIATE'
                )
            self.do("INSERT INTO all_tables VALUES (%s, %s, NULL)", (OWNER, table))
            self._object(table)
            for name, (type_, _) in columns.items():
                self._column(table, name, type_, nullable=name not in key)
            for kind, name, parts in [
                ("P", f"{table}_PK", key),
                *[("U", f"{table}_{each}", [each]) for each in unique],
            ]:
                self.do("INSERT INTO all_constraints VALUES (%s, %s, %s, %s)", (OWNER, table, name, kind))
                for i, part in enumerate(parts):
                    self.do(
                        "INSERT INTO all_cons_columns VALUES (%s, %s, %s, %s)", (OWNER, name, part, i + 1)
                    )
        self.create_log(table)

    def create_log(
        self,
        table: str,
        logged: Collection[str] | None = None,
        *,
        new_values: bool = True,
        commit_scn: bool = False,
    ) -> None:
        """`logged`: its columns; None: all that a log can hold. Without new values an update is its image
        before alone. `commit_scn`: a log WITH COMMIT SCN has no SNAPTIME$$, and ALL_SUMMAP gets a
        transaction's number when it commits."""
        log = f"MLOG$_{table}"
        lobs = {name for (name,) in self.do(
            "SELECT column_name FROM all_tab_cols WHERE table_name = %s AND data_type LIKE '%%LOB'",
            (table,))}  # fmt: skip
        columns = [
            each for each in self._columns(table) if each[0] in (logged or [each[0]]) and each[0] not in lobs
        ]
        images = ", ".join(f'"{name}" {own}' for name, own in columns)
        with self.own.transaction():
            self.do(
                f'CREATE TABLE "{OWNER}"."{log}" ({images}, "SNAPTIME$$" timestamp DEFAULT '
                '\'4000-01-01\', "DMLTYPE$$" varchar(1), "OLD_NEW$$" varchar(1), "CHANGE_VECTOR$$" '
                'bytea, "XID$$" numeric, "SEQUENCE$$" numeric)'
            )
            if commit_scn:
                self.do(f'ALTER TABLE "{OWNER}"."{log}" DROP COLUMN "SNAPTIME$$"')
                self.do(
                    f'CREATE CONSTRAINT TRIGGER committed AFTER INSERT ON "{OWNER}"."{log}" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW '  # noqa: E501
                    "EXECUTE FUNCTION committed()"
                )
            self.do(
                "INSERT INTO all_mview_logs (log_owner, master, log_table, include_new_values, "
                "commit_scn_based) VALUES (%s, %s, %s, %s, %s)",
                (OWNER, table, log, "YES" if new_values else "NO", "YES" if commit_scn else "NO"),
            )
            self._object(log)
            self.do(
                "INSERT INTO all_tab_cols (owner, table_name, column_name, data_type, data_length, "
                "char_length, data_precision, data_scale, nullable) SELECT owner, %s, column_name, "
                "data_type, data_length, char_length, data_precision, data_scale, 'Y' FROM all_tab_cols "
                "WHERE owner = %s AND table_name = %s AND column_name = ANY(%s) ORDER BY column_id",
                (log, OWNER, table, [name for name, _ in columns]),
            )  # fmt: skip
            for name in ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$"):
                self._column(log, name, "NUMBER", nullable=True)
            self._trigger(table)

    def drop_log(self, table: str) -> None:
        log = f"MLOG$_{table}"
        with self.own.transaction():
            self.do(f'DROP TRIGGER mlog ON "{OWNER}"."{table}"')
            self.do(f'DROP TABLE "{OWNER}"."{log}"')
            for view, column in (
                ("all_objects", "object_name"),
                ("all_tab_cols", "table_name"),
                ("all_mview_logs", "log_table"),
            ):
                self.do(f"DELETE FROM {view} WHERE {column} = %s", (log,))

    def _columns(self, table: str) -> list[tuple[str, str]]:
        return self.do(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = "
            "%s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum", (f'"{OWNER}"."{table}"',),
        )  # fmt: skip

    def _trigger(self, table: str) -> None:
        logged = {name for name, _ in self._columns(f"MLOG$_{table}")}
        names = [name for name, _ in self._columns(table) if name in logged]
        keys = self.do(
            "SELECT column_name FROM all_cons_columns WHERE constraint_name = %s ORDER BY position",
            (f"{table}_PK",),
        )

        def insert(image: str, dml: str, old_new: str) -> str:
            columns = ", ".join(f'"{name}"' for name in names)
            values = ", ".join(f'{image}."{name}"' for name in names)
            return (
                f'INSERT INTO "{OWNER}"."MLOG$_{table}" ({columns}, "DMLTYPE$$", "OLD_NEW$$", "XID$$", "SEQUENCE$$") '  # noqa: E501
                f"VALUES ({values}, '{dml}', '{old_new}', txid_current(), nextval('cdc_rsid_seq' || coalesce(current_setting('stand.instance', true), '')));"  # noqa: E501
            )

        ((new_values,),) = self.do(
            "SELECT include_new_values = 'YES' FROM all_mview_logs WHERE master = %s", (table,)
        )
        moved = " OR ".join(f'OLD."{name}" IS DISTINCT FROM NEW."{name}"' for (name,) in keys)
        self.do(_TRIGGER.format(
            owner=OWNER, table=table, key_moved=moved, new_i=insert("NEW", "I", "N"),
            old_d=insert("OLD", "D", "O"), old_u=insert("OLD", "U", "U"),
            new_u=insert("NEW", "U", "N") if new_values else "",
        ))  # fmt: skip

    def _object(self, name: str) -> None:
        self.do(
            "INSERT INTO all_objects SELECT %s, %s, 'TABLE', n, n FROM nextval('object_ids') n", (OWNER, name)
        )

    def _column(self, table: str, name: str, declared: str, *, nullable: bool) -> None:
        type_, _, inside = declared.partition("(")
        numbers = [int(each) for each in re.findall(r"-?\d+", inside)]
        text = type_.endswith(("CHAR", "CHAR2", "RAW"))
        digits = [None, None] if text else [*numbers, 0] if numbers else [None, None]
        self.do(
            "INSERT INTO all_tab_cols (owner, table_name, column_name, data_type, data_length, char_length, "
            "data_precision, data_scale, nullable) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (OWNER, table, name, type_, *([numbers[0]] * 2 if text else [22, 0]), *digits[:2],
             "Y" if nullable else "N"),
        )  # fmt: skip

    # --- statements that are no DML

    def _ddl(self, *names: str, columns: bool = False) -> None:
        """`columns`: the statement is one that moves TIMESTAMP, too."""
        more = ', "timestamp" = spelled(stand_now())' if columns else ""
        for name in names:
            self.do(
                f"UPDATE all_objects SET last_ddl_time = stand_now(){more} WHERE object_name = "
                "%s AND object_type = 'TABLE'",
                (name,),
            )

    def grant(self, table: str) -> None:
        """A statement that changes nothing."""
        self._ddl(table)

    def add_unique(self, table: str, column: str) -> None:
        with self.own.transaction():
            self.do(f'ALTER TABLE "{OWNER}"."{table}" ADD UNIQUE ("{column}") DEFERRABLE INITIALLY IMMEDIATE')
            self.do(
                "INSERT INTO all_indexes VALUES (%s, %s, %s, %s, 'UNIQUE')",
                (OWNER, f"{table}_U", OWNER, table),
            )
            self.do("INSERT INTO all_ind_columns VALUES (%s, %s, %s, 1)", (OWNER, f"{table}_U", column))
            self._ddl(table)

    def add_column(
        self, table: str, name: str, declared: str, own: str, meanwhile: Sequence[str] = ()
    ) -> None:
        """Of the table and of its log, without a default. `meanwhile`: statements between the two."""
        for each in (table, f"MLOG$_{table}"):
            with self.own.transaction():
                self.do(f'ALTER TABLE "{OWNER}"."{each}" ADD COLUMN "{name}" {own}')
                self._column(each, name, declared, nullable=True)
                self._ddl(each, columns=True)
                self._trigger(table)
            for statement in meanwhile if each == table else ():
                self.do(statement)

    def drop_column(self, table: str, name: str) -> None:
        """Of the table and of its log."""
        with self.own.transaction():
            for each in (table, f"MLOG$_{table}"):
                self.do(f'ALTER TABLE "{OWNER}"."{each}" DROP COLUMN "{name}"')
                self.do("DELETE FROM all_tab_cols WHERE table_name = %s AND column_name = %s", (each, name))
                self._ddl(each, columns=True)
            self._trigger(table)

    # --- other consumers of a log

    def add_view(self, table: str, name: str | None) -> None:
        """A materialized view that is refreshed from the table's log; None: one of another database that is
        not registered here."""
        ((number,),) = self.do("SELECT nextval('object_ids')")
        self.do("INSERT INTO all_base_table_mviews VALUES (%s, %s, %s)", (OWNER, table, number))
        if name is not None:
            self.do("INSERT INTO all_registered_mviews VALUES (%s, %s)", (name, number))

    def create_view(self, table: str, name: str) -> None:
        """Register one, at the clock's time; what the log has by then is stamped."""
        with self.own.transaction():
            self.add_view(table, name)
            self.do(
                "UPDATE all_base_table_mviews SET mview_last_refresh_time = stand_now() WHERE "
                "mview_last_refresh_time IS NULL"
            )
            self.do("SELECT stamp(%s, stand_now())", (table,))

    def drop_view(self, name: str) -> None:
        self.do(
            "DELETE FROM all_base_table_mviews WHERE mview_id = (SELECT mview_id FROM "
            "all_registered_mviews WHERE name = %s)",
            (name,),
        )
        self.do("DELETE FROM all_registered_mviews WHERE name = %s", (name,))

    def set_clock(self, second: int) -> None:
        """Let SYSDATE stand still, so many seconds behind some midnight."""
        self.do("DELETE FROM stand_clock")
        self.do(
            "INSERT INTO stand_clock SELECT '2026-11-25'::timestamp + make_interval(secs => %s)", (second,)
        )

    def drop_views(self) -> None:
        self.do("DELETE FROM all_base_table_mviews")
        self.do("DELETE FROM all_registered_mviews")

    def truncate(self, table: str) -> None:
        with self.own.transaction():
            self.do(f'TRUNCATE "{OWNER}"."{table}"')
            self.do(
                "UPDATE all_objects SET data_object_id = nextval('object_ids') WHERE object_name = %s "
                "AND data_object_id IS NOT NULL",
                (table,),
            )
            self._ddl(table)

    # --- where rows are kept

    def index_organized(self, table: str) -> None:
        """The table has no segment: its index has."""
        self.do("UPDATE all_objects SET data_object_id = NULL WHERE object_name = %s", (table,))

    def add_partition(self, table: str) -> None:
        """Of a table that has none before, too; its own row has no segment then."""
        with self.own.transaction():
            self.do(
                "INSERT INTO all_objects SELECT %s, %s, 'TABLE PARTITION', n, n, stand_now() "
                "FROM nextval('object_ids') n",
                (OWNER, table),
            )
            self.do(
                "UPDATE all_objects SET data_object_id = NULL WHERE object_name "
                "= %s AND object_type = 'TABLE'", (table,)
            )  # fmt: skip
            self._ddl(table)

    def exchange_newest_partition(self, table: str, *rows: tuple[int, int], back: bool = False) -> None:
        """EXCHANGE PARTITION: rows come without a row of the log, and the segment of another table with them.
        `back`: it was the partition's own before, so that it has its number again."""
        with self.own.transaction():
            self.do(f'ALTER TABLE "{OWNER}"."{table}" DISABLE TRIGGER mlog')
            for row in rows:
                self.do(
                    f'INSERT INTO "{OWNER}"."{table}" VALUES (%s, %s) ON CONFLICT (id) DO UPDATE '
                    'SET version = EXCLUDED.version', row
                )  # fmt: skip
            self.do(f'ALTER TABLE "{OWNER}"."{table}" ENABLE TRIGGER mlog')
            moved = "" if back else ", data_object_id = nextval('object_ids')"
            self.do(
                f"UPDATE all_objects SET last_ddl_time = stand_now(){moved} WHERE object_type = 'TABLE "
                "PARTITION' AND object_id = (SELECT max(object_id) FROM all_objects WHERE object_name = %s "
                "AND object_type = 'TABLE PARTITION')",
                (table,),
            )
            self._ddl(table)

    def drop(self, table: str) -> None:
        log = f"MLOG$_{table}"
        with self.own.transaction():
            self.do(f'DROP TABLE "{OWNER}"."{table}"')
            self.do(f'DROP TABLE "{OWNER}"."{log}"')
            for view, column in (
                ("all_tables", "table_name"),
                ("all_objects", "object_name"),
                ("all_tab_cols", "table_name"),
                ("all_constraints", "table_name"),
                ("all_mview_logs", "master"),
            ):
                self.do(f"DELETE FROM {view} WHERE {column} IN (%s, %s)", (table, log))

    def load_directly(self, table: str, *rows: tuple[int, int]) -> None:
        """INSERT /*+ APPEND */: rows without a row of the log, and an entry that says so."""
        with self.own.transaction():
            self.do(f'ALTER TABLE "{OWNER}"."{table}" DISABLE TRIGGER mlog')
            for row in rows:
                self.do(f'INSERT INTO "{OWNER}"."{table}" VALUES (%s, %s)', row)
            self.do(f'ALTER TABLE "{OWNER}"."{table}" ENABLE TRIGGER mlog')
            self.do(
                "INSERT INTO all_sumdelta SELECT object_id, txid_current() FROM "
                "all_objects WHERE object_name = %s",
                (table,),
            )

    @contextmanager
    def deletes_held(self, table: str) -> Iterator[Callable[[], bool]]:
        """Let deletes from a log wait; yields a function that returns whether one waits. Applications write
        on."""
        log = f'"{OWNER}"."MLOG$_{table}"'
        self.do(
            "CREATE OR REPLACE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM pg_advisory_xact_lock_shared({_GATE}); RETURN NULL; END $$"
        )
        self.do(
            f"CREATE OR REPLACE TRIGGER gate BEFORE DELETE ON {log} FOR EACH STATEMENT "
            "EXECUTE FUNCTION wait_at_the_gate()"
        )
        self.do(f"SELECT pg_advisory_lock({_GATE})")
        waiting = (
            "SELECT COUNT(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = "
            "current_database() AND l.locktype = 'advisory' AND NOT l.granted"
        )
        try:
            yield lambda: bool(self.do(waiting)[0][0])
        finally:
            self.do(f"SELECT pg_advisory_unlock({_GATE})")

    def logged(self, table: str) -> int:
        """Return how many rows its log holds; 0: it has none."""
        if not self.do("SELECT 1 FROM all_mview_logs WHERE master = %s", (table,)):
            return 0
        return int(self.do(f'SELECT COUNT(*) FROM "{OWNER}"."MLOG$_{table}"')[0][0])

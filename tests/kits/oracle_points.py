"""What `make test-oracle` does on a server of one's own, as data: logs and what `check` finds, statements
that no log shows, and the ends of each type as literals. Literals and types are also executed by H2
(tests/integration/test_oracle_points_dry.py); CREATE MATERIALIZED VIEW LOG by no stand.
"""

from __future__ import annotations

from typing import NamedTuple

WHOLE = 'WITH PRIMARY KEY, SEQUENCE ("version", "note") INCLUDING NEW VALUES'
BY_COMMIT = 'WITH PRIMARY KEY, SEQUENCE, COMMIT SCN ("version", "note") INCLUDING NEW VALUES'
#: Logs of a table with the columns id, version and note (point 1) → what `check` reports; each is healed by
#: the statement that it prints.
REFUSED_LOGS = {
    "": "no materialized view log",
    'WITH PRIMARY KEY ("version", "note") INCLUDING NEW VALUES': "lacks SEQUENCE",
    'WITH ROWID, SEQUENCE ("version", "note") INCLUDING NEW VALUES': "lacks PRIMARY KEY",
    'WITH PRIMARY KEY, SEQUENCE ("version", "note")': "lacks INCLUDING NEW VALUES",
    'WITH PRIMARY KEY, SEQUENCE ("version") INCLUDING NEW VALUES': "lacks column note",
}
STAGING = "FOR SYNCHRONOUS REFRESH USING st_a"
#: What no log shows (point 4) → the cause of the stop. `a` is partitioned by id there: p1 below 100, p2
#: above.
NOT_SHOWN = {
    'TRUNCATE TABLE "a"': "rows-replaced",
    'ALTER TABLE "a" TRUNCATE PARTITION p1': "rows-replaced",
    'ALTER TABLE "a" DROP PARTITION p1': "rows-replaced",
    'ALTER TABLE "a" MOVE PARTITION p1': "rows-replaced",
    'INSERT /*+ APPEND */ INTO "a" SELECT 9, 9, NULL FROM DUAL': "rows-replaced",
    'ALTER TABLE "a" RENAME COLUMN "note" TO "text"': "unfit",
    'ALTER TABLE "a" MODIFY ("note" VARCHAR2(10 CHAR))': "definition",
}


class End(NamedTuple):
    """An end of a type: a column of `type` with the value `literal`, of which the event has `wire`."""

    type: str
    literal: str
    wire: object


ENDS = [
    End("NUMBER", "1E-130", "0." + "0" * 129 + "1"), End("NUMBER", "9.99E125", "999" + "0" * 123),
    End("NUMBER", "-9" + "9" * 37 + ".99", "-9" + "9" * 37 + ".99"), End("NUMBER", "-.50", "-0.5"),
    End("NUMBER", "9" * 40, "9" * 40), End("NUMBER(5,-2)", "12345", "12300"),
    End("NUMBER(2,5)", "0.00012", "0.00012"), End("INTEGER", "-" + "9" * 38, "-" + "9" * 38),
    End("FLOAT(126)", "1E-20", "0.00000000000000000001"), End("BINARY_DOUBLE", "BINARY_DOUBLE_NAN", "NaN"),
    End("BINARY_DOUBLE", "BINARY_DOUBLE_INFINITY", "Infinity"),
    End("BINARY_DOUBLE", "-BINARY_DOUBLE_INFINITY", "-Infinity"),
    End("BINARY_DOUBLE", "1.7976931348623157E308D", 1.7976931348623157e308),
    End("BINARY_DOUBLE", "TO_BINARY_DOUBLE('-0')", 0.0), End("BINARY_FLOAT", "BINARY_FLOAT_NAN", "NaN"),
    End("BINARY_FLOAT", "0.5F", 0.5), End("CHAR(5 CHAR)", "'ab'", "ab"), End("CHAR(5 CHAR)", "' '", ""),
    End("NCHAR(5)", "UNISTR('\\D834\\DD1E')", "𝄞"), End("VARCHAR2(40 CHAR)", "'  x  '", "  x  "),
    End("VARCHAR2(40 CHAR)", "''", None), End("VARCHAR2(40 CHAR)", "'a' || CHR(0) || 'b'", "a\0b"),
    End("NVARCHAR2(10)", "UNISTR('\\D83D\\DE42\\94F6')", "🙂银"),
    End("DATE", "TO_DATE('-4712-01-01 00:00:00', 'SYYYY-MM-DD HH24:MI:SS')", "-4712-01-01 00:00:00"),
    End("DATE", "TO_DATE('9999-12-31 23:59:59', 'YYYY-MM-DD HH24:MI:SS')", "9999-12-31 23:59:59"),
    End("TIMESTAMP(9)", "TIMESTAMP '2026-11-25 03:04:05.123456789'", "2026-11-25 03:04:05.123456789"),
    End("TIMESTAMP(6)", "TIMESTAMP '9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999"),
    End("TIMESTAMP(3) WITH TIME ZONE", "TIMESTAMP '2026-03-29 03:30:00.5 Europe/Berlin'",
     "2026-03-29T01:30:00.500Z"), End("TIMESTAMP(0) WITH TIME ZONE", "TIMESTAMP '0001-01-01 00:00:00 -14:00'",
      "0001-01-01T14:00:00Z"), End("TIMESTAMP(0) WITH LOCAL TIME ZONE",
       "TIMESTAMP '2026-11-25 10:00:00 +05:30'", "2026-11-25T04:30:00Z"),
       End("INTERVAL YEAR(9) TO MONTH", "INTERVAL '-999999999-11' YEAR(9) TO MONTH", "-999999999-11"),
    End("INTERVAL DAY(9) TO SECOND(9)", "INTERVAL '999999999 23:59:59.999999999' DAY(9) TO SECOND(9)",
     "+999999999 23:59:59.999999999"),
    End("RAW(16)", "HEXTORAW('00FF')", "AP8="),
    End("ROWID", "CHARTOROWID('AAAR3sAAEAAAACXAAA')", "AAAR3sAAEAAAACXAAA"),
    End("UROWID", "CHARTOROWID('AAAR3sAAEAAAACXAAA')", "AAAR3sAAEAAAACXAAA"),
    End("CLOB", "TO_CLOB('naïve')", "naïve"), End("NCLOB", "TO_NCLOB('x')", "x"),
    End("BLOB", "HEXTORAW('00FF')", "AP8="),
]  # fmt: skip
#: Columns of these are refused by name.
NOT_CAPTURED = ("LONG", "XMLTYPE", "BFILE", "SYS.ANYDATA")

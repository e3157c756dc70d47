"""Values that an ALTER converts to others by its session's settings, though neither its text nor the
definitions show it: the table stops, or nothing changed.

Before, MODIFY of one column at a MySQL source left times of a repeated hour at the target that the source had
no longer, without a word.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.capturing import Capturing
from tests.kits.capture import position
from tests.kits.drawn_settings import MAKE_ZONE, ZONE

pytestmark = pytest.mark.timeout(1200)

STRICT = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES"
#: Of a session: time zone, sql_mode.
SESSIONS = {
    "zone": (ZONE, STRICT),
    "no zeros": ("+00:00", "NO_ZERO_IN_DATE"),
    "no invalid": ("+00:00", "NO_ENGINE_SUBSTITUTION"),
    "padded": ("+00:00", f"{STRICT},PAD_CHAR_TO_FULL_LENGTH"),
}
STATEMENTS = (
    "ALTER TABLE {t} MODIFY n BIGINT", "ALTER TABLE {t} MODIFY d DATETIME(3)",
    "ALTER TABLE {t} MODIFY s TIMESTAMP(3) NULL", "ALTER TABLE {t} MODIFY c VARCHAR(9)",
    "ALTER TABLE {t} MODIFY c CHAR(9)", "ALTER TABLE {t} MODIFY z TEXT", "ALTER TABLE {t} FORCE",
    "ALTER TABLE {t} FORCE, ALGORITHM=COPY", "ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 2",
    "ALTER TABLE {t} ADD COLUMN w INT", "ALTER TABLE {t} ADD COLUMN w INT, ALGORITHM=COPY",
    "ALTER TABLE {t} ADD INDEX (n)", "ALTER TABLE {t} DROP COLUMN n", "ALTER TABLE {t} CHANGE n m BIGINT",
    "ALTER TABLE {t} ADD CHECK (id > 0)", "OPTIMIZE TABLE {t}", "/* night */ OPTIMIZE TABLE {t}",
)  # fmt: skip
COLUMNS = "id INT PRIMARY KEY, n INT, c CHAR(5), d DATETIME, e DATE, s TIMESTAMP NULL, z VARCHAR(10)"
ODD = (
    "(1, 1, 'ab', '2001-00-05', '2001-00-05', '2025-10-26 00:30:00', 'x')",
    "(2, 2, '', '2001-02-31', '2001-02-31', '2025-10-26 01:30:00', '')",
)
PLAIN = (
    "(1, 1, NULL, '2001-01-05', NULL, '2025-10-26 02:30:00', 'x')",
    "(2, 2, 'abcde', NULL, '2001-02-28', NULL, '')",
)
SEEN = (
    "SELECT id, HEX(c), LEFT(d, 19), CAST(e AS CHAR), FLOOR(UNIX_TIMESTAMP(s)), HEX(z) FROM {t} ORDER BY id"
)


def _table(capturing: Capturing, name: str, rows: tuple[str, ...], statement: str) -> None:
    index = ", FULLTEXT (z)" if "OPTIMIZE" in statement or statement.endswith("FORCE") else ""
    capturing.change(
        "SET SESSION time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE {name} ({COLUMNS}{index})",
        f"INSERT INTO {name} VALUES {', '.join(rows)}",
    )  # fmt: skip


def _seen(capturing: Capturing, name: str) -> Any:
    with capturing.database.connect(capturing.db) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute(SEEN.format(t=name))
        return cursor.fetchall()


@pytest.mark.parametrize("session", SESSIONS)
def test_what_a_session_s_settings_made_of_values_stops_the_table(capturing: Capturing, session: str) -> None:
    zone, mode = SESSIONS[session]
    for statement in MAKE_ZONE:
        capturing.database.execute(statement)
    cases = [(n, kind, statement) for n, statement in enumerate(STATEMENTS) for kind in ("odd", "plain")]
    for n, kind, statement in cases:
        _table(capturing, f"{kind}{n}", ODD if kind == "odd" else PLAIN, statement)
    capturing.run()
    before = {(n, kind): _seen(capturing, f"{kind}{n}") for n, kind, _ in cases}
    asked = [statement.format(t=f"{kind}{n}") for n, kind, statement in cases]
    capturing.run(f"SET SESSION time_zone = '{zone}', sql_mode = '{mode}'", *asked)
    stopped = set(position(capturing.kafka.bootstrap, capturing.db, "s").stops)
    changed = {(n, kind) for n, kind, _ in cases if _seen(capturing, f"{kind}{n}") != before[n, kind]}
    silent = [STATEMENTS[n] for n, kind in sorted(changed) if f"{capturing.db}.{kind}{n}" not in stopped]
    assert silent == []
    if session == "padded":  # no row shows that spaces came
        assert {kind for n, kind, statement in cases if f"{capturing.db}.{kind}{n}" in stopped} <= {
            "odd",
            "plain",
        }
        assert {STATEMENTS[n] for n, kind in changed} == {"ALTER TABLE {t} MODIFY c VARCHAR(9)"}
    else:
        assert not [name for name in stopped if ".plain" in name]
    converts = session == "no zeros" or (session == "no invalid") or capturing.database.kind == "MySQL"
    assert bool(changed) == (converts or session == "padded")

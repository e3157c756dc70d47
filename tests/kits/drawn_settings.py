"""Settings of a session in which a drawn statement runs: such as change what a statement or a value means.
What a server does not know, it is not given."""

from __future__ import annotations

import random
import re

from producer.binlog_format.log_event import SessionSettings

#: A zone in which 02:00 to 03:00 of 26 October 2025 is there twice, and what makes it known to a server.
ZONE, ZONE_ID = "Rowlock/Twice", 7001
MAKE_ZONE = (
    f"REPLACE INTO mysql.time_zone VALUES ({ZONE_ID}, 'N')",
    f"REPLACE INTO mysql.time_zone_name VALUES ('{ZONE}', {ZONE_ID})",
    f"REPLACE INTO mysql.time_zone_transition VALUES ({ZONE_ID}, 1743296400, 1), ({ZONE_ID}, 1761440400, 0)",
    (
        f"REPLACE INTO mysql.time_zone_transition_type VALUES ({ZONE_ID}, 0, 3600, 0, 'CET'), "
        f"({ZONE_ID}, 1, 7200, 1, 'CEST')"
    ),
)
_STRICT = ("STRICT_ALL_TABLES", "STRICT_TRANS_TABLES")
_MODES = (
    *_STRICT, "NO_ZERO_DATE", "NO_ZERO_IN_DATE", "ALLOW_INVALID_DATES", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES",
    "PAD_CHAR_TO_FULL_LENGTH", "PIPES_AS_CONCAT", "NO_AUTO_VALUE_ON_ZERO", "ERROR_FOR_DIVISION_BY_ZERO",
    "NO_UNSIGNED_SUBTRACTION", "IGNORE_SPACE", "REAL_AS_FLOAT", "HIGH_NOT_PRECEDENCE",
    "TIME_TRUNCATE_FRACTIONAL", "TIME_ROUND_FRACTIONAL", "EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT",
)  # fmt: skip
#: Variable → values. Of some the servers have only one; some a session may not set.
_VARIABLES: dict[str, tuple[str, ...]] = {
    "time_zone": ("'+00:00'", "'+05:30'", "'-11:00'", f"'{ZONE}'", f"'{ZONE}'"),
    "explicit_defaults_for_timestamp": ("OFF", "ON"),
    "character_set_client": ("latin1", "utf8mb3", "cp1251"),
    "character_set_connection": ("latin1", "utf8mb3"),
    "collation_connection": ("utf8mb4_bin", "utf8mb4_unicode_ci", "latin1_german1_ci"),
    "default_collation_for_utf8mb4": ("utf8mb4_general_ci", "utf8mb4_0900_ai_ci"),
    "character_set_collations": ("'utf8mb4=utf8mb4_bin'", "'latin1=latin1_bin'"),
    "collation_database": ("utf8mb4_bin", "latin1_swedish_ci"),
    "collation_server": ("utf8mb4_bin", "latin1_swedish_ci"),
    "sql_generate_invisible_primary_key": ("ON",),
    "sql_require_primary_key": ("ON",),
    "foreign_key_checks": ("OFF",),
    "unique_checks": ("OFF",),
    "check_constraint_checks": ("OFF",),
    "old_alter_table": ("ON",),
    "alter_algorithm": ("'COPY'", "'INPLACE'", "'NOCOPY'", "'INSTANT'"),
    "system_versioning_alter_history": ("KEEP",),
    "old_mode": ("''", "'UTF8_IS_UTF8MB3'", "'ZERO_DATE_TIME_CAST'",
     "'NO_NULL_COLLATION_IDS,LOCK_ALTER_TABLE_COPY'"),
    "innodb_strict_mode": ("OFF", "ON"),
    "sql_auto_is_null": ("ON",),
    "div_precision_increment": ("0",),
    "show_create_table_skip_secondary_engine": ("ON",),
    "innodb_instant_alter_column_allowed": ("'never'",),
    "print_identified_with_as_hex": ("ON",),
    "lc_time_names": ("de_DE",),
    "timestamp": ("1761440400", "1000000000"),
    "sql_quote_show_create": ("OFF",),
    "show_old_temporals": ("ON",),
    "column_compression_threshold": ("1",),
}  # fmt: skip
_STRINGS_AND_NAMES = re.compile(r"'[^']*'|\b(?:h|[vVnN]|[cC]\d+)\b(?!\()")


def drawn_settings(rng: random.Random) -> tuple[str, ...]:
    """Return what SET SESSION is told, one after the other."""
    found = []
    if rng.random() < 0.6:
        modes = rng.sample(_MODES, rng.randint(0, 4))
        found.append(f"sql_mode = '{','.join(modes)}'")
    for name in rng.sample(sorted(_VARIABLES), rng.randint(0, 3)):
        found.append(f"{name} = {rng.choice(_VARIABLES[name])}")
    if rng.random() < 0.3:
        found.append(f"time_zone = '{ZONE}'")
    return tuple(found)


def spelled(text: str, modes: frozenset[str]) -> str:
    """Return a statement as it may be written under an sql_mode only."""
    if "NO_BACKSLASH_ESCAPES" in modes:
        text = text.replace("COMMENT='c'", "COMMENT='c\\'")
    if "ANSI_QUOTES" in modes:
        return _STRINGS_AND_NAMES.sub(
            lambda found: found[0] if found[0].startswith("'") else f'"{found[0]}"', text
        )
    return text


def logged(modes: frozenset[str], zone: str) -> SessionSettings:
    """Return what a server's log says of a session; `zone`: "" where it says none."""
    any_date = "ALLOW_INVALID_DATES" in modes and modes.isdisjoint({"NO_ZERO_DATE", "NO_ZERO_IN_DATE"})
    return SessionSettings(
        "PAD_CHAR_TO_FULL_LENGTH" in modes, modes.isdisjoint(_STRICT) and not any_date, zone
    )

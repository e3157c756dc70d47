"""The actions of ALTER TABLE with their effects on rows and on the definition, and the parsing of a
statement into actions. Pure.

`ACTIONS` is an allow-list: an action, option or form that is not in it may have changed any row. The
list defines the effects, the table in the docs, and the cases of the test that counts rows on real
servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from producer.statements.tokens import Token

RowEffect = Literal["kept", "removed", "emptied", "replaced", "gone", "unknown"]
"""The effect on rows.

"removed": some rows are removed, and every other row, and every later event, is as it was. "emptied": rows
are removed by a statement after which the log may not be followed.
"""
Definition = Literal["kept", "changed"]
Needs = Literal["", "no list", "place for all", "same definition", "other definition"]
"""A further condition for the effect.

"no list": the table must not be partitioned by LIST (or by anything unknown). "place for all": the table must
have a partition for every value; otherwise a row in a wrong partition (EXCHANGE … WITHOUT VALIDATION), for
which there is no other one, is removed. "same definition": rows
and values are kept if the definition is unchanged afterwards. "other definition": the definition must
have changed; if it has not, the values are unknown.
"""


class ActionRule(NamedTuple):
    """An action of ALTER TABLE: its first words ("A|B": either) and its effects.

    `example`: for the test and the docs.
    """

    words: str
    rows: RowEffect
    definition: Definition = "kept"
    needs: Needs = ""
    example: str = ""
    servers: str = "both"


#: The first match counts. COLUMN and IF [NOT] EXISTS are skipped before the words after the verb.
ACTIONS: tuple[ActionRule, ...] = (
    ActionRule("ADD INDEX|KEY|FULLTEXT|SPATIAL", "kept", example="ADD INDEX i (v)"),
    ActionRule("ADD VECTOR INDEX|KEY", "kept"),
    ActionRule("ADD UNIQUE|PRIMARY", "kept", "changed", example="ADD UNIQUE u (id, v)"),
    ActionRule("ADD CONSTRAINT|FOREIGN|CHECK", "kept", "changed",
     example="ADD CONSTRAINT positive CHECK (id > 0)"),
    ActionRule("ADD PARTITION", "kept", example="ADD PARTITION (PARTITION p3 VALUES LESS THAN (400))"),
    ActionRule("ADD PERIOD|SYSTEM FOR|VERSIONING", "unknown"),
    ActionRule("ADD", "unknown", "changed", "other definition", "ADD COLUMN w INT DEFAULT 7"),
    ActionRule("ALTER INDEX|KEY|CHECK|CONSTRAINT", "kept", example="ALTER INDEX v_index INVISIBLE",
     servers="mysql"),
    ActionRule("ALTER", "kept", "changed", example="ALTER COLUMN v SET DEFAULT 'x'"),
    ActionRule("ANALYZE PARTITION", "kept", needs="no list", example="ANALYZE PARTITION p0"),
    ActionRule("CHECK PARTITION", "kept", needs="no list", example="CHECK PARTITION p0"),
    ActionRule("OPTIMIZE PARTITION", "kept", needs="no list", example="OPTIMIZE PARTITION p0"),
    ActionRule("REBUILD PARTITION", "kept", needs="place for all", example="REBUILD PARTITION p0"),
    ActionRule("COALESCE PARTITION", "kept", example="COALESCE PARTITION 1"),
    ActionRule("REMOVE PARTITIONING", "kept", example="REMOVE PARTITIONING"),
    ActionRule("PARTITION BY", "kept", example="PARTITION BY HASH (id) PARTITIONS 3"),
    ActionRule("UPGRADE PARTITIONING", "kept"),
    ActionRule("REPAIR PARTITION", "unknown", example="REPAIR PARTITION p0"),
    ActionRule("CHANGE", "unknown", "changed", "other definition", "CHANGE v w VARCHAR(20)"),
    ActionRule("MODIFY", "unknown", "changed", "other definition", "MODIFY v VARCHAR(30)"),
    ActionRule("CONVERT TO", "unknown", "changed", "same definition", "CONVERT TO CHARACTER SET utf8mb4"),
    ActionRule("CONVERT PARTITION", "removed", example="CONVERT PARTITION p0 TO TABLE {other}",
     servers="mariadb"),
    ActionRule("CONVERT TABLE", "replaced"),
    ActionRule("DEFAULT|CHARACTER|CHARSET|COLLATE", "kept", "changed",
     example="DEFAULT CHARACTER SET latin1"),
    ActionRule("DISABLE|ENABLE KEYS", "kept", example="DISABLE KEYS"),
    ActionRule("DISCARD", "emptied", example="DISCARD TABLESPACE"),
    ActionRule("IMPORT", "replaced", example="IMPORT TABLESPACE"),
    ActionRule("DROP INDEX|KEY|PRIMARY|FOREIGN|CHECK|CONSTRAINT", "kept", "changed",
     example="DROP INDEX v_index"),
    ActionRule("DROP PARTITION", "removed", example="DROP PARTITION p0"),
    ActionRule("DROP PERIOD|SYSTEM FOR|VERSIONING", "unknown"),
    ActionRule("DROP", "unknown", "changed", "other definition", "DROP COLUMN v"),
    ActionRule("TRUNCATE PARTITION", "removed", example="TRUNCATE PARTITION p0"),
    ActionRule("EXCHANGE PARTITION", "replaced", example="EXCHANGE PARTITION p0 WITH TABLE {other}"),
    ActionRule("FORCE", "kept", example="FORCE"),
    ActionRule("ORDER BY", "kept", example="ORDER BY v, id"),
    ActionRule("RENAME INDEX|KEY", "kept", "changed", example="RENAME INDEX v_index TO v_other"),
    ActionRule("RENAME COLUMN", "unknown", "changed", "other definition", "RENAME COLUMN v TO w"),
    ActionRule("WITH|WITHOUT VALIDATION", "kept"),
    ActionRule("SECONDARY_LOAD|SECONDARY_UNLOAD", "kept"),
    ActionRule("WAIT|NOWAIT", "kept", servers="mariadb", example="WAIT 5 FORCE"),
)  # fmt: skip

#: Table options that change no row. ENGINE only with InnoDB: another engine may keep no row at all.
OPTIONS: frozenset[str] = frozenset(
    {
        "ALGORITHM", "LOCK", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM",
        "TABLE_CHECKSUM", "COMMENT", "COMPRESSION", "DELAY_KEY_WRITE", "ENCRYPTED", "ENCRYPTION",
        "ENCRYPTION_KEY_ID", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE",
        "IETF_QUOTES", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM",
        "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES", "TABLESPACE", "TRANSACTIONAL",
    }
)  # fmt: skip
#: Types that the definition describes completely: MODIFY to an equal definition changes no value of
#: them.
WHOLE_TYPES = frozenset(
    {
        "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "DECIMAL", "NUMERIC", "DEC", "BIT",
        "BOOL", "BOOLEAN", "CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET",
        "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "DATE", "TIME", "DATETIME",
        "TIMESTAMP", "YEAR", "JSON",
    }
)  # fmt: skip
_GENERATED = frozenset(["AS", "GENERATED", "VIRTUAL", "STORED", "PERSISTENT"])


_UNKNOWN = ActionRule("", "unknown")


def classify_action(piece: Sequence[Token]) -> ActionRule:
    """Return the effects of one piece of ALTER TABLE (see `split_actions`)."""
    words = [token.upper for token in piece]
    if not words:
        return _UNKNOWN
    if words[0] in ("WAIT", "NOWAIT"):
        return classify_action(piece[2 if words[0] == "WAIT" else 1 :])
    if words[0] in OPTIONS or words[0] in _FIRST_OF_OPTIONS:
        return _classify_options(piece)
    if words[:2] == ["REORGANIZE", "PARTITION"]:
        return _classify_reorganize(words)
    conditional, column = "EXISTS" in words[:5], words[1:2] == ["COLUMN"] and words[0] in _OF_COLUMNS
    if words[0] != "RENAME":
        piece = [token for at, token in enumerate(piece) if not (0 < at < 5 and token.upper in _PASSED)]
        words = [token.upper for token in piece]
    known = _OF_COLUMNS[words[0]] if column else ACTIONS
    found = next((action for action in known if _matches_pattern(action.words, words)), _UNKNOWN)
    same = len(piece) > 2 and piece[1].text == piece[2].text  # CHANGE v v … is MODIFY v …
    stays = (found.words == "MODIFY" and _keeps_values(words)) or (
        found.words == "CHANGE" and same and _keeps_values(words[1:])
    )
    if stays or (found.words in ("ADD", "DROP") and conditional):
        return found._replace(needs="same definition")
    return found


#: Actions with the word COLUMN after the verb, whatever the column's name is ("vector", "period").
_OF_COLUMNS = {
    verb: tuple(each for each in ACTIONS if each.words == verb) for verb in ("ADD", "DROP", "ALTER")
}
_PASSED = ("COLUMN", "IF", "NOT", "EXISTS")
_FIRST_OF_OPTIONS = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "DATA", "INDEX", "ENGINE", "START")


def _matches_pattern(pattern: str, words: list[str]) -> bool:
    expected = pattern.split()
    return len(words) >= len(expected) and all(
        word in each.split("|") for each, word in zip(expected, words, strict=False)
    )


def _keeps_values(words: list[str]) -> bool:
    """Return whether MODIFY keeps every value if the definition stays the same. `words`: … name TYPE …"""
    return len(words) > 2 and words[2] in WHOLE_TYPES and _GENERATED.isdisjoint(words)


def _classify_reorganize(words: list[str]) -> ActionRule:
    """Return the effects of REORGANIZE by its clauses: VALUES LESS THAN is RANGE, no clause HASH or KEY;
    VALUES IN and DEFAULT are LIST.
    """
    kinds = {words[at + 1] for at, word in enumerate(words[:-1]) if word == "VALUES"}
    list_like = not {"DEFAULT", "HISTORY", "CURRENT"}.isdisjoint(words)
    if not kinds <= {"LESS"} or list_like:
        return ActionRule("REORGANIZE PARTITION", "unknown")
    whole = not kinds or "LESS THAN MAXVALUE" in " ".join(words).replace("THAN ( MAXVALUE )", "THAN MAXVALUE")
    return ActionRule("REORGANIZE PARTITION", "kept", needs="" if whole else "place for all")


def _classify_options(piece: Sequence[Token]) -> ActionRule:
    """Return the effects of consecutive table options, perhaps with PARTITION BY or REMOVE PARTITIONING
    at the end.
    """
    at, definition = 0, "kept"
    while at < len(piece):
        word = piece[at].upper
        following = piece[at + 1].upper if at + 1 < len(piece) else ""
        if (word, following) in (("PARTITION", "BY"), ("REMOVE", "PARTITIONING")):
            break
        if word == "DEFAULT" and following in ("CHARACTER", "CHARSET", "COLLATE"):
            at += 1
            continue
        if word in ("CHARACTER", "CHARSET", "COLLATE"):
            definition = "changed"
            at += 2 if word == "CHARACTER" else 1
        elif word in ("DATA", "INDEX") and following == "DIRECTORY":
            at += 2
        elif (word, following) == ("START", "TRANSACTION"):
            at += 2
            continue
        elif word in OPTIONS or word == "ENGINE":
            at += 1
        else:
            return _UNKNOWN
        at += 1 if at < len(piece) and piece[at].text == "=" else 0
        if at >= len(piece) or (word == "ENGINE" and piece[at].text.upper() != "INNODB"):
            return _UNKNOWN
        at += 1
    return ActionRule("", "kept", "changed" if definition == "changed" else "kept")

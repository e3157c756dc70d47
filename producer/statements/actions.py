"""The actions of ALTER TABLE with their effects on rows and on the definition, and the parsing of a
statement into actions. Pure.

`ACTIONS` is an allow-list: an action, option or form that is not in it may have changed any row. The
list defines the effects, the table in the docs, and the cases of the test that counts rows on real
servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from producer.statements.tokens import Token

RowEffect = Literal["kept", "emptied", "replaced", "gone", "unknown"]
Definition = Literal["kept", "changed"]
Needs = Literal["", "no list", "same definition", "other definition"]
"""A further condition for the effect.

"no list": the table must not be partitioned by LIST (or by anything unknown). "same definition": rows
and values are kept if the definition is unchanged afterwards. "other definition": the definition must
have changed; if it has not, the values are unknown.
"""


class AlterAction(NamedTuple):
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
ACTIONS: tuple[AlterAction, ...] = (
    AlterAction("ADD INDEX|KEY|FULLTEXT|SPATIAL", "kept", example="ADD INDEX i (v)"),
    AlterAction("ADD VECTOR INDEX|KEY", "kept"),
    AlterAction("ADD UNIQUE|PRIMARY", "kept", "changed", example="ADD UNIQUE u (id, v)"),
    AlterAction("ADD CONSTRAINT|FOREIGN|CHECK", "kept", "changed", example="ADD CONSTRAINT positive CHECK (id > 0)"),
    AlterAction("ADD PARTITION", "kept", example="ADD PARTITION (PARTITION p3 VALUES LESS THAN (400))"),
    AlterAction("ADD PERIOD|SYSTEM FOR|VERSIONING", "unknown"),
    AlterAction("ADD", "unknown", "changed", "other definition", "ADD COLUMN w INT DEFAULT 7"),
    AlterAction("ALTER INDEX|KEY|CHECK|CONSTRAINT", "kept", example="ALTER INDEX v_index INVISIBLE", servers="mysql"),
    AlterAction("ALTER", "kept", "changed", example="ALTER COLUMN v SET DEFAULT 'x'"),
    AlterAction("ANALYZE PARTITION", "kept", needs="no list", example="ANALYZE PARTITION p0"),
    AlterAction("CHECK PARTITION", "kept", needs="no list", example="CHECK PARTITION p0"),
    AlterAction("OPTIMIZE PARTITION", "kept", needs="no list", example="OPTIMIZE PARTITION p0"),
    AlterAction("REBUILD PARTITION", "kept", needs="no list", example="REBUILD PARTITION p0"),
    AlterAction("COALESCE PARTITION", "kept", example="COALESCE PARTITION 1"),
    AlterAction("REMOVE PARTITIONING", "kept", example="REMOVE PARTITIONING"),
    AlterAction("PARTITION BY", "kept", example="PARTITION BY HASH (id) PARTITIONS 3"),
    AlterAction("UPGRADE PARTITIONING", "kept"),
    AlterAction("REPAIR PARTITION", "unknown", example="REPAIR PARTITION p0"),
    AlterAction("CHANGE", "unknown", "changed", "other definition", "CHANGE v w VARCHAR(20)"),
    AlterAction("MODIFY", "unknown", "changed", "other definition", "MODIFY v VARCHAR(30)"),
    AlterAction("CONVERT TO", "unknown", "changed", "same definition", "CONVERT TO CHARACTER SET utf8mb4"),
    AlterAction("CONVERT PARTITION|TABLE", "replaced", example="CONVERT PARTITION p0 TO TABLE {other}", servers="mariadb"),
    AlterAction("DEFAULT|CHARACTER|CHARSET|COLLATE", "kept", "changed", example="DEFAULT CHARACTER SET latin1"),
    AlterAction("DISABLE|ENABLE KEYS", "kept", example="DISABLE KEYS"),
    AlterAction("DISCARD", "emptied", example="DISCARD TABLESPACE"),
    AlterAction("IMPORT", "replaced", example="IMPORT TABLESPACE"),
    AlterAction("DROP INDEX|KEY|PRIMARY|FOREIGN|CHECK|CONSTRAINT", "kept", "changed", example="DROP INDEX v_index"),
    AlterAction("DROP PARTITION", "emptied", example="DROP PARTITION p0"),
    AlterAction("DROP PERIOD|SYSTEM FOR|VERSIONING", "unknown"),
    AlterAction("DROP", "unknown", "changed", "other definition", "DROP COLUMN v"),
    AlterAction("TRUNCATE PARTITION", "emptied", example="TRUNCATE PARTITION p0"),
    AlterAction("EXCHANGE PARTITION", "replaced", example="EXCHANGE PARTITION p0 WITH TABLE {other}"),
    AlterAction("FORCE", "kept", example="FORCE"),
    AlterAction("ORDER BY", "kept", example="ORDER BY v, id"),
    AlterAction("RENAME INDEX|KEY", "kept", "changed", example="RENAME INDEX v_index TO v_other"),
    AlterAction("RENAME COLUMN", "unknown", "changed", "other definition", "RENAME COLUMN v TO w"),
    AlterAction("WITH|WITHOUT VALIDATION", "kept"),
    AlterAction("SECONDARY_LOAD|SECONDARY_UNLOAD", "kept"),
    AlterAction("WAIT|NOWAIT", "kept", servers="mariadb", example="WAIT 5 FORCE"),
)  # fmt: skip

#: Table options that change no row. ENGINE only with InnoDB: another engine may keep no row at all.
OPTIONS: frozenset[str] = frozenset(
    {
        "ALGORITHM", "LOCK", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMMENT",
        "COMPRESSION", "DELAY_KEY_WRITE", "ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "IETF_QUOTES", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS",
        "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ROW_FORMAT", "STATS_AUTO_RECALC",
        "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "TRANSACTIONAL",
    }
)  # fmt: skip
#: Types that the definition describes completely: MODIFY to an equal definition changes no value of
#: them.
WHOLE_TYPES = frozenset(
    {
        "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "DECIMAL", "NUMERIC", "DEC", "BIT", "BOOL",
        "BOOLEAN", "CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET", "BINARY", "VARBINARY",
        "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR", "JSON",
    }
)  # fmt: skip
_GENERATED = frozenset(["AS", "GENERATED", "VIRTUAL", "STORED", "PERSISTENT"])


def is_alter_ignore(tokens: list[Token]) -> bool:
    """Return whether the statement is ALTER IGNORE TABLE, which deletes conflicting rows."""
    table = next((at for at, token in enumerate(tokens) if token.upper == "TABLE"), len(tokens))
    return any(token.upper == "IGNORE" for token in tokens[:table])


def get_tokens_after_name(tokens: list[Token]) -> list[Token]:
    """Return the tokens after the table's name in ALTER … TABLE [IF EXISTS] name."""
    at = next(at for at, token in enumerate(tokens) if token.upper == "TABLE") + 1
    while at < len(tokens) and tokens[at].upper in ("IF", "EXISTS"):
        at += 1
    at += 3 if at + 1 < len(tokens) and tokens[at + 1].text == "." and not tokens[at + 1].quoted else 1
    return tokens[at:]


def split_actions(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the pieces between commas outside of parentheses.

    The columns that ORDER BY lists are not separate actions.
    """
    depth, pieces = 0, [[]] if tokens else []  # type: tuple[int, list[list[Token]]]
    for token in tokens:
        plain = not token.quoted and not token.string
        depth += (plain and token.text == "(") - (plain and token.text == ")")
        if plain and token.text == "," and depth == 0:
            pieces.append([])
        else:
            pieces[-1].append(token)
    yield from _join_listed_pieces(pieces)


def _join_listed_pieces(pieces: list[list[Token]]) -> Iterator[list[Token]]:
    """Join the columns that ORDER BY lists, and the partitions that a partition action lists, to their
    action.
    """
    whole: list[Token] | None = None
    for piece in pieces:
        words = [token.upper for token in piece[:2]]
        listed = len(piece) == 1 or words[1:] in (["ASC"], ["DESC"], ["INTO"])
        if whole is not None and listed and _has_list_operand([token.upper for token in whole[:2]]):
            whole += piece
            continue
        if whole is not None:
            yield whole
        whole = list(piece)
    if whole is not None:
        yield whole


def _has_list_operand(words: list[str]) -> bool:
    return words == ["ORDER", "BY"] or words[1:] == ["PARTITION"]


_UNKNOWN = AlterAction("", "unknown")


def classify_action(piece: list[Token]) -> AlterAction:
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


def _classify_reorganize(words: list[str]) -> AlterAction:
    """Return the effects of REORGANIZE by its clauses: VALUES LESS THAN is RANGE, no clause HASH or KEY;
    VALUES IN and DEFAULT are LIST.
    """
    kinds = {words[at + 1] for at, word in enumerate(words[:-1]) if word == "VALUES"}
    list_like = not {"DEFAULT", "HISTORY", "CURRENT"}.isdisjoint(words)
    known = kinds <= {"LESS"} and not list_like
    return AlterAction("REORGANIZE PARTITION", "kept" if known else "unknown")


def _classify_options(piece: list[Token]) -> AlterAction:
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
    return AlterAction("", "kept", "changed" if definition == "changed" else "kept")

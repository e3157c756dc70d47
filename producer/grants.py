"""Which privileges a capture user lacks, from the lines of SHOW GRANTS; pure."""

from __future__ import annotations

import re

from schemas.config import SourceConfig

_GRANT = re.compile(r"GRANT (?P<what>.+?) ON (?P<where>.+?) TO ", re.IGNORECASE)
_REPLICATION_SLAVE = ("REPLICATION SLAVE", "REPLICATION REPLICA", "SUPER")
_STATUS = {
    False: ("REPLICATION CLIENT", "SUPER"),
    True: ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER"),
}


def missing_grants(lines: list[str], mariadb: bool, source: SourceConfig) -> list[tuple[str, str]]:
    """Return (what is missing, the GRANT statement) for each privilege that `lines` do not give.

    A user with roles gets the benefit of the doubt for SELECT, which shows in the tables it sees.
    """
    found = [match for line in lines if (match := _GRANT.match(line))]
    server_wide = {
        privilege
        for match in found
        if match["where"] in ("*.*", "`*`.`*`")
        for privilege in _privileges(match)
    }
    missing = []
    for wanted, name in (
        (_REPLICATION_SLAVE, "REPLICATION SLAVE"),
        (_STATUS[mariadb], _STATUS[mariadb][mariadb]),
    ):
        if not server_wide.intersection((*wanted, "ALL PRIVILEGES", "ALL")):
            missing.append(
                (f"user {source.user} lacks {name}", f"GRANT {name} ON *.* TO {_account(lines, source)};")
            )
    selects = [
        match for match in found if {"SELECT", "ALL PRIVILEGES", "ALL"}.intersection(_privileges(match))
    ]
    roles = any(" ON " not in line for line in lines)
    for db in _databases(source) if not roles else []:
        if not any(_covers(match["where"], db) for match in selects):
            missing.append(
                (
                    f"user {source.user} may not read {db}",
                    f"GRANT SELECT ON {_quoted(db)}.* TO {_account(lines, source)};",
                )
            )
    return missing


def _privileges(match: re.Match[str]) -> set[str]:
    plain = re.sub(r"\([^)]*\)", "", match["what"])
    return {each.strip().upper() for each in plain.split(",")}


def _databases(source: SourceConfig) -> list[str]:
    """The databases that are named without a wildcard; of others the tables that are visible must speak."""
    names = (pattern.partition(".")[0] for pattern in source.tables if not pattern.startswith("!"))
    return sorted({name for name in names if not set(name) & set("*?[")})


def _covers(where: str, db: str) -> bool:
    granted = where.replace("`", "").partition(".")[0]
    if granted == "*":
        return True
    pattern = (
        re.escape(granted.replace("\\_", "\0").replace("\\%", "\1")).replace("_", ".").replace("%", ".*")
    )
    return re.fullmatch(pattern.replace("\0", "_").replace("\1", "%"), db) is not None


def _account(lines: list[str], source: SourceConfig) -> str:
    for line in lines:
        match = re.search(r" TO (`[^`]*`@`[^`]*`|'[^']*'@'[^']*')", line)
        if match:
            return match[1]
    return f"'{source.user}'@'%'"


def _quoted(name: str) -> str:
    return f"`{name}`"

"""The users of docs/how-to/source-setup.md and target-setup.md, made by the very statements of those
pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.embedded.mariadb import MySQLFamily
from schemas.io.server_errors import parse_server_version
from tests.kits.capture import ROOT
from tests.kits.targets import Target

PAGE = ROOT / "docs" / "how-to" / "source-setup.md"
TARGET_PAGE = ROOT / "docs" / "how-to" / "target-setup.md"
#: What a target's kind is called there.
_TITLES = {"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}
PASSWORD = "a password of its own"


def documented_statements(kind: str) -> list[str]:
    """Return the statements that the page shows for a server: kind is "MySQL" or "MariaDB"."""
    text = PAGE.read_text()
    block = re.search(rf"^{kind}:\n\n```sql\n(.+?)```", text, re.MULTILINE | re.DOTALL)
    assert block is not None, f"{PAGE.name} has no block of SQL for {kind}"
    return [each.strip() for each in block[1].split(";") if each.strip()]


def optional_statements() -> list[str]:
    """Return the GRANT that the page calls optional."""
    return re.findall(r"^(GRANT TRIGGER.+?);", PAGE.read_text(), re.MULTILINE)


@contextmanager
def documented_user(server: MySQLFamily, name: str, *databases: str, optional: bool = False) -> Iterator[str]:
    """Make the user as `name`, with SELECT on `databases`; yields the name."""
    statements = [*documented_statements(server.kind), *(optional_statements() if optional else ())]
    [(version,)] = server.execute("SELECT VERSION()")
    if server.kind == "MariaDB" and parse_server_version(version) < (
        10,
        5,
    ):  # as the page says of these versions
        statements = [
            each.replace("BINLOG MONITOR, SLAVE MONITOR", "REPLICATION CLIENT") for each in statements
        ]
    for statement in statements:
        mine = statement.replace("'rowlock'", f"'{name}'").replace("…", PASSWORD)
        for each in [mine.replace("`bank`", f"`{db}`") for db in databases] if "`bank`" in mine else [mine]:
            server.execute(each)
    try:
        yield name
    finally:
        server.execute(f"DROP USER IF EXISTS '{name}'@'%'")


@contextmanager
def documented_target_user(target: Target, name: str, *tables: str) -> Iterator[str]:
    """Make the user of a target as `name`; `tables` exist already. Yields the name."""
    block = re.search(
        rf"^## {_TITLES[target.kind]} .*?```sql\n(.+?)```", TARGET_PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert block is not None, f"{TARGET_PAGE.name} has no block of SQL for {target.kind}"
    text = re.sub(r"--.*", "", block[1]).replace("…", PASSWORD)
    if target.kind == "mysql":  # as the page says of versions before 8.0
        text = text.replace("SELECT ON performance_schema.*", target.flavour.locks.grant)
    for each in text.split(";"):
        mine = re.sub(r"\browlock\b", target.quoted(name), each.strip())
        mine = re.sub(r"\bhq\b", target.quoted(target.database), mine)
        for table in tables if "public.acct" in mine else [""]:
            if mine:
                target.sql(mine.replace("public.acct", target.name(table)))
    try:
        yield name
    finally:
        for session in target.sessions:
            session.close()
        if target.kind == "postgres":
            target.sql(f"DROP OWNED BY {target.quoted(name)} CASCADE")
            target.sql(f"DROP ROLE {target.quoted(name)}")
        else:
            target.sql(f"DROP USER {target.quoted(name)}@'%'")
